"""What is wrong with the contents of one tar's members: texts that do not fit, bad pictures."""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from daft_twinwds.errors import DecodeError
from daft_twinwds.pictures.image_header import check_claims
from daft_twinwds.query.picture_info import iter_headers
from daft_twinwds.query.schema import Column, kind_of, media_of
from daft_twinwds.query.text import MAX_TEXT_BYTES, ExtraFields, parse_texts, read_texts, text_fault
from daft_twinwds.shards.samples import Samples
from daft_twinwds.shards.storage import File
from daft_twinwds.tools.validate_report import Kind
from daft_twinwds.train.images import DecodeImage

__all__ = ["BadMember", "bad_pictures", "bad_texts", "picture_places", "text_places"]

_AT_ONCE: Final = 1 << 24
"""Bytes of members that are in memory at a time, by thread; a single one may be larger."""
_MOST_AT_ONCE: Final = 4096


class BadMember(NamedTuple):
    """A member whose content is of no use."""

    place: int
    """Which, in archive order."""
    kind: Kind
    text: str
    """What was found, what was expected, what to do."""


def text_places(samples: Samples, column: Column | None) -> list[int]:
    """Return the members that are to be parsed.

    Args:
        samples: Members of one tar.
        column: What they are to become; None where that could not be found out, so that all that
            can be said of JSON is whether it is any.
    """
    places = range(len(samples.keys))
    if column is None:
        return [place for place in places if kind_of(samples.suffix_of(place)) == "json"]
    if not column.is_text or column.kind == "binary":
        return []
    fitting = column.suffixes
    return [place for place in places if fitting is None or samples.suffix_of(place) in fitting]


def picture_places(samples: Samples, column: Column | None) -> list[int]:
    """Return the members that are pictures by their suffix, and not read as something else."""
    if column is not None and column.kind != "file":
        return []
    suffixes = {suffix for suffix in samples.suffixes if media_of(suffix) == "image"}
    if not suffixes:
        return []
    return [place for place in range(len(samples.keys)) if samples.suffix_of(place) in suffixes]


def bad_texts(
    file: File,
    samples: Samples,
    places: Sequence[int],
    column: Column | None,
    extra_fields: ExtraFields,
) -> Iterator[BadMember]:
    """Yield the texts that cannot be parsed, or do not fit their column.

    Args:
        file: The tar.
        samples: Its members.
        places: Those to look at, see `text_places`.
        column: See `text_places`.
        extra_fields: Whether JSON fields that the column lacks are an error.

    Raises:
        StorageError: The tar cannot be read.
    """
    small = []
    for place in places:
        if samples.sizes[place] <= MAX_TEXT_BYTES:
            small.append(place)
            continue
        text = f"{samples.sizes[place]} bytes; a text of at most {MAX_TEXT_BYTES} was expected"
        yield BadMember(place, "bad text", text)
    name = "" if column is None else column.name
    for some in _batches(samples, small):
        documents = read_texts(file, samples, some, column=name)
        if column is None:
            yield from _no_json(documents, some)
        else:
            yield from _unfit(documents, some, column, extra_fields)


def bad_pictures(
    file: File,
    samples: Samples,
    places: Sequence[int],
    decode: DecodeImage,
    *,
    whole: bool,
) -> Iterator[BadMember]:
    """Yield the pictures that a loader could not decode.

    Args:
        file: The tar.
        samples: Its members.
        places: Those to look at, see `picture_places`.
        decode: How they are decoded, and how large they may be.
        whole: Whether to decode them; else only their headers are looked at.

    Raises:
        StorageError: The tar cannot be read.
    """
    bad = _undecodable if whole else _without_header
    for place, error in bad(file, samples, places, decode):
        yield BadMember(place, "bad picture", str(error))


def _no_json(documents: Sequence[bytes], places: Sequence[int]) -> Iterator[BadMember]:
    for place, document in zip(places, documents, strict=True):
        fault = text_fault(document, "json")
        if fault is not None:
            yield BadMember(place, "bad text", fault)


def _unfit(
    documents: Sequence[bytes], places: Sequence[int], column: Column, extra_fields: ExtraFields
) -> Iterator[BadMember]:
    messages = _messages(documents, column, extra_fields)
    if not messages:
        return
    # What is right but for the fields that it has too many of is another fault than a wrong text.
    rows = list(messages)
    also_wrong = _messages([documents[row] for row in rows], column, "ignore")
    for number, row in enumerate(rows):
        kind: Kind = "bad text" if number in also_wrong else "extra field"
        yield BadMember(places[row], kind, messages[row])


def _messages(
    documents: Sequence[bytes], column: Column, extra_fields: ExtraFields
) -> dict[int, str]:
    """Return row -> what is wrong with its document, without the place."""
    parsed = parse_texts(
        documents, column, where=lambda _: "", extra_fields=extra_fields, on_error="skip"
    )
    return {row: message.removeprefix(": ") for row, message in parsed.bad.items()}


def _without_header(
    file: File, samples: Samples, places: Sequence[int], decode: DecodeImage
) -> Iterator[tuple[int, DecodeError]]:
    sizes = samples.sizes[places].tolist()
    headers = iter_headers(file, samples.positions[places].tolist(), sizes)
    for place, size, header in zip(places, sizes, headers, strict=True):
        try:
            if isinstance(header, DecodeError):
                raise header
            check_claims(header, size=size, max_pixels=decode.max_pixels)
        except DecodeError as error:
            yield place, error


def _undecodable(
    file: File, samples: Samples, places: Sequence[int], decode: DecodeImage
) -> Iterator[tuple[int, DecodeError]]:
    for some in _batches(samples, places):
        positions, sizes = samples.positions[some].tolist(), samples.sizes[some].tolist()
        for place, data in zip(some, file.read_many(positions, sizes), strict=True):
            try:
                decode(data)
            except DecodeError as error:
                yield place, error


def _batches(samples: Samples, places: Sequence[int]) -> Iterator[list[int]]:
    """Yield places in runs whose members are read at once."""
    some: list[int] = []
    num_bytes = 0
    for place, size in zip(places, samples.sizes[list(places)].tolist(), strict=True):
        if some and (num_bytes + size > _AT_ONCE or len(some) == _MOST_AT_ONCE):
            yield some
            some, num_bytes = [], 0
        some.append(place)
        num_bytes += size
    if some:
        yield some
