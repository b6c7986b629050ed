"""What is wrong with the twin tars of one shard."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Final

from daft_twinwds.errors import StorageError, TarFormatError
from daft_twinwds.query.index_use import look_up
from daft_twinwds.query.schema import Column
from daft_twinwds.query.suffixes import odd_places, odd_suffix_message
from daft_twinwds.query.text import ExtraFields
from daft_twinwds.shards.dataset import Shard
from daft_twinwds.shards.index_format import UnusableIndexError
from daft_twinwds.shards.samples import DUPLICATE, KeySplit, Samples, all_samples, name_faults
from daft_twinwds.shards.storage import File, MissingObjectError, shown
from daft_twinwds.shards.tar import Members, read_members
from daft_twinwds.shards.tar_walk import BAD_NAMES
from daft_twinwds.tools.validate_members import (
    BadMember,
    bad_pictures,
    bad_texts,
    picture_places,
    text_places,
)
from daft_twinwds.tools.validate_report import Fault, Findings, Kind
from daft_twinwds.train.images import DecodeImage

__all__ = ["CheckedShard", "ShardCheck"]

_ENDS: Final[Mapping[str, tuple[Kind, str]]] = {
    "no end marker": (
        "no end marker",
        "the tar ends here without the two blocks of zeros that close one; whether anything is "
        "missing cannot be told; pack it again",
    ),
    "single end block": (
        "single end block",
        "one block of zeros closes the tar; expected two; pack it again",
    ),
    "bytes after the end marker": (
        "bytes after the end marker",
        "other bytes follow the end marker here; they are not read; pack it again",
    ),
}
_LEFT_OUT: Final = ("macOS sidecars skipped", "special files skipped", "volume labels skipped")


@dataclass(slots=True, kw_only=True)
class CheckedShard:
    """What there is to be said of a shard."""

    findings: Findings
    num_keys: int = 0
    """Keys that all twins hold."""
    is_whole: bool = True
    """Whether all twins are there, were read to their end and agree, so that `num_keys` is sure."""
    num_members: int = 0
    num_decoded: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardCheck:
    """How shards are looked into."""

    columns: Mapping[str, Column | None]
    """Column -> its type; None where that could not be found out."""
    key_split: KeySplit
    extra_fields: ExtraFields
    decode: bool
    """Whether to decode pictures, and not only look at their headers."""
    check_index: bool
    """Whether there is an index at all."""
    max_faults: int
    decoder: DecodeImage = field(default_factory=DecodeImage)

    def run(self, shard: Shard, *, own: frozenset[str], claimed: int | None) -> CheckedShard:
        """Look into a shard.

        Args:
            shard: Where its tars are.
            own: Columns that its leaf should have; the others are those of other leaves.
            claimed: How many samples the manifest says that it has.

        Returns:
            What is wrong with it, and nothing of its contents.
        """
        checked = CheckedShard(findings=Findings(self.max_faults))
        twins: dict[str, Samples] = {}
        lacks_twin = False
        for column, path in shard.paths.items():
            if path is None:
                lacks_twin |= column in own
                continue
            tar = _TarCheck(check=self, shard=shard, column=column, path=shown(path))
            samples = tar.run(checked)
            if samples is not None:
                twins[column] = samples
        checked.is_whole &= not lacks_twin
        for fault in _key_faults(shard, twins):
            checked.is_whole &= fault.is_warning
            checked.findings.add(fault)
        if twins and not lacks_twin:
            common = set.intersection(*(_keys_of(samples) for samples in twins.values()))
            checked.num_keys = len(common)
        if checked.is_whole and claimed not in (None, checked.num_keys):
            text = (
                f"{checked.num_keys} samples were found; expected the {claimed} that the manifest "
                "claims; correct it by daft-twinwds validate --fix-manifest"
            )
            checked.findings.add(
                Fault(kind="wrong count", path=shard.url, shard=shard.name, text=text)
            )
        if self.check_index:
            self._check_index(shard, checked.findings)
        return checked

    def _check_index(self, shard: Shard, findings: Findings) -> None:
        columns = [column for column, path in shard.paths.items() if path is not None]
        with ExitStack() as stack:
            try:
                entry = look_up(shard, columns, key_split=self.key_split, stack=stack)
                if entry.shard.num_rows:
                    entry.file.read_all(entry.shard)
            except (UnusableIndexError, StorageError) as error:
                text = f"{error}; its tars are read instead; run daft-twinwds index {shard.root}"
                findings.add(Fault(kind="stale index", path=shard.url, shard=shard.name, text=text))


@dataclass(frozen=True, slots=True, kw_only=True)
class _TarCheck:
    """One tar being looked into."""

    check: ShardCheck
    shard: Shard
    column: str
    path: str

    def run(self, checked: CheckedShard) -> Samples | None:
        """Take note of what is wrong with it; return its members, None if it cannot be read."""
        samples = None
        try:
            with self.shard.open(self.column) as file:
                members = read_members(file.data(), path=file.path, strict=False)
                samples = all_samples(members, path=file.path, key_split=self.check.key_split)
                for fault in self._tar_faults(members):
                    checked.findings.add(fault)
                unkept = members.notes.get(BAD_NAMES, 0) - len(members.bad_names)
                checked.findings.counts["bad name"] += unkept
                checked.num_members += len(samples.keys)
                checked.is_whole &= members.fault is None
                for fault in self._member_faults(samples, file, checked):
                    checked.findings.add(fault)
        except StorageError as error:
            checked.is_whole = False
            is_missing = isinstance(error, MissingObjectError)
            kind: Kind = "missing tar" if is_missing else "unreadable tar"
            checked.findings.add(self._fault(kind, str(error)))
        return samples

    def _tar_faults(self, members: Members) -> Iterator[Fault]:
        if members.fault is not None:
            yield self._tar_fault("damaged tar", members.fault)
        for error in members.bad_names:
            yield self._tar_fault("bad name", error)
        for note, number in members.notes.items():
            if note in _ENDS:
                kind, text = _ENDS[note]
                yield self._fault(kind, text, offset=members.end)
            elif note in _LEFT_OUT:
                text = f"{note}: {number}; expected nothing but samples; they are not read"
                yield self._fault("members left out", text)

    def _member_faults(
        self, samples: Samples, file: File, checked: CheckedShard
    ) -> Iterator[Fault]:
        for named in name_faults(samples):
            if named.reason == DUPLICATE:
                yield self._member_fault("duplicate key", named.message, samples, named.places[1])
            else:
                yield self._member_fault("no suffix", named.message, samples, named.places[0])
        column = self.check.columns[self.column]
        if column is not None:
            for place in odd_places(column, samples):
                if samples.suffix_of(place):
                    text = odd_suffix_message(column, samples, place)
                    yield self._member_fault("odd suffix", text, samples, place)
        for bad in self._bad_members(samples, file, column, checked):
            yield self._member_fault(bad.kind, bad.text, samples, bad.place)

    def _bad_members(
        self, samples: Samples, file: File, column: Column | None, checked: CheckedShard
    ) -> Iterator[BadMember]:
        texts = text_places(samples, column)
        yield from bad_texts(file, samples, texts, column, self.check.extra_fields)
        pictures = picture_places(samples, column)
        whole = self.check.decode
        yield from bad_pictures(file, samples, pictures, self.check.decoder, whole=whole)
        checked.num_decoded += len(pictures) if whole else 0

    def _tar_fault(self, kind: Kind, error: TarFormatError) -> Fault:
        text = str(error)
        # What is no tar at all is wrong from its first byte on.
        return self._fault(
            kind, text.removeprefix(f"{self.path}: byte {error.offset}: "), offset=error.offset or 0
        )

    def _member_fault(self, kind: Kind, text: str, samples: Samples, place: int) -> Fault:
        return self._fault(
            kind, text, key=samples.keys[place], offset=int(samples.positions[place])
        )

    def _fault(
        self, kind: Kind, text: str, *, key: str | None = None, offset: int | None = None
    ) -> Fault:
        return Fault(
            kind=kind,
            path=self.path,
            modality=self.column,
            shard=self.shard.name,
            key=key,
            offset=offset,
            text=text.removeprefix(f"{self.path}: "),
        )


def _keys_of(samples: Samples) -> set[str]:
    return {
        key
        for place, key in enumerate(samples.keys)
        if "" not in samples.suffixes or samples.suffix_of(place)
    }


def _key_faults(shard: Shard, twins: Mapping[str, Samples]) -> Iterator[Fault]:
    """Yield the keys that a twin lacks, and say where twins have the same in another order."""
    first = next(iter(twins), None)
    if first is None or all(samples.keys == twins[first].keys for samples in twins.values()):
        return
    keys_of = {column: _keys_of(samples) for column, samples in twins.items()}
    place_of = {
        column: {key: place for place, key in enumerate(samples.keys)}
        for column, samples in twins.items()
    }
    union = dict.fromkeys(
        key for column, samples in twins.items() for key in samples.keys if key in keys_of[column]
    )
    for column, samples in twins.items():
        # What a damaged tar lost is one fault, and was told.
        lacking = [key for key in union if key not in keys_of[column]]
        for key in lacking if samples.fault is None else ():
            other = next(other for other, keys in keys_of.items() if key in keys)
            place = place_of[other][key]
            text = (
                f"the key is not there, {other} has it as {twins[other].names[place]!r} at byte "
                f"{twins[other].positions[place]}; expected the same keys in all twins; pack the "
                "missing member, or remove the other"
            )
            yield Fault(
                kind="missing key",
                path=samples.path,
                modality=column,
                shard=shard.name,
                key=key,
                text=text,
            )
        if not lacking and samples.fault is None and keys_of[column] == keys_of[first]:
            yield from _order_fault(shard, column, samples, first, twins[first])


def _order_fault(
    shard: Shard, column: str, samples: Samples, first: str, other: Samples
) -> Iterator[Fault]:
    pairs = zip(dict.fromkeys(samples.keys), dict.fromkeys(other.keys), strict=False)
    found = next(((mine, its) for mine, its in pairs if mine != its), None)
    if found is None:
        return
    mine, its = found
    text = (
        f"stands where {first} has {its!r}; the keys are the same in another order, which is read "
        "right here, but PiD's loader pairs by position and mixes samples up; pack the shard again"
    )
    place = samples.keys.index(mine)
    yield Fault(
        kind="different order",
        path=samples.path,
        modality=column,
        shard=shard.name,
        key=mine,
        offset=int(samples.positions[place]),
        text=text,
    )
