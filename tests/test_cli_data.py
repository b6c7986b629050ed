"""The commands that write: index and pack."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

import daft_twinwds
from daft_twinwds.cli import main
from daft_twinwds.testing import encode_jpeg, make_twin_dataset, write_tar
from daft_twinwds.tools.info import info
from daft_twinwds.tools.info_plot import write_info_png
from daft_twinwds.tools.pack import pack
from daft_twinwds.tools.preview import write_preview


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


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--shard-size", 0], "'--shard-size': 0 is not in the range"),
        (["--part-size", 0], "'--part-size': 0 is not in the range"),
        (["--max-shard-size-mb", 0], "'--max-shard-size-mb': '0': expected a size in MiB"),
        (["--max-shard-size-mb", "nan"], "'--max-shard-size-mb': 'nan': expected a size in MiB"),
        (["--max-file-size-mb", "inf"], "'--max-file-size-mb': 'inf': expected a size in MiB"),
        (["--max-file-size-mb", "1 GB"], "'--max-file-size-mb': '1 GB': expected a size in MiB"),
        (["--key-prefix", "../"], "a key's prefix must begin a relative path"),
        (["--key-prefix", "a", "--dataset-name", "b"], "give one of them"),
        (["--duration-bins", "3,1"], "duration_bins must be at least two increasing seconds"),
        (["--duration-bins", "nan,1"], "duration_bins must be at least two increasing seconds"),
    ],
)
def test_flags_of_pack_that_cannot_be_are_told_in_a_line(
    raw: Path, tmp_path: Path, flags: list[object], message: str
) -> None:
    result = run("pack", raw, tmp_path / "out", *flags)

    assert result.exit_code == 2
    assert isinstance(result.exception, SystemExit)
    assert message in result.output.splitlines()[-1]
    assert not (tmp_path / "out").exists()


def test_sizes_of_pack_are_mebibytes(raw: Path, tmp_path: Path) -> None:
    size = (raw / "image" / "a.jpg").stat().st_size / 2**20

    result = run("pack", raw, tmp_path / "out", "--max-file-size-mb", size * 0.99, "--json")

    assert result.exit_code == 1
    assert "too large" in result.output


@pytest.mark.parametrize("command", ["pack", "preview", "info"])
def test_urls_are_no_places_to_write_local_files_to(
    root: Path, raw: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.chdir(tmp_path)
    url = "s3://KEY:SECRET@bucket/x"
    arguments = {
        "pack": [raw, url],
        "preview": [root, "--output", url],
        "info": [root, "--png", url],
    }

    result = run(command, *arguments[command])

    assert result.exit_code == 2
    assert "s3://bucket/x is a URL; expected a local path" in result.output.splitlines()[-1]
    assert "SECRET" not in result.output
    assert {path.name for path in tmp_path.iterdir()} == {"raw", "twins"}


def test_the_url_of_a_local_folder_is_that_folder(raw: Path, tmp_path: Path) -> None:
    (tmp_path / "with space").mkdir()

    result = run("pack", raw.as_uri(), (tmp_path / "with space" / "out").as_uri())

    assert result.exit_code == 0, result.output
    assert (tmp_path / "with space" / "out" / "pack_plan.jsonl").is_file()


@pytest.mark.parametrize(
    "call",
    [
        pytest.param(lambda root: pack(root, "s3://bucket/x"), id="pack-into"),
        pytest.param(lambda root: pack("s3://bucket/x", root / "out"), id="pack-from"),
        pytest.param(lambda root: write_preview(root, "s3://bucket/x"), id="preview"),
        pytest.param(lambda root: write_info_png(info(root), "s3://bucket/x"), id="info"),
    ],
)
def test_functions_refuse_urls_where_the_commands_do(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: Callable[[Path], object]
) -> None:
    monkeypatch.chdir(tmp_path)

    with pytest.raises(ValueError, match=r": s3://bucket/x is a URL; expected a local path; copy"):
        call(root)

    assert {path.name for path in tmp_path.iterdir()} == {"twins"}


def test_paths_stay_whole_in_a_pipe(tmp_path: Path) -> None:
    root = make_twin_dataset(tmp_path / ("long" * 30), num_shards=1, samples_per_shard=2)
    tar = root / "image" / "part_000000" / "000000.tar"
    tar.write_bytes(tar.read_bytes()[:700])

    result = run("index", root)

    assert str(tar) in result.output
