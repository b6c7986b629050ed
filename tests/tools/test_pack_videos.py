"""Videos are divided by shape and duration, which PyAV tells."""

import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from types import ModuleType
from typing import Any, Self

import pytest

from daft_twinwds.errors import DecodeError, LayoutError, MissingDependencyError
from daft_twinwds.tools.pack import PackReport, pack
from daft_twinwds.tools.pack_videos import VideoShape, video_shape

WriteFiles = Callable[[Mapping[str, bytes]], Path]


@dataclass(kw_only=True)
class Track:
    """A picture track, as far as packing looks at one."""

    width: int = 160
    height: int = 90
    rotation: int = 0
    duration: int | None = 40
    time_base: Fraction = Fraction(1, 10)
    sample_aspect_ratio: Fraction | None = None


@dataclass(kw_only=True)
class Container:
    """An opened video."""

    video: list[Track]
    duration: int | None = None
    streams: Any = field(init=False)

    def __post_init__(self) -> None:
        self.streams = self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def decode(self, track: Track) -> Iterator[Track]:
        # A frame tells the same of itself as its track does here.
        return iter([track] if track.width else [])


Videos = dict[str, Container]


@pytest.fixture
def videos(monkeypatch: pytest.MonkeyPatch) -> Videos:
    """File name -> what PyAV, which is no dependency of tests, finds in it."""
    known: Videos = {}

    class FFmpegError(ValueError):
        pass

    def open_(path: str) -> Container:
        if Path(path).name not in known:
            raise FFmpegError("Invalid data found when processing input")
        return known[Path(path).name]

    av = ModuleType("av")
    for name, value in {"open": open_, "FFmpegError": FFmpegError, "time_base": 1000}.items():
        setattr(av, name, value)
    monkeypatch.setitem(sys.modules, "av", av)
    return known


@pytest.fixture
def without_pyav(monkeypatch: pytest.MonkeyPatch) -> None:
    """An environment that PyAV is not installed in."""

    class NoPyAV:
        def find_spec(self, name: str, *_: object) -> None:
            if name == "av":
                raise ModuleNotFoundError("No module named 'av'", name="av")

    monkeypatch.delitem(sys.modules, "av", raising=False)
    monkeypatch.setattr(sys, "meta_path", [NoPyAV(), *sys.meta_path])


def leaves_of(report: PackReport) -> dict[str, int]:
    return {leaf.folder: leaf.num_samples for leaf in report.leaves}


@pytest.mark.parametrize(
    ("video", "shape"),
    [
        pytest.param(Container(video=[Track()]), VideoShape(90, 160, 4.0), id="plain"),
        pytest.param(Container(video=[Track(rotation=-90)]), VideoShape(160, 90, 4.0), id="turned"),
        pytest.param(
            Container(video=[Track(rotation=180)]), VideoShape(90, 160, 4.0), id="upside-down"
        ),
        pytest.param(
            Container(video=[Track(sample_aspect_ratio=Fraction(4, 3))]),
            VideoShape(90, 213, 4.0),
            id="stretched",
        ),
        pytest.param(
            Container(video=[Track(duration=None)], duration=2500),
            VideoShape(90, 160, 2.5),
            id="duration-of-the-container",
        ),
    ],
)
def test_video_is_measured_as_it_is_shown(
    videos: Videos, video: Container, shape: VideoShape
) -> None:
    videos["a.mp4"] = video

    assert video_shape("/videos/a.mp4") == shape


@pytest.mark.parametrize(
    ("video", "found"),
    [
        pytest.param(None, "Invalid data found", id="no-video"),
        pytest.param(Container(video=[]), "IndexError", id="no-picture-track"),
        pytest.param(Container(video=[Track(width=0)]), "StopIteration", id="no-frame"),
        pytest.param(Container(video=[Track(duration=None)]), "duration", id="no-duration"),
    ],
)
def test_video_that_cannot_be_measured_is_an_error(
    videos: Videos, video: Container | None, found: str
) -> None:
    if video is not None:
        videos["a.mp4"] = video

    with pytest.raises(DecodeError, match=found):
        video_shape("/videos/a.mp4")


def test_videos_are_divided_by_shape_and_duration(
    tmp_path: Path, write_files: WriteFiles, videos: Videos
) -> None:
    for stem, seconds in {"a": 0, "b": 4, "c": 5, "d": 29, "e": 3000}.items():
        videos[f"{stem}.mp4"] = Container(video=[Track(duration=seconds * 10)])
    videos["tall.mp4"] = Container(video=[Track(rotation=90)])
    source = write_files({f"video/{name}": b"1" for name in videos})

    report = pack(source, tmp_path / "out", duration_bins=[0, 5, 10, 30, float("inf")])

    assert leaves_of(report) == {
        "aspect_ratio_16_9/duration_0_5": 2,
        "aspect_ratio_16_9/duration_10_30": 1,
        "aspect_ratio_16_9/duration_30_inf": 1,
        "aspect_ratio_16_9/duration_5_10": 1,
        "aspect_ratio_9_16/duration_0_5": 1,
    }
    leaf = tmp_path / "out" / "aspect_ratio_16_9" / "duration_0_5"
    assert (leaf / "video" / "part_000000" / "000000.tar").exists()
    assert (leaf / "wdinfo.json").exists()


def test_videos_can_be_divided_by_one_of_both(
    tmp_path: Path, write_files: WriteFiles, videos: Videos
) -> None:
    videos["a.mp4"] = Container(video=[Track()])
    source = write_files({"video/a.mp4": b"1"})

    by_shape = pack(source, tmp_path / "shape")
    by_time = pack(source, tmp_path / "time", classify_aspect_ratio=False, duration_bins=[0, 5.5])

    assert leaves_of(by_shape) == {"aspect_ratio_16_9": 1}
    assert leaves_of(by_time) == {"duration_0_5.5": 1}


def test_videos_that_fit_no_bin_or_are_none_are_left_out(
    tmp_path: Path, write_files: WriteFiles, videos: Videos
) -> None:
    videos["good.mp4"] = Container(video=[Track()])
    videos["long.MP4"] = Container(video=[Track(duration=9000)])
    names = ("good.mp4", "long.MP4", "bad.mkv", "still.gif")
    source = write_files({f"video/{name}": b"1" for name in names})

    report = pack(source, tmp_path / "out", duration_bins=[0, 10])

    assert [(item.file, item.reason, item.detail) for item in report.left_out] == [
        ("bad.mkv", "unreadable video", report.left_out[0].detail),
        ("long.MP4", "outside the duration bins", "900.000 seconds"),
        ("still.gif", "not a video", "it has no duration"),
    ]
    assert "Invalid data found" in report.left_out[0].detail


@pytest.mark.usefixtures("without_pyav")
def test_measuring_videos_without_pyav_is_an_error_with_the_command(
    tmp_path: Path, write_files: WriteFiles
) -> None:
    source = write_files({"video/a.mp4": b"1"})

    with pytest.raises(MissingDependencyError, match=r"pip install 'daft-twinwds\[video\]'"):
        pack(source, tmp_path / "out")

    assert not (tmp_path / "out").exists()


@pytest.mark.usefixtures("without_pyav")
def test_videos_that_need_no_measuring_need_no_pyav(
    tmp_path: Path, write_files: WriteFiles
) -> None:
    source = write_files({"video/a.mp4": b"1"})

    report = pack(source, tmp_path / "out", classify_aspect_ratio=False)

    assert report.num_samples == 1


def test_pictures_have_no_duration(tmp_path: Path, write_files: WriteFiles) -> None:
    source = write_files({"image/a.jpg": b"1"})

    with pytest.raises(LayoutError, match=r"image/a\.jpg \(not a video\)"):
        pack(source, tmp_path / "out", duration_bins=[0, 5])
