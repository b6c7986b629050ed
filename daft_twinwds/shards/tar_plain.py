"""The plain headers at the beginning of a tar, all at once.

Most tars of captions are small, and all their headers plain: read one by one they cost more than
all the rest of a scan. Here they are found by their magic, checked and read by NumPy; whatever is
not plain is left to `Walk`, which begins where this ends.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from daft_twinwds.shards.tar_header import BLOCK

__all__ = ["PlainRun", "read_plain_run"]

_MAGIC = np.frombuffer(b"ustar", np.uint8)
_EIGHTS = 8 ** np.arange(10, -1, -1, dtype=np.int64)
"""What each of the eleven digits of a size stands for."""
_EVEN_BYTES = np.uint64(0x00FF00FF00FF00FF)
_HIGH_BITS = np.uint64(0x8080808080808080)
_BYTE = np.uint64(8)

_SUM_EIGHTS = 8 ** np.arange(5, -1, -1, dtype=np.int64)
"""What each of the six digits of a checksum stands for."""


class PlainRun(NamedTuple):
    """Regular files whose headers follow each other from the first block on."""

    names: list[str]
    positions: list[int]
    sizes: list[int]
    end: int
    """Where the next header stands."""


def read_plain_run(data: bytes) -> PlainRun:
    """Return the files before the first header that takes a closer look.

    Plain means: a regular file, an ASCII name of at most 100 bytes without a prefix, a leading
    ``./``, a hidden part or ``__MACOSX``, octal size and checksum, a payload that is all there.

    Args:
        data: A whole tar, or anything else, in which case the run is empty.
    """
    blocks = np.frombuffer(data, np.uint8, len(data) // BLOCK * BLOCK).reshape(-1, BLOCK)
    found = np.flatnonzero(blocks[:, 257] == _MAGIC[0])
    found = found[(blocks[found, 257:262] == _MAGIC).all(axis=1)]
    # A payload may hold the magic too: it breaks the chain of sizes below, no more.
    if not len(found) or found[0] != 0:
        return PlainRun([], [], [], 0)
    headers = blocks[found]
    sizes = _octal(headers[:, 124:135], _EIGHTS)
    after = found + 1 + -(-sizes // BLOCK)
    plain = _is_plain(headers) & (sizes >= 0) & ((found + 1) * BLOCK + sizes <= len(data))
    # Every header but the first has to stand where the one before it says.
    plain[1:] &= after[:-1] == found[1:]
    count = len(found) if plain.all() else int(np.argmin(plain))
    fields = np.ascontiguousarray(headers[:count, :100]).view("S100").ravel().tolist()
    joined = b"\n".join(fields)
    if b"\0" in joined or b"/." in joined or b"__MACOSX" in joined:
        return PlainRun([], [], [], 0)
    return PlainRun(
        names=[field.decode("ascii") for field in fields],
        positions=((found[:count] + 1) * BLOCK).tolist(),
        sizes=sizes[:count].tolist(),
        end=int(after[count - 1]) * BLOCK if count else 0,
    )


def _is_plain(headers: NDArray[np.uint8]) -> NDArray[np.bool_]:
    words = headers.view(np.uint64)
    # Eight bytes at a time: 64 words of two ASCII bytes added up stay below 2**16 in each lane.
    lanes = ((words & _EVEN_BYTES) + (words >> _BYTE & _EVEN_BYTES)).sum(axis=1)
    sums = lanes.view(np.uint16).reshape(-1, 4).sum(axis=1, dtype=np.int64)
    # The checksum counts its own eight bytes as spaces.
    sums += 8 * ord(" ") - headers[:, 148:156].sum(axis=1, dtype=np.int64)
    plain: NDArray[np.bool_] = (
        (headers[:, 156] == ord("0"))
        & (headers[:, 0] > ord("."))
        & (headers[:, 345] == 0)
        & ((headers[:, 135] == 0) | (headers[:, 135] == ord(" ")))
        & (headers[:, 154] == 0)
        & (headers[:, 155] == ord(" "))
        & (np.bitwise_or.reduce(words, axis=1) & _HIGH_BITS == 0)
        & (sums == _octal(headers[:, 148:154], _SUM_EIGHTS))
    )
    return plain


def _octal(digits: NDArray[np.uint8], eights: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return what digits stand for, -1 where one is none."""
    values = digits.astype(np.int64) - ord("0")
    numbers: NDArray[np.int64] = values @ eights
    return np.where(((values >= 0) & (values < 8)).all(axis=1), numbers, -1)
