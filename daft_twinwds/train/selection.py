"""The rows to train on, as references: what a query kept, without a pixel."""

import hashlib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import daft
import pyarrow as pa
import pyarrow.compute as pc
from daft.datatype import MediaType
from typing_extensions import override

from daft_twinwds.errors import MissingDependencyError
from daft_twinwds.query._daft import file_storage
from daft_twinwds.query.schema import KEY, URL
from daft_twinwds.shards.urls import shown
from daft_twinwds.train.digest import add_numbers, add_strings
from daft_twinwds.train.refs import FileRef, to_refs, without_secrets
from daft_twinwds.train.selection_file import (
    VERSION,
    read_selection,
    with_media,
    without_media,
    write_selection,
)

if TYPE_CHECKING:
    import ray.data

__all__ = ["Selection"]

OTHER = "unknown"
MEDIA: Mapping[str, daft.DataType] = {
    name: daft.DataType.file(getattr(MediaType, name)()) for name in ("image", "audio", "video")
}


@dataclass(frozen=True, eq=False)
class Selection:
    """Rows to train on: keys, byte ranges of media, and all other columns by value.

    It holds no Daft object, so it pickles into loader workers, and costs some hundred bytes a
    row. Equal queries give equal selections, in the same order.
    """

    table: pa.Table
    """One row per sample. File columns are structs ``{path, position, size}``."""
    media: Mapping[str, str]
    """File column -> ``"image"``, ``"audio"``, ``"video"`` or ``"unknown"``."""

    @classmethod
    def from_dataframe(cls, df: daft.DataFrame) -> Self:
        """Run a query and keep its references.

        Args:
            df: Has ``__key__``; File columns are kept as references (credentials are not kept),
                other columns by value.

        Raises:
            ValueError: ``__key__`` is not among the columns, or null in a row.
            TypeError: A column holds decoded pixels, tensors, Python objects, or files inside of
                lists or structs; or the keys are no strings.
        """
        dtypes = {field.name: field.dtype for field in df.schema()}
        _check_dtypes(dtypes)
        table = df.to_arrow()
        if nulls := table.column(KEY).null_count:
            raise ValueError(
                f"{KEY!r} is null in {nulls} of {len(table)} rows of the DataFrame; a selection "
                f"names its samples by key; drop such rows by where(col({KEY!r}).not_null())"
            )
        columns = {}
        media = {}
        for name, dtype in dtypes.items():
            column = table.column(name)
            if dtype.is_file():
                column = to_refs(file_storage(column))
                media[name] = next((key for key, known in MEDIA.items() if known == dtype), OTHER)
            elif dtype.is_embedding():
                storage = [chunk.storage for chunk in column.chunks]
                column = pa.chunked_array(storage, column.type.storage_type)
            columns[name] = column
        return cls(pa.table(columns).combine_chunks(), media)

    @classmethod
    def from_dataframe_distributed(
        cls, make_df: Callable[[], daft.DataFrame], *, group: Any = None
    ) -> Self:
        """Run a query on one rank alone, and give its references to all.

        To be called by all ranks of the group. Without an initialised ``torch.distributed`` it is
        `from_dataframe`.

        Args:
            make_df: Returns the query; called on the group's first rank alone.
            group: A process group of ``torch.distributed``; None for all ranks.

        Raises:
            MissingDependencyError: torch is not installed.
            ValueError: This process is not in the group.
            Exception: What the query raises, on all ranks as it is on the first.
        """
        try:
            from daft_twinwds.train.distributed import from_first_rank
        except ModuleNotFoundError as error:
            if error.name != "torch":
                raise
            raise MissingDependencyError(
                "Selection.from_dataframe_distributed needs torch, which is not installed; "
                "pip install 'daft-twinwds[train]'"
            ) from error

        def make() -> pa.Table:
            made = cls.from_dataframe(make_df())
            return with_media(made.table, made.media)

        return cls(*without_media(from_first_rank(make, group)))

    def __len__(self) -> int:
        """Number of rows."""
        return int(self.table.num_rows)

    @override
    def __repr__(self) -> str:
        """Counts and column names; no paths, which may be private."""
        columns = ", ".join(self.table.column_names)
        return f"Selection({len(self)} rows; {columns}; fingerprint {self.fingerprint[:12]})"

    @cached_property
    def fingerprint(self) -> str:
        """Hash of which samples these are and in which order, as 64 hexadecimal digits.

        Made of keys, positions and sizes. Paths do not count, so that a data set that moved is
        still the same; neither do captions, which no order depends on.
        """
        digest = hashlib.sha256(f"{VERSION}:{len(self)}".encode())
        add_strings(digest, self.table.column(KEY))
        for name in sorted(self.media):
            digest.update(f":{name}:".encode())
            for field in ("position", "size"):
                add_numbers(digest, self.table.column(name), field)
        return digest.hexdigest()

    def rows(self, places: Any) -> list[dict[str, Any]]:
        """Return some rows as Python values; media as `FileRef`, or None where they are null.

        Args:
            places: Row numbers, (rows,) int64.
        """
        table = self.table.take(pa.array(places, pa.int64()))
        rows: list[dict[str, Any]] = table.to_pylist()
        for row in rows:
            for name in self.media:
                if row[name] is not None:
                    row[name] = FileRef(**row[name])
        return rows

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the selection as one Parquet file; never any credentials.

        URLs lose their passwords and queries, as signatures stand there: what needs them is given
        them again by ``io_config`` where the selection is read. The file appears whole or not at
        all.

        Raises:
            StorageError: It cannot be written.
        """
        write_selection(path, self._without_secrets(), self.media)

    def to_ray_dataset(self, *, rows_per_block: int = 4096) -> "ray.data.Dataset":
        """Return the rows as a data set of Ray Data: references, without a pixel or credentials.

        It starts Ray if no cluster is connected. `daft_twinwds.ray.DecodeBatch` reads and decodes
        the files in ``map_batches``. URLs lose their passwords and queries, as in `save`.

        Args:
            rows_per_block: Rows that one of Ray's tasks gets at least, of some hundred bytes each.

        Returns:
            The selection's columns, files as structs ``{path, position, size}``, and ``__row__``:
            the row's number here, as Ray Data keeps no order by itself.

        Raises:
            MissingDependencyError: Ray Data is not installed.
            ValueError: ``rows_per_block`` is below 1, or a column is called ``__row__``.
        """
        try:
            from daft_twinwds.train.blocks import to_ray_dataset
        except ImportError as error:
            raise MissingDependencyError(
                f"Selection.to_ray_dataset needs Ray Data, which cannot be imported ({error}); "
                "pip install 'daft-twinwds[ray]'"
            ) from error
        return to_ray_dataset(self._without_secrets(), list(self.media), rows_per_block)

    def _without_secrets(self) -> pa.Table:
        table = self.table
        for name in self.media:
            place = table.column_names.index(name)
            table = table.set_column(place, name, without_secrets(table.column(name)))
        if URL in table.column_names:
            urls = pc.dictionary_encode(table.column(URL)).combine_chunks()
            safe = pa.array(
                [shown(url) for url in urls.dictionary.to_pylist()], table.column(URL).type
            )
            table = table.set_column(table.column_names.index(URL), URL, safe.take(urls.indices))
        return table

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read what `save` wrote.

        Raises:
            StorageError: The file cannot be read.
            LayoutError: It holds no selection, or one of another version.
        """
        return cls(*read_selection(path))


def _check_dtypes(dtypes: Mapping[str, daft.DataType]) -> None:
    if KEY not in dtypes:
        raise ValueError(
            f"the DataFrame has the columns {list(dtypes)} but not {KEY!r}; a selection names its "
            "samples by key; keep it in select()"
        )
    if not dtypes[KEY].is_string():
        raise TypeError(
            f"{KEY!r} holds {dtypes[KEY]}; expected strings; convert it by "
            f"with_column({KEY!r}, col({KEY!r}).cast(daft.DataType.string()))"
        )
    for name, dtype in dtypes.items():
        plain = dtype.is_file() or dtype.is_embedding()
        if not plain and _holds_extension(dtype.to_arrow_dtype()):
            raise TypeError(
                f"column {name!r} holds {dtype}; a selection keeps references to files, each in a "
                f"column of its own, and plain values; drop it by exclude({name!r}) and decode "
                "while training"
            )


def _holds_extension(type_: pa.DataType) -> bool:
    """Whether a type holds, at any depth, what only Daft reads: pixels, or a File's credentials."""
    return isinstance(type_, pa.BaseExtensionType) or any(
        _holds_extension(type_.field(number).type) for number in range(type_.num_fields)
    )
