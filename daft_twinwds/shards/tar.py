"""One tar -> the regular files in it, from its headers alone.

Twin shards are read by byte range, so all that is wanted of a tar is where each payload starts and
how long it is. Reading it costs one look at each header and keeps nothing but names and numbers.
"""

import logging
import sys
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from daft_twinwds.errors import TarFormatError
from daft_twinwds.shards.tar_header import BLOCK
from daft_twinwds.shards.tar_links import Unresolved, resolve
from daft_twinwds.shards.tar_walk import MAX_EXTENSION_HEADER, Bytes, Walk

__all__ = ["BLOCK", "MAX_EXTENSION_HEADER", "Bytes", "Members", "read_members"]

_logger = logging.getLogger("daft_twinwds")


@dataclass(frozen=True, slots=True, kw_only=True)
class Members:
    """The regular files of one tar, in archive order."""

    names: list[str]
    """As stored, without a leading ``./``."""
    positions: NDArray[np.int64]
    """Byte offset of each payload, int64, shape ``(len(names),)``."""
    sizes: NDArray[np.int64]
    """Bytes of each payload, int64, shape ``(len(names),)``."""
    fault: TarFormatError | None
    """Where reading stopped; only with ``strict=False``."""
    bad_names: tuple[TarFormatError, ...]
    """Errors of members left out for names that are not UTF-8, at most `MAX_BAD_NAMES`; only with
    ``strict=False``."""
    end: int | None
    """Byte offset of the end marker, or of where it should be; None if it was not reached."""
    notes: Mapping[str, int]
    """How often something odd was met that is no fault.

    At most once per tar: ``no end marker``, ``single end block``, ``bytes after the end marker``.
    Per member left out: ``macOS sidecars skipped``, ``special files skipped``, ``volume labels
    skipped``, ``names that are not UTF-8``, ``links to members not read``.
    """


def read_members(
    data: Bytes, *, path: str, strict: bool = True, limit: int | None = None
) -> Members:
    """Return the regular files of an uncompressed tar, reading only its headers.

    For every file that ``tarfile`` would give, ``data[position : position + size]`` is exactly its
    payload. A link stands for the range of the file that it leads to; folders are left out.

    Args:
        data: The whole tar.
        path: Where ``data`` came from; used in messages only.
        strict: Raise the first fault. Otherwise return the whole members before it, and leave
            out members whose names are not UTF-8.
        limit: Return at most this many members, and look at nothing behind that many files.

    Returns:
        The members, whose names may repeat.

    Raises:
        TarFormatError: The tar is compressed, cut, damaged, joined to another one, sparse or no
            tar at all, or a link in it leads to no file in it.
        StorageError: ``data`` came back shorter than its length.
        ValueError: ``limit`` is less than 1.

    Source:
        POSIX.1-2017 pax and the GNU tar manual; Python's ``tarfile`` where they leave a choice.
    """
    if limit is not None and limit < 1:
        raise ValueError(f"limit must be at least 1, got {limit}")
    walk = Walk(data, path=path, strict=strict)
    fault: TarFormatError | None = None
    try:
        walk.run(sys.maxsize if limit is None else limit)
    except TarFormatError as error:
        fault = error
    members = _with_links(walk, fault, limit)
    if members.fault is not None:
        if strict:
            raise members.fault
        _forget_frames(members.fault)
    for note in ("no end marker", "bytes after the end marker"):
        if note in members.notes:
            _logger.warning("%s: %s; its %d files were read", path, note, len(members.names))
    return members


def _with_links(walk: Walk, fault: TarFormatError | None, limit: int | None) -> Members:
    """Return what the walk found, each link in its place with the range of its file."""
    names: list[str] = []
    positions: list[int] = []
    sizes: list[int] = []
    notes = dict(walk.notes)
    done, last = 0, len(walk.names)
    for link, outcome in zip(walk.links, resolve(walk.links, walk.names), strict=True):
        if isinstance(outcome, Unresolved):
            if outcome.may_come and not walk.ended:
                notes["links to members not read"] = notes.get("links to members not read", 0) + 1
                continue
            kind = "symbolic" if link.symbolic else "hard"
            fault = walk.error_at(
                link.offset,
                f"the {kind} link {link.name!r} leads to no file: {outcome.reason}",
                "pack it again with the file itself (tar --dereference, --hard-dereference)",
                count=link.place,
            )
            last = link.place
            break
        span = slice(done, link.place)
        names += [*walk.names[span], link.name]
        positions += [*walk.positions[span], walk.positions[outcome]]
        sizes += [*walk.sizes[span], walk.sizes[outcome]]
        done = link.place
    span = slice(done, last)
    return Members(
        names=(names + walk.names[span])[:limit],
        positions=np.array((positions + walk.positions[span])[:limit], dtype=np.int64),
        sizes=np.array((sizes + walk.sizes[span])[:limit], dtype=np.int64),
        fault=fault,
        bad_names=tuple(walk.bad_names),
        end=walk.end,
        notes=notes,
    )


def _forget_frames(fault: BaseException | None) -> None:
    """Drop the tracebacks of an error that is kept, for they keep the tar's bytes in memory."""
    while fault is not None:
        fault.__traceback__ = None
        fault = fault.__cause__
