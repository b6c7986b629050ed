"""Which folders are read, and under which column names."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from daft_twinwds.errors import LayoutError
from daft_twinwds.shards.manifest import is_relative_folder
from daft_twinwds.shards.urls import scheme_of, shown

_RESERVED: Final = ("__key__", "__url__")


def columns_of(folders: Sequence[str], *, where: str) -> dict[str, str]:
    """Return column -> folder, in order; a column is its folder with ``_`` for ``/``.

    Args:
        folders: Relative folders; ``/`` separates their parts.
        where: What names them; used in error messages only.

    Raises:
        LayoutError: There is no folder, two have one column name, or a name is reserved.
    """
    columns: dict[str, str] = {}
    for folder in folders:
        column = folder.replace("/", "_")
        if column in columns:
            raise LayoutError(
                f"{where}: folders {columns[column]!r} and {folder!r} both make a column "
                f"{column!r}; expected different names; give modalities={{column: folder}}"
            )
        if column in _RESERVED:
            raise LayoutError(
                f"{where}: folder {folder!r} makes a column of that name, which is reserved; "
                "expected another; give modalities={column: folder}"
            )
        columns[column] = folder
    if not columns:
        raise LayoutError(f"{where}: no modality is named; expected at least one folder of tars")
    return columns


def has_own_root(folder: str) -> bool:
    """Return whether a modality's folder is a place of its own and not below the dataset's."""
    return folder.startswith("/") or scheme_of(folder) is not None


def requested_columns(modalities: object) -> dict[str, str] | None:
    """Return the caller's choice as column -> folder, or ``None`` for all that are there.

    Args:
        modalities: As in `find_dataset`.

    Raises:
        LayoutError: Two folders of a list have one column name, or a name is reserved.
        TypeError: It is neither a list of folder names nor a mapping of column to folder.
        ValueError: It is empty, a folder is not a plain relative one, or a column is reserved.
    """
    if modalities is None:
        return None
    if isinstance(modalities, str):
        raise TypeError(
            "modalities must be a list of folder names or a mapping of column to folder, got the "
            f"string {modalities!r}; write [{modalities!r}]"
        )
    if isinstance(modalities, Mapping):
        columns, folders = _texts(modalities.keys()), _texts(modalities.values())
    elif isinstance(modalities, Sequence):
        columns, folders = [], _texts(modalities)
    else:
        raise TypeError(
            "modalities must be a list of folder names or a mapping of column to folder, got "
            f"{type(modalities).__name__}"
        )
    if not folders:
        raise ValueError("modalities must name at least one folder; None reads all that are there")
    for folder in folders:
        if not is_relative_folder(folder) and not (columns and has_own_root(folder)):
            raise ValueError(
                f"modalities must be folders below the dataset's, such as 'image' or 'image/left', "
                f"or {{column: absolute path or URL}}, got {shown(folder)!r}"
            )
    if not columns:
        return columns_of(folders, where="modalities")
    if not {"", *_RESERVED}.isdisjoint(columns):
        raise ValueError(
            f"a modality's column must have a name other than {_RESERVED}, got {columns}"
        )
    return dict(zip(columns, folders, strict=True))


def _texts(values: Iterable[object]) -> list[str]:
    texts: list[str] = []
    for value in values:
        if not isinstance(value, str):
            raise TypeError(f"modalities must hold strings, got {value!r}")
        texts.append(value)
    return texts
