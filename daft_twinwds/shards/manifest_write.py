"""Writes ``wdinfo.json``, as PiD's loader and ours read it."""

import json
from collections.abc import Sequence
from pathlib import Path

from daft_twinwds.shards.manifest import MANIFEST_NAME
from daft_twinwds.shards.new_file import new_file

__all__ = ["manifest_content", "write_manifest"]


def write_manifest(
    leaf: str, *, modalities: Sequence[str], names: Sequence[str], counts: Sequence[int]
) -> None:
    """Write the manifest of one leaf; what is listed must be there by then.

    Args:
        leaf: Folder of the leaf; its absolute path is written into the manifest.
        modalities: Folders below it.
        names: Tars below each of those, ``part_000000/000000.tar``.
        counts: Samples of each tar.

    Raises:
        StorageError: The folder cannot be written to.

    Source:
        ``wdinfo.json`` as written by PiD's ``scripts/sharding_wds.py``.
    """
    content = manifest_content(
        str(Path(leaf).resolve()), modalities=modalities, names=names, counts=counts
    )
    with new_file(f"{leaf}/{MANIFEST_NAME}") as file:
        file.write(content)


def manifest_content(
    root: str, *, modalities: Sequence[str], names: Sequence[str], counts: Sequence[int]
) -> bytes:
    """Return the bytes of a manifest; see `write_manifest`.

    Args:
        root: Absolute folder of the leaf, or its URL.
        modalities: Folders below it.
        names: Tars below each of those.
        counts: Samples of each tar.
    """
    content = {
        "data_keys": list(modalities),
        "data_list": list(names),
        "data_list_key_count": list(counts),
        "root": root,
        "total_key_count": sum(counts),
    }
    return json.dumps(content, indent=2).encode()
