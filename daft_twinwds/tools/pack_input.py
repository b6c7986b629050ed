"""Folders of raw files -> what can be packed of them, by modality and stem.

Nothing is opened, only listed. Hidden names are left out, and links are followed only to files
inside the input.
"""

import hashlib
import os
from array import array
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import Path
from stat import S_ISREG
from sys import intern
from typing import Any, Final

from daft_twinwds.errors import LayoutError, StorageError
from daft_twinwds.shards.folders import CLASSES
from daft_twinwds.shards.manifest import is_relative_folder
from daft_twinwds.shards.modalities import columns_of
from daft_twinwds.shards.samples import split_name
from daft_twinwds.shards.tar_write import name_fault
from daft_twinwds.tools.pack_report import LeftOut
from daft_twinwds.tools.pack_settings import PackSettings

__all__ = ["HIDDEN", "Folder", "list_folders", "readable"]

HIDDEN: Final = "hidden"
"""Reason that stands for no loss: such names are nobody's samples."""
_OUTSIDE: Final = "link out of the input"
_READERS_OWN: Final = ("part_", *CLASSES)
"""Folders that a reader looks through for modalities, so that none can be called so."""


@dataclass(slots=True, kw_only=True)
class Folder:
    """One modality of the input. No file has an object of its own, as they may be millions."""

    path: str
    """Absolute folder."""
    files: dict[str, int] = field(default_factory=dict)
    """Stem -> which of the files that can be packed it is, in the order found; a stem is the
    file's path below the folder without the suffix."""
    suffixes: list[str] = field(default_factory=list)
    """Of those files, as in their names, without the dot."""
    sizes: "array[int]" = field(default_factory=lambda: array("q"))
    """Their bytes."""
    left_out: list[LeftOut] = field(default_factory=list)
    """What cannot be packed."""
    fingerprint: dict[str, Any] = field(default_factory=dict)
    """Of the names, sizes and times of all files, those left out included."""


def readable(name: str) -> str:
    """Return a file's name as text, whatever bytes it consists of."""
    return os.fsencode(name).decode(errors="backslashreplace")


def list_folders(root: Path, settings: PackSettings) -> tuple[dict[str, Folder], list[LeftOut]]:
    """List the modalities of an input folder.

    Args:
        root: Absolute, without links.
        settings: What is asked for.

    Returns:
        Modality -> folder, sorted; and what lies beside them.

    Raises:
        LayoutError: There is no modality, one cannot be called so or is a link that leads out of
            the input, or two files of one have the same stem.
        StorageError: A folder cannot be listed.
    """
    if settings.modalities is None:
        names, left_out = _modality_names(root)
    else:
        names, left_out = sorted(settings.modalities), []
    columns_of(names, where=str(root))
    unknown = settings.optional - set(names)
    if unknown:
        raise LayoutError(
            f"{root}: folders {', '.join(names)} were found; expected the optional "
            f"{', '.join(sorted(unknown))} among them; correct optional"
        )
    if settings.optional.issuperset(names):
        raise LayoutError(
            f"{root}: all of its folders, {', '.join(names)}, are optional; expected at least one "
            "that every sample has; take it out of optional"
        )
    return {name: _list_folder(root, name, settings) for name in names}, left_out


def _modality_names(root: Path) -> tuple[list[str], list[LeftOut]]:
    names: list[str] = []
    left_out: list[LeftOut] = []
    for entry in _sorted(str(root), str(root)):
        reason = HIDDEN if entry.name.startswith(".") else None
        if reason is None and not entry.is_dir():
            reason = "not in a modality's folder"
        if reason is None and entry.name == "__MACOSX":
            reason = "macOS sidecar"
        if reason is None:
            names.append(entry.name)
        else:
            shown = readable(entry.name)
            key = split_name(shown, "last")[0]
            left_out.append(LeftOut(key=key, modality="", file=shown, reason=reason))
    return names, left_out


def _list_folder(root: Path, name: str, settings: PackSettings) -> Folder:
    path = root / name
    if not is_relative_folder(name) or name_fault(name) or name.startswith(_READERS_OWN):
        raise LayoutError(
            f"{readable(str(path))}: no name for a modality; expected UTF-8 without a backslash, "
            f"no part that begins with a dot, and not {', '.join(_READERS_OWN)}; rename the folder"
        )
    if not path.is_dir():
        raise LayoutError(f"{path}: no such folder; expected the modality {name!r} here")
    if not path.resolve().is_relative_to(root):
        raise LayoutError(
            f"{path}: a link to {path.resolve()}, out of the input; expected a folder inside it; "
            "mount or copy it there"
        )
    return _Listing(root, name, settings).run()


class _Listing:
    """One walk through a modality's folder."""

    def __init__(self, root: Path, modality: str, settings: PackSettings) -> None:
        self._root = root
        self._modality = modality
        self._settings = settings
        self._folder = Folder(path=f"{root}/{modality}")
        self._hash = hashlib.sha256()
        self._doubles: list[tuple[str, str]] = []

    def run(self) -> Folder:
        """Walk, and return what was found."""
        count = total = 0
        for name, status in self._iter_files(self._folder.path, ""):
            line = f"{name}\0{status.st_size}\0{status.st_mtime_ns}\0"
            self._hash.update(line.encode(errors="surrogateescape"))
            count += 1
            total += status.st_size
            self._take(name, status.st_size)
        if self._doubles:
            raise _double_error(self._folder.path, self._doubles)
        self._folder.fingerprint = {
            "files": count,
            "bytes": total,
            "sha256": self._hash.hexdigest(),
        }
        return self._folder

    def _iter_files(self, folder: str, prefix: str) -> Iterator[tuple[str, os.stat_result]]:
        """Yield regular files; anything else is left out."""
        # Entries of an open folder are asked about by their names in it, which is quicker by a
        # third than by the whole path. Sub-folders may be more than can be open.
        with nullcontext(folder) if prefix else _opened(folder) as place:
            for entry in _sorted(place, folder):
                name = prefix + entry.name
                if entry.name.startswith("."):
                    self._leave_out(name, HIDDEN)
                elif entry.is_dir(follow_symlinks=False):
                    yield from self._iter_files(f"{folder}/{entry.name}", f"{name}/")
                elif entry.is_symlink() and (reason := self._link_fault(folder, entry.name)):
                    self._leave_out(name, reason)
                else:
                    try:
                        status = entry.stat()
                    except OSError as error:
                        raise _unlisted(f"{folder}/{entry.name}", error) from error
                    if S_ISREG(status.st_mode):
                        yield name, status
                    else:
                        self._leave_out(name, "not a file")

    def _link_fault(self, folder: str, name: str) -> str | None:
        link = Path(folder, name)
        try:
            target = link.resolve(strict=True)
        except (OSError, RuntimeError):  # RuntimeError: a link that leads back to itself
            return "broken link"
        if not target.is_relative_to(self._root):
            return _OUTSIDE
        return "link to a folder" if target.is_dir() else None

    def _take(self, name: str, size: int) -> None:
        settings, files = self._settings, self._folder.files
        if not settings.keep_folders and "/" in name:
            self._leave_out(name, "in a sub-folder")
            return
        fault = name_fault(settings.key_prefix + name)
        if fault is not None:
            self._leave_out(name, fault)
            return
        stem, suffix = split_name(name, "last")
        if not suffix:
            self._leave_out(name, "no suffix")
        elif size == 0:
            self._leave_out(name, "0 bytes")
        elif size > settings.max_file_bytes:
            self._leave_out(name, "too large", f"{size} bytes")
        elif stem in files:
            first = f"{stem}.{self._folder.suffixes[files[stem]]}"
            if settings.on_double == "skip":
                self._leave_out(name, "double", f"of {first}")
            else:
                self._doubles.append((first, name))
        else:
            files[stem] = len(files)
            self._folder.suffixes.append(intern(name[len(stem) + 1 :]))
            self._folder.sizes.append(size)

    def _leave_out(self, name: str, reason: str, detail: str = "") -> None:
        shown = readable(name)
        key = split_name(shown, "last")[0]
        self._folder.left_out.append(
            LeftOut(key=key, modality=self._modality, file=shown, reason=reason, detail=detail)
        )


def _double_error(folder: str, doubles: Sequence[tuple[str, str]]) -> LayoutError:
    pairs = ", ".join(f"{first} and {second}" for first, second in doubles[:5])
    more = f", and {len(doubles) - 5} more" if len(doubles) > 5 else ""
    return LayoutError(
        f"{folder}: {pairs}{more} have the same name without their suffixes; expected one file per "
        "sample; remove one of them, or pass on_double='skip' (--skip-doubles) to take the first"
    )


@contextmanager
def _opened(folder: str) -> Iterator[int]:
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise _unlisted(folder, error) from error
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _sorted(place: str | int, folder: str) -> list[os.DirEntry[str]]:
    """Return the entries of a folder, which is given by its path, or by its descriptor, too."""
    try:
        with os.scandir(place) as entries:
            return sorted(entries, key=attrgetter("name"))
    except OSError as error:
        raise _unlisted(folder, error) from error


def _unlisted(path: str, error: OSError) -> StorageError:
    return StorageError(
        f"{readable(path)}: cannot be listed ({error.strerror}); expected a readable folder that "
        "nobody writes to; check the path and its permissions"
    )
