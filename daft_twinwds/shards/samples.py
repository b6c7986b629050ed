"""The members of one tar, by sample key."""

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from daft_twinwds.errors import AlignmentError, TarFormatError
from daft_twinwds.shards.storage import File
from daft_twinwds.shards.tar import Members, read_members

__all__ = ["BadKey", "KeySplit", "Samples", "read_samples", "split_name"]

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
    return _to_samples(members, path=file.path, key_split=key_split, strict=strict, read=file.read)


def _to_samples(
    members: Members,
    *,
    path: str,
    key_split: KeySplit,
    strict: bool,
    read: Callable[[int, int], bytes],
) -> Samples:
    keys, suffixes = _split_names(members.names, key_split)
    samples = Samples(
        path=path,
        keys=keys,
        names=members.names,
        positions=members.positions,
        sizes=members.sizes,
        suffixes=frozenset(suffixes),
        fault=members.fault,
        notes=members.notes,
    )
    if "" in samples.suffixes:
        bare = [number for number, suffix in enumerate(suffixes) if not suffix]
        if strict:
            number = bare[0]
            raise AlignmentError(
                f"{path}: member {members.names[number]!r} at byte "
                f"{members.positions[number]} has no suffix; expected names like 'id_0.jpg'; "
                "remove it, or pass on_error='skip'"
            )
        samples = samples.without(set(bare), notes={NO_SUFFIX: len(bare)})
    if len(set(samples.keys)) != len(samples.keys):
        samples = _resolve_duplicates(samples, strict=strict, read=read)
    return samples


def _resolve_duplicates(
    samples: Samples, *, strict: bool, read: Callable[[int, int], bytes]
) -> Samples:
    rows_of: dict[str, list[int]] = {}
    for number, key in enumerate(samples.keys):
        rows_of.setdefault(key, []).append(number)

    dropped: set[int] = set()
    counts: Counter[str] = Counter()
    bad: dict[str, BadKey] = {}
    for key, rows in rows_of.items():
        if len(rows) == 1:
            continue
        places = " and ".join(
            f"{samples.names[row]!r} at byte {samples.positions[row]}" for row in rows[:4]
        )
        message = (
            f"{samples.path}: key {key!r} is held by {len(rows)} members, {places}; expected "
            "one member per key; remove the others, or pass on_error='skip'"
        )
        if strict:
            raise AlignmentError(message)
        if _same_bytes(samples, rows, read):
            dropped.update(rows[1:])
            counts[SURPLUS] += len(rows) - 1
        else:
            dropped.update(rows)
            bad[key] = BadKey(DUPLICATE, message)
    return samples.without(dropped, bad=bad, notes=counts)


def _same_bytes(samples: Samples, rows: list[int], read: Callable[[int, int], bytes]) -> bool:
    if len({(samples.suffix_of(row), int(samples.sizes[row])) for row in rows}) > 1:
        return False
    payloads = (read(int(samples.positions[row]), int(samples.sizes[row])) for row in rows)
    first = next(payloads)
    return all(payload == first for payload in payloads)
