"""Files of all modalities -> samples, in the order in which they are packed."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from daft_twinwds.tools.pack_input import Folder
from daft_twinwds.tools.pack_report import LeftOut

__all__ = ["Files", "Samples", "groups", "join", "shuffled"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Files:
    """The files of one modality, one per sample."""

    folder: str
    """Where they are."""
    suffixes: Sequence[str | None]
    """As in their names, without the dot; None where a sample lacks the modality."""
    sizes: npt.NDArray[np.int64]
    """Bytes; 0 where there is no file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Samples:
    """Samples in an order, by columns."""

    stems: Sequence[str]
    """Paths below each modality's folder, without the suffix."""
    files: Mapping[str, Files]
    """Modality -> files of the samples."""

    def __len__(self) -> int:
        return len(self.stems)

    def name(self, modality: str, place: int) -> str | None:
        """Return a file's path below its modality's folder; None where there is none."""
        suffix = self.files[modality].suffixes[place]
        return None if suffix is None else f"{self.stems[place]}.{suffix}"

    def take(self, places: Sequence[int]) -> "Samples":
        """Return some of the samples, in the order asked for."""
        return Samples(
            stems=[self.stems[place] for place in places],
            files={
                modality: Files(
                    folder=files.folder,
                    suffixes=[files.suffixes[place] for place in places],
                    sizes=files.sizes[np.array(places, np.int64)],
                )
                for modality, files in self.files.items()
            },
        )


def join(folders: Mapping[str, Folder], optional: frozenset[str]) -> tuple[Samples, list[LeftOut]]:
    """Return the samples that all modalities have, but for the optional ones.

    Args:
        folders: Modality -> what it holds.
        optional: Modalities that a sample may lack.

    Returns:
        The samples, sorted by stem, and those that are left out, once each: a sample whose file was
        left out of its folder is not there again for the lack of it.
    """
    stems = sorted(set().union(*(folder.files for folder in folders.values())))
    needed = [name for name in folders if name not in optional]
    known = {name: {item.key for item in folder.left_out} for name, folder in folders.items()}
    kept: list[str] = []
    left_out: list[LeftOut] = []
    for stem in stems:
        missing = [name for name in needed if stem not in folders[name].files]
        if not missing:
            kept.append(stem)
        elif not any(stem in known[name] for name in missing):
            there = next(name for name, folder in folders.items() if stem in folder.files)
            suffix = folders[there].suffixes[folders[there].files[stem]]
            reason = ", ".join(f"no {name}" for name in missing)
            left_out.append(
                LeftOut(key=stem, modality=there, file=f"{stem}.{suffix}", reason=reason)
            )
    files = {name: _files_of(folder, kept) for name, folder in folders.items()}
    return Samples(stems=kept, files=files), left_out


def _files_of(folder: Folder, stems: Sequence[str]) -> Files:
    # Place -1 is that of the entry appended for files that are missing.
    places = [folder.files.get(stem, -1) for stem in stems]
    suffixes = [*folder.suffixes, None]
    sizes = np.array([*folder.sizes, 0], np.int64)
    return Files(
        folder=folder.path,
        suffixes=[suffixes[place] for place in places],
        sizes=sizes[np.array(places, np.int64)],
    )


def shuffled(samples: Samples, seed: int) -> Samples:
    """Return the samples in an order that depends on the seed and their stems alone.

    They are sorted by a hash of both: the order is the same with every version of Python, and a
    sample that comes or goes moves no other one past its neighbours.
    """
    # Equal hashes are put in order by the stems behind them; UTF-8 sorts as its characters do.
    keys = [
        hashlib.blake2b(f"{seed}\0{stem}".encode(), digest_size=8).digest() + stem.encode()
        for stem in samples.stems
    ]
    return samples.take(sorted(range(len(keys)), key=keys.__getitem__))


def groups(sizes: Sequence[int], *, max_count: int, max_size: int) -> Iterator[range]:
    """Cut a row of sizes into groups: each takes on what comes next as long as it may.

    Args:
        sizes: Of the items, in their order.
        max_count: Most items in a group, at least 1.
        max_size: Largest sum of a group; an item that is larger has a group of its own.

    Yields:
        Neighbouring ranges that cover all items; none is empty.
    """
    start = total = 0
    for place, size in enumerate(sizes):
        if place > start and (place - start == max_count or total + size > max_size):
            yield range(start, place)
            start, total = place, 0
        total += size
    if sizes:
        yield range(start, len(sizes))
