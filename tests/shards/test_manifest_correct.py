"""Correcting a manifest: counts and root, and nothing else."""

import json
from pathlib import Path

import pytest

from daft_twinwds.errors import LayoutError, StorageError
from daft_twinwds.shards.manifest_correct import correct_manifest


def test_counts_and_root_are_replaced_and_all_else_stays(tmp_path: Path) -> None:
    content = {"licence": "CC0", "root": "/old", "data_keys": ["image"], "total_key_count": 1}
    path = tmp_path / "wdinfo.json"
    path.write_text(json.dumps({**content, "data_list": ["a.tar", "b.tar"]}))

    is_written = correct_manifest(str(tmp_path), counts=[3, 4])

    assert is_written
    assert list(json.loads(path.read_text()).items()) == [
        ("licence", "CC0"),
        ("root", str(tmp_path)),
        ("data_keys", ["image"]),
        ("total_key_count", 7),
        ("data_list", ["a.tar", "b.tar"]),
        ("data_list_key_count", [3, 4]),
    ]
    assert not correct_manifest(str(tmp_path), counts=[3, 4])
    assert [file.name for file in tmp_path.iterdir()] == ["wdinfo.json"]


def test_what_is_no_manifest_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "wdinfo.json"
    path.write_text("[]")

    with pytest.raises(LayoutError, match=r"wdinfo\.json: a JSON list"):
        correct_manifest(str(tmp_path), counts=[])
    with pytest.raises(StorageError, match="gone"):
        correct_manifest(str(tmp_path / "gone"), counts=[])

    assert path.read_text() == "[]"
