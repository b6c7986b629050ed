"""What a caller gives as a dataset's path -> files and folders that are there.

A name that exists is never a pattern: ``set[1]`` and ``brace{a,b}`` may be folders. A pattern
begins at the first part of a path that does not exist as it stands.
"""

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final
from urllib.parse import unquote

from daft_twinwds.errors import LayoutError, StorageError
from daft_twinwds.shards.folders import kind_of, scan, walk

_URL: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://(.*)", re.DOTALL)
_INNERMOST_BRACES: Final = re.compile(r"\{([^{}]*,[^{}]*)\}")
_WILDCARD: Final = re.compile(r"[*?\[]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """Something on the disk that one path of the caller's means."""

    path: str
    """Absolute path of a file or folder that exists."""
    base: str
    """The folder that words are looked for below: `path`, or where its pattern began."""
    is_pattern: bool
    """Whether a pattern led to it, so that others may match in its place."""


def path_items(path: object) -> list[str]:
    """Return the caller's path, or list of paths, as strings.

    Raises:
        TypeError: One is not a string or path object, or they come without an order.
        ValueError: There is none, or one is empty.
    """
    items: Sequence[object]
    if isinstance(path, str | os.PathLike):
        items = [path]
    elif isinstance(path, Sequence) and not isinstance(path, bytes | bytearray | memoryview):
        items = path
    else:
        raise TypeError(
            f"path must be a string, a path object or a list of them, got {type(path).__name__}"
        )
    if not items:
        raise ValueError("path must name at least one dataset, got an empty list")
    return [_path_text(item) for item in items]


def resolve(item: str) -> list[Match]:
    """Return what ``item`` means: itself where it exists, else what it matches as a pattern.

    Args:
        item: A path, a ``file://`` URL (percent-decoded), or a pattern of either. ``*``, ``?``
            and ``[...]`` stay within one part of a path, ``**`` is any number of folders, and
            ``{a,b}`` stands for each of its alternatives, all of which must match something.
            Wildcards match no hidden names and look into no part folders.

    Returns:
        At least one match; a pattern's are distinct and sorted, alternatives in their order.

    Raises:
        LayoutError: Nothing is there, or ``**`` is only a piece of a part.
        StorageError: A URL of another scheme or machine, or a folder that cannot be listed.
        ValueError: The path holds a NUL.
    """
    path = _absolute(item)
    base, rest = _existing_prefix(path)
    if not rest:
        return [Match(path=path, base=path, is_pattern=False)]
    alternatives = _expand_braces("/".join(rest))
    if len(alternatives) > 1:
        matches = [match for text in alternatives for match in resolve(f"{base}/{text}")]
        return list(dict.fromkeys(replace(match, base=base) for match in matches))
    if not _WILDCARD.search("/".join(rest)):
        raise LayoutError(
            f"{item}: not found, nothing named {rest[0]!r} is in {base}; expected a dataset's "
            "root, a wdinfo.json or a pattern of either; check the path"
        )
    for part in rest:
        if "**" in part and part != "**":
            raise LayoutError(
                f"{item}: '**' was found inside {part!r}; expected it to be a whole part of the "
                f"path; write {part.replace('**', '*')!r}, or '**/{part.replace('**', '*')}' for "
                "any depth"
            )
    found = list(dict.fromkeys(_iter_matches(base, rest)))
    if not found:
        raise LayoutError(
            f"{item}: the pattern matches nothing below {base}; expected at least one dataset's "
            "root or wdinfo.json; check the pattern"
        )
    return [Match(path=match, base=base, is_pattern=True) for match in found]


def _path_text(item: object) -> str:
    if not isinstance(item, str | os.PathLike):
        raise TypeError(f"a path must be a string or a path object, got {type(item).__name__}")
    text = os.fspath(item)
    if not isinstance(text, str):
        raise TypeError("a path must be text, got bytes")
    if not text:
        raise ValueError("a path must name something, got an empty string")
    return text


def _absolute(item: str) -> str:
    url = _URL.fullmatch(item)
    text = item if url is None else _local_path(item, url[1], url[2])
    if "\0" in text:
        raise ValueError(f"a path must hold no NUL, got {item!r}")
    try:
        path = Path(text).expanduser().absolute()
        # Only the disk knows what is above a linked folder.
        return str(path.resolve() if ".." in path.parts else path)
    except RuntimeError as error:
        raise LayoutError(
            f"{item}: cannot be followed ({error}); expected a folder or file; write './~name' "
            "where a name begins with '~'"
        ) from error


def _local_path(url: str, scheme: str, rest: str) -> str:
    if scheme.lower() != "file":
        raise StorageError(
            f"{url}: scheme {scheme!r} was found; expected a local path or a file:// URL, as this "
            "version reads local files only; copy or mount the dataset"
        )
    host, slash, path = rest.partition("/")
    if host.lower() not in ("", "localhost") or not slash:
        raise StorageError(
            f"{url}: machine {host!r} was found; expected file:///absolute/path, as this version "
            "reads local files only"
        )
    return unquote(f"/{path}", errors="surrogateescape")


def _existing_prefix(path: str) -> tuple[str, list[str]]:
    parts = Path(path).parts
    for count in range(len(parts), 1, -1):
        prefix = str(Path(*parts[:count]))
        if kind_of(prefix) is not None:
            return prefix, list(parts[count:])
    return parts[0], list(parts[1:])


def _expand_braces(path: str) -> list[str]:
    braces = _INNERMOST_BRACES.search(path)
    if braces is None:
        return [path]
    before, after = path[: braces.start()], path[braces.end() :]
    expanded = [
        text
        for alternative in braces[1].split(",")
        for text in _expand_braces(f"{before}{alternative}{after}")
    ]
    return list(dict.fromkeys(expanded))


def _iter_matches(folder: str, parts: Sequence[str]) -> Iterator[str]:
    if not parts:
        yield folder
        return
    part, rest = parts[0], parts[1:]
    if part == "**":
        for below, listing in walk(folder):
            yield from _iter_matches(below, rest)
            listing.folders[:] = [name for name in listing.folders if not name.startswith("part_")]
    elif kind_of(folder) == "folder":
        for name in _matching_names(folder, part):
            yield from _iter_matches(f"{folder}/{name}", rest)


def _matching_names(folder: str, part: str) -> list[str]:
    if kind_of(f"{folder}/{part}") is not None:
        return [part]
    listing = scan(folder)
    return [name for name in sorted(listing.folders + listing.files) if fnmatchcase(name, part)]
