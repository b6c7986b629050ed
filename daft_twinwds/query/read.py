"""`read_twin_webdataset`: arguments -> a source -> a DataFrame."""

import logging
import operator
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import get_args

import daft
from daft.expressions import Expression

from daft_twinwds.partition import Partition
from daft_twinwds.query import report
from daft_twinwds.query._daft import check_predicate
from daft_twinwds.query.index_use import settled_use
from daft_twinwds.query.infer import infer_columns
from daft_twinwds.query.io_options import AnyConfig, storage_options
from daft_twinwds.query.scan import IndexUse, Policy
from daft_twinwds.query.schema import info_columns
from daft_twinwds.query.source import TwinWebDatasetSource
from daft_twinwds.query.text import ExtraFields, OnError
from daft_twinwds.shards.align import OnMissing
from daft_twinwds.shards.layout import find_dataset
from daft_twinwds.shards.options import THE_REST, StorageOptions, options_of
from daft_twinwds.shards.sample_keys import SampleKeys
from daft_twinwds.shards.samples import KeySplit
from daft_twinwds.shards.urls import scheme_of, shown

__all__ = ["read_twin_webdataset"]

logger = logging.getLogger("daft_twinwds")

PathLike = str | os.PathLike[str]


def read_twin_webdataset(  # noqa: PLR0913  # the public function holds all defaults
    path: PathLike | Sequence[PathLike],
    modalities: Sequence[str] | Mapping[str, str] | None = None,
    *,
    where: Expression | None = None,
    on_missing: OnMissing = "error",
    on_error: OnError = "raise",
    sample_keys: PathLike | None = None,
    key_split: KeySplit = "last",
    schema: Mapping[str, daft.DataType] | None = None,
    extra_fields: ExtraFields = "error",
    include: str | Sequence[str] | None = None,
    exclude: str | Sequence[str] | None = None,
    aspect_ratios: Sequence[str] | None = None,
    index: IndexUse = "auto",
    picture_info: bool = False,
    partition: Partition | Sequence[int] | Callable[[int], Sequence[int]] | None = None,
    io_config: AnyConfig | Mapping[str, AnyConfig] | None = None,
    batch_size: int = 8192,
) -> daft.DataFrame:
    """Read twin WebDatasets as a Daft DataFrame, one row per sample.

    Columns are ``__key__``, ``__url__`` (root and shard, without the modality) and one per
    modality: JSON becomes a struct, ``txt`` a string, ``cls``/``id``/``index`` an int64, pictures
    and audio and video typed lazy ``daft.File`` byte ranges, anything else a plain lazy
    ``daft.File``. Selecting, filtering, limiting and counting are pushed down: tars whose columns
    are not needed are not opened, and a filter on captions decides which pictures' tars are.

    Rows of a shard come in the order of the first modality that the query opens. A modality that
    the query does not need is not opened, so that with ``on_missing="error"`` a gap is found only
    between those that it needs.

    Args:
        path: A data set's root, its ``wdinfo.json``, a glob of either, or a list of these: local
            paths or URLs (``s3://``, ``gs://``, ``az://``, ``http(s)://``, ``hf://`` and what else
            fsspec reads). An HTTP server lists no folders: there each root needs a manifest.
        modalities: Folders to read, in the order of the columns, or ``{column: folder}``; all
            that are there by default, pictures and other files before texts. In a mapping a
            folder may be an absolute path or a URL of its own.
        where: Rows to read, an expression over the columns. Daft pushes
            comparisons, ``is_in`` and null checks of ``df.where`` down by itself, but no functions
            as ``contains`` or ``length``; given here, any expression decides which pictures' tars
            are opened.
        on_missing: A key that one twin lacks: ``"error"``, ``"skip"`` (only complete rows, the
            others counted) or ``"null"`` (all rows, nulls in the gaps).
        on_error: A member that cannot be read or parsed: ``"raise"``, or ``"skip"`` its sample,
            which `scan_report` counts.
        sample_keys: Parquet file, local or a URL, whose first column lists the keys to read, in
            order.
        key_split: Whether the ``"last"`` or the ``"first"`` dot of a base name ends the key.
        schema: Column -> type, for columns whose type should not be inferred.
        extra_fields: JSON fields that inference has not seen: ``"error"`` or ``"ignore"``.
        include: Words, any of which a leaf's path must hold.
        exclude: Words, none of which a leaf's path may hold.
        aspect_ratios: Leaves to read, as ``"16,9"`` for ``aspect_ratio_16_9``.
        index: What to do with an index, which ``daft-twinwds index`` builds: ``"auto"`` uses it
            where it holds, reads the tars of all other shards and counts these; ``"require"`` is
            an error where it does not hold; ``"off"`` does not look for it. The rows are the same.
            An entry holds while its tars are those that were indexed. That is looked at where a
            shard is read, and of shards that a filter leaves out when the query is planned; in a
            bucket it is known of these from the listing, so that they are left out by what was
            there when this function was called, as the list of shards is.
        picture_info: Add ``image_width``, ``image_height`` (in pixels, as the picture is shown,
            turned by EXIF) and ``image_format`` (``"JPEG"``) for each modality of pictures. They
            come from the index, or from the pictures' first bytes, and only if they are asked
            for. A picture whose header cannot be read has nulls, and is counted.
        partition: Read only this reader's shards; all by default. Or the numbers of the shards to
            read, in order and as often as they are there, as `shard_plan` gives them; or a
            function from the number of shards to such numbers. Shards are numbered leaf by leaf,
            in the manifests' order.
        io_config: Credentials and endpoints, as Daft has them; by default those of Daft's planning
            config, else the environment's. ``{column: IOConfig}`` gives modalities their own,
            with ``"*"`` for the root and the rest. None of it becomes part of the columns, so that
            what else opens their files, as Daft's own functions do, needs to be told as well.
        batch_size: Rows per record batch at most; smaller ones cost more than they save.

    Returns:
        A lazy DataFrame.

    Raises:
        LayoutError: The folders or manifests do not make a data set, or an index is required and
            does not hold.
        SchemaError: The texts do not make a column.
        StorageError: Something cannot be listed or read.
        TarFormatError: A tar that inference looked into is damaged.
        TypeError, ValueError: An argument is none of those that it can be.
    """
    _check_choice("on_missing", on_missing, OnMissing)
    _check_choice("on_error", on_error, OnError)
    _check_choice("key_split", key_split, KeySplit)
    _check_choice("extra_fields", extra_fields, ExtraFields)
    _check_choice("index", index, IndexUse)
    if where is not None and not isinstance(where, Expression):
        raise TypeError(f"where must be a Daft expression as col('x') > 1, got {where!r}")
    if batch_size < 1:
        raise ValueError(f"batch_size must be at least 1, got {batch_size}")
    options = storage_options(io_config)
    keys = None if sample_keys is None else _find_keys(sample_keys, options)
    dataset = find_dataset(
        path,
        modalities=modalities,
        include=include,
        exclude=exclude,
        aspect_ratios=aspect_ratios,
        on_missing=on_missing,
        options=options,
    )
    report.count(dataset.skipped, where=_shown_path(path))
    index = settled_use(dataset, index)
    columns = infer_columns(
        dataset, schema or {}, key_split=key_split, strict=on_error == "raise", index=index
    )
    if modalities is None:
        columns = tuple(sorted(columns, key=lambda column: column.is_text))
    policy = Policy(
        on_missing=on_missing,
        on_error=on_error,
        extra_fields=extra_fields,
        key_split=key_split,
        sample_keys=keys,
    )
    source = TwinWebDatasetSource(
        dataset=dataset,
        columns=columns,
        infos=info_columns(columns) if picture_info else (),
        where=where,
        policy=policy,
        shards=_shard_numbers(partition, len(dataset)),
        batch_size=batch_size,
        index=index,
    )
    if where is not None:
        check_predicate(where, source.dtypes())
    return source.read()


def _shard_numbers(
    partition: Partition | Sequence[int] | Callable[[int], Sequence[int]] | None, num_shards: int
) -> range | tuple[int, ...]:
    if partition is None:
        return range(num_shards)
    if isinstance(partition, Partition):
        places = partition.slice_of(num_shards)
        if not places:
            logger.warning(
                "partition: no shard is left for rank %d of %d, worker %d of %d; there are %d in "
                "all, and so it reads no row; select rows of all shards, and share those out",
                partition.rank,
                partition.world_size,
                partition.worker,
                partition.num_workers,
                num_shards,
            )
        return places
    numbers = partition(num_shards) if callable(partition) else partition
    try:
        given = tuple(numbers)
        # A mask would be taken for shards 0 and 1.
        if any(isinstance(number, bool) for number in given):
            raise TypeError("bools are no numbers of shards")
        shards = tuple(map(operator.index, given))
    except TypeError as error:
        raise TypeError(
            f"partition must be a Partition, or the numbers of shards, got {partition!r}"
        ) from error
    if wrong := [number for number in shards if not 0 <= number < num_shards]:
        raise ValueError(
            f"partition: shard {wrong[0]} of {num_shards}; expected numbers in [0, {num_shards})"
        )
    return shards


def _find_keys(
    path: PathLike, options: StorageOptions | Mapping[str, StorageOptions]
) -> SampleKeys:
    text = os.fspath(path)
    if scheme_of(text) is None:
        text = str(Path(text).expanduser().absolute())
    return SampleKeys.find(text, options_of(options, THE_REST))


def _shown_path(path: PathLike | Sequence[PathLike]) -> str:
    """Return what a message may show of what was asked for."""
    items = [path] if isinstance(path, str | os.PathLike) else path
    return ", ".join(shown(os.fspath(item)) for item in items)


def _check_choice(name: str, value: object, choices: object) -> None:
    if value not in get_args(choices):
        raise ValueError(f"{name} must be one of {get_args(choices)}, got {value!r}")
