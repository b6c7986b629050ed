"""The command: lines, JSON, exit codes."""

import json
import tarfile
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from daft_twinwds.cli import main
from daft_twinwds.testing import make_twin_dataset, write_tar


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["validate", *[str(argument) for argument in arguments]])


def json_lines(result: Result) -> list[dict[str, Any]]:
    return [json.loads(line) for line in result.stdout.splitlines()]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return make_twin_dataset(
        tmp_path / "twins", num_shards=2, samples_per_shard=2, image_size=(16, 16)
    )


def set_in_manifest(folder: Path, **changes: object) -> None:
    path = folder / "wdinfo.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def test_sound_data_set_exits_with_0_and_a_table(root: Path) -> None:
    result = run(root, "--decode", "--workers", 1)

    assert result.exit_code == 0, result.output
    rows = [line.split() for line in result.stdout.splitlines()]
    assert ["shards", "2"] in rows
    assert ["pictures", "decoded", "4"] in rows
    assert ["faults", "0"] in rows


def test_each_fault_is_a_line_and_the_exit_code_is_1(root: Path) -> None:
    tar = root / "caption/part_000000/000001.tar"
    write_tar(tar, [("id_2.json", b"{"), ("id_9.json", b"{}")])

    result = run(root)

    assert result.exit_code == 1
    lines = [line for line in result.stdout.splitlines() if line.startswith("fault: ")]
    assert [line.split(": ")[1] for line in lines] == ["bad text", "missing key", "missing key"]
    assert lines[0].startswith(f"fault: bad text: {tar}: byte 512: key 'id_2': ")
    rows = [line.split() for line in result.stdout.splitlines()]
    assert ["fault", "missing", "key", "2"] in rows
    assert ["faults", "3"] in rows


def test_warnings_exit_with_0_unless_strict(root: Path) -> None:
    set_in_manifest(root, root="/old")

    lenient, strict = run(root), run(root, "--strict")

    assert (lenient.exit_code, strict.exit_code) == (0, 1)
    assert lenient.stdout.partition("storage")[0] == strict.stdout.partition("storage")[0]
    assert lenient.stdout.startswith("warning: stale root: ")


def test_json_is_a_line_per_fault_and_a_summary(root: Path) -> None:
    tar = root / "image/part_000000/000000.tar"
    tar.write_bytes(tar.read_bytes()[:100])
    set_in_manifest(root, root="/old")

    result = run(root, "--json")

    assert result.exit_code == 1
    fault, warning, summary = json_lines(result)
    assert fault["type"] == "fault"
    assert {key: fault[key] for key in ("kind", "modality", "shard", "key", "offset")} == {
        "kind": "damaged tar",
        "modality": "image",
        "shard": "part_000000/000000.tar",
        "key": None,
        "offset": 0,
    }
    assert fault["path"] == str(tar)
    assert (warning["type"], warning["kind"]) == ("warning", "stale root")
    assert summary.pop("storage")["bytes"] > 0
    assert summary == {
        "type": "summary",
        "is_sound": False,
        "num_faults": 1,
        "num_warnings": 1,
        "counts": {"stale root": 1, "damaged tar": 1},
        "num_leaves": 1,
        "num_shards": 2,
        "num_keys": 2,
        "num_members": 6,
        "num_decoded": 0,
        "fixed": [],
    }


def test_hostile_key_cannot_command_the_terminal(root: Path) -> None:
    key = "id\x1b]0;owned\x07\x1b[31m\u202e[bold]"
    tar = root / "caption/part_000000/000000.tar"
    write_tar(tar, [(f"{key}.json", b"{")], format="pax")

    text, lines = run(root), run(root, "--json")

    for output in (text.stdout, lines.stdout):
        assert not {"\x1b", "\x07", "\u202e"} & set(output)
    assert r"\x1b]0;owned\x07" in text.stdout
    assert any(line.get("key") == key for line in json_lines(lines))


def test_modalities_can_be_chosen(root: Path) -> None:
    (root / "image/part_000000/000000.tar").write_bytes(b"")

    assert run(root, "--modality", "caption").exit_code == 0
    assert run(root, "--modality", "image", "--modality", "caption").exit_code == 1


def test_manifest_is_corrected_and_told(root: Path) -> None:
    set_in_manifest(root, total_key_count=99)

    before, fixed, after = run(root), run(root, "--fix-manifest"), run(root)

    assert [result.exit_code for result in (before, fixed, after)] == [1, 0, 0]
    assert f"corrected: {root / 'wdinfo.json'}" in fixed.stdout.splitlines()
    assert json.loads((root / "wdinfo.json").read_text())["total_key_count"] == 4


def test_correction_of_unsound_tars_is_our_error(root: Path) -> None:
    (root / "image/part_000000/000000.tar").write_bytes(b"")

    result = run(root, "--fix-manifest")

    assert result.exit_code == 1
    assert result.stderr.startswith("Error: ")
    assert "damaged tar, one of 1 faults" in result.stderr


def test_faults_that_are_not_listed_are_told_of(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from daft_twinwds.cli import validate as module
    from daft_twinwds.tools.validate import validate

    monkeypatch.setattr(
        module, "validate", lambda *args, **options: validate(*args, **options, max_faults=1)
    )
    members = [("id_0.json", b"{"), ("id_1.json", b"{")]
    write_tar(root / "caption/part_000000/000000.tar", members)

    result = run(root)

    assert "only the first 1 are listed, all are counted" in result.stdout


def test_warnings_of_reading_are_not_printed_twice(
    root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tar = root / "caption/part_000000/000000.tar"
    with tarfile.open(tar) as opened:
        last = opened.getmembers()[-1]
    end = last.offset_data + last.size
    tar.write_bytes(tar.read_bytes()[: end + -end % 512])

    result = run(root)

    assert result.stdout.startswith(f"warning: no end marker: {tar}: byte {end + -end % 512}: ")
    assert caplog.records == []


def test_command_has_help() -> None:
    result = run("--help")

    assert result.exit_code == 0
    assert "List everything that is wrong" in result.output
