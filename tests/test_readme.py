"""The README's code runs, and prints what the README says."""

import contextlib
import io
import re
from pathlib import Path

import pytest

README = Path(__file__).parents[1] / "README.md"
BLOCK = re.compile(r"^```python\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?", re.DOTALL | re.MULTILINE)


def test_every_block_runs_and_prints_what_stands_below_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = BLOCK.findall(README.read_text())
    names: dict[str, object] = {}

    for code, expected in blocks:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(code, names)
        assert printed.getvalue() == expected

    assert len(blocks) >= 4


def test_every_command_has_a_section() -> None:
    from daft_twinwds.cli import main

    text = README.read_text()

    for name in main.commands:
        assert f"daft-twinwds {name}" in text
