"""A twin dataset under a name, for Daft's sessions and its SQL."""

import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from inspect import signature
from typing import Any, Final, Literal, TypedDict, Unpack

import daft
from daft.catalog import Table
from daft.expressions import Expression
from daft.schema import Schema
from typing_extensions import override

from daft_twinwds.errors import TwinWebDatasetError
from daft_twinwds.partition import Partition
from daft_twinwds.query.io_options import AnyConfig
from daft_twinwds.query.read import PathLike, read_twin_webdataset
from daft_twinwds.query.scan import IndexUse
from daft_twinwds.query.sink import write_twin_webdataset
from daft_twinwds.query.sql_text import check_table_name, predicate_of
from daft_twinwds.query.text import ExtraFields, OnError
from daft_twinwds.shards.align import OnMissing
from daft_twinwds.shards.modalities import has_own_root, requested_columns
from daft_twinwds.shards.paths import absolute_path, path_items
from daft_twinwds.shards.samples import KeySplit
from daft_twinwds.shards.urls import shown

__all__ = ["OPTIONS", "ReadOptions", "TwinTable", "check_write_mode", "told"]

logger = logging.getLogger("daft_twinwds")


class ReadOptions(TypedDict, total=False):
    """Keywords of `read_twin_webdataset` that a table keeps, or that a read of it may change."""

    on_missing: OnMissing
    on_error: OnError
    sample_keys: PathLike | None
    key_split: KeySplit
    schema: Mapping[str, daft.DataType] | None
    extra_fields: ExtraFields
    include: str | Sequence[str] | None
    exclude: str | Sequence[str] | None
    aspect_ratios: Sequence[str] | None
    index: IndexUse
    picture_info: bool
    partition: Partition | Sequence[int] | Callable[[int], Sequence[int]] | None
    io_config: AnyConfig | Mapping[str, AnyConfig] | None
    batch_size: int


OPTIONS: Final = frozenset(ReadOptions.__optional_keys__)
"""Names of `ReadOptions`."""

WRITE_OPTIONS: Final = frozenset(signature(write_twin_webdataset).parameters) - {
    "df",
    "path",
    "mode",
}
"""Keywords of `write_twin_webdataset` that a write may give."""

_LIMITS: Final = ("sample_keys", "include", "exclude", "aspect_ratios", "partition")


class TwinTable(Table):
    """A twin dataset as a table that Daft knows by name.

    Nothing is read before a query asks for it, and every query looks at the folders anew. What
    a query pushes down reaches the scan, as with `read_twin_webdataset`. It pickles, with the
    credentials that it was given; none of these are part of its ``repr``.

    In Daft's SQL a variable of the caller that is a DataFrame hides a table of its name. Where two
    joined tables both have a column ``caption``, ``b.caption.score`` is silently the first one's:
    take fields in an inner query, ``JOIN (SELECT __key__, caption.score AS score FROM b) AS c``.

    Example:
        >>> daft.attach_table(TwinTable("landscapes", "data/landscapes"))  # doctest: +SKIP
        >>> daft.sql("SELECT __key__ FROM landscapes WHERE caption.score > 5")  # doctest: +SKIP
    """

    def __init__(
        self,
        name: str,
        path: PathLike | Sequence[PathLike],
        modalities: Sequence[str] | Mapping[str, str] | None = None,
        *,
        where: Expression | str | None = None,
        columns: Sequence[str] | None = None,
        **options: Unpack[ReadOptions],
    ) -> None:
        """Say what is read, and how.

        Args:
            name: What queries call it; not quoted in SQL.
            path: As in `read_twin_webdataset`, and so are ``modalities`` and ``options``. Relative
                paths are those of the folder in which the table is made.
            modalities: Folders to read.
            where: Rows that the table has: an expression, or SQL as after ``WHERE``, in which a
                field of a struct is ``caption.score``.
            columns: Columns that the table has, in order; all by default.
            **options: Other keywords of `read_twin_webdataset`.

        Raises:
            LayoutError: A path is below the home folder of nobody.
            TypeError: A value has the wrong type.
            ValueError: The name is none that SQL understands, or an option is not known.
        """
        check_table_name(name)
        self._validate_options("TwinTable", dict(options), set(OPTIONS))
        self._name = name
        given = path_items(path)
        self._path = (
            absolute_path(given[0])
            if isinstance(path, str | os.PathLike)
            else [*map(absolute_path, given)]
        )
        self._may_be_pattern = any(not set("*?[{").isdisjoint(item) for item in given)
        self._modalities = modalities
        self._where = predicate_of(where) if isinstance(where, str) else where
        self._columns = None if columns is None else tuple(columns)
        self._options: dict[str, Any] = dict(options)
        if self._options.get("sample_keys") is not None:
            self._options["sample_keys"] = absolute_path(self._options["sample_keys"])

    @property
    @override
    def name(self) -> str:
        """What queries call it."""
        return self._name

    @override
    def schema(self) -> Schema:
        """Return the columns, which are inferred anew each time."""
        return self.read().schema()

    @override
    def read(self, **options: Any) -> daft.DataFrame:
        """Return the rows as a lazy DataFrame.

        Args:
            **options: Keywords of `read_twin_webdataset` that stand in for the table's own.
                ``where`` does not: its rows must satisfy the table's condition as well.

        Raises:
            ValueError: An option is not known, or a column is not there.
            TwinWebDatasetError: See `read_twin_webdataset`.
        """
        with told(self._name):
            return self._rows(options)

    def _rows(self, options: dict[str, Any]) -> daft.DataFrame:
        self._validate_options("TwinTable.read", options, {*OPTIONS, "where"})
        given = options.pop("where", None)
        where = _both(self._where, predicate_of(given) if isinstance(given, str) else given)
        df = read_twin_webdataset(
            self._path, self._modalities, where=where, **{**self._options, **options}
        )
        if self._columns is None:
            return df
        unknown = [column for column in self._columns if column not in df.column_names]
        if unknown:
            raise ValueError(
                f"table {self._name!r}: no column {unknown[0]!r}; the columns are "
                f"{df.column_names}; correct columns="
            )
        return df.select(*self._columns)

    def read_as(self, dtypes: Mapping[str, daft.DataType], **options: Any) -> daft.DataFrame:
        """Return the rows with other types of some columns, and the table's own of the others."""
        own: Mapping[str, daft.DataType] = self._options.get("schema") or {}
        return self.read(**options, schema={**own, **dtypes})

    @override
    def write(
        self, df: daft.DataFrame, mode: Literal["append", "overwrite"] = "append", **options: Any
    ) -> None:
        """Call `append` or `overwrite`.

        Raises:
            ValueError: ``mode`` is neither.
        """
        check_write_mode(self._name, mode)
        super().write(df, mode, **options)

    @override
    def append(self, df: daft.DataFrame, **options: Any) -> None:
        """Add rows as further shards.

        Args:
            df: Columns as the table has them.
            **options: Keywords of `write_twin_webdataset`.

        Raises:
            ValueError: The table is less or more than one data set: it has a condition, columns,
                several paths or the like. Or an option is not known.
            TwinWebDatasetError: See `write_twin_webdataset`.
        """
        self._write(df, "append", options)

    @override
    def overwrite(self, df: daft.DataFrame, **options: Any) -> None:
        """Replace all rows.

        Args:
            df: Columns as the table has them.
            **options: Keywords of `write_twin_webdataset`.

        Raises:
            ValueError: See `append`.
            TwinWebDatasetError: See `write_twin_webdataset`.
        """
        self._write(df, "overwrite", options)

    @override
    def __repr__(self) -> str:
        items = [self._path] if isinstance(self._path, str) else self._path
        paths = ", ".join(repr(shown(item)) for item in items)
        return f"TwinTable({self._name!r}, {paths})"

    def _write(
        self, df: daft.DataFrame, mode: Literal["append", "overwrite"], options: dict[str, Any]
    ) -> None:
        self._validate_options(f"TwinTable.{mode}", options, set(WRITE_OPTIONS))
        folders = requested_columns(self._modalities)
        reason = self._reason_not_to_write(folders or {})
        if reason:
            raise ValueError(
                f"table {self._name!r}: {reason}, so that rows written there need not be those "
                "that it reads; expected a table of one whole data set; write with "
                "daft_twinwds.write_twin_webdataset"
            )
        assert isinstance(self._path, str)
        own = {"io_config": self._options.get("io_config"), "modalities": folders}
        write_twin_webdataset(df, self._path, mode=mode, **{**own, **options})

    def _reason_not_to_write(self, folders: Mapping[str, str]) -> str | None:
        """Return what makes the table another thing than the data set at its path, if anything."""
        if not isinstance(self._path, str):
            return "it has several paths"
        if self._may_be_pattern:
            return f"its path {shown(self._path)!r} may be a pattern"
        if any(has_own_root(folder) for folder in folders.values()):
            return "a modality of it has a root of its own"
        limits = {"where": self._where, "columns": self._columns}
        limits |= {name: self._options.get(name) for name in _LIMITS}
        return next(
            (f"it has {name}=" for name, value in limits.items() if value is not None), None
        )


@contextmanager
def told(name: str) -> Iterator[None]:
    """Log why a table cannot be read: from SQL, Daft only says that there is no such table."""
    try:
        yield
    except (TwinWebDatasetError, ValueError, TypeError) as error:
        logger.warning("table %r: %s", name, error)
        raise


def check_write_mode(table: str, mode: str) -> None:
    """Refuse a mode that is none; Daft would take it for ``"overwrite"``.

    Raises:
        ValueError: It is neither ``"append"`` nor ``"overwrite"``.
    """
    if mode not in ("append", "overwrite"):
        raise ValueError(
            f"table {table!r}: mode must be 'append' or 'overwrite', got {mode!r}; to write into "
            "an empty folder only, call daft_twinwds.write_twin_webdataset"
        )


def _both(first: Expression | None, second: Expression | None) -> Expression | None:
    """Return the condition that both hold; None holds always."""
    if first is None or second is None:
        return second if first is None else first
    return first & second
