"""A new data set must not lie in another one, which readers would then no longer find."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from daft_twinwds.errors import LayoutError
from daft_twinwds.shards.folders import CLASSES
from daft_twinwds.shards.manifest import MANIFEST_NAME
from daft_twinwds.shards.trees import is_tar

__all__ = ["require_outside"]

_PART: Final = "part_"


def require_outside(path: str) -> None:
    """Refuse a local folder for a new data set that lies in a data set.

    Readers look for nothing below a folder with a manifest. Where none has one, a single new
    manifest hides all tars beside it. Folders of aspect ratios or durations that lie beside each
    other are leaves of one data set, which reads whatever else lies beside them as well.

    Args:
        path: Absolute; it need not be there. Only what may be looked at counts.

    Raises:
        LayoutError: A folder above has a manifest; or a folder beside the new one has part folders
            with tars, and no manifest, or is a leaf while the new one is called otherwise.
    """
    ways = dict.fromkeys((Path(path), Path(os.path.realpath(path))))
    for above in dict.fromkeys(parent for way in ways for parent in way.parents):
        # Also a link into a cache that is not filled.
        if os.path.lexists(above / MANIFEST_NAME):
            raise LayoutError(
                f"{path}: lies in the data set {above}, whose {MANIFEST_NAME} tells readers that "
                "there is no other below; expected a folder beside it; write elsewhere"
            )
    for new in map(_first_new, ways):
        leaf = None if new.name.startswith(CLASSES) else next(_iter_leaves(str(new.parent)), None)
        if leaf is not None:
            raise LayoutError(
                f"{path}: lies in the data set {new.parent}, one of whose leaves is {leaf}; "
                "expected a folder beside it, as it would be read as a part of that data set; "
                "write elsewhere"
            )
        modality = next(_iter_neighbours(new), None)
        if modality is not None:
            raise LayoutError(
                f"{path}: lies beside {modality}, which holds tars and no {MANIFEST_NAME}; "
                "expected a folder outside of that data set, as another's manifest would hide "
                "these tars from its readers; write elsewhere"
            )


def _first_new(path: Path) -> Path:
    """Return the uppermost folder that would have to be made, or the last one."""
    while not os.path.lexists(path.parent):
        path = path.parent
    return path


def _iter_leaves(folder: str) -> Iterator[str]:
    """Yield the folders of classes that are data sets, with or without a manifest."""
    for child in _entries(folder):
        if child.name.startswith(CLASSES):
            entries = _entries(child.path)
            names = {entry.name for entry in entries}
            folders = (_entries(entry.path) for entry in entries)
            is_leaf = MANIFEST_NAME in names or any(map(_is_modality, folders))
            if is_leaf or next(_iter_leaves(child.path), None) is not None:
                yield child.path


def _iter_neighbours(new: Path) -> Iterator[str]:
    """Yield the folders beside a new one that hold part folders of tars, as modalities do."""
    for child in _entries(str(new.parent)):
        if child.name.startswith(".") or child.name == new.name:
            continue
        entries = _entries(child.path)
        if any(entry.name == MANIFEST_NAME for entry in entries):
            continue
        if _is_modality(entries):
            yield child.path


def _is_modality(entries: list["os.DirEntry[str]"]) -> bool:
    """Return whether a folder of these entries has part folders of tars.

    One with nothing but tars in it is just as likely some other download.
    """
    parts = (entry for entry in entries if entry.name.startswith(_PART))
    return any(_has_tars(_entries(part.path)) for part in parts)


def _has_tars(entries: list["os.DirEntry[str]"]) -> bool:
    return any(is_tar(entry.name) and not entry.name.startswith(".") for entry in entries)


def _entries(folder: str) -> list["os.DirEntry[str]"]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError:
        # No reader of this user finds anything in there that could be hidden from it.
        return []
