"""Samples -> the leaf that each belongs to, by what its picture or video holds."""

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np

from daft_twinwds.errors import DecodeError
from daft_twinwds.pictures.byte_ranges import FIRST
from daft_twinwds.pictures.image_header import read_header
from daft_twinwds.query.schema import KIND_OF_SUFFIX, SUFFIXES_OF_MEDIUM, Kind
from daft_twinwds.query.text import MAX_TEXT_BYTES, text_fault
from daft_twinwds.shards.local import BegunFile, LocalFile
from daft_twinwds.tools.pack_pace import run_paced
from daft_twinwds.tools.pack_report import LeftOut
from daft_twinwds.tools.pack_samples import Samples
from daft_twinwds.tools.pack_settings import PackSettings
from daft_twinwds.tools.pack_videos import require_pyav, video_shape
from daft_twinwds.train.buckets import PACKED_CLASSES, aspect_places
from daft_twinwds.train.images import DecodeImage

__all__ = ["Classifier"]

_BLOCK: Final = 64
"""Samples that are looked at at a time."""
_PICTURES: Final = SUFFIXES_OF_MEDIUM["image"]
_VIDEOS: Final = SUFFIXES_OF_MEDIUM["video"]
_CLASS_FOLDERS: Final = [f"aspect_ratio_{name}" for name in PACKED_CLASSES]


class _Measures(NamedTuple):
    """What was seen of a sample; the defaults where nobody asked."""

    height: int = 1
    width: int = 1
    bin: str = ""
    """Folder of its duration."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Classifier:
    """Looks into the files of samples, as far as the settings ask for it."""

    settings: PackSettings
    samples: Samples
    """In the order in which they are packed."""
    main: str | None
    """Modality whose pictures or videos are measured."""

    def leaves(
        self, *, num_workers: int, progress: Callable[[int], None]
    ) -> tuple[dict[str, Samples], list[LeftOut]]:
        """Divide the samples by leaf.

        Args:
            num_workers: Threads that read and decode.
            progress: Called with the number of samples looked at.

        Returns:
            Folder below the output -> its samples, in their order; empty where all go into the
            output itself. And those that are left out, because of what their files hold.

        Raises:
            MissingDependencyError: A video is to be measured and PyAV is not installed.
            StorageError: A file cannot be read.
        """
        count = len(self.samples)
        if not self.settings.is_measured and not self.settings.check:
            return {"": self.samples}, []
        if self.settings.is_measured and any(map(self._is_video, range(count))):
            require_pyav()
        places: dict[str, list[int]] = {}
        left_out: list[LeftOut] = []
        blocks = [range(start, min(start + _BLOCK, count)) for start in range(0, count, _BLOCK)]
        looks = run_paced(self._look_at, blocks, num_files=len, num_workers=num_workers)
        with closing(looks):
            for block, leaves in zip(blocks, looks, strict=True):
                for place, leaf in zip(block, leaves, strict=True):
                    if isinstance(leaf, LeftOut):
                        left_out.append(leaf)
                    else:
                        places.setdefault(leaf, []).append(place)
                progress(block.stop)
        return {leaf: self.samples.take(some) for leaf, some in places.items()}, left_out

    def _look_at(self, block: range) -> list[str | LeftOut]:
        """Return the leaf of each sample, or why it has none."""
        look = self._checked if self.settings.check else self._measured
        seen = [look(place) for place in block]
        measures = [_Measures() if isinstance(one, LeftOut) else one for one in seen]
        leaves = [one.bin for one in measures]
        if self.settings.classify_aspect_ratio:
            heights, widths, _ = (np.array(column) for column in zip(*measures, strict=True))
            places = aspect_places(widths, heights, classes=PACKED_CLASSES)
            leaves = [
                f"{_CLASS_FOLDERS[place]}/{leaf}" if leaf else _CLASS_FOLDERS[place]
                for place, leaf in zip(places.tolist(), leaves, strict=True)
            ]
        return [
            one if isinstance(one, LeftOut) else leaf
            for one, leaf in zip(seen, leaves, strict=True)
        ]

    def _checked(self, place: int) -> _Measures | LeftOut:
        for modality, files in self.samples.files.items():
            suffix = (files.suffixes[place] or "").lower()
            if suffix in _PICTURES:
                try:
                    DecodeImage()(_content_of(self._path(modality, place)))
                except DecodeError as error:
                    return self._left_out(place, modality, "unreadable picture", str(error))
            elif suffix in KIND_OF_SUFFIX:
                fault = self._text_fault(place, modality, KIND_OF_SUFFIX[suffix])
                if fault is not None:
                    return self._left_out(place, modality, "unreadable text", fault)
        return self._measured(place) if self.settings.is_measured else _Measures()

    def _text_fault(self, place: int, modality: str, kind: Kind) -> str | None:
        size = int(self.samples.files[modality].sizes[place])
        if size > MAX_TEXT_BYTES:
            return f"{size} bytes; a text of at most {MAX_TEXT_BYTES} was expected"
        return text_fault(_content_of(self._path(modality, place)), kind)

    def _measured(self, place: int) -> _Measures | LeftOut:
        assert self.main is not None
        if self._is_video(place):
            return self._video_measures(place, self.main)
        if self.settings.duration_bins is not None:
            return self._left_out(place, self.main, "not a video", "it has no duration")
        size = int(self.samples.files[self.main].sizes[place])
        try:
            return _Measures(*_shown_size(self._path(self.main, place), size))
        except DecodeError as error:
            return self._left_out(place, self.main, "unreadable picture", str(error))

    def _video_measures(self, place: int, main: str) -> _Measures | LeftOut:
        try:
            height, width, seconds = video_shape(self._path(main, place))
        except DecodeError as error:
            return self._left_out(place, main, "unreadable video", str(error))
        if self.settings.duration_bins is None:
            return _Measures(height, width)
        for low, high in pairwise(self.settings.duration_bins):
            if low <= seconds < high:
                return _Measures(height, width, f"duration_{low:g}_{high:g}")
        return self._left_out(place, main, "outside the duration bins", f"{seconds:.3f} seconds")

    def _is_video(self, place: int) -> bool:
        suffix = self.samples.files[str(self.main)].suffixes[place]
        return suffix is not None and suffix.lower() in _VIDEOS

    def _path(self, modality: str, place: int) -> str:
        return f"{self.samples.files[modality].folder}/{self.samples.name(modality, place)}"

    def _left_out(self, place: int, modality: str, reason: str, detail: str) -> LeftOut:
        return LeftOut(
            key=self.samples.stems[place],
            modality=modality,
            file=str(self.samples.name(modality, place)),
            reason=reason,
            detail=detail,
        )


def _shown_size(path: str, size: int) -> tuple[int, int]:
    """Return (height, width) of a picture, turned by EXIF; few files are read beyond their head."""
    with BegunFile(path, size, first=FIRST) as file:
        return read_header(file).upright


def _content_of(path: str) -> bytes:
    with LocalFile(path) as file:
        return file.read(0, len(file))
