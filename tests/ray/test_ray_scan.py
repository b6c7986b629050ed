"""What Daft gives on its Ray runner is what it gives on one machine."""

import json
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import ray

import daft_twinwds
from daft_twinwds.query.source import TwinWebDatasetSource
from daft_twinwds.testing import make_twin_dataset

JOB = Path(__file__).with_name("scan_job.py")
QUERIES = runpy.run_path(str(JOB))["QUERIES"]
SECONDS = 120


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Many shards for two CPUs: Daft's own reader hangs there."""
    return make_twin_dataset(
        tmp_path_factory.mktemp("scan") / "root", num_shards=16, samples_per_shard=3
    )


@pytest.fixture(scope="module")
def on_ray(cluster: str, root: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Answers of a process that uses the cluster."""
    output = tmp_path_factory.mktemp("answers") / "answers.json"
    done = subprocess.run(
        [sys.executable, str(JOB), cluster, str(root), str(output)],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    found: dict[str, Any] = json.loads(output.read_text())
    return found


@pytest.mark.parametrize("name", QUERIES)
def test_a_query_gives_the_same_rows(name: str, root: Path, on_ray: dict[str, Any]) -> None:
    expected = json.loads(json.dumps(QUERIES[name](root)))

    assert expected
    assert on_ray[name] == expected


def test_an_error_names_the_tar_and_what_to_do(on_ray: dict[str, Any], root: Path) -> None:
    message = on_ray["error"]

    assert f"{root.parent}/broken/image/0.tar" in message
    assert "TarFormatError" in message
    assert "copy or pack it again" in message


def test_an_index_that_the_cluster_built_is_that_of_one_machine(
    on_ray: dict[str, Any], root: Path
) -> None:
    report = on_ray["index"]

    assert report["num_rows"] == 48
    assert report["num_read"] == report["progress"] == 16
    assert report["failed"] == {}
    assert report["again"] == 0
    assert report["contents"] == QUERIES["contents"](root)


def test_a_dataset_that_the_cluster_wrote_is_what_it_was_given(
    on_ray: dict[str, Any], root: Path
) -> None:
    assert on_ray["written"] == QUERIES["contents"](root)


WITHOUT_PACKAGE = """
import pickle, sys


class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "daft_twinwds":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


sys.meta_path.insert(0, Missing())
pickle.loads(sys.stdin.buffer.read())
"""


def test_a_worker_without_the_package_says_what_it_lacks(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sources: list[TwinWebDatasetSource] = []
    monkeypatch.setattr(TwinWebDatasetSource, "read", lambda self: sources.append(self))
    daft_twinwds.read_twin_webdataset(root)
    dumps: Any = ray.cloudpickle.dumps

    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_PACKAGE],
        input=dumps(sources[0]),
        capture_output=True,
        timeout=SECONDS,
        check=False,
    )

    assert done.returncode == 1
    assert b"ModuleNotFoundError: No module named 'daft_twinwds" in done.stderr
