"""How large and how long a video is, through PyAV, which is an extra."""

import importlib
from fractions import Fraction
from typing import Any, NamedTuple

from daft_twinwds.errors import DecodeError, MissingDependencyError

__all__ = ["VideoShape", "require_pyav", "video_shape"]


class VideoShape(NamedTuple):
    """A video as it is shown."""

    height: int
    """Pixels, after turning and stretching."""
    width: int
    """Pixels, after turning and stretching."""
    seconds: float
    """Duration of the picture track."""


def require_pyav() -> Any:
    """Return the module ``av``.

    Raises:
        MissingDependencyError: It is not installed.
    """
    try:
        return importlib.import_module("av")
    except ModuleNotFoundError as error:
        raise MissingDependencyError(
            "sizes and durations of videos need PyAV, which is not installed; "
            "pip install 'daft-twinwds[video]', or pack with classify_aspect_ratio=False and no "
            "duration_bins"
        ) from error


def video_shape(path: str) -> VideoShape:
    """Return the size and duration of the first picture track.

    The first frame is decoded, as only frames tell whether they are to be turned.

    Raises:
        DecodeError: It is no video, its first frame does not decode, or its duration is unknown.
        MissingDependencyError: PyAV is not installed.
    """
    av = require_pyav()
    try:
        with av.open(path) as container:
            stream = container.streams.video[0]
            frame = next(container.decode(stream))
            seconds = _seconds(container, stream, av.time_base)
            stretch = stream.sample_aspect_ratio or Fraction(1)
    except (av.FFmpegError, IndexError, StopIteration) as error:
        raise DecodeError(
            f"not a readable video ({type(error).__name__}: {error}); expected a picture track; "
            "copy the file again or leave it out"
        ) from error
    if seconds is None:
        raise DecodeError("a video that does not tell its duration; remux it or leave it out")
    height, width = frame.height, round(frame.width * stretch)
    if frame.rotation % 180:
        height, width = width, height
    return VideoShape(height, width, seconds)


def _seconds(container: Any, stream: Any, time_base: int) -> float | None:
    if stream.duration is not None:
        return float(stream.duration * stream.time_base)
    # Matroska keeps no duration per track.
    return None if container.duration is None else container.duration / time_base
