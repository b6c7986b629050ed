"""`attach`: tables by name in Daft's session, from a file or made by hand."""

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from types import TracebackType
from typing import Self

import daft
from daft.catalog import Table
from daft.exceptions import DaftCoreException
from daft.session import Session
from typing_extensions import override

from daft_twinwds.query.catalog_file import CatalogFile, PartEntry, SourceEntry, load_catalog_file
from daft_twinwds.query.catalog_table import TwinTable
from daft_twinwds.query.catalog_union import TwinUnion
from daft_twinwds.query.io_options import AnyConfig
from daft_twinwds.query.read import PathLike

__all__ = ["Attached", "TwinTable", "TwinUnion", "attach", "tables_of"]


class Attached(Mapping[str, Table]):
    """The tables that `attach` attached, by name, until they are detached.

    As a context manager it detaches them at its end.
    """

    def __init__(self, session: Session, tables: Mapping[str, Table]) -> None:
        """Keep which session has which tables."""
        self._session = session
        self._tables = dict(tables)

    @override
    def __getitem__(self, name: str) -> Table:
        return self._tables[name]

    @override
    def __iter__(self) -> Iterator[str]:
        return iter(self._tables)

    @override
    def __len__(self) -> int:
        return len(self._tables)

    @override
    def __repr__(self) -> str:
        return f"Attached({list(self._tables)})"

    def detach(self) -> None:
        """Take the tables out of the session that they were attached to.

        Those that are not there any more, or were replaced, stay as they are: it may be called
        again.
        """
        for name, table in self._tables.items():
            if self._session.has_table(name) and self._session.get_table(name) is table:
                self._session.detach_table(name)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.detach()


def attach(
    tables: PathLike | Table | Iterable[Table],
    *,
    io_config: AnyConfig | Mapping[str, AnyConfig] | None = None,
) -> Attached:
    """Attach tables to Daft's current session, so that queries call them by name.

    Afterwards ``daft.read_table(name)`` and ``daft.sql("SELECT ... FROM name")`` read them. All
    are attached or none. What is attached is not looked at before a query asks for it.

    Args:
        tables: A catalog file (see `load_catalog_file` for what it holds), a table, or several.
        io_config: Credentials and endpoints of a file's sources, as in `read_twin_webdataset`;
            they do not belong in the file.

    Returns:
        The tables by name; ``detach()`` takes them out again, and so does the end of a ``with``.

    Raises:
        LayoutError: The file is wrong; names the key.
        MissingDependencyError: The file is YAML, and PyYAML is not installed.
        StorageError: The file cannot be read.
        TypeError: ``tables`` is nothing of these.
        ValueError: The session has a table of a name already, or two tables have the same; or
            ``io_config`` is given with tables, which have their own.
    """
    if isinstance(tables, str | os.PathLike):
        made = tables_of(load_catalog_file(tables), io_config=io_config)
    else:
        made = _given(tables)
        if io_config is not None:
            raise ValueError("io_config is for a file's sources; give it to each TwinTable instead")
    session = daft.current_session()
    attached = Attached(session, {table.name: table for table in made})
    for table in made:
        try:
            session.attach_table(table)
        except DaftCoreException as error:
            attached.detach()
            raise ValueError(
                f"the session has a table {table.name!r} already; expected a new name; call "
                f"daft.detach_table({table.name!r}), or detach() of what attach returned"
            ) from error
    return attached


def tables_of(
    file: CatalogFile, *, io_config: AnyConfig | Mapping[str, AnyConfig] | None = None
) -> tuple[Table, ...]:
    """Return the tables that a catalog file names, sources before data sets."""
    entries = {entry.name: entry for entry in file.sources}

    def table(entry: SourceEntry, part: PartEntry | None = None) -> TwinTable:
        conditions = [entry.where, part.where if part else None]
        options = dict(entry.options)
        if io_config is not None:
            options["io_config"] = io_config
        return TwinTable(
            entry.name,
            entry.root if len(entry.root) > 1 else entry.root[0],
            entry.modalities,
            where=" AND ".join(f"({text})" for text in conditions if text) or None,
            columns=part.columns if part else None,
            **options,
        )

    unions = (
        TwinUnion(
            dataset.name,
            [table(entries[part.source], part) for part in dataset.parts],
            weights={part.source: part.weight for part in dataset.parts},
        )
        for dataset in file.datasets
    )
    return (*map(table, entries.values()), *unions)


def _given(tables: Table | Iterable[Table]) -> tuple[Table, ...]:
    made = (tables,) if isinstance(tables, Table) else tuple(tables)
    for table in made:
        if not isinstance(table, Table):
            raise TypeError(
                "attach takes the path of a catalog file, a table, or several tables, got "
                f"{type(table).__name__}"
            )
    twice = [name for name, times in Counter(table.name for table in made).items() if times > 1]
    if twice:
        raise ValueError(f"table {twice[0]!r} twice; expected different names; rename one")
    return made
