"""Resident memory, sampled while something runs."""

import os
import threading
from collections.abc import Callable
from pathlib import Path

OWN_COMMAND = Path("/proc/self/cmdline").read_bytes() if Path("/proc/self").exists() else b""


class sampled:  # used as a function
    """Note the largest resident memory, every five milliseconds."""

    def __init__(self, measure: Callable[[], int]) -> None:
        self.measure = measure

    def __enter__(self) -> list[int]:
        self.peak = [self.measure()]
        self.done = threading.Event()
        self.thread = threading.Thread(target=self.watch)
        self.thread.start()
        return self.peak

    def watch(self) -> None:
        while not self.done.wait(0.005):
            self.peak[0] = max(self.peak[0], self.measure())

    def __exit__(self, *error: object) -> None:
        self.done.set()
        self.thread.join()


def resident(process: int | str = "self") -> int:
    """Return the bytes that a process has in memory (Linux); none if it has ended."""
    try:
        pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def resident_with_children() -> int:
    """Return the bytes that this process and its children have in memory (Linux)."""
    children = [pid for task in Path("/proc/self/task").iterdir() for pid in children_of(task)]
    return resident() + sum(resident(pid) for pid in children if is_program(pid))


def children_of(task: Path) -> list[str]:
    """Return the processes that a thread has started; none if it has ended."""
    try:
        return (task / "children").read_text().split()
    except (FileNotFoundError, ProcessLookupError):
        return []


def is_program(child: str) -> bool:
    """Return whether a child runs its own program; until then its memory is its parent's."""
    try:
        return Path(f"/proc/{child}/cmdline").read_bytes() not in (b"", OWN_COMMAND)
    except (FileNotFoundError, ProcessLookupError):
        return False
