"""Which shards a reader reads, by PiD's rules: for people who must match its order."""

import logging
import random
from collections.abc import Mapping
from itertools import cycle, islice

from daft_twinwds.partition import Partition
from daft_twinwds.train.permutation import check_int

__all__ = ["multi_aspect_plan", "shard_plan"]

logger = logging.getLogger("daft_twinwds")


def shard_plan(
    num_shards: int,
    partition: Partition,
    *,
    equalize: bool = True,
    shuffle: bool = True,
    samples_seen: int = 0,
    chunk_size: int = 1,
) -> list[int]:
    """Return the shards that a reader reads, in its order.

    Laws: readers share the list evenly; with ``equalize`` all get the same number of shards,
    some shards being read by two readers; without it every shard is read once and some readers
    may get none. The plan does not change with the epoch, as in PiD.

    For PiD's plan by data-parallel group, pass the group as the rank and the number of groups as
    the world size: all ranks of a tensor- or context-parallel group then get one list.

    Args:
        num_shards: Shards of the data set, at least 1.
        partition: Who reads.
        equalize: Repeat the list, from its beginning, up to a multiple of all readers.
        shuffle: Shuffle each reader's own list.
        samples_seen: Samples that this rank has consumed before, by all its workers together.
        chunk_size: Samples per shard.

    Returns:
        Shard numbers in ``[0, num_shards)``; fewer as ``samples_seen`` grows, and none once the
        list is used up.

    Raises:
        TypeError: A number is no int.
        ValueError: A number is out of range.

    Source:
        PiD's distributors ``basic`` and ``parallel_sync_basic``.
    """
    num_shards = check_int("num_shards", num_shards, least=1)
    samples_seen = check_int("samples_seen", samples_seen)
    chunk_size = check_int("chunk_size", chunk_size, least=1)
    readers = partition.num_readers
    length = -(-num_shards // readers) * readers if equalize else num_shards
    shards = [place % num_shards for place in partition.slice_of(length)]
    if shuffle:
        _shuffle(shards, partition)
    return shards[samples_seen // chunk_size // partition.num_workers :]


def multi_aspect_plan(
    shards_per_ratio: Mapping[str, int], partition: Partition
) -> tuple[str, list[int]]:
    """Return the aspect ratio that a reader reads, and which of its shards, in its order.

    Law: each reader has one ratio, so that its batches are of one shape, and all readers have
    equally many shards. A ratio has readers in proportion to its shards, rounded up; the one with
    most shards (the first of these) takes or gives what is over.

    Args:
        shards_per_ratio: Ratio -> number of its shards, at least 1. The order of the ratios
            counts. A ratio's shards are numbered as sorted by their path without the root, then
            by the root.
        partition: Who reads.

    Returns:
        (ratio, shard numbers). Shards are repeated as needed to give each reader the mean number
        of shards, rounded up; a ratio that has fewer readers than its share loses shards.

        Where no reader is left for the ratio with most shards, which PiD's rule allows, a warning
        is logged.

    Raises:
        TypeError: A number is no int.
        ValueError: There is no ratio, one has no shards, or there are so few readers that even
            the other ratios need more than there are.

    Source:
        PiD's distributor ``multi_aspect_ratio``.
    """
    readers_of = _readers_per_ratio(shards_per_ratio, partition.num_readers)
    length = -(-sum(shards_per_ratio.values()) // partition.num_readers)
    seats = [(ratio, seat) for ratio, readers in readers_of.items() for seat in range(readers)]
    ratio, seat = seats[partition.worker * partition.world_size + partition.rank]
    shards = _repeated(list(range(shards_per_ratio[ratio])), readers_of[ratio] * length)
    shards = shards[seat :: readers_of[ratio]]
    _shuffle(shards, partition)
    return ratio, shards


def _readers_per_ratio(shards_per_ratio: Mapping[str, int], num_readers: int) -> dict[str, int]:
    if not shards_per_ratio:
        raise ValueError("shards_per_ratio: no ratios; expected at least one")
    for ratio, count in shards_per_ratio.items():
        check_int(f"shards_per_ratio[{ratio!r}]", count, least=1)
    total = sum(shards_per_ratio.values())
    readers = {ratio: -(-count * num_readers // total) for ratio, count in shards_per_ratio.items()}
    largest = max(shards_per_ratio, key=lambda ratio: shards_per_ratio[ratio])
    readers[largest] += num_readers - sum(readers.values())
    if readers[largest] < 0:
        raise ValueError(
            f"{len(readers)} aspect ratios for {num_readers} readers: the ratios other than "
            f"{largest!r} need {num_readers - readers[largest]} readers; expected at most "
            f"{num_readers}; use more ranks or workers, or fewer ratios"
        )
    if readers[largest] == 0:
        logger.warning(
            "multi_aspect_plan: no reader for the %d shards of %r, the largest aspect ratio, as "
            "the others take all %d; use more ranks or workers, or fewer ratios",
            shards_per_ratio[largest],
            largest,
            num_readers,
        )
    return readers


def _repeated(shards: list[int], length: int) -> list[int]:
    return list(islice(cycle(shards), length))


def _shuffle(shards: list[int], partition: Partition) -> None:
    # Rank before worker, other than where the list is shared out: the rule to match is so.
    random.Random(partition.rank * partition.num_workers + partition.worker).shuffle(shards)
