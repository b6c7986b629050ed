"""``wdinfo.json``: one leaf's modalities, tars and sample counts, as its writer saw them.

A manifest of a million tars is tens of megabytes of JSON, so its names and counts leave this
module as Arrow arrays, never as Python objects.
"""

import re
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from daft_twinwds.errors import LayoutError
from daft_twinwds.shards.manifest_json import ManifestContent, parse_manifest, parse_object
from daft_twinwds.shards.options import ENVIRONMENT, StorageOptions
from daft_twinwds.shards.storage import open_file

MANIFEST_NAME: Final = "wdinfo.json"
MAX_BYTES: Final = 256 * 2**20
"""Largest manifest that is read: about six million tars."""

# Understood alike by Python's re and by RE2. No part may begin with a dot, which rules out
# "." and ".." as well as the hidden names that listings leave out.
_PART: Final = r"[^./\\\x00][^/\\\x00]*"
_RELATIVE: Final = rf"{_PART}(?:/{_PART})*"
_TAR: Final = rf"(?:{_PART}/)*[^./\\\x00][^/\\\x00]*\.[tT][aA][rR]"

_SLASH, _DOT, _BACKSLASH, _NUL = b"/.\\\0"
_PIECE: Final = 1 << 18
"""Bytes of names that are looked at together; they stay in the processor's cache."""

_FOLDER_RULE: Final = (
    "a folder below the dataset's: relative, '/' between its parts, no part that begins with '.', "
    "no backslash or NUL"
)
_TAR_RULE: Final = (
    "a tar below a modality's folder, such as 'part_000000/000000.tar': relative, "
    "'/' between its parts, no part that begins with '.', no backslash or NUL"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """What one ``wdinfo.json`` says. Only its paths have been checked, not the disk."""

    path: str
    """The file itself, as messages show it."""
    root: str | None
    """The folder that the writer wrote to; copied datasets have long left it."""
    modalities: tuple[str, ...]
    """Folders below the leaf's, which may contain ``/``, in the file's order (``data_keys``)."""
    names: pa.StringArray
    """Tar paths relative to a modality's folder, distinct, in the file's order (``data_list``)."""
    counts: pa.Int64Array | None
    """Samples per tar; ``None`` where the file does not say, or was not asked."""
    total: int
    """Samples in all tars; not necessarily the sum of `counts`."""


def is_relative_folder(name: str) -> bool:
    """Return whether ``name`` can be joined to a folder without leaving it or hiding."""
    return re.fullmatch(_RELATIVE, name) is not None


def read_manifest(
    path: str, options: StorageOptions = ENVIRONMENT, *, with_counts: bool = True
) -> Manifest:
    """Read and check one ``wdinfo.json``.

    Keys that are not known are left alone. Counts are checked for being counts, not for being
    true.

    Args:
        path: The file, local or a URL.
        options: How it is accessed.
        with_counts: Whether to look at the counts, too; without takes two thirds of the time.

    Raises:
        LayoutError: It is not JSON, too large, lacks a key, or holds a value of the wrong type,
            a negative count, lists of different lengths, a path twice, or a path that is no
            plain relative one. The message names the file and the entry.
        StorageError: It cannot be opened or read.

    Source:
        ``wdinfo.json`` as written by PiD's ``scripts/sharding_wds.py``.
    """
    path, data = _read(path, options)
    content = parse_manifest(data, path, with_counts=with_counts)
    _check_paths(content.modalities, _RELATIVE, where=f"{path}: data_keys", rule=_FOLDER_RULE)
    _check_paths(content.names, _TAR, where=f"{path}: data_list", rule=_TAR_RULE)
    return Manifest(
        path=path,
        root=content.root,
        modalities=tuple(content.modalities.to_pylist()),
        names=content.names,
        counts=_counts(content, path),
        total=content.total,
    )


def load_content(path: str) -> tuple[str, dict[str, Any]]:
    """Return a local manifest's path, as messages show it, and its keys as they are, unchecked.

    Raises:
        LayoutError: It is too large, or no JSON object.
        StorageError: It cannot be opened or read.
    """
    path, data = _read(path, ENVIRONMENT)
    return path, parse_object(data, path)


def _read(path: str, options: StorageOptions) -> tuple[str, bytes]:
    with open_file(path, options) as file:
        if len(file) > MAX_BYTES:
            raise LayoutError(
                f"{file.path}: {len(file):,} bytes, more than {MAX_BYTES:,}; a manifest of this "
                "size is not read, split the dataset into several leaves"
            )
        return file.path, file.read(0, len(file))


def _check_paths(values: pa.StringArray, pattern: str, *, where: str, rule: str) -> None:
    bad: list[int] = []
    if not _are_plain(values):
        good = pc.match_substring_regex(values, rf"^(?:{pattern})$")
        bad = np.flatnonzero(~np.asarray(good)).tolist()
    if bad:
        raise LayoutError(
            f"{where}[{bad[0]}] is {values[bad[0]].as_py()!r}; expected {rule}; "
            f"correct the manifest ({len(bad)} such entries)"
        )
    # Names in order, as most writers list them, are distinct; a hash table of all costs more.
    if pc.all(pc.less(values[:-1], values[1:]), min_count=0).as_py():
        return
    if pc.count_distinct(values).as_py() < len(values):
        occurrences = pc.value_counts(values)
        twice = occurrences.filter(pc.greater(occurrences.field("counts"), 1))
        raise LayoutError(
            f"{where} holds {twice[0]['values'].as_py()!r} {twice[0]['counts'].as_py()} times; "
            f"expected each once; correct the manifest ({len(twice)} such entries)"
        )


def _are_plain(names: pa.StringArray) -> bool:
    """Return whether all names are relative paths of tars, as nearly always; False if in doubt.

    The bytes of all names are looked at together, piece by piece, which takes half the time of an
    expression for each.
    """
    if not len(names) or not pc.all(pc.ends_with(names, ".tar")).as_py():
        return False
    _, offsets, content = names.buffers()
    borders = np.frombuffer(offsets, np.int32)[names.offset : names.offset + len(names) + 1]
    data = np.frombuffer(content, np.uint8)[borders[0] : borders[-1]]
    begins = data[borders[:-1] - borders[0]]
    if _any_of(begins, _DOT, _SLASH):
        return False
    for start in range(0, len(data), _PIECE):
        # One byte more, for what follows a slash at the border; the last name ends with no slash.
        piece = data[start : start + _PIECE + 1]
        # A dot and a slash differ in one bit.
        bad_pairs = (piece[:-1] == _SLASH) & ((piece[1:] | _DOT ^ _SLASH) == _SLASH)
        if bad_pairs.any() or _any_of(piece, _BACKSLASH, _NUL):
            return False
    return True


def _any_of(data: npt.NDArray[np.uint8], *values: int) -> bool:
    return any(bool((data == value).any()) for value in values)


def _counts(content: ManifestContent, path: str) -> pa.Int64Array | None:
    counts, num_tars = content.counts, len(content.names)
    if counts is not None and len(counts) != num_tars:
        raise LayoutError(
            f"{path}: {num_tars} tars in data_list and {len(counts)} counts in "
            "data_list_key_count; expected as many; correct the manifest"
        )
    return counts
