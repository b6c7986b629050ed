"""One Ray cluster on this machine for all tests that need one, and a small data set."""

import logging
import secrets
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import daft
import pytest
import ray

import daft_twinwds
from daft_twinwds.testing import make_twin_dataset
from daft_twinwds.train import Selection

PACKAGE = Path(daft_twinwds.__file__).parent.parent
SAMPLES = 24

UNSET = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "RAY_ADDRESS", "RAY_AUTH_MODE")
ENVIRONMENT = {
    # Else Ray writes one into the home directory.
    "RAY_AUTH_TOKEN": secrets.token_hex(32),
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    # Else a run by `uv run pytest` uploads the working directory to each worker.
    "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
    "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.2",
    # Another process for each run.
    "RAY_TRAIN_ENABLE_PREEMPTION_WATCHER": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    "OMP_NUM_THREADS": "1",
    "PYTHONPATH": str(PACKAGE),
}


REAPER = """
import os, shutil, signal, sys
from contextlib import suppress
from pathlib import Path

folder, test = sys.argv[1], os.getppid()
sys.stdin.read()
for process in Path("/proc").glob("[0-9]*"):
    # By the logs that they write: their titles have overwritten their environment.
    with suppress(OSError):
        files = [os.readlink(file) for file in (process / "fd").iterdir()]
        if int(process.name) != test and any(file.startswith(folder + "/") for file in files):
            os.kill(int(process.name), signal.SIGKILL)
shutil.rmtree(folder, ignore_errors=True)
"""
"""Ends what is left of a cluster when the process that feeds it has ended, however it did."""

IGNORED = (
    # Ray Data deprecates what its own context sets.
    "ignore:`use_(push_based_shuffle|polars|arrow_tensor_v2)` is deprecated:DeprecationWarning",
    # Ray Data ignores it, but in threads, where that does not hold for sure.
    "ignore:The given NumPy array is not writable:UserWarning",
    # Ray Train reads its notes of a run by Pydantic's old names.
    "ignore:The `parse_obj` method is deprecated:DeprecationWarning",
)
HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.ray)
            for ignored in IGNORED:
                item.add_marker(pytest.mark.filterwarnings(ignored))


@pytest.fixture(scope="session")
def cluster() -> Iterator[str]:
    """A cluster that this process is the driver of; its address."""
    # Daft chooses its runner once, and Ray where it runs: all other tests would have it as well.
    assert daft.get_or_create_runner().name == "native"
    # Not pytest's own folder: names of sockets have to be short.
    folder = tempfile.mkdtemp(prefix="ray_", dir="/tmp")
    reaper = subprocess.Popen(
        [sys.executable, "-c", REAPER, folder], stdin=subprocess.PIPE, start_new_session=True
    )
    with pytest.MonkeyPatch.context() as patch:
        for name in UNSET:
            # Ray sets some of them itself: what is set first is taken back afterwards.
            patch.setenv(name, "")
            patch.delenv(name)
        for name, value in {**ENVIRONMENT, "RAY_TMPDIR": folder}.items():
            patch.setenv(name, value)
        # It logs at length, which pytest would keep and show for each failure.
        patch.setattr(logging.getLogger("ray.data"), "level", logging.ERROR)
        try:
            ray.init(
                num_cpus=2,
                include_dashboard=False,
                object_store_memory=100 * 2**20,
                log_to_driver=False,
                logging_level=logging.ERROR,
            )
            yield ray.get_runtime_context().gcs_address
        finally:
            ray.shutdown()
            reaper.communicate(timeout=60)


@pytest.fixture(scope="session")
def twins(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data set of some shards."""
    folder = tmp_path_factory.mktemp("twins")
    return make_twin_dataset(folder / "root", num_shards=3, samples_per_shard=SAMPLES // 3)


@pytest.fixture(scope="session")
def selection(twins: Path) -> Selection:
    """All of its rows."""
    return Selection.from_dataframe(daft_twinwds.read_twin_webdataset(twins))


@pytest.fixture(scope="session")
def saved(selection: Selection, twins: Path) -> Path:
    """The file that the selection is saved in."""
    path = twins.parent / "selection.parquet"
    selection.save(path)
    return path
