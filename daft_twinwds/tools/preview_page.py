"""Tiles -> one HTML page: no script, nothing from elsewhere, all that comes from data escaped."""

import base64
import hashlib
import html
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Final

import numpy as np

from daft_twinwds.tools.info_classes import (
    ASPECTS,
    MEGAPIXELS,
    aspect_labels,
    length_ranges,
    megapixel_labels,
)
from daft_twinwds.tools.info_units import bytes_text
from daft_twinwds.tools.preview_tiles import Field, PictureTile, SampleTile

__all__ = ["PageFacts", "iter_page"]

_NOT_SHOWN: Final = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff]")
"""What has no shape: controls, and halves of letters."""
_LONGEST_CAPTION: Final = 2**20
_ALT_LETTERS: Final = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class PageFacts:
    """What stands above the samples."""

    title: str
    place: str | None
    """Where the data lies; None where that is not known."""
    where: str | None
    """Filter; None for none."""
    seed: int | None
    """By which samples were drawn; None where they are the first ones."""
    num_samples: int | None
    """Samples that match; None if they were not counted."""
    left_out: Mapping[str, int]
    """What scanning left out or found odd -> how often."""


def iter_page(facts: PageFacts, tiles: Sequence[SampleTile]) -> Iterator[str]:
    """Yield the page in pieces.

    The policy in its head lets a browser load and run nothing, whatever the data holds: the one
    style sheet is allowed by its hash, pictures as data.
    """
    style = _style()
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = (
        f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:; base-uri 'none'; "
        "form-action 'none'"
    )
    yield (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        '<meta name="referrer" content="no-referrer">\n'
        f"<title>{_text(facts.title)}</title>\n<style>{style}</style>\n</head>\n<body>\n"
    )
    yield f"<header>\n<h1>{_text(facts.title)}</h1>\n"
    if facts.place is not None:
        yield f'<p class="place">{_text(facts.place)}</p>\n'
    yield '<ul class="facts">\n'
    yield from (f"<li{kind}>{fact}</li>\n" for kind, fact in _iter_facts(facts, tiles))
    yield "</ul>\n"
    charts = list(_iter_charts(tiles))
    if charts:
        yield '<div class="charts">\n'
        yield from charts
        yield "</div>\n"
    is_wide = any(len(tile.pictures) > 1 for tile in tiles)
    yield f'</header>\n<main>\n<div class="grid{" wide" if is_wide else ""}">\n'
    for number, tile in enumerate(tiles):
        yield from _iter_card(number, tile)
    yield "</div>\n"
    if not tiles:
        yield '<p class="empty">There is no sample to show.</p>\n'
    yield "</main>\n<footer>Written by daft-twinwds preview.</footer>\n</body>\n</html>\n"


@cache
def _style() -> str:
    return resources.files("daft_twinwds.tools").joinpath("preview.css").read_text("utf-8")


def _text(text: str) -> str:
    """Return a text that is nothing but text, inside of elements and of quoted attributes."""
    return html.escape(_NOT_SHOWN.sub("\N{REPLACEMENT CHARACTER}", text), quote=True)


def _iter_facts(facts: PageFacts, tiles: Sequence[SampleTile]) -> Iterator[tuple[str, str]]:
    """Yield (attribute, content) of each fact."""
    shown = f"<strong>{len(tiles):,}</strong>"
    matching = "samples" if facts.where is None else "matching samples"
    if facts.num_samples is None:
        yield "", f"{shown} {matching}; not counted how many there are"
    else:
        yield "", f"{shown} of <strong>{facts.num_samples:,}</strong> {matching}"
    if facts.where is not None:
        yield "", f"filter <code>{_text(facts.where)}</code>"
    if facts.seed is not None:
        yield "", f"drawn at random, seed {facts.seed}"
    pictures = [picture for tile in tiles for picture in tile.pictures]
    num_missing = sum(picture.thumbnail is None and picture.fault is None for picture in pictures)
    num_unreadable = sum(picture.fault is not None for picture in pictures)
    if num_missing:
        yield "", f"{_plural(num_missing, 'picture')} missing"
    if num_unreadable:
        yield ' class="fault"', f"{_plural(num_unreadable, 'picture')} cannot be decoded"
    for reason, number in facts.left_out.items():
        yield ' class="fault"', f"{_text(reason)}: {number:,}"


def _plural(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _iter_charts(tiles: Sequence[SampleTile]) -> Iterator[str]:
    columns = dict.fromkeys(picture.column for tile in tiles for picture in tile.pictures)
    for column in columns:
        sizes = [
            picture.size
            for tile in tiles
            for picture in tile.pictures
            if picture.column == column and picture.size is not None
        ]
        if not sizes:
            continue
        widths, heights = np.array(sizes, np.int64).T
        of = "" if len(columns) == 1 else f" of {column}"
        for name, classes, labels in (
            ("Resolution", MEGAPIXELS, megapixel_labels(widths, heights)),
            ("Aspect ratio", ASPECTS, aspect_labels(widths, heights)),
        ):
            counts = Counter(labels.tolist())
            yield _chart(f"{name}{of}", {label: counts[label] for label in classes})
    lengths = Counter(len(tile.caption) for tile in tiles if tile.caption is not None)
    if lengths:
        yield _chart("Caption length in characters", length_ranges(lengths, cut=_LONGEST_CAPTION))


def _chart(title: str, counts: Mapping[str, int]) -> str:
    """Draw a bar per class, from the first to the last one that occurs."""
    occurring = [place for place, number in enumerate(counts.values()) if number]
    most = max(counts.values())
    rows = []
    for label, number in list(counts.items())[occurring[0] : occurring[-1] + 1]:
        bar = f'<rect class="bar" width="{100 * number / most:.2f}" height="10"/>' if number else ""
        rows.append(
            f'<tr><th scope="row">{_text(label)}</th><td><svg viewBox="0 0 100 10" '
            'preserveAspectRatio="none" aria-hidden="true"><rect class="track" width="100" '
            f'height="10"/>{bar}</svg></td><td class="count">{number:,}</td></tr>\n'
        )
    return (
        f'<section class="chart">\n<h2>{_text(title)}</h2>\n<table class="bars">\n{"".join(rows)}'
        "</table>\n</section>\n"
    )


def _iter_card(number: int, tile: SampleTile) -> Iterator[str]:
    kind = "" if tile.pictures else " text"
    yield f'<details class="card{kind}" id="sample-{number}"><summary>\n'
    if tile.pictures:
        yield '<span class="pictures">'
        for picture in tile.pictures:
            yield _picture(picture, tile, is_labelled=len(tile.pictures) > 1)
        yield "</span>\n"
    yield f'<span class="about"><span class="key" dir="auto">{_text(tile.key)}</span>\n'
    for picture in tile.pictures:
        line = _size_line(picture)
        if line:
            column = f"{picture.column}: " if len(tile.pictures) > 1 else ""
            yield f'<span class="size">{_text(column)}{line}</span>\n'
    if tile.caption is not None:
        yield f'<span class="caption" dir="auto">{_text(tile.caption)}</span>\n'
    yield "</span></summary>\n"
    yield from _iter_fields([*_faults(tile.pictures), *tile.fields])
    yield "</details>\n"


def _picture(picture: PictureTile, tile: SampleTile, *, is_labelled: bool) -> str:
    column = _text(picture.column)
    label = f'<span class="label">{column}</span>' if is_labelled else ""
    if picture.thumbnail is not None:
        width, height = picture.thumbnail_size
        data = base64.b64encode(picture.thumbnail).decode()
        alt = _text((tile.caption or tile.key)[:_ALT_LETTERS])
        inside = (
            f'<img loading="lazy" decoding="async" width="{width}" height="{height}" '
            f'alt="{alt}" src="data:image/jpeg;base64,{data}">'
        )
    elif picture.fault is not None:
        inside = (
            f'<span class="hole fault"><strong>cannot be shown</strong>'
            f'<span class="why">{_text(picture.fault)}</span></span>'
        )
    else:
        inside = f'<span class="hole">no {column}</span>'
    return f'<span class="picture">{inside}{label}</span>'


def _size_line(picture: PictureTile) -> str:
    parts = []
    if picture.size is not None:
        parts.append(f"{picture.size[0]} &times; {picture.size[1]}")
    if picture.format is not None:
        parts.append(_text(picture.format))
    if picture.num_bytes is not None:
        parts.append(bytes_text(picture.num_bytes))
    return " &middot; ".join(parts)


def _faults(pictures: Iterable[PictureTile]) -> list[Field]:
    return [
        Field(name=f"{picture.column} cannot be shown", text=picture.fault)
        for picture in pictures
        if picture.fault is not None
    ]


def _iter_fields(fields: Iterable[Field]) -> Iterator[str]:
    yield '<dl class="fields">\n'
    for field in fields:
        if field.text is None:
            value = '<dd class="null">null</dd>'
        elif field.is_code:
            value = f'<dd class="code">{_text(field.text)}</dd>'
        else:
            value = f'<dd dir="auto">{_text(field.text)}</dd>'
        yield f"<dt>{_text(field.name)}</dt>{value}\n"
    yield "</dl>\n"
