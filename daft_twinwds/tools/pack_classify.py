"""Samples -> the leaf that each belongs to, by what its picture or video holds."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np

from daft_twinwds.errors import DecodeError
from daft_twinwds.pictures.byte_ranges import HEAD
from daft_twinwds.pictures.image_header import read_header
from daft_twinwds.query.schema import SUFFIXES_OF_MEDIUM
from daft_twinwds.shards.storage import LocalFile
from daft_twinwds.tools.pack_input import Folder, InputFile
from daft_twinwds.tools.pack_report import LeftOut
from daft_twinwds.tools.pack_samples import Sample
from daft_twinwds.tools.pack_settings import PackSettings
from daft_twinwds.tools.pack_videos import require_pyav, video_shape
from daft_twinwds.train.buckets import PACKED_CLASSES, aspect_classes
from daft_twinwds.train.images import DecodeImage

__all__ = ["Classifier"]

_BLOCK: Final = 64
"""Samples that a thread takes at a time."""
_PICTURES: Final = SUFFIXES_OF_MEDIUM["image"]
_VIDEOS: Final = SUFFIXES_OF_MEDIUM["video"]


class _Measures(NamedTuple):
    """What was seen of a sample; zeros where nobody asked."""

    height: int = 0
    width: int = 0
    bin: str = ""
    """Folder of its duration."""


_NOTHING: Final = _Measures()


@dataclass(frozen=True, slots=True, kw_only=True)
class Classifier:
    """Looks into the files of samples, as far as the settings ask for it."""

    settings: PackSettings
    folders: Mapping[str, Folder]
    """Modality -> where its files are."""
    main: str | None
    """Modality whose pictures or videos are measured."""

    def leaves_of(
        self, samples: Sequence[Sample], *, num_workers: int, progress: Callable[[int], None]
    ) -> tuple[dict[str, list[Sample]], list[LeftOut]]:
        """Divide samples by leaf.

        Args:
            samples: In the order in which they are packed, which they keep.
            num_workers: Threads that read and decode.
            progress: Called with the number of samples looked at.

        Returns:
            Folder below the output -> its samples; empty where all go into the output itself. And
            those that are left out, because of what their files hold.

        Raises:
            MissingDependencyError: A video is to be measured and PyAV is not installed.
            StorageError: A file cannot be read.
        """
        if not self.settings.is_measured and not self.settings.check:
            return {"": list(samples)}, []
        if self.settings.is_measured and any(self._is_video(sample) for sample in samples):
            require_pyav()
        kept: list[Sample] = []
        measures: list[_Measures] = []
        left_out: list[LeftOut] = []
        blocks = [samples[start : start + _BLOCK] for start in range(0, len(samples), _BLOCK)]
        with ThreadPoolExecutor(num_workers) as pool:
            for block, seen in zip(blocks, pool.map(self._look_at, blocks), strict=True):
                for sample, outcome in zip(block, seen, strict=True):
                    if isinstance(outcome, LeftOut):
                        left_out.append(outcome)
                    else:
                        kept.append(sample)
                        measures.append(outcome)
                progress(len(kept) + len(left_out))
        leaves: dict[str, list[Sample]] = {}
        for sample, leaf in zip(kept, self._leaf_names(measures), strict=True):
            leaves.setdefault(leaf, []).append(sample)
        return leaves, left_out

    def _leaf_names(self, measures: Sequence[_Measures]) -> Iterator[str]:
        classes = [""] * len(measures)
        if self.settings.classify_aspect_ratio and measures:
            heights, widths, _ = (np.array(column) for column in zip(*measures, strict=True))
            names = aspect_classes(widths, heights, classes=PACKED_CLASSES)
            classes = [f"aspect_ratio_{name}" for name in names.tolist()]
        for name, measure in zip(classes, measures, strict=True):
            yield "/".join(part for part in (name, measure.bin) if part)

    def _look_at(self, block: Sequence[Sample]) -> list[_Measures | LeftOut]:
        return [self._measures_of(sample) for sample in block]

    def _measures_of(self, sample: Sample) -> _Measures | LeftOut:
        measures: _Measures | LeftOut = _NOTHING
        if self.settings.check:
            for modality, file in zip(self.folders, sample.files, strict=True):
                if file is not None and file.suffix.lower() in _PICTURES:
                    try:
                        _decode(self._path(modality, sample, file))
                    except DecodeError as error:
                        return _left_out(modality, sample, file, "unreadable picture", str(error))
        if self.settings.is_measured:
            measures = self._measured(sample)
        return measures

    def _measured(self, sample: Sample) -> _Measures | LeftOut:
        assert self.main is not None
        file = self._main_file(sample)
        path = self._path(self.main, sample, file)
        is_video = file.suffix.lower() in _VIDEOS
        bins = self.settings.duration_bins
        if bins is not None and not is_video:
            return _left_out(self.main, sample, file, "not a video", "it has no duration")
        try:
            if not is_video:
                return _Measures(*_shown_size(path))
            height, width, seconds = video_shape(path)
        except DecodeError as error:
            reason = "unreadable video" if is_video else "unreadable picture"
            return _left_out(self.main, sample, file, reason, str(error))
        if bins is None:
            return _Measures(height, width)
        for low, high in pairwise(bins):
            if low <= seconds < high:
                return _Measures(height, width, f"duration_{low:g}_{high:g}")
        return _left_out(
            self.main, sample, file, "outside the duration bins", f"{seconds:.3f} seconds"
        )

    def _main_file(self, sample: Sample) -> InputFile:
        return sample.file(list(self.folders).index(str(self.main)))

    def _is_video(self, sample: Sample) -> bool:
        return self._main_file(sample).suffix.lower() in _VIDEOS

    def _path(self, modality: str, sample: Sample, file: InputFile) -> str:
        return f"{self.folders[modality].path}/{sample.stem}.{file.suffix}"


def _shown_size(path: str) -> tuple[int, int]:
    """Return (height, width) of a picture, turned by EXIF; few files are read beyond their head."""
    with LocalFile(path) as file:
        return read_header(file.read(0, len(file)) if len(file) <= HEAD else file).upright


def _decode(path: str) -> None:
    with LocalFile(path) as file:
        DecodeImage()(file.read(0, len(file)))


def _left_out(modality: str, sample: Sample, file: InputFile, reason: str, detail: str) -> LeftOut:
    return LeftOut(
        key=sample.stem,
        modality=modality,
        file=f"{sample.stem}.{file.suffix}",
        reason=reason,
        detail=detail,
    )
