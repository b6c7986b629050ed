"""What of a folder can be packed, and why the rest cannot."""

import json
import os
import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from daft_twinwds.errors import LayoutError, StorageError
from daft_twinwds.tools import pack_input
from daft_twinwds.tools.pack import PackReport, pack

WriteFiles = Callable[[Mapping[str, bytes]], Path]
Reasons = dict[str, str]


def packed(source: Path, **options: Any) -> PackReport:
    return pack(source, source.parent / "out", classify_aspect_ratio=False, **options)


def reasons_of(report: PackReport) -> Reasons:
    """Path below the input -> why it was left out."""
    return {f"{item.modality}/{item.file}".lstrip("/"): item.reason for item in report.left_out}


def packed_keys(source: Path) -> list[str]:
    plan = (source.parent / "out" / "pack_plan.jsonl").read_text().splitlines()
    assert len(plan) == 2
    return sorted(json.loads(plan[1])["keys"])


@pytest.fixture
def raw(write_files: WriteFiles) -> Path:
    """An input of one good sample."""
    return write_files({"image/good.jpg": b"1"})


@pytest.mark.parametrize(
    ("name", "data", "key", "reason"),
    [
        pytest.param("image/empty.jpg", b"", "empty", "0 bytes", id="empty"),
        pytest.param("image/large.jpg", b"12345678", "large", "too large", id="large"),
        pytest.param("image/README", b"x", "README", "no suffix", id="no-suffix"),
        pytest.param("image/dot.", b"x", "dot", "no suffix", id="dot-at-the-end"),
        pytest.param("image/.jpg", b"x", ".jpg", "hidden", id="suffix-alone"),
        pytest.param("image/._good.jpg", b"x", "._good", "hidden", id="macos-file"),
        pytest.param("image/.git/x.jpg", b"x", ".git", "hidden", id="hidden-folder"),
        pytest.param("image/sub/x.jpg", b"x", "sub/x", "in a sub-folder", id="sub-folder"),
        pytest.param("image/a\\b.jpg", b"x", "a\\b", "backslash in its name", id="backslash"),
        pytest.param("notes.txt", b"x", "notes", "not in a modality's folder", id="beside"),
        pytest.param(".DS_Store", b"x", ".DS_Store", "hidden", id="hidden-beside"),
        pytest.param("__MACOSX/x.jpg", b"x", "__MACOSX", "macOS sidecar", id="macos-folder"),
    ],
)
def test_file_that_cannot_be_packed_is_named_with_its_reason(
    raw: Path, write_files: WriteFiles, name: str, data: bytes, key: str, reason: str
) -> None:
    write_files({name: data})

    report = packed(raw, max_file_bytes=7)

    assert [(item.key, item.reason) for item in report.left_out] == [(key, reason)]
    assert packed_keys(raw) == ["good"]


def test_name_that_is_not_utf8_is_left_out_and_shown(raw: Path) -> None:
    os.close(os.open(os.fsencode(raw) + b"/image/caf\xe9.jpg", os.O_CREAT))

    assert reasons_of(packed(raw)) == {"image/caf\\xe9.jpg": "name is not UTF-8"}


def test_folder_whose_name_is_not_utf8_is_refused(raw: Path) -> None:
    Path(os.fsdecode(os.fsencode(raw) + b"/caf\xe9")).mkdir()

    with pytest.raises(LayoutError, match=r"raw/caf\\xe9: no name for a modality"):
        packed(raw)


@pytest.mark.parametrize("name", ["part_000000", "aspect_ratio_1_1", "duration_0_5", "a\\b"])
def test_folder_that_a_reader_would_not_take_for_a_modality_is_refused(
    raw: Path, name: str
) -> None:
    (raw / name).mkdir()

    with pytest.raises(LayoutError, match="no name for a modality"):
        packed(raw)


def test_sub_folders_become_part_of_the_key_if_asked(raw: Path, write_files: WriteFiles) -> None:
    write_files({"image/x.y/a.jpg": b"1", "image/x.y/__MACOSX/b.jpg": b"1"})

    report = packed(raw, keep_folders=True)

    assert packed_keys(raw) == ["good", "x.y/a"]
    assert reasons_of(report) == {"image/x.y/__MACOSX/b.jpg": "macOS sidecar"}


def test_links_are_followed_inside_the_input_alone(raw: Path, tmp_path: Path) -> None:
    (tmp_path / "secret.jpg").write_bytes(b"secret")
    (tmp_path / "secrets").mkdir()
    images = raw / "image"
    (images / "inside.jpg").symlink_to("good.jpg")
    (images / "outside.jpg").symlink_to(tmp_path / "secret.jpg")
    (images / "dots.jpg").symlink_to("../../secret.jpg")
    (images / "device.jpg").symlink_to("/dev/zero")
    (images / "folder").symlink_to(tmp_path / "secrets")
    (images / "above").symlink_to("..")
    (images / "nothing.jpg").symlink_to("gone.jpg")
    (images / "itself.jpg").symlink_to("itself.jpg")

    report = packed(raw, keep_folders=True)

    assert packed_keys(raw) == ["good", "inside"]
    assert reasons_of(report) == {
        "image/outside.jpg": "link out of the input",
        "image/dots.jpg": "link out of the input",
        "image/device.jpg": "link out of the input",
        "image/folder": "link out of the input",
        "image/above": "link to a folder",
        "image/nothing.jpg": "broken link",
        "image/itself.jpg": "broken link",
    }


def test_modality_that_is_a_link_out_of_the_input_is_refused(raw: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (raw / "depth").symlink_to(tmp_path / "elsewhere")

    with pytest.raises(LayoutError, match=r"depth: a link to .*elsewhere, out of the input"):
        packed(raw)


def test_pipes_and_sockets_are_not_opened(raw: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(raw / "image" / "pipe.jpg")
    # A socket's whole path may have no more than some hundred bytes.
    monkeypatch.chdir(raw / "image")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("socket.jpg")

    assert reasons_of(packed(raw)) == {
        "image/pipe.jpg": "not a file",
        "image/socket.jpg": "not a file",
    }


@pytest.mark.parametrize(
    "names", [("x.jpg", "x.png"), ("a.JPG", "a.jpg"), ("v.1.jpg", "v.1.jpeg")], ids=str
)
def test_two_files_of_one_stem_are_refused_by_name(
    raw: Path, write_files: WriteFiles, names: tuple[str, str]
) -> None:
    write_files({f"image/{name}": b"1" for name in names})

    with pytest.raises(LayoutError) as caught:
        packed(raw)

    assert all(name in str(caught.value) for name in sorted(names))
    assert "pass on_double='skip'" in str(caught.value)


def test_many_doubles_are_counted(raw: Path, write_files: WriteFiles) -> None:
    write_files({f"image/{n}.{suffix}": b"1" for n in range(8) for suffix in ("jpg", "png")})

    with pytest.raises(LayoutError, match=r"4\.jpg and 4\.png, and 3 more have the same name"):
        packed(raw)


def test_of_doubles_the_first_by_name_is_packed_if_told(raw: Path, write_files: WriteFiles) -> None:
    write_files({"image/good.JPG": b"2", "image/good.png": b"3"})

    report = packed(raw, on_double="skip")

    assert [(item.file, item.reason, item.detail) for item in report.left_out] == [
        ("good.jpg", "double", "of good.JPG"),
        ("good.png", "double", "of good.JPG"),
    ]


def test_file_that_is_left_out_doubles_nothing(raw: Path, write_files: WriteFiles) -> None:
    write_files({"image/good.png": b"", "image/good": b"1"})

    assert reasons_of(packed(raw)) == {"image/good": "no suffix", "image/good.png": "0 bytes"}


def test_sample_is_reported_once_for_all_that_it_lacks(raw: Path, write_files: WriteFiles) -> None:
    write_files({"caption/good.txt": b"1", "umt5/good.pkl": b"1", "image/lone.jpg": b"1"})
    write_files({"image/spoiled.jpg": b"", "caption/spoiled.txt": b"1", "umt5/spoiled.pkl": b"1"})

    report = packed(raw)

    assert [(item.key, item.file, item.reason) for item in report.left_out] == [
        ("lone", "lone.jpg", "no caption, no umt5"),
        ("spoiled", "spoiled.jpg", "0 bytes"),
    ]


@pytest.mark.parametrize("step", ["open", "scandir"])
def test_folder_that_cannot_be_listed_is_an_error(
    raw: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    original = getattr(os, step)

    def refuse(place: Any, *arguments: int) -> Any:
        if step == "scandir" and isinstance(place, int):
            place = str(Path(f"/proc/self/fd/{place}").readlink())
        if place == str(raw / "image"):
            raise PermissionError(13, "Permission denied")
        return original(place, *arguments)

    monkeypatch.setattr(os, step, refuse)

    with pytest.raises(StorageError, match=r"image: cannot be listed \(Permission denied\)"):
        packed(raw)


def test_file_that_goes_while_it_is_listed_is_an_error(
    raw: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = pack_input._sorted

    def listed_just_before(place: str | int, folder: str) -> Any:
        entries = listed(place, folder)
        if folder.endswith("image"):
            (raw / "image" / "good.jpg").unlink()
        return entries

    monkeypatch.setattr(pack_input, "_sorted", listed_just_before)

    with pytest.raises(StorageError, match=r"good\.jpg: cannot be listed \(No such file"):
        packed(raw)


def test_folders_in_folders_may_be_more_than_can_be_open(
    raw: Path, write_files: WriteFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[int] = []
    most = [0]
    open_, close = os.open, os.close

    def note(path: Any, flags: int, *rest: int) -> int:
        descriptor = open_(path, flags, *rest)
        if flags & os.O_DIRECTORY:
            opened.append(descriptor)
            most[0] = max(most[0], len(opened))
        return descriptor

    def forget(descriptor: int) -> None:
        if descriptor in opened:
            opened.remove(descriptor)
        close(descriptor)

    deep = "/".join(["d"] * 50)
    write_files({f"image/{deep}/a.jpg": b"1"})
    monkeypatch.setattr(os, "open", note)
    monkeypatch.setattr(os, "close", forget)

    packed(raw, keep_folders=True)

    assert packed_keys(raw) == [f"{deep}/a", "good"]
    assert (most, opened) == ([1], [])
