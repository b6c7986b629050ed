"""Which leaves a caller's paths and filters mean."""

import logging
import re
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Final
from urllib.parse import unquote

from daft_twinwds.errors import LayoutError
from daft_twinwds.shards.folders import FoundLeaves, explain_no_leaf, find_leaves
from daft_twinwds.shards.manifest import MANIFEST_NAME
from daft_twinwds.shards.options import StorageOptions
from daft_twinwds.shards.paths import Match, Place, path_items, require_text, resolve
from daft_twinwds.shards.trees import Tree
from daft_twinwds.shards.urls import HTTP, iter_parents, scheme_of, shown

logger = logging.getLogger(__name__)

_RATIO: Final = re.compile(r"\s*([1-9]\d*)\s*[,_:/]\s*([1-9]\d*)\s*")


@dataclass(frozen=True, slots=True, kw_only=True)
class LeafFolder:
    """A leaf that was found, before anything of it is read."""

    place: Place
    """Its folder."""
    below: str
    """Where the folder is below the path that led to it; empty for that path itself."""
    has_manifest: bool
    """Whether a ``wdinfo.json`` lies in it."""

    @property
    def root(self) -> str:
        """Absolute folder, or a URL without what is secret in it."""
        return self.place.path


@dataclass(frozen=True, slots=True, kw_only=True)
class LeafFilter:
    """Which leaves are wanted, by the words and parts of their paths."""

    include: tuple[str, ...]
    """Any of these must occur below the base; empty for no such demand."""
    exclude: tuple[str, ...]
    """None of these may occur below the base."""
    ratio_folders: frozenset[str]
    """Any of these must be a part of the path; empty for no such demand."""

    @classmethod
    def from_arguments(
        cls,
        include: str | Sequence[str] | None,
        exclude: str | Sequence[str] | None,
        aspect_ratios: str | Sequence[str] | None,
    ) -> "LeafFilter":
        """Check the arguments of `find_dataset` of the same names.

        Raises:
            TypeError: One is neither a string nor a list of strings.
            ValueError: A word is empty, or an aspect ratio is not two whole numbers.
        """
        return cls(
            include=_words("include", include),
            exclude=_words("exclude", exclude),
            ratio_folders=frozenset(
                _ratio_folder(text) for text in _words("aspect_ratios", aspect_ratios)
            ),
        )

    def keeps(self, folder: str, *, base: str) -> bool:
        """Return whether ``folder``, which lies in ``base``, is wanted."""
        below = _below(folder, base)
        if self.include and not any(word in below for word in self.include):
            return False
        if self.ratio_folders and self.ratio_folders.isdisjoint(folder.split("/")):
            return False
        return not any(word in below for word in self.exclude)


def find_leaf_folders(
    path: object, wanted: LeafFilter, options: StorageOptions
) -> tuple[list[LeafFolder], list[str]]:
    """Return the wanted leaves that the caller's paths lead to.

    Args:
        path: As in `find_dataset`.
        wanted: Which of the leaves to keep.
        options: How storage is accessed.

    Returns:
        The leaves, paths in the caller's order and leaves sorted within each; and the wanted
        folders of tars that lie in no leaf, while other folders have a manifest.

    Raises:
        LayoutError: A path leads to no leaf, two lead to the same one, or none is wanted.
        StorageError: A scheme is not known, or a folder cannot be listed.
        TypeError, ValueError: ``path`` is no path or list of paths.
    """
    items = path_items(path)
    leaves: dict[Hashable, tuple[str, LeafFolder]] = {}
    strays: list[str] = []
    unwanted: list[str] = []
    for number, item in enumerate(items):
        # Two equal items are two ways to a leaf as well.
        way = f"item {number + 1}, {shown(item)!r}"
        place = Place.of(item, options)
        for base, found in _find_in(place):
            strays += [folder for folder in found.strays if wanted.keeps(folder, base=base)]
            for root in found.folders:
                if not wanted.keeps(root, base=base):
                    unwanted.append(root)
                    continue
                require_text(root)
                leaf = LeafFolder(
                    place=replace(place, path=root),
                    below=_below(root, base),
                    has_manifest=found.has_manifest,
                )
                first_way, first = leaves.setdefault(place.tree.identity(root), (way, leaf))
                if first_way != way:
                    raise _reached_twice(first, first_way, way)
    if not leaves:
        raise LayoutError(
            f"{_first_few([shown(item) for item in items])}: {len(unwanted)} leaves were found, "
            f"none of which include, exclude and aspect_ratios leave: {_first_few(unwanted)}; "
            "expected at least one; relax them"
        )
    return [leaf for _, leaf in leaves.values()], list(dict.fromkeys(strays))


def _find_in(place: Place) -> list[tuple[str, FoundLeaves]]:
    """Return what lies at each match of a place, with the base to filter by."""
    results: list[tuple[str, FoundLeaves]] = []
    known: set[str] = set()
    matches = resolve(place)
    for match in matches:
        # Patterns such as data/** match a leaf's own folders, too.
        if match.is_pattern and known.intersection(iter_parents(match.path)):
            continue
        found = _leaves_at(place.tree, match)
        if found.folders:
            results.append((match.base.removesuffix(f"/{MANIFEST_NAME}"), found))
            known.update(found.folders)
        else:
            logger.debug("%s: matches %s, which is no dataset", match.path, place.path)
    if not results:
        raise LayoutError(
            f"{place.path}: the pattern matches {_first_few([match.path for match in matches])}, "
            "none of which is a dataset's root or wdinfo.json; expected at least one; check it"
        )
    return results


def _leaves_at(tree: Tree, match: Match) -> FoundLeaves:
    if tree.kind_of(match.path) == "folder":
        found = find_leaves(tree, match.path)
        if not found.folders and not match.is_pattern:
            raise LayoutError(f"{match.path}: {explain_no_leaf(tree, match.path)}")
        return found
    folder, _, name = match.path.rpartition("/")
    if name == MANIFEST_NAME:
        return FoundLeaves(folders=[folder], has_manifest=True, strays=[])
    if not match.is_pattern:
        raise LayoutError(
            f"{match.path}: a file was found; expected a dataset's root or its {MANIFEST_NAME}; "
            "give the folder that the modalities lie in"
        )
    return FoundLeaves(folders=[], has_manifest=False, strays=[])


def _below(folder: str, base: str) -> str:
    below = folder.removeprefix(base).strip("/")
    return unquote(below) if scheme_of(folder) in HTTP else below


def _words(name: str, value: object) -> tuple[str, ...]:
    if value is None:
        return ()
    given = (value,) if isinstance(value, str) else value
    if not isinstance(given, Sequence):
        raise TypeError(f"{name} must be a string or a list of strings, got {value!r}")
    words = tuple(word for word in given if isinstance(word, str))
    if len(words) < len(given):
        raise TypeError(f"{name} must hold nothing but strings, got {value!r}")
    if "" in words:
        raise ValueError(f"{name} must hold no empty string, which occurs in every path")
    return words


def _ratio_folder(text: str) -> str:
    ratio = _RATIO.fullmatch(text)
    if ratio is None:
        raise ValueError(
            f"an aspect ratio must be two whole numbers such as '16,9' or '16:9', got {text!r}"
        )
    return f"aspect_ratio_{ratio[1]}_{ratio[2]}"


def _reached_twice(leaf: LeafFolder, first_way: str, way: str) -> LayoutError:
    return LayoutError(
        f"{leaf.root}: this leaf is reached twice, through {first_way}, and {way}; expected "
        "each leaf once; drop one of the paths (to repeat data, concatenate what was read)"
    )


def _first_few(paths: Sequence[str]) -> str:
    more = f" and {len(paths) - 5} more" if len(paths) > 5 else ""
    return ", ".join(paths[:5]) + more
