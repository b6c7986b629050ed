"""Which bytes to ask a server for: pure functions of what is wanted and what was seen.

A request costs about as much as some bytes that could have come in its place, so what moves less
is counted with them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np

__all__ = ["FIRST_READ", "PART", "Span", "join_ranges", "next_read", "split_range"]

FIRST_READ: Final = 1 << 18
"""Bytes of a file's first read, which tells its size and often holds all of a small tar."""

BLOCK_READ: Final = 1 << 22
"""Bytes read at once of a tar whose headers lie close together."""

HEADER_READ: Final = 1 << 12
"""Bytes read of a tar whose headers lie far apart: one header, with its extensions."""

PART: Final = 1 << 23
"""Bytes of one request at most; what is larger comes in parts, side by side."""


def next_read(wanted: range, *, read_to: int, headers: int, size: int, request_cost: int) -> range:
    """Return the bytes to ask for when the next header of a tar is not at hand.

    Either all bytes from where the last read ended, in a large block, or those of the header
    alone: whichever costs less for headers as far apart as those so far were.

    Args:
        wanted: Where the header is.
        read_to: Where the last read ended.
        headers: Headers met before this one.
        size: Bytes of the tar.
        request_cost: See `StorageOptions`.

    Returns:
        A range within the tar that covers ``wanted``.
    """
    apart = wanted.start / headers if headers else float(wanted.start)
    unread = wanted.start - read_to
    if apart < request_cost and 0 <= unread < request_cost:
        stop = max(wanted.stop, read_to + max(BLOCK_READ, request_cost))
        return range(read_to, min(stop, size))
    return range(wanted.start, min(max(wanted.stop, wanted.start + HEADER_READ), size))


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """Bytes to ask for at once."""

    start: int
    stop: int
    """Behind the last byte."""
    members: Sequence[int]
    """Which of the wanted ranges lie in it."""


def join_ranges(
    positions: Sequence[int], sizes: Sequence[int], *, max_gap: int, max_size: int
) -> list[Span]:
    """Return how to read many ranges in few requests.

    Args:
        positions: First bytes, in any order.
        sizes: Bytes of each range.
        max_gap: Unwanted bytes between two ranges that are read along to save a request.
        max_size: Bytes of ranges that are joined; a single range may be larger.

    Returns:
        Spans in the order of their starts; each range lies whole in exactly one.
    """
    order = np.argsort(np.asarray(positions, np.int64), kind="stable").tolist()
    spans: list[Span] = []
    members: list[int] = []
    start = stop = 0
    for number in order:
        position, end = positions[number], positions[number] + sizes[number]
        if members and position <= stop + max_gap and max(end, stop) - start <= max_size:
            members.append(number)
            stop = max(stop, end)
            continue
        if members:
            spans.append(Span(start=start, stop=stop, members=members))
        members, start, stop = [number], position, end
    if members:
        spans.append(Span(start=start, stop=stop, members=members))
    return spans


def split_range(start: int, stop: int, *, most: int = PART) -> list[range]:
    """Return consecutive parts of about equal size, each of at most ``most`` bytes."""
    count = -(-(stop - start) // most)
    edges = [start + (stop - start) * number // max(count, 1) for number in range(count + 1)]
    return [range(*edge) for edge in pairwise(edges)]
