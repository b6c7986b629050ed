"""Which bucket each step of an epoch reads, without a table of all steps."""

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from daft_twinwds.train.permutation import derive_key, permute

__all__ = ["Interleaving"]

# Steps that are shuffled among themselves, and the number of such blocks, which keeps products
# in 64 bits. Never to be changed, as the order of epochs with buckets depends on them.
_BLOCK: Final = 1024
_MAX_BLOCKS: Final = 2**20


@dataclass(frozen=True, slots=True)
class Interleaving:
    """A sequence of steps in which bucket k has ``counts[k]`` turns, in a random order.

    Laws: every bucket has exactly its turns, and has them one after the other: after any step a
    count per bucket says all that was read. Epochs of more than 1024 steps are cut into blocks
    of about that length, which hold each bucket in proportion, so that any step is found without
    those before its block.
    """

    counts: tuple[int, ...]
    """Turns of each bucket."""
    key: int | None
    """Which order; None for one bucket after the other."""

    def at(self, steps: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return whose turns these are, and how many turns each of these buckets had before.

        Args:
            steps: Steps in ``[0, sum(counts))``, (steps,).

        Returns:
            Buckets (steps,) and ordinals (steps,).
        """
        if self.key is None:
            ends = np.cumsum(np.array(self.counts, np.int64))
            buckets = np.searchsorted(ends, steps, side="right")
            return buckets, steps - ends[buckets] + np.array(self.counts, np.int64)[buckets]
        buckets, ordinals = np.empty_like(steps), np.empty_like(steps)
        left = np.arange(len(steps))
        while len(left):
            block = _block_of(self.counts, self.key, int(steps[left[0]]))
            places = steps[left] - block.start
            inside = (places >= 0) & (places < len(block.buckets))
            buckets[left[inside]] = block.buckets[places[inside]]
            ordinals[left[inside]] = block.ordinals[places[inside]]
            left = left[~inside]
        return buckets, ordinals

    def before(self, step: int) -> NDArray[np.int64]:
        """Return how many of the first ``step`` steps each bucket has, (buckets,)."""
        counts = np.array(self.counts, np.int64)
        if self.key is None:
            left: NDArray[np.int64] = step - np.cumsum(counts) + counts
            return np.minimum(np.maximum(left, 0), counts)
        if step == counts.sum():
            return counts
        block = _block_of(self.counts, self.key, step)
        part = np.bincount(block.buckets[: step - block.start], minlength=len(counts))
        read: NDArray[np.int64] = block.before + part
        return read


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class _Block:
    """Some steps in a row."""

    start: int
    before: NDArray[np.int64]
    """Turns that each bucket had before the block, (buckets,)."""
    buckets: NDArray[np.int64]
    ordinals: NDArray[np.int64]


def _block_of(counts: tuple[int, ...], key: int, step: int) -> _Block:
    """Return the block that holds a step."""
    num_blocks = _num_blocks(counts)
    # Rounding shifts the borders by less than a step for each bucket, so this is close.
    number = step * num_blocks // sum(counts)
    while (block := _block(counts, key, number)).start > step:
        number -= 1
    while block.start + len(block.buckets) <= step:
        number += 1
        block = _block(counts, key, number)
    return block


@lru_cache(maxsize=64)
def _block(counts: tuple[int, ...], key: int, number: int) -> _Block:
    before, after = (_border(counts, key, border) for border in (number, number + 1))
    inside = after - before
    ordered = np.repeat(np.arange(len(counts)), inside)
    size = len(ordered)
    buckets = ordered[permute(np.arange(size), size, key=derive_key(key, number))]
    ordinals = np.empty(size, np.int64)
    ordinals[np.argsort(buckets, kind="stable")] = np.concatenate(
        [np.arange(first, last) for first, last in zip(before, after, strict=True)]
    )
    return _Block(start=int(before.sum()), before=before, buckets=buckets, ordinals=ordinals)


def _border(counts: tuple[int, ...], key: int, number: int) -> NDArray[np.int64]:
    """Return the turns that each bucket has before block ``number``, (buckets,)."""
    num_blocks = _num_blocks(counts)
    shares = np.array(counts, np.int64) * number + _phases(key, len(counts), num_blocks)
    return shares // num_blocks


@lru_cache(maxsize=64)
def _phases(key: int, num_buckets: int, num_blocks: int) -> NDArray[np.int64]:
    # A bucket of a single turn would be in the last block of every epoch, were it not for these.
    keys = (derive_key(key, 0, bucket) for bucket in range(num_buckets))
    return np.array([number * num_blocks >> 64 for number in keys], np.int64)


def _num_blocks(counts: tuple[int, ...]) -> int:
    return min(-(-sum(counts) // _BLOCK), _MAX_BLOCKS)
