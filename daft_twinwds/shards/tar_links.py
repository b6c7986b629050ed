"""Links inside one tar -> the regular files that they stand for."""

from collections.abc import Sequence
from dataclasses import dataclass
from posixpath import dirname, join, normpath
from typing import NamedTuple


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """A hard or symbolic link, as stored."""

    name: str
    target: str
    """Hard links: a full member name. Symbolic links: a path from the link's folder."""
    symbolic: bool
    place: int
    """How many regular members stand before it."""
    offset: int
    """Byte offset of its header."""


class Unresolved(NamedTuple):
    """Why a link stands for no regular file."""

    reason: str
    may_come: bool
    """Whether a member that was not read could still be its target."""


def resolve(links: Sequence[Link], names: Sequence[str]) -> list[int | Unresolved]:
    """Find the regular member behind each link, through links to links.

    A hard link stands for the last member of its target's name before it, a symbolic link for the
    last one in the tar, as ``tarfile`` has it and as unpacking would leave it.

    Args:
        links: In archive order.
        names: Of the regular members, in archive order.

    Returns:
        Per link the index in ``names``, or why there is none.
    """
    if not links:
        return []
    points = _targets(links, names)
    outcomes: dict[int, int | Unresolved] = {}
    for start in range(len(links)):
        trail: dict[int, None] = {}
        node = start
        while node >= 0 and node not in outcomes:
            if node in trail:
                outcomes[node] = Unresolved(f"{links[node].target!r} leads back to itself", False)
                break
            trail[node] = None
            target = points[node]
            if isinstance(target, Unresolved):
                outcomes[node] = target
                break
            node = target
        outcome = outcomes[node] if node >= 0 else -1 - node
        # Chains share their ends, so each link is followed once whatever the chains' lengths.
        outcomes.update(dict.fromkeys(trail, outcome))
    return [outcomes[start] for start in range(len(links))]


def _targets(links: Sequence[Link], names: Sequence[str]) -> list[int | Unresolved]:
    """Return one step per link: another link's index, or -1 - index for a regular member."""
    known: dict[str, int] = {}
    points: list[int | Unresolved] = []
    done = 0
    for index, link in enumerate(links):
        known.update((normpath(names[i]), -1 - i) for i in range(done, link.place))
        done = link.place
        points.append(_missing(link) if link.symbolic else _look_up(link, link.target, known))
        known[normpath(link.name)] = index
    known.update((normpath(names[i]), -1 - i) for i in range(done, len(names)))
    for index, link in enumerate(links):
        if link.symbolic:
            points[index] = _look_up(link, join(dirname(link.name), link.target), known)
    return points


def _look_up(link: Link, target: str, known: dict[str, int]) -> int | Unresolved:
    path = normpath(target)
    if link.symbolic and (path.startswith("/") or path.split("/")[0] == ".."):
        return Unresolved(f"{link.target!r} is outside the tar", may_come=False)
    return known.get(path, _missing(link))


def _missing(link: Link) -> Unresolved:
    where = "in this tar" if link.symbolic else "before it in this tar"
    return Unresolved(f"{link.target!r} is no regular file {where}", may_come=link.symbolic)
