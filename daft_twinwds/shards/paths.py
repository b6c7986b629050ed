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

from daft_twinwds.errors import LayoutError
from daft_twinwds.shards.options import StorageOptions
from daft_twinwds.shards.trees import LocalTree, Tree, walk
from daft_twinwds.shards.urls import HTTP, Url, is_url, iter_parents, local_path, scheme_of

__all__ = [
    "Match",
    "Place",
    "absolute_path",
    "path_items",
    "path_text",
    "require_text",
    "resolve",
]

_INNERMOST_BRACES: Final = re.compile(r"\{([^{}]*,[^{}]*)\}")
_WILDCARD: Final = re.compile(r"[*?\[]")
_FLATTENED_URL: Final = re.compile(r"[a-z][a-z0-9+.-]+:/[^/]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A path with the storage that it is in."""

    path: str
    """Absolute local path, or a URL without what is secret in it; no slash at the end."""
    tree: Tree
    options: StorageOptions
    """How files there are opened."""

    @classmethod
    def of(cls, item: str, options: StorageOptions) -> "Place":
        """Return where ``item`` is.

        Raises:
            LayoutError: It is below the home folder of nobody.
            MissingDependencyError: The scheme's package is not installed.
            StorageError: A file URL of another machine, or a scheme that is not known.
            ValueError: It holds a NUL.
        """
        if not is_url(item):
            return cls(path=_absolute(item), tree=LocalTree(), options=options)
        # Importing the clients takes some hundred milliseconds, which local data need not pay.
        from daft_twinwds.shards.remote_tree import remote_tree

        options = options.with_secrets_of(item)
        path = str(Url.parse(item)).rstrip("/")
        return cls(path=path, tree=remote_tree(path, options), options=options)


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """Something that is there and that one path of the caller's means."""

    path: str
    """Path of a file or folder that exists."""
    base: str
    """The folder that words are looked for below: `path`, or where its pattern began."""
    is_pattern: bool
    """Whether a pattern led to it, so that others may match in its place."""


def path_items(path: object) -> list[str]:
    """Return the caller's path, or list of paths, as strings.

    Raises:
        TypeError: One is not a string or path object, or they come without an order.
        ValueError: There is none, one is empty, or a URL was made a path object.
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
    return [path_text(item) for item in items]


def resolve(place: Place) -> list[Match]:
    """Return what a place means: itself where it exists, else what it matches as a pattern.

    Args:
        place: ``*``, ``?`` and ``[...]`` stay within one part of its path, ``**`` is any number
            of folders, and ``{a,b}`` stands for each of its alternatives, all of which must match
            something. Wildcards match no hidden names and look into no part folders. Where
            folders cannot be listed only alternatives are understood.

    Returns:
        At least one match; a pattern's are distinct and sorted, alternatives in their order.

    Raises:
        LayoutError: Nothing is there, or ``**`` is only a piece of a part.
        StorageError: A folder cannot be listed.
    """
    path, tree = place.path, place.tree
    if not tree.can_list:
        return _unlisted(path)
    base, rest = _existing_prefix(tree, path)
    if not rest:
        return [Match(path=path, base=path, is_pattern=False)]
    alternatives = _expand_braces("/".join(rest))
    if len(alternatives) > 1:
        places = [replace(place, path=f"{base.rstrip('/')}/{text}") for text in alternatives]
        matches = [match for alternative in places for match in resolve(alternative)]
        return list(dict.fromkeys(replace(match, base=base) for match in matches))
    if not _WILDCARD.search("/".join(rest)):
        raise LayoutError(
            f"{path}: not found, nothing named {rest[0]!r} is in {base}; expected a dataset's "
            "root, a wdinfo.json or a pattern of either; check the path"
        )
    for part in rest:
        if "**" in part and part != "**":
            raise LayoutError(
                f"{path}: '**' was found inside {part!r}; expected it to be a whole part of the "
                f"path; write {part.replace('**', '*')!r}, or '**/{part.replace('**', '*')}' for "
                "any depth"
            )
    found = list(dict.fromkeys(_iter_matches(tree, base, rest)))
    if not found:
        raise LayoutError(
            f"{path}: the pattern matches nothing below {base}; expected at least one dataset's "
            "root or wdinfo.json; check the pattern"
        )
    return [Match(path=match, base=base, is_pattern=True) for match in found]


def path_text(item: object) -> str:
    """Return one path of the caller's as a string.

    Raises:
        TypeError: It is not a string or path object.
        ValueError: It is empty, or a URL that was made a path object.
    """
    if not isinstance(item, str | os.PathLike):
        raise TypeError(f"a path must be a string or a path object, got {type(item).__name__}")
    text = os.fspath(item)
    if not isinstance(text, str):
        raise TypeError("a path must be text, got bytes")
    if not text:
        raise ValueError("a path must name something, got an empty string")
    if not isinstance(item, str) and _FLATTENED_URL.match(text):
        raise ValueError(
            f"a path object keeps only one slash of a URL, got {text.partition('/')[0]}/...; pass "
            "the URL as a string"
        )
    return text


def absolute_path(item: str | os.PathLike[str]) -> str:
    """Return a path, or a pattern, that means the same in every folder; URLs stay as they are.

    Raises:
        LayoutError: It is below the home folder of nobody.
        TypeError, ValueError: It is no path.
    """
    text = path_text(item)
    return text if is_url(text) else _absolute(text)


def require_text(folder: str) -> None:
    """Refuse a folder that neither a column of text nor a manifest could name.

    Raises:
        LayoutError: Its path is not UTF-8.
    """
    try:
        folder.encode()
    except UnicodeEncodeError as error:
        raise LayoutError(
            f"{os.fsencode(folder)!r}: the folder's path is not UTF-8; expected one that is text, "
            "as __url__ and references to its files are; rename it, or reach it through a link"
        ) from error


def _absolute(item: str) -> str:
    text = local_path(item)
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


def _unlisted(path: str) -> list[Match]:
    """Return what can be made of a pattern without looking: its alternatives."""
    text = unquote(path)
    if scheme_of(path) in HTTP and "*" in text:
        raise LayoutError(
            f"{path}: the pattern '*' was found; expected the URL of a folder with a wdinfo.json, "
            "as an HTTP server lists no folders; name each leaf, or write {a,b}"
        )
    if not _INNERMOST_BRACES.search(text):
        return [Match(path=path, base=path, is_pattern=False)]
    base = text[: text.index("{")].rpartition("/")[0]
    return [
        Match(path=str(Url.parse(alternative)), base=base, is_pattern=False)
        for alternative in _expand_braces(text)
    ]


def _existing_prefix(tree: Tree, path: str) -> tuple[str, list[str]]:
    for prefix in (path, *iter_parents(path)):
        if tree.kind_of(prefix) is not None:
            below = path[len(prefix) :].strip("/")
            return prefix, below.split("/") if below else []
    return "/", path.strip("/").split("/")


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


def _iter_matches(tree: Tree, folder: str, parts: Sequence[str]) -> Iterator[str]:
    if not parts:
        yield folder
        return
    part, rest = parts[0], parts[1:]
    if part == "**":
        for below, listing in walk(tree, folder):
            yield from _iter_matches(tree, below, rest)
            listing.folders[:] = [name for name in listing.folders if not name.startswith("part_")]
    elif tree.kind_of(folder) == "folder":
        for name in _matching_names(tree, folder, part):
            yield from _iter_matches(tree, f"{folder.rstrip('/')}/{name}", rest)


def _matching_names(tree: Tree, folder: str, part: str) -> list[str]:
    if tree.kind_of(f"{folder.rstrip('/')}/{part}") is not None:
        return [part]
    listing = tree.scan(folder)
    return [name for name in sorted(listing.folders + listing.files) if fnmatchcase(name, part)]
