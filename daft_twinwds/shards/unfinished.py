"""What was begun to be written and has not been finished: readers would take it for all there is."""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from daft_twinwds.shards.folders import CLASSES
from daft_twinwds.shards.urls import is_url

__all__ = ["JOB_NAME", "PLAN_NAME", "unfinished"]

PLAN_NAME: Final = "pack_plan.jsonl"
"""File of a packing, beside the leaves; manifests are written when all of it is."""
JOB_NAME: Final = ".curate/job.json"
"""File of a curation, likewise; it goes when all is written."""

_CURES: Final = {
    PLAN_NAME: "go on with it by daft-twinwds pack --resume",
    JOB_NAME: "go on with it by calling curate with the same arguments",
}


def unfinished(leaves: Iterable[str]) -> list[tuple[str, str]]:
    """Return the files that show that leaves without a manifest are not finished, and what to do.

    Args:
        leaves: Their folders, or URLs; nothing is written to URLs piece by piece.
    """
    return sorted(set(filter(None, map(_unfinished, leaves))))


def _unfinished(leaf: str) -> tuple[str, str] | None:
    if is_url(leaf):
        return None
    root = Path(leaf)
    while True:
        for name, cure in _CURES.items():
            if os.path.lexists(root / name):
                return str(root / name), (
                    "was begun to be written here and is not finished; expected a manifest, which "
                    f"comes last; {cure}, or remove what is there"
                )
        if not root.name.startswith(CLASSES):
            return None
        root = root.parent
