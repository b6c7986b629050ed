"""The table of docs/scaling.md names what benchmarks/unit_costs.py measures, in its units."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
SCRIPT = ROOT / "benchmarks" / "unit_costs.py"
ROW = re.compile(r"^\| `(\w+)` \| ([^|]+?) \|", re.MULTILINE)
NAMES_OF_UNITS = {
    "s": ("ns", "us", "ms", "s"),
    "bytes": ("B", "KB", "MB"),
    "requests": ("requests",),
}


pytestmark = pytest.mark.slow  # two processes import torch and Daft


@pytest.fixture(scope="module")
def costs() -> dict[str, dict[str, Any]]:
    """Name -> what the script says of it."""
    command = [sys.executable, str(SCRIPT), "--scale", "tiny", "--json"]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return {cost["name"]: cost for cost in map(json.loads, done.stdout.splitlines())}


@pytest.fixture(scope="module")
def table() -> dict[str, str]:
    """Name -> value with its unit, as the document has them."""
    text = (ROOT / "docs" / "scaling.md").read_text()
    section = re.search(r"^## Unit costs\n(.*?)^## ", text, re.DOTALL | re.MULTILINE)
    assert section is not None
    return dict(ROW.findall(section[1]))


def test_the_document_and_the_script_name_the_same_unit_costs(
    costs: dict[str, dict[str, Any]], table: dict[str, str]
) -> None:
    assert len(costs) > 30
    assert table.keys() == costs.keys()


def test_each_unit_cost_stands_in_the_document_in_the_unit_that_is_measured(
    costs: dict[str, dict[str, Any]], table: dict[str, str]
) -> None:
    wrong = {}
    for name, cost in costs.items():
        what, _, rest = cost["unit"].partition(" ")
        number, unit, shown_rest = table[name].split(" ", 2)
        assert float(number.replace(",", "")) > 0, name
        if unit not in NAMES_OF_UNITS.get(what, (what,)) or shown_rest != rest:
            wrong[name] = (table[name], cost["unit"])

    assert not wrong


def test_requests_are_the_same_at_every_scale(
    costs: dict[str, dict[str, Any]], table: dict[str, str]
) -> None:
    names = ("infer_requests", "indexed_requests", "excluded_requests", "part_requests")
    for name in (*names, "picture_requests"):
        assert float(table[name].split()[0]) == costs[name]["value"], name


def test_the_order_of_a_billion_rows_needs_megabytes_and_a_state_needs_bytes(
    costs: dict[str, dict[str, Any]],
) -> None:
    assert costs["order_peak"]["value"] < 10e6
    assert costs["state"]["value"] < 1000
