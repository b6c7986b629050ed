"""What users see: the public names, and imports where the extras are missing."""

import os
import subprocess
import sys
from inspect import ismodule
from pathlib import Path
from types import ModuleType

import pytest

import daft_twinwds
import daft_twinwds.train

PACKAGE = Path(daft_twinwds.__file__).parent.parent
WITHOUT_EXTRAS = """
import sys


class Missing:
    '''Takes care that the extras cannot be imported, wherever this runs.'''

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"torch", "grain", "ray"}:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


sys.meta_path.insert(0, Missing())
"""


def run(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        env={**os.environ, "PYTHONPATH": str(PACKAGE)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize(
    "module", [daft_twinwds, daft_twinwds.train], ids=lambda module: module.__name__
)
def test_the_names_that_are_promised_are_those_that_are_seen(module: ModuleType) -> None:
    seen = {
        name
        for name in dir(module)
        if not name.startswith("_") and not ismodule(getattr(module, name))
    }

    assert set(module.__all__) == seen
    assert module.__all__ == sorted(module.__all__)


def test_unknown_names_are_errors() -> None:
    with pytest.raises(AttributeError, match=r"'daft_twinwds\.train' has no attribute 'nothing'"):
        daft_twinwds.train.nothing  # noqa: B018


def test_the_package_works_without_extras() -> None:
    code = f"""{WITHOUT_EXTRAS}
import tempfile

import daft

import daft_twinwds
from daft_twinwds.testing import make_twin_dataset
from daft_twinwds.train import DecodeImage, Partition, Selection

with tempfile.TemporaryDirectory() as folder:
    df = daft_twinwds.read_twin_webdataset(make_twin_dataset(folder))
    print(len(Selection.from_dataframe(df)), Partition.detect().num_readers)
assert not set(sys.modules) & {{"torch", "grain", "ray"}}
"""

    assert run(code) == "16 1"


@pytest.mark.parametrize(
    ("use", "name"),
    [
        ("from daft_twinwds.train import to_torch_iter_dataset", "to_torch_iter_dataset"),
        ("from daft_twinwds.train import TwinLoader", "TwinLoader"),
        (
            "import daft_twinwds.train as t; t.Selection.from_dataframe_distributed(lambda: None)",
            "Selection.from_dataframe_distributed",
        ),
    ],
)
def test_a_missing_extra_is_named_with_the_command_that_installs_it(use: str, name: str) -> None:
    code = f"""{WITHOUT_EXTRAS}
from daft_twinwds.errors import MissingDependencyError

try:
    {use}
except MissingDependencyError as error:
    assert isinstance(error, ImportError)
    print(error)
"""

    assert run(code) == (
        f"{name} needs torch, which is not installed; pip install 'daft-twinwds[train]'"
    )


def test_another_fault_of_an_import_is_not_taken_for_a_missing_extra() -> None:
    code = """
import sys

import daft_twinwds.train

sys.modules["daft_twinwds.train.batches"] = None
try:
    daft_twinwds.train.to_torch_iter_dataset
except ModuleNotFoundError as error:
    print(type(error).__name__, error.name)
"""

    assert run(code) == "ModuleNotFoundError daft_twinwds.train.batches"


def test_importing_the_package_teaches_daft_the_reader() -> None:
    code = """
import daft

import daft_twinwds

print(daft.read_twin_webdataset is daft_twinwds.read_twin_webdataset)
"""

    assert run(code) == "True"


def test_a_reader_that_daft_has_already_is_left_alone() -> None:
    code = """
import daft

daft.read_twin_webdataset = "somebody else's"
import daft_twinwds

print(daft.read_twin_webdataset)
print(callable(daft_twinwds.read_twin_webdataset))
"""

    assert run(code) == "somebody else's\nTrue"
