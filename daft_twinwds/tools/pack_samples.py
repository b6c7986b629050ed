"""Files of all modalities -> samples, in the order in which they are packed."""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from daft_twinwds.tools.pack_input import Folder, InputFile
from daft_twinwds.tools.pack_report import LeftOut

__all__ = ["Sample", "groups", "join", "shuffled"]


class Sample(NamedTuple):
    """The files of one stem."""

    stem: str
    """Path below each modality's folder, without the suffix."""
    files: tuple[InputFile | None, ...]
    """One per modality, in their order; None where an optional one is missing."""

    def file(self, modality: int) -> InputFile:
        """Return the file of a modality that no sample lacks."""
        file = self.files[modality]
        assert file is not None
        return file


def join(
    folders: Mapping[str, Folder], optional: frozenset[str]
) -> tuple[list[Sample], list[LeftOut]]:
    """Return the samples that all modalities have, but for the optional ones.

    Args:
        folders: Modality -> what it holds.
        optional: Modalities that a sample may lack.

    Returns:
        The samples, sorted by stem, and those that are left out, once each: a sample whose file was
        left out of its folder is not there again for the lack of it.
    """
    files = [folder.files for folder in folders.values()]
    known = {name: {item.key for item in folder.left_out} for name, folder in folders.items()}
    samples: list[Sample] = []
    left_out: list[LeftOut] = []
    for stem in sorted(set().union(*files)):
        found = tuple(modality.get(stem) for modality in files)
        missing = [
            name
            for name, file in zip(folders, found, strict=True)
            if file is None and name not in optional
        ]
        if not missing:
            samples.append(Sample(stem, found))
        elif not any(stem in known[name] for name in missing):
            there, file = next(
                (name, file) for name, file in zip(folders, found, strict=True) if file is not None
            )
            reason = ", ".join(f"no {name}" for name in missing)
            left_out.append(
                LeftOut(key=stem, modality=there, file=f"{stem}.{file.suffix}", reason=reason)
            )
    return samples, left_out


def shuffled(samples: Iterable[Sample], seed: int) -> list[Sample]:
    """Return the samples in an order that depends on the seed and their stems alone.

    They are sorted by a hash of both: the order is the same with every version of Python, and a
    sample that comes or goes moves no other one past its neighbours.
    """

    def place(sample: Sample) -> tuple[bytes, str]:
        digest = hashlib.blake2b(f"{seed}\0{sample.stem}".encode(), digest_size=8)
        return digest.digest(), sample.stem

    return sorted(samples, key=place)


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
