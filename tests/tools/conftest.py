"""What the tests of tools share."""

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

WriteFiles = Callable[[Mapping[str, bytes]], Path]


@pytest.fixture
def write_files(tmp_path: Path) -> WriteFiles:
    """Writes ``{"image/a.jpg": b"..."}`` below a folder named raw, and returns the folder."""

    def write(files: Mapping[str, bytes]) -> Path:
        root = tmp_path / "raw"
        for name, data in files.items():
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        return root

    return write
