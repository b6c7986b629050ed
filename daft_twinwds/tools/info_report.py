"""What `daft_twinwds.tools.info` tells of a data set."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

__all__ = ["DatasetInfo", "InfoProgress", "LeafInfo", "ModalityInfo", "PictureInfo", "TextInfo"]

Side = tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class InfoProgress:
    """How far a look at a data set is; handed to the ``progress`` callback."""

    done: int
    """Shards, in ``[0, total]``."""
    total: int
    """Shards of the data set."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeafInfo:
    """One folder of twin modalities."""

    root: str
    """Its path, or its URL without secrets."""
    num_shards: int
    """Tars per modality."""
    num_samples: int
    """Keys that any of its tars holds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModalityInfo:
    """The members of one modality."""

    num_members: int
    """Keys that it holds."""
    num_missing: int
    """Keys that only its twins hold."""
    num_bytes: int
    """Of the members."""
    tar_bytes: int
    """Of the tars, headers and damaged tars included."""
    suffixes: Mapping[str, int]
    """Lower-case suffix -> members, the most frequent first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PictureInfo:
    """The pictures of one modality, as they are shown, turned by EXIF."""

    num_pictures: int
    """Those whose header could be read."""
    num_unreadable: int
    """Those whose header could not."""
    smallest: Side | None
    """(width, height) of a picture with the fewest pixels."""
    largest: Side | None
    """(width, height) of a picture with the most pixels."""
    formats: Mapping[str, int]
    """Format by content -> pictures, the most frequent first."""
    megapixels: Mapping[str, int]
    """Class of millions of pixels -> pictures, from small to large."""
    presets: Mapping[str, int]
    """Largest of PiD's size presets that a picture covers -> pictures, from small to large."""
    aspect_ratios: Mapping[str, int]
    """Nearest of PiD's classes, as ``"16:9"`` -> pictures, from wide to tall."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TextInfo:
    """The lengths of one kind of text, in characters."""

    num_texts: int
    """Samples that have one."""
    num_absent: int
    """Members of the modality that have none."""
    shortest: int
    """Characters of the shortest."""
    median: int
    """Characters of the one in the middle."""
    longest: int
    """Characters of the longest."""
    lengths: Mapping[str, int]
    """Range of lengths, as ``"40-59"`` -> texts, from short to long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetInfo:
    """What a data set holds."""

    root: str
    """What was asked for, without secrets."""
    leaves: tuple[LeafInfo, ...]
    """Its folders of twins, in the order in which they are read."""
    num_shards: int
    """Of all leaves."""
    num_samples: int
    """Keys that any tar holds."""
    num_complete: int
    """Those that no twin lacks."""
    modalities: Mapping[str, ModalityInfo]
    """Column -> its members."""
    columns: Mapping[str, str]
    """Name -> Daft type of the columns that `read_twin_webdataset` gives; none if it refuses."""
    pictures: Mapping[str, PictureInfo]
    """Column of pictures -> their sizes."""
    texts: Mapping[str, TextInfo]
    """Column or field of prompts, as ``"caption.prompt"`` -> lengths; none that never occur."""
    num_indexed: int
    """Shards that an index tells of, whose tars are as they were when it was built."""
    has_index: bool
    """Whether there is any."""
    oddities: Mapping[str, int]
    """What was left out or odd -> how often."""
    faults: Mapping[str, str]
    """Shard -> why something of it could not be read, and is not counted; or the root -> why no
    query can be made as it is."""

    @property
    def index_state(self) -> Literal["none", "fresh", "out of date"]:
        """Whether scans can do without the tars' headers and texts."""
        if not self.has_index:
            return "none"
        return "fresh" if self.num_indexed == self.num_shards else "out of date"
