"""`write_twin_webdataset`: a DataFrame -> twin tars and their manifest."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import get_args

import daft
from daft.io import DataSink
from daft.io.sink import WriteResult
from daft.recordbatch import MicroPartition
from daft.schema import Schema
from typing_extensions import override

from daft_twinwds.query.io_options import AnyConfig, storage_options
from daft_twinwds.query.schema import KEY
from daft_twinwds.query.sink_columns import OutColumn, chosen_modalities, out_columns
from daft_twinwds.query.sink_publish import (
    Mode,
    check_target,
    publish,
    shard_table,
    table_type,
)
from daft_twinwds.query.sink_shards import OutPolicy, StagedShard, write_shards
from daft_twinwds.shards.options import THE_REST, StorageOptions, options_of
from daft_twinwds.shards.paths import path_text
from daft_twinwds.shards.write_target import WriteTarget

__all__ = ["TwinWebDatasetSink", "write_twin_webdataset"]

MB = 10**6
_OPTIONAL = ("max_shard_samples", "batch_size")
_ROWS: int = 8192
"""Rows that make one task's shards, where they are but references and texts."""


def write_twin_webdataset(  # noqa: PLR0913  # the public function holds all defaults
    df: daft.DataFrame,
    path: str | os.PathLike[str],
    *,
    modalities: Sequence[str] | Mapping[str, str] | None = None,
    suffixes: Mapping[str, str] | None = None,
    key: str = KEY,
    mode: Mode = "error",
    max_shard_bytes: int = 500 * MB,
    max_shard_samples: int | None = None,
    part_size: int = 1000,
    batch_size: int | None = None,
    allow_missing: bool = False,
    jpeg_quality: int = 95,
    io_config: AnyConfig | Mapping[str, AnyConfig] | None = None,
) -> daft.DataFrame:
    """Write a DataFrame as a twin WebDataset: one folder of tars per column, and ``wdinfo.json``.

    Reading it gives the DataFrame back: the same keys and values, files with the same bytes;
    numbers come back as 64 bits, images and tensors as files. No row is left out. Until everything
    is written and compared, all of it lies under hidden names; the manifest comes last, at once.
    What fails or is killed leaves what was there before, or what the next write into the folder
    removes.

    What a column becomes depends on its type:

    ==========================  ====================  =========================================
    Column                      Suffix                Content
    ==========================  ====================  =========================================
    ``daft.File``, whole or     the file's, or what   its bytes, copied in pieces of 1 MiB, never
    a byte range                its bytes tell, else  decoded
                                the tar member's; of
                                plain files ``bin``
                                where none tells
    bytes                       what they tell,       as they are
                                else ``bin``
    string                      ``txt``               UTF-8; a JSON document with ``"json"``
    integer                     ``cls``               decimal digits, within int64
    float, boolean, list,       ``json``              JSON
    struct
    image                       ``png``               lossless, or ``"jpg"``
    tensor                      ``npy``               NumPy's format, or a picture by ``"png"``
    ==========================  ====================  =========================================

    A column is read back under its own name, with ``_`` for each ``/`` in it. Members without any
    bytes are written, and this package reads them; Daft itself opens no empty range.

    Rows keep their order within a batch, but batches come in the order in which they are done, and
    no shard holds rows of two; see ``batch_size``.

    Args:
        df: The rows.
        path: A local folder (on Ray one that all machines share), or a URL of ``s3://``,
            ``gs://``, ``az://`` or ``abfs[s]://``. There objects are copied once within the
            store, from their hidden names. A new data set must not lie in another one, which
            readers would then not find; in a bucket that is not looked for.
        modalities: Columns to write, or ``{column: folder}``; by default all but the key,
            ``__url__`` and what ``picture_info=True`` has added.
        suffixes: Column -> suffix of all its members, where not that of the table.
        key: Column of the keys. A key must be a relative path that can name a member, and unique
            in the whole data set.
        mode: What to do if ``path`` has something in it already: ``"error"``; ``"append"`` more
            shards of the same modalities, whose keys must be new; or ``"overwrite"`` the data set
            there, which is read as before until the new one is whole, and of which nothing but
            the tars in its manifest goes. Files must not come from what is to be overwritten.
        max_shard_bytes: Bytes of a tar at most. One sample that is larger has a shard to itself.
        max_shard_samples: Samples of a shard at most.
        part_size: Shards in one ``part_`` folder.
        batch_size: Rows of a batch, about. The default is 8192 where all columns are files, texts
            and numbers. Those that hold bytes, pictures or tensors, which would be held in memory,
            come in the batches that the DataFrame has.
        allow_missing: Write no member where a column is null, for ``on_missing="null"`` to read.
            By default a null is an error.
        jpeg_quality: Of pictures that are written as JPEG, 1 to 100.
        io_config: Credentials and endpoints of the target, and of files that have none of their
            own; by default those of Daft's planning config, else the environment's.
            ``{column: IOConfig}`` gives the files of columns their own, with ``"*"`` for the
            target and the rest.

    Returns:
        One row per shard written: ``shard``, its name below each modality's folder; ``samples``;
        ``bytes``, of its tars, by column.

    Raises:
        AlignmentError: Two samples have one key.
        LayoutError: ``path`` holds something that is in the way, is not UTF-8 or lies in a data
            set, or another write is at work.
        RuntimeError: A task has failed; Daft keeps only the text of its error, which names the
            sample and the column.
        SchemaError: A column's members have suffixes that no one column is read from.
        StorageError: The target cannot be written.
        TypeError, ValueError: An argument is none of those that it can be, or a column's type
            cannot be written.
    """
    if not isinstance(df, daft.DataFrame):
        raise TypeError(f"df must be a daft.DataFrame, got {type(df).__name__}")
    text = path_text(path)
    if mode not in get_args(Mode):
        raise ValueError(f"mode must be one of {get_args(Mode)}, got {mode!r}")
    _check_counts(
        max_shard_bytes=max_shard_bytes,
        max_shard_samples=max_shard_samples,
        part_size=part_size,
        batch_size=batch_size,
        jpeg_quality=jpeg_quality,
    )
    if jpeg_quality > 100:
        raise ValueError(f"jpeg_quality must be from 1 to 100, got {jpeg_quality}")
    schema = df.schema()
    columns = out_columns(chosen_modalities(modalities, schema, key=key), suffixes or {}, schema)
    options = storage_options(io_config)
    of_target = options if isinstance(options, StorageOptions) else options_of(options, THE_REST)
    target = WriteTarget.at(text, of_target)
    policy = OutPolicy(
        max_shard_bytes=max_shard_bytes,
        max_shard_samples=max_shard_samples,
        allow_missing=allow_missing,
        jpeg_quality=jpeg_quality,
        forbidden=target.path if mode == "overwrite" else None,
        options=options,
    )
    df = df.select(*dict.fromkeys([key, *(column.name for column in columns)]))
    rows = batch_size or _default_rows(columns)
    if rows is not None:
        df = df.into_batches(rows)
    check_target(target, columns, mode)
    with target.claimed() as claimed:
        # Another writer may have come to its end before this one's turn.
        check_target(claimed, columns, mode)
        sink = TwinWebDatasetSink(
            target=claimed, columns=columns, policy=policy, key=key, mode=mode, part_size=part_size
        )
        return df.write_sink(sink)


@dataclass(frozen=True, kw_only=True)
class TwinWebDatasetSink(DataSink[StagedShard]):
    """Writes micropartitions as staged shards, and publishes them at the end. It pickles."""

    target: WriteTarget
    columns: tuple[OutColumn, ...]
    policy: OutPolicy
    key: str
    mode: Mode
    part_size: int

    @override
    def name(self) -> str:
        return f"twin WebDataset {self.target.path}"

    @override
    def schema(self) -> Schema:
        return Schema.from_pyarrow_schema(table_type(self.columns))

    @override
    def write(
        self, micropartitions: Iterator[MicroPartition]
    ) -> Iterator[WriteResult[StagedShard]]:
        """Stage the rows of each micropartition; yields one result per shard."""
        for micropartition in micropartitions:
            shards = write_shards(
                micropartition.to_record_batch(),
                self.columns,
                self.target,
                self.policy,
                key=self.key,
            )
            for shard in shards:
                yield WriteResult(
                    result=shard, bytes_written=sum(shard.sizes), rows_written=shard.count
                )

    @override
    def finalize(self, write_results: list[WriteResult[StagedShard]]) -> MicroPartition:
        """Compare the keys of all shards, give these their names, and write the manifest."""
        staged = [result.result for result in write_results]
        names = publish(self.target, staged, self.columns, mode=self.mode, part_size=self.part_size)
        return MicroPartition.from_arrow(shard_table(staged, names, self.columns))


def _default_rows(columns: Sequence[OutColumn]) -> int | None:
    is_large = any(column.form in ("bytes", "picture", "array") for column in columns)
    return None if is_large else _ROWS


def _check_counts(**counts: object) -> None:
    for name, value in counts.items():
        if value is None and name in _OPTIONAL:
            continue
        if isinstance(value, bool) or not isinstance(value, Integral):
            raise TypeError(f"{name} must be an int, got {value!r}")
        if int(value) < 1:
            raise ValueError(f"{name} must be at least 1, got {value}")
