"""Brings a manifest in line with the tars that are there."""

import json
from collections.abc import Sequence
from pathlib import Path

from daft_twinwds.shards.manifest import MANIFEST_NAME, load_content
from daft_twinwds.shards.new_file import new_file

__all__ = ["correct_manifest"]


def correct_manifest(leaf: str, *, counts: Sequence[int]) -> bool:
    """Write a leaf's own folder and counts into the manifest that it has.

    All other keys stay as they are, in their order, those that are not known included. Nothing is
    written where nothing changes.

    Args:
        leaf: Local folder of the leaf; its absolute path is written into the manifest, which is
            what PiD's loader goes by.
        counts: Samples of each tar in ``data_list``.

    Returns:
        Whether the manifest was written.

    Raises:
        LayoutError: It is no JSON object.
        StorageError: It cannot be read, or its folder not written to.
    """
    path, content = load_content(f"{leaf}/{MANIFEST_NAME}")
    corrected = {
        **content,
        "data_list_key_count": list(counts),
        "root": str(Path(leaf).resolve()),
        "total_key_count": sum(counts),
    }
    if corrected == content:
        return False
    with new_file(path) as file:
        file.write(json.dumps(corrected, indent=2).encode())
    return True
