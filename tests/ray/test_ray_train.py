"""Ray Train: workers that are killed and replaced, and a job that goes on with another number."""

import contextlib
import importlib.util
import io
import json
import os
import signal
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import ray
from ray.train import Result, WorkerGroupError
from typing_extensions import override

from daft_twinwds import partition
from daft_twinwds.train import Selection, TwinLoader

pytestmark = pytest.mark.slow  # each worker imports torch anew

EXAMPLE = Path(__file__).parents[2] / "examples" / "train_on_ray.py"
EPOCHS, STEPS, GLOBAL_BATCH = 2, 6, 4
DEATHS = [(0, 5), (1, 5)]
"""Epoch and step at which a worker dies. Ray has taken note of the checkpoint of step 2 by then, as
the report of step 4 waits for it; that of step 4 may be lost."""


@dataclass(frozen=True)
class Run:
    """A run of Ray Train, as its result says."""

    folder: Path

    @property
    def keys(self) -> list[list[list[str]]]:
        """For each checkpoint that counts, for each worker: the keys trained on."""
        result = Result.from_path(self.folder)
        assert result.best_checkpoints is not None
        folders = [Path(checkpoint.path) for checkpoint, _ in result.best_checkpoints]
        return [
            [file.read_text().split() for file in sorted(folder.glob("keys_*.txt"))]
            for folder in sorted(folders)
        ]


@pytest.fixture(scope="module")
def example() -> Iterator[ModuleType]:
    """The example as a module that workers get by value, as they do when it is run."""
    cloudpickle: Any = ray.cloudpickle
    spec = importlib.util.spec_from_file_location("train_on_ray", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, spec.name, module)
        spec.loader.exec_module(module)
        cloudpickle.register_pickle_by_value(module)
        yield module
        cloudpickle.unregister_pickle_by_value(module)


def dying_loader(folder: Path) -> type[TwinLoader]:
    """A loader that tells where it is, and kills the second worker in the middle of some steps."""

    class Dying(TwinLoader):
        @override
        def __iter__(self) -> Iterator[dict[str, Any]]:
            found = [self.partition.rank, self.partition.world_size]
            found += partition._place_in_ray_train() or ()
            (folder / f"place_{self.partition.rank}.json").write_text(json.dumps(found))
            for batch in super().__iter__():
                place = (self.epoch, self.step)
                marker = folder / f"died_at_{place}"
                if self.partition.rank == 1 and place in DEATHS and not marker.exists():
                    marker.touch()
                    os.kill(os.getpid(), signal.SIGKILL)
                yield batch

    return Dying


def run_script(example: ModuleType, saved: Path, folder: Path, *args: str) -> dict[str, Any]:
    """Run the script's main function; return what it prints."""
    printed = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(printed):
        patch.setattr(sys, "argv", [str(EXAMPLE), str(saved), str(folder), *args])
        example.main()
    metrics: dict[str, Any] = json.loads(printed.getvalue().splitlines()[-1])
    return metrics


@pytest.fixture(scope="module")
def failed(
    cluster: str, example: ModuleType, saved: Path, tmp_path_factory: pytest.TempPathFactory
) -> Run:
    """A run of two workers; one of them dies twice, which is once too often."""
    folder = tmp_path_factory.mktemp("runs")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(example, "TwinLoader", dying_loader(folder))
        with pytest.raises(WorkerGroupError):
            run_script(example, saved, folder, "--epochs", str(EPOCHS), "--max-failures", "1")
    return Run(folder / "run")


@pytest.fixture(scope="module")
def failed_keys(failed: Run) -> list[list[list[str]]]:
    """What it had trained on, before it goes on."""
    return failed.keys


@pytest.fixture(scope="module")
def metrics(
    example: ModuleType, saved: Path, failed: Run, failed_keys: list[list[list[str]]]
) -> dict[str, Any]:
    """What is printed when the same run is finished by one worker."""
    args = ("--epochs", str(EPOCHS), "--workers", "1", "--max-failures", "0")
    return run_script(example, saved, failed.folder.parent, *args)


@pytest.fixture(scope="module")
def expected(selection: Selection) -> list[list[str]]:
    """The keys between checkpoints, of a loader that nobody kills."""
    loader = TwinLoader(selection, batch_size=GLOBAL_BATCH, decode={}, epochs=EPOCHS)
    batches = [batch["__key__"] for batch in loader]
    return [sorted(batches[step] + batches[step + 1]) for step in range(0, len(batches), 2)]


def test_a_worker_that_is_killed_is_replaced_without_a_sample_lost_or_repeated(
    failed: Run, failed_keys: list[list[list[str]]], expected: list[list[str]]
) -> None:
    died = [failed.folder.parent / f"died_at_{place}" for place in DEATHS]

    together = [sorted(chain.from_iterable(workers)) for workers in failed_keys]

    assert all(marker.exists() for marker in died)
    assert len(together) in (4, 5)
    assert together == expected[: len(together)]


def test_workers_find_their_rank(failed: Run) -> None:
    files = sorted(failed.folder.parent.glob("place_*.json"))

    places = [json.loads(file.read_text()) for file in files]

    assert places == [[0, 2, 0, 2], [1, 2, 1, 2]]


def test_a_job_that_failed_goes_on_with_fewer_workers(
    failed: Run,
    failed_keys: list[list[list[str]]],
    metrics: dict[str, Any],
    expected: list[list[str]],
    selection: Selection,
) -> None:
    keys = failed.keys

    assert (metrics["epoch"], metrics["step"]) == (EPOCHS, 0)
    before, after = len(failed_keys), len(keys) - len(failed_keys)
    assert [len(workers) for workers in keys] == [2] * before + [1] * after
    assert [sorted(chain.from_iterable(workers)) for workers in keys] == expected
    seen = Counter(key for workers in keys for worker in workers for key in worker)
    assert seen == Counter(selection.table.column("__key__").to_pylist() * EPOCHS)
