"""What the tests of tools share."""

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

WriteFiles = Callable[[Mapping[str, bytes]], Path]
Tree = Callable[[Path], dict[str, bytes]]


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


@pytest.fixture
def tree() -> Tree:
    """Reads all files below a folder, hidden ones included, but for that folder's own path."""

    def read(root: Path) -> dict[str, bytes]:
        files = (path for path in root.rglob("*") if path.is_file())
        return {
            str(path.relative_to(root)): path.read_bytes().replace(bytes(root.resolve()), b"ROOT")
            for path in files
        }

    return read
