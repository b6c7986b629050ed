"""Where tools put no data set: inside another one, or where no text can name it."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from daft_twinwds import read_twin_webdataset
from daft_twinwds.errors import LayoutError
from daft_twinwds.testing import make_twin_dataset
from daft_twinwds.tools.curate import curate
from daft_twinwds.tools.pack import pack


def run_pack(tmp_path: Path, output: Path) -> None:
    (tmp_path / "raw/text").mkdir(parents=True)
    (tmp_path / "raw/text/a.txt").write_text("a")
    pack(tmp_path / "raw", output)


def run_curate(tmp_path: Path, output: Path) -> None:
    make_twin_dataset(tmp_path / "source", num_shards=1, samples_per_shard=2)
    curate(tmp_path / "source", output)


tools = pytest.mark.parametrize("run", [run_pack, run_curate])


@tools
@pytest.mark.parametrize("has_manifest", [True, False])
def test_a_data_set_is_not_hidden_by_one_inside_it(
    tmp_path: Path, run: Callable[[Path, Path], None], has_manifest: bool
) -> None:
    make_twin_dataset(tmp_path / "set", num_shards=1, samples_per_shard=2)
    if not has_manifest:
        (tmp_path / "set/wdinfo.json").unlink()

    with pytest.raises(LayoutError, match="lies in the data set" if has_manifest else "lies besid"):
        run(tmp_path, tmp_path / "set/extra")

    assert not (tmp_path / "set/extra").exists()
    assert read_twin_webdataset(tmp_path / "set").count_rows() == 2


@tools
def test_a_folder_whose_path_is_no_text_is_refused(
    tmp_path: Path, run: Callable[[Path, Path], None]
) -> None:
    output = tmp_path / os.fsdecode(b"\xff")

    with pytest.raises(LayoutError, match=r"\\xff': the folder's path is not UTF-8"):
        run(tmp_path, output)

    assert not output.exists()
