"""Pseudo-random permutations that are evaluated, not stored.

`permute` says where any position of a shuffled sequence points, without the rest of the
sequence: a training order of a billion rows costs no memory, and resuming in its middle costs
nothing. What both functions return for given arguments never changes between releases.
"""

import operator
from functools import lru_cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

__all__ = ["check_choice", "check_int", "derive_key", "permute"]

_MASK: Final = 2**64 - 1
# Increment and multipliers of SplitMix64.
_GAMMA: Final = 0x9E3779B97F4A7C15
_FIRST: Final = 0xBF58476D1CE4E5B9
_SECOND: Final = 0x94D049BB133111EB

# With 12 even the 720 orders of 6 items come equally often; with 8 they visibly do not.
_ROUNDS: Final = 12
_MAX_ITEMS: Final = 2**62
# Positions per pass: the working arrays of a pass stay in the processor's cache.
_CHUNK: Final = 2**14


def check_int(name: str, value: Any, *, least: int = 0, limit: int = 2**64) -> int:
    """Return ``value`` as an int in ``[least, limit)``.

    Args:
        name: What the value is, for the error.
        value: An int or a NumPy integer; a bool or a float is refused, even a whole one, since
            ``True`` for a seed is a mistake.
        least: Smallest value allowed.
        limit: First value that is too large.

    Raises:
        TypeError: It is no integer.
        ValueError: It is out of range.
    """
    try:
        number = None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = None
    if number is None:
        raise TypeError(f"{name} must be an int, got {value!r}")
    if not least <= number < limit:
        bound = f"at least {least}" if number < least else f"below {limit}"
        raise ValueError(f"{name} must be {bound}, got {number}")
    return number


def check_choice(name: str, value: object, choices: tuple[object, ...]) -> None:
    """Refuse a value that is none of ``choices``, which share a type.

    Raises:
        ValueError: It is not; the choices are named.
    """
    if not isinstance(value, type(choices[0])) or value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, choices))}, got {value!r}")


def derive_key(*parts: int) -> int:
    """Mix integers into one 64-bit key, the same in every process and every release.

    Argument lists of equal length that differ in a single place never give the same key: each
    step is a bijection of what came before and of the part that is mixed in. The length counts,
    so ``derive_key(1)`` and ``derive_key(1, 0)`` differ.

    Args:
        parts: Integers in ``[0, 2**64)``, such as seed, epoch and bucket.

    Returns:
        A key in ``[0, 2**64)``.

    Raises:
        TypeError: A part is no integer.
        ValueError: A part is out of range.

    Source:
        SplitMix64 (Steele, Lea, Flood: "Fast Splittable Pseudorandom Number Generators", 2014):
        its increment and its finaliser, once for each part.
    """
    key = len(parts)
    for part in parts:
        key = _mix((key + _GAMMA & _MASK) ^ check_int("key part", part))
    return key


def permute(positions: NDArray[np.int64], num_items: int, *, key: int) -> NDArray[np.int64]:
    """Return which items stand at ``positions`` of a shuffled ``range(num_items)``.

    Over all positions this is a permutation of ``[0, num_items)``. Each position is computed by
    itself: time goes with the number of positions, memory does not depend on ``num_items``.

    Args:
        positions: Positions in ``[0, num_items)``, of any shape.
        num_items: Length of the sequence, at most ``2**62``.
        key: Which permutation, in ``[0, 2**64)``; see `derive_key`.

    Returns:
        Items in ``[0, num_items)``, in the shape of ``positions``.

    Raises:
        TypeError: The positions are no integers.
        ValueError: A position or an argument is out of range.

    Source:
        A Feistel network over the smallest power of two that holds all items, walked until it
        falls inside (Black and Rogaway: "Ciphers with Arbitrary Finite Domains", 2002). It is a
        shuffle, not a cipher.
    """
    num_items = check_int("num_items", num_items, limit=_MAX_ITEMS + 1)
    key = check_int("key", key)
    positions = np.asarray(positions)
    if positions.size == 0:
        return np.empty(positions.shape, np.int64)
    if positions.dtype.kind not in "iu":
        raise TypeError(f"positions must be integers, got {positions.dtype}")
    lowest, highest = int(positions.min()), int(positions.max())
    if lowest < 0 or highest >= num_items:
        raise ValueError(
            f"positions must be in [0, {num_items}), got values from {lowest} to {highest}"
        )
    if num_items == 1:
        return np.zeros(positions.shape, np.int64)
    items = positions.astype(np.uint64).reshape(-1)
    bits = max(2, (num_items - 1).bit_length())
    keys = _round_keys(key)
    for first in range(0, len(items), _CHUNK):
        _walk(items[first : first + _CHUNK], num_items, bits, keys)
    return items.view(np.int64).reshape(positions.shape)


def _walk(items: NDArray[np.uint64], num_items: int, bits: int, keys: tuple[int, ...]) -> None:
    """Permute in place, again where the result lies outside; two times suffice on average."""
    _encrypt(items, bits, keys)
    outside = np.flatnonzero(items >= num_items)
    while len(outside):
        again = items[outside]
        _encrypt(again, bits, keys)
        items[outside] = again
        outside = outside[again >= num_items]


def _encrypt(items: NDArray[np.uint64], bits: int, keys: tuple[int, ...]) -> None:
    """Apply a bijection of ``[0, 2**bits)`` in place."""
    width = bits // 2
    # Halves may differ by one bit: each round changes one of them by a function of the other,
    # so that nothing is swapped and any widths will do.
    widths = (width, bits - width)
    low = items & np.uint64(2**width - 1)
    halves = (low, items >> np.uint64(width))
    mixed, shifted = np.empty_like(items), np.empty_like(items)
    for number, key in enumerate(keys):
        target = number % 2
        np.add(halves[1 - target], np.uint64(key), out=mixed)
        np.multiply(mixed, np.uint64(_FIRST), out=mixed)
        np.right_shift(mixed, np.uint64(32), out=shifted)
        np.bitwise_xor(mixed, shifted, out=mixed)
        np.multiply(mixed, np.uint64(_SECOND), out=mixed)
        # The highest bits of a product depend on all bits of its factors.
        np.right_shift(mixed, np.uint64(64 - widths[target]), out=mixed)
        np.bitwise_xor(halves[target], mixed, out=halves[target])
    np.left_shift(halves[1], np.uint64(width), out=items)
    np.bitwise_or(items, low, out=items)


@lru_cache(maxsize=1024)
def _round_keys(key: int) -> tuple[int, ...]:
    return tuple(_mix(key + _GAMMA * number & _MASK) for number in range(1, _ROUNDS + 1))


def _mix(value: int) -> int:
    """Apply SplitMix64's finaliser, a bijection of 64-bit integers."""
    value = (value ^ value >> 30) * _FIRST & _MASK
    value = (value ^ value >> 27) * _SECOND & _MASK
    return value ^ value >> 31
