"""Who reads: one process among the data-parallel ranks and their loader workers."""

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

__all__ = ["Partition"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """One reading process: a data-parallel rank and a loader worker inside it."""

    rank: int = 0
    """Data-parallel rank, in ``[0, world_size)``."""
    world_size: int = 1
    """Number of data-parallel ranks, not of GPUs: tensor-parallel peers share a rank."""
    worker: int = 0
    """Loader worker inside the rank, in ``[0, num_workers)``."""
    num_workers: int = 1
    """Loader workers per rank, at least 1."""

    def __post_init__(self) -> None:
        _check_place("rank", self.rank, "world_size", self.world_size)
        _check_place("worker", self.worker, "num_workers", self.num_workers)

    @property
    def num_readers(self) -> int:
        """Reading processes over all ranks and workers."""
        return self.world_size * self.num_workers

    def slice_of(self, num_items: int) -> range:
        """Return the positions in ``[0, num_items)`` that this process reads.

        Args:
            num_items: Items (shards or rows) to share out, over all processes.

        Returns:
            Increasing positions. Over all processes the ranges are disjoint and cover every
            position; their lengths differ by at most one.
        """
        # Rank varies fastest: position p belongs to rank p % world_size whatever num_workers
        # is, so adding workers moves no item between ranks.
        first = self.worker * self.world_size + self.rank
        return range(first, num_items, self.num_readers)

    @classmethod
    def from_device_mesh(cls, mesh: Any, dims: str | Sequence[str] | None = None) -> Self:
        """Return the place of this process in a mesh's data-parallel dimensions.

        Processes that differ in other dimensions alone (tensor, context, pipeline parallel) get
        the same partition, and so the same batches.

        Args:
            mesh: A ``torch.distributed.DeviceMesh``.
            dims: Names of the data-parallel dimensions, the outermost first; None for all that
                are called ``dp``, ``dp_...``, ``data_parallel``, ``fsdp`` or ``ddp``.

        Raises:
            ValueError: The mesh has no such dimension, or this process is not in it.
        """
        names = tuple(mesh.mesh_dim_names or ())
        if dims is None:
            wanted = tuple(name for name in names if _is_data_parallel(name))
        else:
            wanted = (dims,) if isinstance(dims, str) else tuple(dims)
        if not wanted or set(wanted) - set(names):
            missing = sorted(set(wanted) - set(names))
            raise ValueError(
                f"mesh: has the dimensions {list(names)}, "
                f"{f'not {missing}' if missing else 'none of them data-parallel by its name'}; "
                "expected the data-parallel ones; name them by dims=[...]"
            )
        coordinate = mesh.get_coordinate()
        if coordinate is None:
            raise ValueError("mesh: this process is not in it; build the loader where it is")
        rank, world_size = 0, 1
        for name in wanted:
            place = names.index(name)
            size = mesh.size(place)
            rank, world_size = rank * size + coordinate[place], world_size * size
        return cls(rank=rank, world_size=world_size)

    @classmethod
    def from_process_group(cls, group: Any) -> Self:
        """Return the place of this process in a data-parallel process group.

        Raises:
            ValueError: This process is not in the group.
        """
        distributed = sys.modules.get("torch.distributed")
        rank = -1 if distributed is None else distributed.get_rank(group)
        if distributed is None or rank < 0:
            raise ValueError(
                "group: this process is not in it; pass the group of its data-parallel peers"
            )
        return cls(rank=rank, world_size=distributed.get_world_size(group))

    @classmethod
    def detect(cls, mesh: Any = None) -> Self:
        """Find out who this process is.

        The rank comes from the first of these that there is:

        1. the mesh: the place in its data-parallel dimensions;
        2. an initialised ``torch.distributed``, and Ray Train in a function that a trainer runs;
           where there are both, they have to agree;
        3. torchrun's environment, ``RANK`` and ``WORLD_SIZE``;
        4. there is one rank: a plain process, a driver of Ray, a task or actor of Ray that is no
           worker of a trainer, a trial of Ray Tune.

        The worker comes from ``torch.utils.data.get_worker_info()``. Torch and Ray are asked only
        where they are imported already: a process that has not imported them has neither a group
        nor workers, and is no trainer's worker.

        Args:
            mesh: A ``torch.distributed.DeviceMesh``; see `from_device_mesh`.

        Raises:
            ValueError: The mesh has no data-parallel dimension.
            ValueError: ``torch.distributed`` and Ray Train contradict each other.
            ValueError: ``RANK`` and ``WORLD_SIZE`` contradict each other or are no integers.
        """
        if mesh is None:
            rank, world_size = _detect_rank()
        else:
            place = cls.from_device_mesh(mesh)
            rank, world_size = place.rank, place.world_size
        worker, num_workers = _detect_worker()
        return cls(rank=rank, world_size=world_size, worker=worker, num_workers=num_workers)


def _check_place(name: str, place: int, total_name: str, total: int) -> None:
    for label, value in ((name, place), (total_name, total)):
        if isinstance(value, bool) or not isinstance(value, int):
            raise TypeError(f"{label} must be an int, got {value!r}")
    if total < 1:
        raise ValueError(f"{total_name} must be at least 1, got {total}")
    if not 0 <= place < total:
        raise ValueError(f"{name} must be in [0, {total}), got {place}")


def _is_data_parallel(name: str) -> bool:
    return name in ("dp", "data_parallel", "fsdp", "ddp") or name.startswith("dp_")


def _detect_rank() -> tuple[int, int]:
    group, trainer = _place_in_group(), _place_in_ray_train()
    if group is not None and trainer is not None and group != trainer:
        raise ValueError(
            f"torch.distributed: says rank {group[0]} of {group[1]}, Ray Train says rank "
            f"{trainer[0]} of {trainer[1]}; expected one place; say which ranks share out the "
            "data by partition=Partition.from_process_group(group) or Partition(...)"
        )
    return group or trainer or _place_in_environment()


def _place_in_group() -> tuple[int, int] | None:
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    return distributed.get_rank(), distributed.get_world_size()


def _place_in_ray_train() -> tuple[int, int] | None:
    train = sys.modules.get("ray.train")
    # Its first version takes every process for one of a single worker, and has no such name;
    # its trainers for PyTorch set the environment.
    if train is None or not hasattr(train, "get_all_reported_checkpoints"):
        return None
    try:
        context = train.get_context()
    except (RuntimeError, DeprecationWarning):
        # No worker of a trainer; a trial of Ray Tune is told so by the latter.
        return None
    return context.get_world_rank(), context.get_world_size()


def _place_in_environment() -> tuple[int, int]:
    rank, world_size = os.environ.get("RANK"), os.environ.get("WORLD_SIZE")
    if rank is None and world_size is None:
        return 0, 1
    try:
        place = int(rank or ""), int(world_size or "")
        _check_place("rank", place[0], "world_size", place[1])
    except ValueError as error:
        raise ValueError(
            f"environment: RANK={rank!r}, WORLD_SIZE={world_size!r}; expected integers with "
            "0 <= RANK < WORLD_SIZE, as torchrun sets them; set both, unset both, or pass "
            "partition=Partition(...)"
        ) from error
    return place


def _detect_worker() -> tuple[int, int]:
    loading = sys.modules.get("torch.utils.data")
    info = loading.get_worker_info() if loading is not None else None
    return (0, 1) if info is None else (info.id, info.num_workers)
