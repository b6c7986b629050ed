import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, NoReturn

import click
import pytest
from click.testing import CliRunner, Result
from daft.exceptions import DaftCoreException
from PIL import Image

from daft_twinwds import cli
from daft_twinwds.cli import main
from daft_twinwds.testing import make_twin_dataset, write_tar
from daft_twinwds.tools.demo import run_demo


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


@pytest.fixture
def twins(tmp_path: Path) -> Path:
    return make_twin_dataset(tmp_path / "twins", samples_per_shard=3)


def raising(error: BaseException) -> Any:
    def fail(**_: object) -> NoReturn:
        raise error

    return fail


@pytest.mark.parametrize("name", [None, *main.commands])
@pytest.mark.parametrize("option", ["-h", "--help"])
def test_command_has_help(name: str | None, option: str) -> None:
    result = run(*([] if name is None else [name]), option)

    assert result.exit_code == 0
    assert "Usage:" in result.stdout
    command = main if name is None else main.commands[name]
    assert command.help
    assert command.help.split()[0] in result.stdout


def test_every_option_has_help() -> None:
    for command in main.commands.values():
        for option in command.params:
            assert isinstance(option, click.Argument) or option.help, option.name


def test_the_package_is_the_command() -> None:
    command = [sys.executable, "-m", "daft_twinwds", "--help"]

    done = subprocess.run(command, capture_output=True, text=True, check=True)

    assert done.stdout.startswith("Usage: daft-twinwds [OPTIONS] COMMAND")


def test_version_is_that_of_the_package() -> None:
    result = run("--version")

    assert result.exit_code == 0
    assert result.stdout.split()[-1] == version("daft-twinwds")


def test_demo_paints_data_and_tells_that_nothing_was_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cli.demo, "run_demo", partial(run_demo, image_size=(64, 36)))

    result = run("demo", "--output", tmp_path / "sheet.png", "--keep", tmp_path / "twins")

    assert result.exit_code == 0, result.output
    assert "12 of 24 rows" in result.stdout
    assert "every sample was read once (0 lost, 0 seen twice)" in result.stdout
    assert result.stderr == ""
    assert (tmp_path / "twins/wdinfo.json").is_file()
    with Image.open(tmp_path / "sheet.png") as sheet:
        assert sheet.format == "PNG"


def test_demo_writes_its_sheet_into_the_current_folder(
    twins: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    result = run("demo", "--data", twins, "--threads", "1")

    assert result.exit_code == 0, result.output
    assert (tmp_path / "contact_sheet.png").is_file()


def test_json_is_all_there_is_on_stdout(twins: Path, tmp_path: Path) -> None:
    result = run(
        "demo", "--data", twins, "--json", "--contains", "lake", "--output", tmp_path / "a.png"
    )

    assert result.exit_code == 0, result.output
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    assert [line["step"] for line in lines] == ["data", "table", "query", "stream", "sheet"]
    assert lines[2]["word"] == "lake"
    assert lines[3]["num_rows"] == lines[2]["num_kept"] < lines[2]["num_rows"] == 6


def test_our_errors_are_one_line(tmp_path: Path) -> None:
    result = run("demo", "--data", tmp_path / "nowhere", "--output", tmp_path / "a.png")

    assert result.exit_code == 1
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert line.startswith(f"Error: {tmp_path}/nowhere: not found")
    assert "; expected a dataset's root" in line
    assert isinstance(result.exception, SystemExit)


def test_our_errors_out_of_a_query_are_one_line(tmp_path: Path) -> None:
    twins = make_twin_dataset(tmp_path / "twins")
    # The table needs the first shard only, so it is the query that finds out, inside Daft.
    write_tar(twins / "caption/part_000000/000001.tar", [("id_8.json", b'{"prompt": "a"}')])

    # A process of its own: Daft logs to a stream that CliRunner does not see.
    done = subprocess.run(
        [
            *(sys.executable, "-c", "from daft_twinwds.cli import main; main()", "demo"),
            *("--data", str(twins), "--output", str(tmp_path / "a.png"), "--contains", "a"),
        ],
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"Error: {twins}/caption/part_000000/000001.tar (caption) lacks 7 of 8")
    assert "; expected the same keys in all twins; pack the missing members" in line
    assert "2  Table" in done.stdout
    assert not (tmp_path / "a.png").exists()


def test_whole_demo_runs_as_a_process(twins: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [
            *(sys.executable, "-c", "from daft_twinwds.cli import main; main()", "demo"),
            *("--data", str(twins), "--output", str(tmp_path / "a.png")),
        ],
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert "6 of 6 rows" in done.stdout
    assert "every sample was read once" in done.stdout


def test_faults_of_daft_keep_their_traceback(twins: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli.demo, "run_demo", raising(DaftCoreException("out of scan tasks")))

    result = run("demo", "--data", twins)

    assert isinstance(result.exception, DaftCoreException)


def test_faults_of_ours_keep_their_traceback(twins: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli.demo, "run_demo", raising(KeyError("bug")))

    result = run("demo", "--data", twins)

    assert isinstance(result.exception, KeyError)


@pytest.mark.parametrize("error", ["StorageError", "DecodeError", "TwinWebDatasetError"])
def test_error_that_daft_wraps_is_told_without_the_wrapping(
    twins: Path, monkeypatch: pytest.MonkeyPatch, error: str
) -> None:
    text = f"PyIOError\n\nCaused by the following errors:\n  1: {error}: a.tar: cut; copy it again"
    monkeypatch.setattr(cli.demo, "run_demo", raising(DaftCoreException(text)))

    result = run("demo", "--data", twins)

    assert result.exit_code == 1
    assert result.stderr == "Error: a.tar: cut; copy it again\n"


def test_interrupt_is_quiet(twins: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli.demo, "run_demo", raising(KeyboardInterrupt()))

    result = run("demo", "--data", twins)

    assert result.exit_code == 130
    assert result.output == ""


def test_lost_samples_are_an_error(
    twins: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = run_demo(data=twins, output=tmp_path / "a.png")
    lossy = replace(done, stream=replace(done.stream, num_lost=1))
    monkeypatch.setattr(cli.demo, "run_demo", lambda **_: lossy)

    result = run("demo", "--data", twins)

    assert result.exit_code == 1
    assert result.stderr.startswith(f"Error: {twins}: 1 samples were lost and 0 read more than")


def test_data_that_is_given_cannot_be_kept(twins: Path, tmp_path: Path) -> None:
    result = run("demo", "--data", twins, "--keep", tmp_path / "new")

    assert result.exit_code == 2
    assert "pass either --data or --keep" in result.stderr


def test_threads_are_at_least_one(twins: Path) -> None:
    result = run("demo", "--data", twins, "--threads", "0")

    assert result.exit_code == 2
    assert "0 is not in the range x>=1" in result.stderr


def test_square_brackets_in_a_path_are_no_markup(
    twins: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    result = run("preview", twins, "--output", "a[/b][red]c.html")

    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines()[0].split() == ["output", "a[/b][red]c.html"]


def test_names_of_members_and_tars_command_no_terminal(tmp_path: Path) -> None:
    twins = make_twin_dataset(tmp_path / "twins", num_shards=1)
    for modality in ("image", "caption"):
        (tar,) = (twins / modality).glob("*/*.tar")
        tar.with_name("\x1b]0;owned\x07.tar").write_bytes(b"garbage" * 200)
    (twins / "wdinfo.json").unlink()

    # A process of its own: of the tests' process pytest handles the warnings.
    done = subprocess.run(
        [
            *(sys.executable, "-c", "from daft_twinwds.cli import main; main()", "preview"),
            *(str(twins), "--output", str(tmp_path / "a.html")),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    error = run("demo", "--data", tmp_path / "\x1bnowhere", "--output", tmp_path / "a.png")

    assert done.returncode == 0, done.stderr
    assert "\\x1b]0;owned\\x07.tar: not a tar" in done.stderr
    assert "\\x1bnowhere: not found" in error.stderr
    assert "\x1b" not in done.stdout + done.stderr + error.stderr


@pytest.mark.parametrize("command", ["index", "info", "preview", "validate"])
def test_an_empty_root_is_refused_by_name(command: str) -> None:
    result = run(command, "")

    assert result.exit_code == 2
    assert "Invalid value for 'ROOT...': an empty path" in result.stderr


@pytest.mark.parametrize("name", ["", ".", ".."])
def test_a_page_needs_the_name_of_a_file(twins: Path, name: str) -> None:
    result = run("preview", twins, "--output", name)

    assert result.exit_code == 2
    assert "names no file" in result.stderr


def test_a_page_replaces_the_target_of_a_link_and_no_pipe(twins: Path, tmp_path: Path) -> None:
    (tmp_path / "old.html").write_text("old")
    (tmp_path / "link.html").symlink_to(tmp_path / "old.html")
    os.mkfifo(tmp_path / "pipe")

    linked = run("preview", twins, "--output", tmp_path / "link.html")
    piped = run("preview", twins, "--output", tmp_path / "pipe")

    assert linked.exit_code == 0
    assert (tmp_path / "link.html").is_symlink()
    assert "<html" in (tmp_path / "old.html").read_text()
    assert piped.exit_code == 1
    assert "pipe: cannot be written, as it is no file but" in piped.stderr
    assert (tmp_path / "pipe").is_fifo()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no full device")
def test_a_full_output_is_one_line(twins: Path) -> None:
    code = "from daft_twinwds.cli import main; main()"
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-c", code, "validate", str(twins)],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )

    assert done.returncode == 1
    assert done.stderr.startswith("Error: standard output: cannot be written")
    assert done.stderr.count("\n") == 1


STUBBORN = """
import signal, threading, time
from daft_twinwds import cli


def run_demo(**_):
    print("running", flush=True)
    while True:
        try:
            time.sleep(60)
        except KeyboardInterrupt:
            pass


cli.PATIENCE = 0.2
cli.demo.run_demo = run_demo
cli.main(["demo"])
"""


def test_a_command_that_ignores_an_interrupt_ends_all_the_same() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", STUBBORN], stdout=subprocess.PIPE, text=True
    ) as command:
        assert command.stdout is not None
        assert command.stdout.readline() == "running\n"
        command.send_signal(signal.SIGINT)

        assert command.wait(30) == 130
