"""The members of one tar, by sample key."""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from daft_twinwds.errors import AlignmentError, TarFormatError
from daft_twinwds.shards.storage import File
from daft_twinwds.shards.tar import Members, read_members

__all__ = [
    "DUPLICATE",
    "NO_SUFFIX",
    "BadKey",
    "KeySplit",
    "NameFault",
    "Samples",
    "all_samples",
    "name_faults",
    "read_samples",
    "split_name",
]

KeySplit = Literal["last", "first"]

NO_SUFFIX = "member without a suffix"
DUPLICATE = "duplicate key"
SURPLUS = "surplus copy of a member"


class BadKey(NamedTuple):
    """Why a key becomes no row."""

    reason: str
    """What it is counted as."""
    message: str
    """Where it is, what was found, what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NameFault:
    """Why some members of a tar make no sample."""

    reason: str
    """`NO_SUFFIX` or `DUPLICATE`."""
    places: list[int]
    """The member without a suffix, or all that hold one key."""
    message: str
    """Where they are, what was found, what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Samples:
    """What one modality's tar holds, one entry per key, in archive order."""

    path: str
    """The tar, for messages."""
    keys: list[str]
    """Unique keys: the member's path without its suffix."""
    names: list[str]
    """Member names as stored."""
    positions: NDArray[np.int64]
    """First byte of each payload."""
    sizes: NDArray[np.int64]
    """Bytes of each payload."""
    suffixes: frozenset[str] = frozenset()
    """Suffixes that occur, lower-case."""
    bad: Mapping[str, BadKey] = field(default_factory=dict)
    """Keys that this tar spoils, and why; only where bad samples are skipped."""
    fault: TarFormatError | None = None
    """Where reading stopped; only where bad samples are skipped."""
    notes: Mapping[str, int] = field(default_factory=dict)
    """Oddities by kind, counted."""

    @classmethod
    def none(cls, path: str) -> "Samples":
        """A modality that lacks the shard."""
        empty = np.empty(0, np.int64)
        return cls(path=path, keys=[], names=[], positions=empty, sizes=empty)

    def without(
        self,
        places: Collection[int],
        *,
        bad: Mapping[str, BadKey] | None = None,
        notes: Mapping[str, int] | None = None,
    ) -> "Samples":
        """Leave out the members at ``places``; ``bad`` keys and ``notes`` add to what there is."""
        kept = [place for place in range(len(self.keys)) if place not in places]
        return replace(
            self,
            keys=[self.keys[place] for place in kept],
            names=[self.names[place] for place in kept],
            positions=self.positions[kept],
            sizes=self.sizes[kept],
            suffixes=frozenset(self.suffix_of(place) for place in kept),
            bad={**self.bad, **(bad or {})},
            notes=Counter(self.notes) + Counter(notes or {}),
        )

    def suffix_of(self, place: int) -> str:
        """Lower-case suffix of the member at ``place``."""
        # Whatever the rule was, the key and the dot behind it begin the name.
        return self.names[place][len(self.keys[place]) + 1 :].lower()


def split_name(name: str, key_split: KeySplit) -> tuple[str, str]:
    """Split a member's name into key and suffix.

    Only the base name is split: a dot in a folder's name is part of the key. Leading dots start
    no suffix, as in ``os.path.splitext``.

    Args:
        name: Member name, folders separated by ``/``.
        key_split: ``"last"``: ``a.b.jpg`` has the key ``a.b`` (PiD's packer); ``"first"``: it
            has the key ``a`` and the suffix ``b.jpg`` (WebDataset).

    Returns:
        Key and lower-case suffix without its dot; the suffix is empty where there is none.
    """
    base = name.rfind("/") + 1
    dot = name.rfind(".", base) if key_split == "last" else name.find(".", base)
    if dot <= base or not name[base:dot].strip("."):
        return name, ""
    return name[:dot], name[dot + 1 :].lower()


def _split_names(names: list[str], key_split: KeySplit) -> tuple[list[str], list[str]]:
    """`split_name` for many names."""
    if key_split == "last":
        parts = [name.rpartition(".") for name in names]
        keys = [key for key, _, _ in parts]
        lower = {suffix: suffix.lower() for _, _, suffix in parts}
        plain = all(suffix and "/" not in suffix for suffix in lower)
        # Such a key may belong to a name like ".jpg" or "..jpg", whose dots start no suffix.
        if plain and not any(key[-1:] in ("", "/", ".") for key in keys):
            return keys, [lower[suffix] for _, _, suffix in parts]
    split = [split_name(name, key_split) for name in names]
    return [key for key, _ in split], [suffix for _, suffix in split]


def read_samples(
    file: File, *, key_split: KeySplit, strict: bool, limit: int | None = None
) -> Samples:
    """Read the headers of one tar and give every member its key.

    Args:
        file: The tar.
        key_split: See `split_name`.
        strict: Raise at the first fault. Otherwise the members before a fault of the tar are
            kept, members without a suffix are left out, and of a doubled key the first member
            stays if all its members hold the same bytes; if not, the key is bad. All of these
            are counted.
        limit: Members to read at most; None for all.

    Raises:
        TarFormatError: See `read_members`; only if ``strict``.
        AlignmentError: A key is held twice, or a member has no suffix; only if ``strict``.
        StorageError: The file cannot be read.
    """
    # Some members at the beginning are no reason to read a small file whole.
    data = file.data() if limit is None else file
    members = read_members(data, path=file.path, strict=strict, limit=limit)
    samples = all_samples(members, path=file.path, key_split=key_split)
    faults = list(name_faults(samples))
    if not faults:
        return samples
    if strict:
        raise AlignmentError(faults[0].message)
    return _without_faults(samples, faults, read=file.read)


def all_samples(members: Members, *, path: str, key_split: KeySplit) -> Samples:
    """Give every member its key, those that have a `NameFault` included.

    Args:
        members: Of one tar.
        path: The tar, for messages.
        key_split: See `split_name`.
    """
    keys, suffixes = _split_names(members.names, key_split)
    return Samples(
        path=path,
        keys=keys,
        names=members.names,
        positions=members.positions,
        sizes=members.sizes,
        suffixes=frozenset(suffixes),
        fault=members.fault,
        notes=members.notes,
    )


def name_faults(samples: Samples) -> Iterator[NameFault]:
    """Yield what is wrong with the names of a tar's members: first no suffix, then doubled keys.

    Args:
        samples: What `all_samples` returned.
    """
    bare = _bare_places(samples)
    for place in bare:
        message = (
            f"{samples.path}: member {samples.names[place]!r} at byte "
            f"{samples.positions[place]} has no suffix; expected names like 'id_0.jpg'; "
            "remove it, or pass on_error='skip'"
        )
        yield NameFault(reason=NO_SUFFIX, places=[place], message=message)
    if len(set(samples.keys)) == len(samples.keys):
        return
    places_of: dict[str, list[int]] = {}
    for place, key in enumerate(samples.keys):
        if place not in bare:
            places_of.setdefault(key, []).append(place)
    for key, places in places_of.items():
        if len(places) > 1:
            message = _doubled_message(samples, key, places)
            yield NameFault(reason=DUPLICATE, places=places, message=message)


def _bare_places(samples: Samples) -> dict[int, None]:
    if "" not in samples.suffixes:
        return {}
    places = range(len(samples.keys))
    return dict.fromkeys(place for place in places if not samples.suffix_of(place))


def _doubled_message(samples: Samples, key: str, places: list[int]) -> str:
    shown = " and ".join(
        f"{samples.names[place]!r} at byte {samples.positions[place]}" for place in places[:4]
    )
    return (
        f"{samples.path}: key {key!r} is held by {len(places)} members, {shown}; expected "
        "one member per key; remove the others, or pass on_error='skip'"
    )


def _without_faults(
    samples: Samples, faults: list[NameFault], *, read: Callable[[int, int], bytes]
) -> Samples:
    dropped: set[int] = set()
    counts: Counter[str] = Counter()
    bad: dict[str, BadKey] = {}
    for fault in faults:
        if fault.reason == NO_SUFFIX:
            dropped.update(fault.places)
            counts[NO_SUFFIX] += 1
        elif _same_bytes(samples, fault.places, read):
            dropped.update(fault.places[1:])
            counts[SURPLUS] += len(fault.places) - 1
        else:
            dropped.update(fault.places)
            bad[samples.keys[fault.places[0]]] = BadKey(DUPLICATE, fault.message)
    return samples.without(dropped, bad=bad, notes=counts)


def _same_bytes(samples: Samples, rows: list[int], read: Callable[[int, int], bytes]) -> bool:
    if len({(samples.suffix_of(row), int(samples.sizes[row])) for row in rows}) > 1:
        return False
    payloads = (read(int(samples.positions[row]), int(samples.sizes[row])) for row in rows)
    first = next(payloads)
    return all(payload == first for payload in payloads)
