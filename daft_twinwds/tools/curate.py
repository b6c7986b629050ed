"""Makes a new twin data set of what is worth training on: ``curate``."""

import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import get_args

import daft
from daft.expressions import Expression

from daft_twinwds.query.io_options import AnyConfig
from daft_twinwds.query.scan import IndexUse, Policy
from daft_twinwds.query.sink_files import is_below
from daft_twinwds.query.text import ExtraFields, OnError
from daft_twinwds.shards.align import OnMissing
from daft_twinwds.shards.samples import KeySplit
from daft_twinwds.shards.urls import required_local
from daft_twinwds.tools.curate_look import Duplicates
from daft_twinwds.tools.curate_place import CurationFolder
from daft_twinwds.tools.curate_report import (
    CurationProgress,
    CurationReport,
)
from daft_twinwds.tools.curate_run import Curation
from daft_twinwds.tools.curate_source import find_source
from daft_twinwds.tools.index_place import absolute

__all__ = ["CurationProgress", "CurationReport", "curate"]

PathLike = str | os.PathLike[str]


def curate(  # noqa: PLR0913  # the public function holds all defaults
    source: PathLike | Sequence[PathLike],
    output: PathLike,
    *,
    where: Expression | str | None = None,
    min_width: int | None = None,
    min_height: int | None = None,
    duplicates: Duplicates | None = None,
    picture: str | None = None,
    modalities: Sequence[str] | Mapping[str, str] | None = None,
    on_missing: OnMissing = "error",
    on_error: OnError = "raise",
    key_split: KeySplit = "last",
    schema: Mapping[str, daft.DataType] | None = None,
    extra_fields: ExtraFields = "error",
    include: str | Sequence[str] | None = None,
    exclude: str | Sequence[str] | None = None,
    aspect_ratios: Sequence[str] | None = None,
    index: IndexUse = "auto",
    io_config: AnyConfig | Mapping[str, AnyConfig] | None = None,
    workers: int | None = None,
    progress: Callable[[CurationProgress], None] | None = None,
) -> CurationReport:
    """Write the rows of a data set that pass a filter, are large enough and not there twice.

    The new data set has the shards, leaves, members and order of the source, without the rows
    that are dropped and the shards that have none left. Members are copied byte by byte, never
    encoded again; equal sources and arguments give equal bytes, wherever and by how many it is
    done.

    It runs on threads here, or, after ``daft.set_runner_ray()``, on all nodes of a cluster, which
    must reach the source and the output under the same paths. What travels between nodes are
    references and hashes. Memory is bounded by one picture a thread and, in this process, some
    bytes a shard and a duplicate and 200 MB of thumbnails (more where a single hash has more).

    ``output/curate_report.jsonl`` has a line for each row that was dropped for another reason
    than ``where``, ``min_width`` and ``min_height``, in the order of the data set: its ``key``
    and ``shard``, the ``reason``, and of duplicates ``kept_key`` and ``kept_shard`` of the row
    that stays. What the filters drop is only counted, and so is what is no row in the first place.

    The work is noted shard by shard in ``output/.curate``: a run that was killed is gone on with
    by the same call. What has changed in the source since is looked at again. The manifest comes
    last, and the notes go.

    Args:
        source: As in `read_twin_webdataset`.
        output: A new or empty local folder, or the one of an unfinished run.
        where: Rows to keep: an expression, or a condition in SQL as ``"caption.score > 5 AND
            image_width >= 3840"``. Columns are those of the source, and ``image_width``,
            ``image_height`` and ``image_format`` for each modality of pictures.
        min_width: Least width in pixels, as the picture is shown.
        min_height: Least height.
        duplicates: Keep only the first row, in the source's order, of those whose pictures are
            equal: ``"picture"`` if they have the hash in common that most copies of another
            size, format or compression share (`difference_hash`), and look the same shrunk to 16
            x 16 pixels (`are_close`); ``"bytes"`` by every byte. With ``"picture"`` rows whose
            picture cannot be decoded whole are dropped.
        picture: Column of the pictures that are measured and compared, if there are several.
        modalities: Folders to copy and look at; all by default. As in `read_twin_webdataset`.
        on_missing: As in `read_twin_webdataset`, without ``"null"``.
        on_error: As in `read_twin_webdataset`.
        key_split: As in `read_twin_webdataset`.
        schema: As in `read_twin_webdataset`.
        extra_fields: As in `read_twin_webdataset`.
        include: As in `read_twin_webdataset`.
        exclude: As in `read_twin_webdataset`.
        aspect_ratios: As in `read_twin_webdataset`.
        index: As in `read_twin_webdataset`.
        io_config: As in `read_twin_webdataset`; of the source alone.
        workers: Threads of each process; its CPUs by default.
        progress: Called from this thread after each shard.

    Returns:
        What was kept, and what was dropped why.

    Raises:
        LayoutError: The source is no data set, or the output is in use, or holds something else
            or the work of other arguments.
        TwinWebDatasetError: What is wrong with a shard; see `read_twin_webdataset`.
        TypeError, ValueError: An argument is none of those that it can be.
    """
    started = time.monotonic()
    for name, value in (
        ("min_width", min_width),
        ("min_height", min_height),
        ("workers", workers),
    ):
        _check_at_least_1(name, value)
    for name, choice, choices in (
        ("duplicates", duplicates, (None, *get_args(Duplicates))),
        ("on_missing", on_missing, ("error", "skip")),
        ("on_error", on_error, get_args(OnError)),
        ("key_split", key_split, get_args(KeySplit)),
        ("extra_fields", extra_fields, get_args(ExtraFields)),
        ("index", index, get_args(IndexUse)),
    ):
        if choice not in choices:
            raise ValueError(f"{name} must be one of {choices}, got {choice!r}")
    folder = _folder_of(output)
    found = find_source(
        source,
        modalities=modalities,
        where=where,
        schema=schema,
        policy=Policy(
            on_missing=on_missing,
            on_error=on_error,
            extra_fields=extra_fields,
            key_split=key_split,
            sample_keys=None,
        ),
        index=index,
        include=include,
        exclude=exclude,
        aspect_ratios=aspect_ratios,
        io_config=io_config,
    )
    given = [source] if isinstance(source, (str, os.PathLike)) else source
    for root in (*map(absolute, given), *(leaf.root for leaf in found.dataset.leaves)):
        if is_below(folder.path, root):
            raise ValueError(
                f"output: {folder.path} lies in the source {root}; expected a folder beside it, as "
                "the source would have it for a leaf"
            )
    least = {"width": min_width, "height": min_height}
    needs_picture = duplicates is not None or any(least.values())
    job = Curation(
        source=found,
        folder=folder,
        picture=found.picture(picture) if needs_picture or picture is not None else None,
        least={what: size for what, size in least.items() if size is not None},
        duplicates=duplicates,
        workers=workers,
        progress=progress or (lambda _: None),
    )
    with folder.held(job.facts()):
        job.look()
        job.copy()
        job.publish()
        folder.finish()
    return job.report(time.monotonic() - started)


def _check_at_least_1(name: str, value: object) -> None:
    if value is None:
        return
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{name} must be a whole number of at least 1, or None; got {value!r}")
    if value < 1:
        raise ValueError(f"{name} must be at least 1, got {value}")


def _folder_of(output: PathLike) -> CurationFolder:
    cure = (
        "on a cluster one that all nodes share, as an unfinished run is gone on with there; copy the "
        "result to the store"
    )
    path = required_local("output", os.fspath(output), cure=cure)
    return CurationFolder(path=os.path.realpath(path))
