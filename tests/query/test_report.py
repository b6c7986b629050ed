"""Counts of what scans leave out, from any thread and after a fork."""

import logging
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from daft_twinwds.query import report
from daft_twinwds.query.report import count, reset_scan_report, scan_report


@pytest.fixture(autouse=True)
def _no_counts() -> Iterator[None]:
    reset_scan_report()
    yield
    reset_scan_report()


def test_counts_add_up_by_reason() -> None:
    count({"duplicate key": 2, "damaged tar": 1}, where="root/a.tar")
    count({"duplicate key": 3}, where="root/b.tar")

    assert scan_report() == {"duplicate key": 5, "damaged tar": 1}


def test_nothing_is_counted_at_first_and_after_a_reset() -> None:
    assert scan_report() == {}

    count({"damaged tar": 1}, where="root/a.tar")
    reset_scan_report()

    assert scan_report() == {}


def test_a_report_is_a_copy() -> None:
    count({"damaged tar": 1}, where="root/a.tar")

    scan_report()["damaged tar"] = 9

    assert scan_report() == {"damaged tar": 1}


def test_what_is_counted_is_logged_with_its_place(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="daft_twinwds"):
        count({"duplicate key": 2, "nothing": 0, "damaged tar": 1}, where="root/a.tar")

    assert [record.getMessage() for record in caplog.records] == [
        "root/a.tar: duplicate key: 2, damaged tar: 1"
    ]
    assert "nothing" not in scan_report()


@pytest.mark.parametrize("counts", [{}, {"damaged tar": 0}], ids=["empty", "zero"])
def test_nothing_is_not_logged(counts: dict[str, int], caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, logger="daft_twinwds"):
        count(counts, where="root/a.tar")

    assert not caplog.records
    assert scan_report() == {}


def test_threads_lose_no_count() -> None:
    counts = {f"reason {number}": number for number in range(1, 500)}
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda _: count(counts, where="root/a.tar"), range(100)))
    finally:
        sys.setswitchinterval(interval)

    assert scan_report() == {reason: 100 * number for reason, number in counts.items()}


def test_a_child_that_was_forked_while_another_thread_counted_can_count() -> None:
    # In a process of its own, which has no other threads than those it starts.
    script = textwrap.dedent(
        f"""
        import importlib.util, os, signal
        spec = importlib.util.spec_from_file_location("report", {report.__file__!r})
        report = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(report)
        with report._lock:
            child = os.fork()
            if not child:
                signal.alarm(60)  # ends the child if it waits for a lock that nobody gives back
                report.count({{"damaged tar": 1}}, where="root/a.tar")
                raise SystemExit(report.scan_report() != {{"damaged tar": 1}})
        _, status = os.waitpid(child, 0)
        raise SystemExit(status != 0)
        """
    )

    subprocess.run([sys.executable, "-c", script], check=True, timeout=120)
