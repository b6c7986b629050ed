"""Several tables as one data set: their rows by column name, with the name of the source."""

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, Literal, NoReturn

import daft
from daft.catalog import Table
from daft.schema import Schema
from typing_extensions import override

from daft_twinwds.errors import SchemaError
from daft_twinwds.query.catalog_table import OPTIONS, TwinTable, check_write_mode, told
from daft_twinwds.query.sql_text import check_table_name

__all__ = ["SOURCE", "TwinUnion"]

SOURCE: Final = "__source__"
"""Column that holds the name of the source that a row is of."""

Dtypes = dict[str, daft.DataType]


class TwinUnion(Table):
    """The rows of several twin tables, source after source; read-only.

    Columns are matched by name and stand in the order in which the sources have them; one that a
    source lacks is null there. Where types differ, structs have the fields of all, integers
    become floats where another source has these, and files of different media plain files.
    ``__source__`` names the source of each row.

    Filters and projections reach the scans of all sources. Daft hands neither a limit nor a
    condition on ``__source__`` through a union: ``read(sources=[...])`` opens only those.
    """

    def __init__(
        self,
        name: str,
        sources: Iterable[TwinTable],
        *,
        weights: Mapping[str, float] | None = None,
    ) -> None:
        """Name the sources.

        Args:
            name: What queries call it; not quoted in SQL.
            sources: At least one table, each with a name of its own.
            weights: Name of a source -> its share of a mix for training, relative to the others'.
                1 where none is given. Reading takes no notice of them.

        Raises:
            TypeError: A source is no `TwinTable`.
            ValueError: There are no sources, two have the same name, a weight is for another
                source, or the name is none that SQL understands.
        """
        check_table_name(name)
        sources = tuple(sources)
        for source in sources:
            if not isinstance(source, TwinTable):
                raise TypeError(
                    f"union {name!r}: sources must be TwinTables, got {type(source).__name__}"
                )
        tables = {source.name: source for source in sources}
        if not sources or len(tables) < len(sources):
            names = [source.name for source in sources]
            raise ValueError(f"union {name!r}: expected one or more different names, got {names}")
        self._name = name
        self._sources = tables
        given = dict(weights or {})
        self._require_names("weights", given)
        self._weights = {source: given.get(source, 1) for source in tables}

    @property
    @override
    def name(self) -> str:
        """What queries call it."""
        return self._name

    @property
    def sources(self) -> Mapping[str, TwinTable]:
        """Name -> table."""
        return MappingProxyType(self._sources)

    @property
    def weights(self) -> Mapping[str, float]:
        """Name of each source -> its relative share of a mix for training."""
        return MappingProxyType(self._weights)

    @override
    def schema(self) -> Schema:
        """Return the columns, which are inferred anew each time."""
        return self.read().schema()

    @override
    def read(self, **options: Any) -> daft.DataFrame:
        """Return the rows of all sources, or of some, as a lazy DataFrame.

        The columns are the same whichever sources are read.

        Args:
            **options: ``sources``, names of those to read; and keywords of
                `read_twin_webdataset` that stand in for the tables' own.

        Raises:
            SchemaError: Two sources contradict each other in a column's type.
            ValueError: An option or a source is not known.
            TwinWebDatasetError: See `read_twin_webdataset`.
        """
        with told(self._name):
            first, *others = self.frames(**options).values()
        for other in others:
            first = first.concat(other)
        return first

    def frames(
        self, *, sources: Sequence[str] | None = None, **options: Any
    ) -> dict[str, daft.DataFrame]:
        """Return each source's rows apart, all with the same columns; see `read`.

        Example:
            >>> frames = union.frames().items()  # doctest: +SKIP
            >>> Mix(
            ...     {n: (Selection.from_dataframe(df), union.weights[n]) for n, df in frames}
            ... )  # doctest: +SKIP
        """
        self._validate_options("TwinUnion.read", options, set(OPTIONS - {"schema"}))
        names = list(self._sources) if sources is None else list(sources)
        self._require_names("sources", names)
        if not names:
            raise ValueError(f"union {self._name!r}: sources=[] would read nothing; name some")
        frames = {name: table.read(**options) for name, table in self._sources.items()}
        common = self._common({name: _dtypes_of(frame) for name, frame in frames.items()})
        return {name: self._fitted(name, frames[name], common, options) for name in names}

    @override
    def write(
        self, df: daft.DataFrame, mode: Literal["append", "overwrite"] = "append", **options: Any
    ) -> None:
        """Refuse to write.

        Raises:
            NotImplementedError: ``mode`` is one that tables have.
            ValueError: It is none.
        """
        check_write_mode(self._name, mode)
        super().write(df, mode, **options)

    @override
    def append(self, df: daft.DataFrame, **options: Any) -> None:
        """Refuse to write.

        Raises:
            NotImplementedError: Always.
        """
        self._refuse_to_write()

    @override
    def overwrite(self, df: daft.DataFrame, **options: Any) -> None:
        """Refuse to write.

        Raises:
            NotImplementedError: Always.
        """
        self._refuse_to_write()

    @override
    def __repr__(self) -> str:
        return f"TwinUnion({self._name!r}, {list(self._sources)})"

    def _refuse_to_write(self) -> NoReturn:
        raise NotImplementedError(
            f"union {self._name!r} of {list(self._sources)} cannot be written; write to one of "
            "its sources"
        )

    def _require_names(self, what: str, names: Iterable[str]) -> None:
        for name in names:
            if name not in self._sources:
                raise ValueError(
                    f"union {self._name!r}: {what}: no source {name!r}; the sources are "
                    f"{list(self._sources)}"
                )

    def _common(self, dtypes: Mapping[str, Dtypes]) -> Dtypes:
        """Return the columns that hold the rows of all sources."""
        common: Dtypes = {}
        for source, columns in dtypes.items():
            if SOURCE in columns:
                raise SchemaError(
                    f"union {self._name!r}: source {source!r} has a column {SOURCE!r}; expected "
                    "another name; give it one in modalities={column: folder}"
                )
            for column, dtype in columns.items():
                known = common.setdefault(column, dtype)
                try:
                    common[column] = _common_dtype(known, dtype, column)
                except _ContradictionError as error:
                    raise SchemaError(
                        f"union {self._name!r}: {error.place}: {error.second} in source "
                        f"{source!r} and {error.first} in those before it; expected one type (a "
                        "field that was always null is taken for text); declare the column's type "
                        "with schema in one of them, or leave it out with columns"
                    ) from error
        return common

    def _fitted(
        self, name: str, frame: daft.DataFrame, common: Dtypes, options: Mapping[str, Any]
    ) -> daft.DataFrame:
        """Return a source's rows with the columns of all."""
        dtypes = _dtypes_of(frame)
        wider = {column: common[column] for column in dtypes if common[column] != dtypes[column]}
        if wider:
            # Cast in Daft, a column could no longer be filtered by the scan.
            frame = self._sources[name].read_as(wider, **options)
        columns = [
            daft.col(column) if column in dtypes else daft.lit(None).cast(dtype).alias(column)
            for column, dtype in common.items()
        ]
        return frame.select(*columns, daft.lit(name).alias(SOURCE))


class _ContradictionError(Exception):
    def __init__(self, place: str, first: daft.DataType, second: daft.DataType) -> None:
        super().__init__(place)
        self.place, self.first, self.second = place, first, second


def _dtypes_of(frame: daft.DataFrame) -> Dtypes:
    return {field.name: field.dtype for field in frame.schema()}


def _common_dtype(first: daft.DataType, second: daft.DataType, place: str) -> daft.DataType:
    """Return the type that holds the values of both."""
    common: daft.DataType
    if first == second:
        common = first
    elif first.is_file() and second.is_file():
        common = daft.DataType.file()
    elif first.is_integer() and second.is_integer():
        common = daft.DataType.int64()
    elif first.is_numeric() and second.is_numeric():
        common = daft.DataType.float64()
    elif first.is_list() and second.is_list():
        common = daft.DataType.list(_common_dtype(first.dtype, second.dtype, f"{place}[]"))
    elif first.is_struct() and second.is_struct():
        fields = dict(first.fields)
        for name, dtype in second.fields.items():
            fields[name] = _common_dtype(fields.get(name, dtype), dtype, f"{place}.{name}")
        common = daft.DataType.struct(fields)
    else:
        raise _ContradictionError(place, first, second)
    return common
