"""The commands that write: index and pack."""

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

import daft_twinwds
from daft_twinwds.cli import main
from daft_twinwds.testing import encode_jpeg, make_twin_dataset, write_tar


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return make_twin_dataset(tmp_path / "twins", num_shards=2, samples_per_shard=3)


@pytest.fixture
def raw(tmp_path: Path) -> Path:
    pixels = np.zeros((32, 64, 3), np.uint8)
    for name in ("a.jpg", "b.JPG", "c.jpg"):
        path = tmp_path / "raw" / "image" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(encode_jpeg(pixels))
    for name in ("a.json", "b.json"):
        path = tmp_path / "raw" / "caption" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text('{"prompt": "black"}')
    return tmp_path / "raw"


def test_index_is_built_checked_and_used(root: Path) -> None:
    built = run("index", root, "--json")
    checked = run("index", root, "--check", "--json")

    assert built.exit_code == 0, built.output
    facts = json.loads(built.output)
    assert (facts["num_shards"], facts["num_read"], facts["num_rows"]) == (2, 2, 6)
    assert json.loads(checked.output)["is_complete"] is True
    assert daft_twinwds.read_twin_webdataset(root, index="require").count_rows() == 6


def test_index_that_does_not_hold_is_one_line_and_exit_code_1(root: Path) -> None:
    run("index", root)
    write_tar(root / "caption/part_000000/000001.tar", [("id_3.json", b'{"prompt": "new"}')])

    result = run("index", root, "--check")

    assert result.exit_code == 1
    line = result.output.splitlines()[-1]
    assert line.startswith("Error: ")
    assert "000001.tar" in line
    assert "1 of 2 shards" in line


def test_index_of_nothing_is_one_line_and_exit_code_1(tmp_path: Path) -> None:
    result = run("index", tmp_path / "gone")

    assert result.exit_code == 1
    assert result.output.startswith("Error: ")
    assert "gone" in result.output


def test_pack_tells_what_it_packed_and_what_it_left_out(raw: Path, tmp_path: Path) -> None:
    result = run("pack", raw, tmp_path / "out", "--dataset-name", "black", "--json")

    assert result.exit_code == 0, result.output
    facts = json.loads(result.output)
    assert (facts["samples"], facts["shards"]) == (2, 1)
    assert facts["leaves"] == {"aspect_ratio_16_9": "2 samples in 1 shards"}
    assert facts["left_out"] == {"no caption": 1}
    rows = daft_twinwds.read_twin_webdataset(tmp_path / "out").to_pydict()
    assert sorted(rows["__key__"]) == ["black__a", "black__b"]


def test_pack_that_is_dry_writes_nothing(raw: Path, tmp_path: Path) -> None:
    result = run("pack", raw, tmp_path / "out", "--dry-run", "--no-classify-aspect-ratio")

    assert result.exit_code == 0, result.output
    assert "2 samples in 1 shards" in result.output
    assert not (tmp_path / "out").exists()


def test_pack_of_doubles_is_one_line_and_exit_code_1(raw: Path, tmp_path: Path) -> None:
    (raw / "image" / "a.png").write_bytes(b"x")

    refused = run("pack", raw, tmp_path / "out")
    packed = run("pack", raw, tmp_path / "out", "--skip-doubles")

    assert refused.exit_code == 1
    assert "a.jpg and a.png" in refused.output
    assert packed.exit_code == 0, packed.output


def test_pack_refuses_seconds_that_are_none(raw: Path, tmp_path: Path) -> None:
    result = run("pack", raw, tmp_path / "out", "--duration-bins", "0,long")

    assert result.exit_code == 2
    assert "expected seconds as 0,5,10,30,inf" in result.output
