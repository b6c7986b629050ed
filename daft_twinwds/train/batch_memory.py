"""The memory of a batch's pictures: made when the first shape is known, used again when free."""

import math
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from threading import Lock

import numpy as np
from numpy.typing import NDArray

from daft_twinwds.errors import DecodeError

__all__ = ["Allocate", "BatchMemory", "Pixels", "ShapeMismatchError", "plain_memory"]

Shape = tuple[int, int, int]
Allocate = Callable[[int], NDArray[np.uint8]]
"""Makes writable memory of so many bytes, (bytes,)."""


def plain_memory(size: int) -> NDArray[np.uint8]:
    """Make memory as NumPy does."""
    return np.empty(size, np.uint8)


class ShapeMismatchError(DecodeError):
    """Pictures of one batch differ in shape: a matter of the batch, not of a bad sample."""


class BatchMemory:
    """Memory for one batch after the other; what a batch leaves behind, a later one gets.

    A batch's memory is free when no array and no tensor refers to it any more, not before. Fresh
    memory is made only while none is free, or in exchange for some that is too small: together there
    are never more pieces than there were batches alive at once, and never more than ``limit`` are
    free. Any thread may use it.
    """

    def __init__(self, limit: int, allocate: Allocate = plain_memory) -> None:
        # Fresh memory of this size comes from the kernel, which clears it first: a tenth of the
        # time that decoding takes, and twice that time where a hypervisor has to find it.
        #
        # No lock: the garbage collector may drop a batch while this thread is in here, and what
        # a deque does is done at once.
        self._free: deque[NDArray[np.uint8]] = deque(maxlen=limit)
        self._closed = False
        self._allocate = allocate

    def take(self, shape: tuple[int, ...]) -> NDArray[np.uint8]:
        """Return writable, C-contiguous memory whose content is undefined."""
        memory = None
        with suppress(IndexError):
            memory = self._free.pop()
        size = math.prod(shape)
        # Batches of other buckets have other shapes and about as many pixels.
        if memory is None or memory.size < size:
            memory = self._allocate(size)
        return np.asarray(_Lease(memory, shape, self))

    def give_back(self, memory: NDArray[np.uint8]) -> None:
        """Keep memory that nothing refers to any more for a later batch."""
        if not self._closed:
            self._free.append(memory)

    def close(self) -> None:
        """Keep nothing any more; batches that are still alive stay as they are."""
        self._closed = True
        self._free.clear()


class _Lease:
    """What all views of a batch's memory refer to in the end, so that it goes with the last.

    NumPy makes an array's base the owner of its memory, past all views in between; the owner has
    to be something else than an array, or views of the batch would outlive the lease.
    """

    def __init__(
        self, memory: NDArray[np.uint8], shape: tuple[int, ...], source: BatchMemory
    ) -> None:
        self.__array_interface__ = memory[: math.prod(shape)].reshape(shape).__array_interface__
        self._memory = memory
        self._source = source

    def __del__(self) -> None:
        self._source.give_back(self._memory)


class Pixels:
    """The pictures of one batch, as they come in from many threads."""

    def __init__(self, memory: BatchMemory, rows: int) -> None:
        self._memory = memory
        self._rows = rows
        self._pixels: NDArray[np.uint8] | None = None
        self._lock = Lock()

    def slot(self, slot: int, shape: Shape) -> NDArray[np.uint8]:
        """Return the memory of one picture, (height, width, channels).

        Raises:
            ShapeMismatchError: Another picture of the batch has another shape.
        """
        with self._lock:
            if self._pixels is None:
                self._pixels = self._memory.take((self._rows, *shape))
        if self._pixels.shape[1:] != shape:
            raise ShapeMismatchError(
                f"a picture of {shape} (height, width, channels) in a batch with one of "
                f"{self._pixels.shape[1:]}; expected one shape; pass decode={{...: "
                "DecodeImage(size=(height, width))}, or batch_size=None to get samples one by one"
            )
        picture: NDArray[np.uint8] = self._pixels[slot]
        return picture

    def of(self, slots: list[int]) -> NDArray[np.uint8]:
        """Return the pictures of these slots, (slots, height, width, channels).

        Without a copy if they are the first ones. At least one picture has to be there.
        """
        assert self._pixels is not None
        if slots == list(range(len(slots))):
            return self._pixels[: len(slots)]
        return self._pixels[slots]
