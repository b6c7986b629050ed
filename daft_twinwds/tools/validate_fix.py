"""Corrects the manifests of a data set whose tars were found to be sound."""

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from daft_twinwds.errors import LayoutError
from daft_twinwds.shards.manifest import MANIFEST_NAME
from daft_twinwds.shards.manifest_correct import correct_manifest
from daft_twinwds.shards.urls import is_url, join, local_path
from daft_twinwds.tools.validate_layout import Layout
from daft_twinwds.tools.validate_report import Findings

__all__ = ["fix_manifests", "require_local"]

_MENDED: Final = frozenset({"wrong count", "wrong total", "stale root"})
"""What correcting the manifests mends."""
_UNSOUND: Final = (
    "bad layout",
    "missing modality",
    "missing tar",
    "unreadable tar",
    "damaged tar",
    "bad name",
    "no suffix",
    "duplicate key",
    "missing key",
)
"""What makes it doubtful how many samples a tar has."""


def require_local(layout: Layout) -> None:
    """Raise `LayoutError` unless all manifests are on this machine."""
    for found in layout.leaves:
        if is_url(found.leaf.root):
            raise LayoutError(
                f"{found.leaf.root}: not on this machine; expected a local data set, as only "
                "there manifests are corrected; validate it without fix_manifest, and correct the "
                "copy that it was made from"
            )


def fix_manifests(
    layout: Layout, counts: Sequence[npt.NDArray[np.int64]], findings: Findings
) -> tuple[str, ...]:
    """Write the true counts, and where each leaf is, into the manifests.

    Args:
        layout: The leaves.
        counts: By leaf, the samples of each shard.
        findings: What was found; what this mends is taken out of it.

    Returns:
        The manifests that changed.

    Raises:
        LayoutError: Some tar is not sound, so that nothing was written.
        StorageError: A manifest cannot be written.
    """
    unsound = {kind: number for kind in _UNSOUND if (number := findings.counts[kind])}
    if unsound:
        first = next(fault for fault in findings.kept if fault.kind in unsound)
        kinds = ", ".join(f"{kind}: {number}" for kind, number in unsound.items())
        raise LayoutError(
            f"{first.path}: {first.kind}, one of {sum(unsound.values())} faults ({kinds}); "
            "expected sound tars before their counts are written down; no manifest was changed; "
            "list the faults by validating without fix_manifest, and mend them"
        )
    fixed = []
    for found, numbers in zip(layout.leaves, counts, strict=True):
        if found.manifest is not None:
            root = found.leaf.root
            local = local_path(root)
            if correct_manifest(local, counts=numbers.tolist()):
                fixed.append(join(root, MANIFEST_NAME))
    findings.forget(_MENDED)
    return tuple(fixed)
