"""Who a process is to Ray: a worker of a trainer, or none."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import ray
import ray.train
import torch

# Gives torch a backend that talks to nobody.
import torch.testing._internal.distributed.fake_pg

from daft_twinwds.train import Partition


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def _trainer(monkeypatch: pytest.MonkeyPatch) -> None:
    """This process is rank 1 of 3 of a trainer."""
    context = SimpleNamespace(get_world_rank=lambda: 1, get_world_size=lambda: 3)
    monkeypatch.setattr(ray.train, "get_context", lambda: context)


@pytest.fixture
def group(request: pytest.FixtureRequest) -> Iterator[None]:
    """This process is a rank of a process group."""
    rank, world_size = request.param
    torch.distributed.init_process_group("fake", rank=rank, world_size=world_size)
    yield
    torch.distributed.destroy_process_group()


@pytest.mark.usefixtures("_trainer")
def test_a_worker_of_a_trainer_needs_no_process_group() -> None:
    assert Partition.detect() == Partition(rank=1, world_size=3)


@pytest.mark.usefixtures("_trainer")
def test_a_trainer_wins_over_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "8")

    assert Partition.detect() == Partition(rank=1, world_size=3)


@pytest.mark.usefixtures("_trainer", "group")
@pytest.mark.parametrize("group", [(1, 3)], indirect=True)
def test_a_trainer_and_a_group_that_agree_are_one_place() -> None:
    assert Partition.detect() == Partition(rank=1, world_size=3)


@pytest.mark.usefixtures("_trainer", "group")
@pytest.mark.parametrize("group", [(0, 3), (1, 2)], indirect=True)
def test_a_trainer_and_a_group_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(ValueError, match=r"says rank \d of \d, Ray Train says rank 1 of 3; "):
        Partition.detect()


def test_a_driver_that_has_imported_ray_train_is_no_worker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    alone = Partition.detect()
    monkeypatch.setenv("RANK", "2")
    monkeypatch.setenv("WORLD_SIZE", "4")

    assert alone == Partition()
    assert Partition.detect() == Partition(rank=2, world_size=4)


def test_a_trial_of_ray_tune_is_no_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    from ray.tune.trainable import trainable_fn_utils

    monkeypatch.setattr(trainable_fn_utils, "_in_tune_session", lambda: True)
    with pytest.raises(DeprecationWarning, match="in a function passed to Ray Tune"):
        ray.train.get_context()

    assert Partition.detect() == Partition()


def test_the_first_version_of_ray_train_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    def everybody() -> Any:
        raise AssertionError("it would say rank 0 of 1 to everybody")

    monkeypatch.delattr(ray.train, "get_all_reported_checkpoints")
    monkeypatch.setattr(ray.train, "get_context", everybody)
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")

    assert Partition.detect() == Partition(rank=1, world_size=2)


@pytest.mark.slow
@pytest.mark.usefixtures("cluster")
@pytest.mark.parametrize("imports_train", [False, True])
def test_a_task_of_ray_is_no_worker(imports_train: bool) -> None:
    @ray.remote
    def detect() -> tuple[Partition, bool]:
        import sys

        if imports_train:
            import ray.train  # noqa: F401
        return Partition.detect(), "ray.train" in sys.modules

    found, imported = ray.get(detect.remote())

    assert found == Partition()
    assert imported or not imports_train
