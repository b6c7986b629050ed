"""Many pictures as thumbnails on one, with a heading and a line or two below each."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from math import sqrt

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw, ImageFont

__all__ = ["GROUP_COLOURS", "Tile", "draw_sheet", "make_tile", "thumbnail_boxes"]

Box = tuple[int, int, int, int]
"""Left, top, right, bottom in pixels; the last two are outside."""
Colour = tuple[int, int, int]
Font = ImageFont.FreeTypeFont | ImageFont.ImageFont

WIDEST, TALLEST = 320, 240
"""Largest thumbnail, in pixels."""
MARGIN, GAP = 40, 24
HEADER = 132
"""Height of the part above the first row, the upper margin included."""
BAR = 5
"""Height of the coloured bar below a thumbnail."""
TITLE_SIZE, TEXT_SIZE, HEADING_SIZE = 17, 15, 34
TEXT_LINES = 3
CAPTION = 18 + TITLE_SIZE + 7 + TEXT_LINES * (TEXT_SIZE + 5)
"""Height of what stands below a thumbnail, the bar included."""

BACKGROUND: Colour = (19, 21, 26)
MAT: Colour = (30, 33, 40)
BRIGHT: Colour = (240, 242, 246)
DIM: Colour = (154, 161, 173)
GROUP_COLOURS: tuple[Colour, ...] = ((84, 160, 255), (255, 159, 67))
"""Colours of the groups, taken in turns."""
ELLIPSIS = "\N{HORIZONTAL ELLIPSIS}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tile:
    """One picture of a sheet."""

    thumbnail: Image.Image
    """RGB, at most `WIDEST` x `TALLEST`."""
    title: str
    text: str
    group: int
    """Which colour marks it."""


def make_tile(pixels: npt.NDArray[np.uint8], *, title: str, text: str, group: int) -> Tile:
    """Shrink a picture to a thumbnail of its own shape; small pictures are enlarged.

    Args:
        pixels: ``(height, width, 3)`` uint8: red, green, blue. Not kept.
        title: Short name; its middle is left out where it is too long.
        text: Description; its end is left out where it is too long.
        group: At least 0.
    """
    height, width = pixels.shape[:2]
    scale = min(WIDEST / width, TALLEST / height)
    size = max(1, round(width * scale)), max(1, round(height * scale))
    thumbnail = Image.fromarray(pixels).resize(size, Image.Resampling.LANCZOS, reducing_gap=3.0)
    return Tile(thumbnail=thumbnail, title=title, text=text, group=group)


def thumbnail_boxes(tiles: Sequence[Tile]) -> list[Box]:
    """Return where each tile's thumbnail stands on the sheet, row by row."""
    columns = _columns(len(tiles))
    tallest = max((tile.thumbnail.height for tile in tiles), default=0)
    boxes = []
    for number, tile in enumerate(tiles):
        row, column = divmod(number, columns)
        width, height = tile.thumbnail.size
        left = MARGIN + column * (WIDEST + GAP) + (WIDEST - width) // 2
        top = HEADER + row * (tallest + CAPTION + GAP) + (tallest - height) // 2
        boxes.append((left, top, left + width, top + height))
    return boxes


def draw_sheet(
    tiles: Sequence[Tile], *, heading: str, line: str, groups: Sequence[str]
) -> Image.Image:
    """Draw a contact sheet.

    Args:
        tiles: Pictures, row by row.
        heading: Large words at the top.
        line: One line below the heading.
        groups: Name of each group, for the legend.

    Returns:
        RGB picture. Its width depends on the number of tiles alone.
    """
    columns = _columns(len(tiles))
    rows = -(-len(tiles) // columns)
    tallest = max((tile.thumbnail.height for tile in tiles), default=0)
    width = 2 * MARGIN + columns * WIDEST + (columns - 1) * GAP
    height = HEADER + rows * (tallest + CAPTION) + max(0, rows - 1) * GAP + MARGIN - GAP // 2
    sheet = Image.new("RGB", (width, height), BACKGROUND)
    draw = ImageDraw.Draw(sheet)
    _draw_header(draw, width, heading, line, groups)
    for number, (tile, box) in enumerate(zip(tiles, thumbnail_boxes(tiles), strict=True)):
        row, column = divmod(number, columns)
        left, top = MARGIN + column * (WIDEST + GAP), HEADER + row * (tallest + CAPTION + GAP)
        draw.rectangle((left, top, left + WIDEST - 1, top + tallest - 1), fill=MAT)
        sheet.paste(tile.thumbnail, box[:2])
        _draw_caption(draw, tile, left, top + tallest)
    return sheet


def _columns(tiles: int) -> int:
    """Return the number of columns that leaves the fewest gaps in the last row."""
    square = sqrt(1.5 * tiles)
    return min(range(4, 8), key=lambda columns: (-tiles % columns, abs(columns - square)))


def _draw_header(
    draw: ImageDraw.ImageDraw, width: int, heading: str, line: str, groups: Sequence[str]
) -> None:
    draw.text((MARGIN, MARGIN), heading, BRIGHT, _font(HEADING_SIZE), anchor="lt")
    font = _font(TEXT_SIZE + 2)
    right = width - MARGIN
    for number in reversed(range(len(groups))):
        right -= round(font.getlength(groups[number]))
        draw.text((right, MARGIN + 25), groups[number], BRIGHT, font, anchor="ls")
        right -= 22
        square = (right, MARGIN + 12, right + 13, MARGIN + 25)
        draw.rectangle(square, fill=_colour(number))
        right -= 26
    text = _shortened(line, font, width - 2 * MARGIN, _without_end)
    draw.text((MARGIN, MARGIN + 66), text, DIM, font, anchor="ls")


def _draw_caption(draw: ImageDraw.ImageDraw, tile: Tile, left: int, top: int) -> None:
    draw.rectangle((left, top, left + WIDEST - 1, top + BAR - 1), fill=_colour(tile.group))
    font = _font(TITLE_SIZE)
    baseline = top + 12 + TITLE_SIZE
    title = _shortened(tile.title, font, WIDEST, _without_middle)
    draw.text((left, baseline), title, BRIGHT, font, anchor="ls")
    font = _font(TEXT_SIZE)
    for number, words in enumerate(_wrapped(tile.text, font, WIDEST, TEXT_LINES)):
        below = baseline + 7 + TEXT_SIZE + number * (TEXT_SIZE + 5)
        draw.text((left, below), words, DIM, font, anchor="ls")


def _wrapped(text: str, font: Font, width: int, lines: int) -> list[str]:
    """Break a text into at most ``lines`` lines that fit; the last one ends early if it must."""
    made: list[str] = []
    words = text.split()
    while words and len(made) < lines - 1:
        taken = 1
        while taken < len(words) and font.getlength(" ".join(words[: taken + 1])) <= width:
            taken += 1
        made.append(_shortened(" ".join(words[:taken]), font, width, _without_end))
        words = words[taken:]
    if words:
        made.append(_shortened(" ".join(words), font, width, _without_end))
    return made


def _shortened(text: str, font: Font, width: int, cut: Callable[[str, int], str]) -> str:
    """Return a text, or as many of its characters as fit into ``width`` pixels."""
    if font.getlength(text) <= width:
        return text
    fitting, too_many = 0, len(text)
    while too_many - fitting > 1:
        kept = (fitting + too_many) // 2
        if font.getlength(cut(text, kept)) <= width:
            fitting = kept
        else:
            too_many = kept
    return cut(text, fitting)


def _without_end(text: str, kept: int) -> str:
    return text[:kept].rstrip(" ,;.") + ELLIPSIS


def _without_middle(text: str, kept: int) -> str:
    end = kept // 2
    return text[: kept - end] + ELLIPSIS + text[len(text) - end :]


def _colour(group: int) -> Colour:
    return GROUP_COLOURS[group % len(GROUP_COLOURS)]


@cache
def _font(size: int) -> Font:
    return ImageFont.load_default(size)
