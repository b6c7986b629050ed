"""The memory of batches: never shared by two that are alive, never more than was alive at once."""

import gc
import threading
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from daft_twinwds.train.batch_memory import BatchMemory, Pixels, ShapeMismatchError

SHAPE = (2, 3, 4, 3)
LIMIT = 3


@pytest.fixture
def memory() -> BatchMemory:
    return BatchMemory(limit=LIMIT)


@pytest.fixture
def _no_collector() -> Iterator[None]:
    """What has to be free at once must not wait for the garbage collector."""
    gc.disable()
    yield
    gc.enable()


def address(array: NDArray[np.uint8]) -> int:
    return array.ctypes.data


def test_memory_can_be_written_and_is_in_order(memory: BatchMemory) -> None:
    array = memory.take(SHAPE)

    assert array.shape == SHAPE
    assert array.dtype == np.uint8
    assert array.flags.writeable
    assert array.flags.c_contiguous


@pytest.mark.usefixtures("_no_collector")
def test_memory_that_was_dropped_is_used_again(memory: BatchMemory) -> None:
    array = memory.take(SHAPE)
    before = address(array)

    del array

    assert address(memory.take(SHAPE)) == before


@pytest.mark.parametrize(
    "keep",
    [
        pytest.param(lambda array: array, id="the-array"),
        pytest.param(lambda array: array[0][1:], id="a-view-of-a-view"),
        pytest.param(lambda array: array.reshape(-1).view(np.uint16), id="another-dtype"),
        pytest.param(lambda array: memoryview(array), id="a-buffer"),
        pytest.param(lambda array: torch.from_numpy(array), id="a-tensor"),
        pytest.param(lambda array: torch.from_numpy(array)[1].permute(2, 0, 1), id="its-view"),
        pytest.param(lambda array: torch.from_numpy(array)[1].numpy(), id="a-view-of-its-array"),
        pytest.param(lambda array: np.from_dlpack(array[1:]), id="dlpack"),
    ],
)
@pytest.mark.usefixtures("_no_collector")
def test_memory_is_not_used_again_while_anything_refers_to_it(keep: object) -> None:
    memory = BatchMemory(limit=LIMIT)
    array = memory.take(SHAPE)
    before = address(array)
    assert callable(keep)
    kept = keep(array)
    del array

    other = memory.take(SHAPE)
    while_kept = address(other)
    del kept, other

    assert while_kept != before


@pytest.mark.usefixtures("_no_collector")
def test_memory_that_is_too_small_is_let_go(memory: BatchMemory) -> None:
    arrays = [memory.take(SHAPE) for _ in range(LIMIT)]
    arrays.clear()
    assert len(memory._free) == LIMIT

    other = memory.take((1, 5, 5, 3))

    assert other.shape == (1, 5, 5, 3)
    assert len(memory._free) == LIMIT - 1


@pytest.mark.usefixtures("_no_collector")
def test_memory_serves_batches_of_smaller_shapes_too(memory: BatchMemory) -> None:
    array = memory.take((2, 5, 4, 3))
    before = address(array)
    del array

    smaller = memory.take(SHAPE)
    at = address(smaller)
    smaller[:] = 7

    assert (at, smaller.shape, smaller.flags.c_contiguous) == (before, SHAPE, True)
    del smaller
    assert address(memory.take((2, 5, 4, 3))) == before


def test_memory_comes_from_where_it_is_told() -> None:
    sizes: list[int] = []

    def allocate(size: int) -> NDArray[np.uint8]:
        sizes.append(size)
        return np.full(size, 9, np.uint8)

    array = BatchMemory(limit=LIMIT, allocate=allocate).take(SHAPE)

    assert sizes == [array.size]
    assert set(array.reshape(-1).tolist()) == {9}


@pytest.mark.usefixtures("_no_collector")
@given(steps=st.lists(st.integers(-1, 5), max_size=40))
def test_memory_is_never_shared_and_never_more_than_was_alive_at_once(steps: list[int]) -> None:
    memory = BatchMemory(limit=LIMIT)
    alive: list[NDArray[np.uint8]] = []
    peak = 0
    for step in steps:
        if step < 0:
            alive.append(memory.take(SHAPE))
        elif step < len(alive):
            del alive[step]
        peak = max(peak, len(alive))

        addresses = [address(array) for array in [*alive, *memory._free]]
        assert len(set(addresses)) == len(addresses) <= peak
        assert len(memory._free) <= LIMIT


@pytest.mark.usefixtures("_no_collector")
def test_nothing_is_kept_after_the_end(memory: BatchMemory) -> None:
    early, late = memory.take(SHAPE), memory.take(SHAPE)
    del early

    memory.close()
    del late

    assert not memory._free


def test_many_threads_never_get_the_same_memory(memory: BatchMemory) -> None:
    spoilt = []

    def use(number: int) -> None:
        for _ in range(300):
            array = memory.take(SHAPE)
            array[:] = number
            spoilt.extend(array[array != number])

    threads = [threading.Thread(target=use, args=[number]) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert spoilt == []


def test_pictures_share_the_memory_of_their_batch(memory: BatchMemory) -> None:
    pixels = Pixels(memory, 2)
    pixels.slot(1, (4, 5, 3))[:] = 1
    pixels.slot(0, (4, 5, 3))[:] = 0

    batch = pixels.of([0, 1])

    assert batch.shape == (2, 4, 5, 3)
    assert batch[:, 0, 0, 0].tolist() == [0, 1]
    assert address(pixels.slot(0, (4, 5, 3))) == address(batch)


@pytest.mark.parametrize(
    ("slots", "copied"), [([0, 1], False), ([0], False), ([1, 2], True), ([0, 2], True)]
)
def test_pictures_that_are_left_out_cost_a_copy_only_before_others(
    memory: BatchMemory, slots: list[int], copied: bool
) -> None:
    pixels = Pixels(memory, 3)
    for slot in range(3):
        pixels.slot(slot, (1, 1, 3))[:] = slot

    batch = pixels.of(slots)

    assert batch[:, 0, 0, 0].tolist() == slots
    assert (address(batch) != address(pixels.slot(0, (1, 1, 3)))) == copied


def test_pictures_of_two_shapes_are_refused(memory: BatchMemory) -> None:
    pixels = Pixels(memory, 2)
    pixels.slot(0, (48, 64, 3))

    with pytest.raises(
        ShapeMismatchError,
        match=r"a picture of \(32, 32, 3\) .* with one of \(48, 64, 3\); expected one shape; pass ",
    ):
        pixels.slot(1, (32, 32, 3))
