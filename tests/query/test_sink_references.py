"""Files that other functions, and this package's own reader, have made, written as members."""

import io
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import daft
import pytest
from daft import DataType, col
from daft.datatype import MediaType

from daft_twinwds import read_twin_webdataset
from daft_twinwds.query.sink import write_twin_webdataset
from daft_twinwds.train import Selection

if TYPE_CHECKING:
    from tests.conftest import RangeServer

LONG = "k" * 150


def members_of(tar: Path) -> dict[str, bytes]:
    with tarfile.open(tar) as archive:
        return {member.name: archive.extractfile(member).read() for member in archive}  # type: ignore[union-attr]


def tar_of(members: Mapping[str, bytes], format_: int = tarfile.PAX_FORMAT) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=format_) as archive:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


@pytest.mark.parametrize("function", ["file", "image_file"])
@pytest.mark.parametrize("has_config", [False, True])
def test_files_that_daft_s_functions_make_are_written(
    tmp_path: Path, function: str, has_config: bool
) -> None:
    (tmp_path / "a.jpg").write_bytes(b"\xff\xd8\xff..")
    make = getattr(daft.functions, function)
    config = daft.io.IOConfig() if has_config else None
    df = daft.from_pydict({"__key__": ["a"], "x": [str(tmp_path / "a.jpg")]})

    write_twin_webdataset(df.with_column("x", make(col("x"), io_config=config)), tmp_path / "out")

    tar = tmp_path / "out/x/part_000000/000000.tar"
    assert members_of(tar) == {"a.jpg": b"\xff\xd8\xff.."}


def test_files_that_daft_s_functions_make_are_selected(tmp_path: Path) -> None:
    df = daft.from_pydict({"__key__": ["a", "b"], "x": ["/data/a.jpg", None]})

    selection = Selection.from_dataframe(df.with_column("x", daft.functions.file(col("x"))))

    assert selection.table["x"].to_pylist() == [
        {"path": "/data/a.jpg", "position": 0, "size": None},
        None,
    ]


def test_bytes_of_an_unknown_kind_are_written_and_written_again(tmp_path: Path) -> None:
    df = daft.from_pydict({"__key__": ["a", "b"], "x": [b"other", b""]})
    write_twin_webdataset(df, tmp_path / "one")

    write_twin_webdataset(read_twin_webdataset(tmp_path / "one"), tmp_path / "two")

    tars = [tmp_path / name / "x/part_000000/000000.tar" for name in ("one", "two")]
    assert members_of(tars[1]) == members_of(tars[0]) == {"a.bin": b"other", "b.bin": b""}


@pytest.mark.parametrize("format_", [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT])
def test_members_keep_suffixes_that_their_bytes_do_not_tell(tmp_path: Path, format_: int) -> None:
    members = {"a.b.pt": b"weights", f"{LONG}.ckpt": b"w" * 1000, "empty.jpg": b"", "s/c.PT": b"3"}
    (tmp_path / "in/x").mkdir(parents=True)
    (tmp_path / "in/x/0.tar").write_bytes(tar_of(members, format_))
    df = read_twin_webdataset(tmp_path / "in", schema={"x": DataType.file()})

    write_twin_webdataset(df, tmp_path / "out")

    assert members_of(tmp_path / "out/x/part_000000/000000.tar") == {
        name.lower(): data for name, data in members.items()
    }


def test_members_of_several_tars_keep_their_suffixes(tmp_path: Path) -> None:
    (tmp_path / "in/x").mkdir(parents=True)
    for number, suffix in enumerate(("pt", "ckpt")):
        (tmp_path / f"in/x/{number}.tar").write_bytes(tar_of({f"k{number}.{suffix}": b"same"}))

    write_twin_webdataset(read_twin_webdataset(tmp_path / "in"), tmp_path / "out", batch_size=10)

    written = (tmp_path / "out").rglob("*.tar")
    assert {name for tar in written for name in members_of(tar)} == {"k0.pt", "k1.ckpt"}


def test_members_on_a_server_keep_their_suffixes(
    tmp_path: Path, range_server: "RangeServer"
) -> None:
    range_server.files["/0.tar"] = tar_of({"a.pt": b"weights"})
    file = daft.File(f"{range_server.url}/0.tar?secret", position=512, size=7)

    write_twin_webdataset(daft.from_pydict({"__key__": ["a"], "x": [file]}), tmp_path / "out")

    assert members_of(tmp_path / "out/x/part_000000/000000.tar") == {"a.pt": b"weights"}


def test_a_range_that_is_no_member_is_written_as_bytes_are(tmp_path: Path) -> None:
    (tmp_path / "0.tar").write_bytes(tar_of({"a.pt": b"weights"}))
    (tmp_path / "broken.tar").write_bytes(b"no tar at all")
    files = [
        daft.File(str(tmp_path / "0.tar"), position=512, size=6),
        daft.File(str(tmp_path / "broken.tar"), position=3, size=3),
    ]

    write_twin_webdataset(daft.from_pydict({"__key__": ["a", "b"], "x": files}), tmp_path / "out")

    assert members_of(tmp_path / "out/x/part_000000/000000.tar") == {
        "a.bin": b"weight",
        "b.bin": b"tar",
    }


def test_a_column_of_pictures_keeps_a_suffix_that_is_none_of_pictures(tmp_path: Path) -> None:
    write_twin_webdataset(daft.from_pydict({"__key__": ["a"], "x": [b"raw"]}), tmp_path / "one")
    df = read_twin_webdataset(tmp_path / "one", schema={"x": DataType.file(MediaType.image())})

    write_twin_webdataset(df, tmp_path / "two")

    assert members_of(tmp_path / "two/x/part_000000/000000.tar") == {"a.bin": b"raw"}
