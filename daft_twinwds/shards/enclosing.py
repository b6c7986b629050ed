"""A new data set must not lie in another one, which readers would then no longer find."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from daft_twinwds.errors import LayoutError
from daft_twinwds.shards.manifest import MANIFEST_NAME
from daft_twinwds.shards.trees import is_tar

__all__ = ["require_outside"]

_PART: Final = "part_"


def require_outside(path: str) -> None:
    """Refuse a local folder for a new data set that lies in a data set.

    Readers look for nothing below a folder with a manifest. Where none has one, a single new
    manifest hides all tars beside it. Folders of aspect ratios or durations that lie beside each
    other are leaves of one data set, and in none of them.

    Args:
        path: Absolute; it need not be there. Only what may be looked at counts.

    Raises:
        LayoutError: A folder above has a manifest, or a folder beside the new one has part folders
            with tars, and no manifest.
    """
    ways = dict.fromkeys((Path(path), Path(os.path.realpath(path))))
    for above in dict.fromkeys(parent for way in ways for parent in way.parents):
        # Also a link into a cache that is not filled.
        if os.path.lexists(above / MANIFEST_NAME):
            raise LayoutError(
                f"{path}: lies in the data set {above}, whose {MANIFEST_NAME} tells readers that "
                "there is no other below; expected a folder beside it; write elsewhere"
            )
    for way in ways:
        modality = next(_iter_neighbours(way), None)
        if modality is not None:
            raise LayoutError(
                f"{path}: lies beside {modality}, which holds tars and no {MANIFEST_NAME}; "
                "expected a folder outside of that data set, as another's manifest would hide "
                "these tars from its readers; write elsewhere"
            )


def _iter_neighbours(new: Path) -> Iterator[str]:
    """Yield the folders beside the first new one that hold part folders of tars, as modalities do.

    A folder with nothing but tars in it is just as likely some other download.
    """
    while not os.path.lexists(new.parent):
        new = new.parent
    for child in _entries(str(new.parent)):
        if child.name.startswith(".") or child.name == new.name:
            continue
        entries = _entries(child.path)
        if any(entry.name == MANIFEST_NAME for entry in entries):
            continue
        parts = [entry for entry in entries if entry.name.startswith(_PART)]
        if any(_has_tars(_entries(part.path)) for part in parts):
            yield child.path


def _has_tars(entries: list["os.DirEntry[str]"]) -> bool:
    return any(is_tar(entry.name) and not entry.name.startswith(".") for entry in entries)


def _entries(folder: str) -> list["os.DirEntry[str]"]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError:
        # No reader of this user finds anything in there that could be hidden from it.
        return []
