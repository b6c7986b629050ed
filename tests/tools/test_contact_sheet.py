import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from daft_twinwds.tools.contact_sheet import (
    GROUP_COLOURS,
    TALLEST,
    WIDEST,
    Tile,
    draw_sheet,
    make_tile,
    thumbnail_boxes,
)


def tile(
    width: int = 64,
    height: int = 36,
    colour: tuple[int, int, int] = (200, 30, 90),
    *,
    title: str = "id_0",
    text: str = "a low sun over three hills",
    group: int = 0,
) -> Tile:
    pixels = np.broadcast_to(np.array(colour, np.uint8), (height, width, 3)).copy()
    return make_tile(pixels, title=title, text=text, group=group)


def pixels_of(tiles: list[Tile], **words: str) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    words = {"heading": "demo", "line": "all of them", **words}
    return np.asarray(draw_sheet(tiles, **words, groups=["rank 0", "rank 1"]))


@pytest.mark.parametrize(
    ("width", "height", "expected"),
    [
        pytest.param(3840, 2160, (320, 180), id="16-to-9"),
        pytest.param(64, 36, (320, 180), id="small"),
        pytest.param(1024, 768, (320, 240), id="4-to-3"),
        pytest.param(300, 600, (120, 240), id="upright"),
        pytest.param(4000, 1, (320, 1), id="line"),
    ],
)
def test_thumbnail_keeps_the_shape_of_its_picture(
    width: int, height: int, expected: tuple[int, int]
) -> None:
    assert tile(width, height).thumbnail.size == expected


@given(sizes=st.lists(st.tuples(st.integers(1, 500), st.integers(1, 500)), min_size=1, max_size=9))
def test_thumbnails_lie_inside_the_sheet_and_apart(sizes: list[tuple[int, int]]) -> None:
    tiles = [tile(width, height) for width, height in sizes]

    boxes = thumbnail_boxes(tiles)

    height, width = pixels_of(tiles).shape[:2]
    covered = np.zeros((height, width), np.int64)
    for left, top, right, bottom in boxes:
        assert 0 <= left < right <= width
        assert 0 <= top < bottom <= height
        covered[top:bottom, left:right] += 1
    assert covered.max() == 1
    assert [(right - left, bottom - top) for left, top, right, bottom in boxes] == [
        one.thumbnail.size for one in tiles
    ]


def test_each_thumbnail_shows_its_picture_above_the_bar_of_its_group() -> None:
    colours = [(200, 30, 90), (10, 220, 40), (250, 250, 250), (0, 0, 0), (20, 40, 240)]
    tiles = [tile(colour=colour, group=number % 2) for number, colour in enumerate(colours)]

    sheet = pixels_of(tiles)

    for number, (left, top, right, bottom) in enumerate(thumbnail_boxes(tiles)):
        assert (sheet[top:bottom, left:right] == colours[number]).all()
        assert (sheet[bottom + 1, left:right] == GROUP_COLOURS[number % 2]).all()


def test_title_and_text_stand_below_the_thumbnail() -> None:
    plain, titled, told = (
        pixels_of([tile(title=title, text=text)])
        for title, text in (("", ""), ("id_7", ""), ("", "hills at dusk"))
    )

    left, _, right, bottom = thumbnail_boxes([tile()])[0]
    for sheet in (titled, told):
        changed = np.argwhere((sheet != plain).any(axis=2))
        assert len(changed)
        assert changed[:, 0].min() > bottom
        assert left - 2 <= changed[:, 1].min()
        assert changed[:, 1].max() < right


@pytest.mark.parametrize("words", ["long " * 60, "w" * 300, "mm mm " * 60 + "m" * 200])
def test_long_words_stay_below_their_own_thumbnail(words: str) -> None:
    alone, beside = [tile(title="", text=""), tile(title="a", text="b")], tile(title="", text="")
    neighbour = pixels_of([beside, alone[1]])

    sheet = pixels_of([tile(title=words, text=words), alone[1]])

    changed = np.argwhere((sheet != neighbour).any(axis=2))
    left, _, right, _ = thumbnail_boxes([beside])[0]
    assert len(changed)
    assert left - 2 <= changed[:, 1].min()
    assert changed[:, 1].max() < right + 2


def test_long_line_ends_before_the_margin() -> None:
    short, long = pixels_of([tile()], line=""), pixels_of([tile()], line="many words " * 100)

    changed = np.argwhere((long != short).any(axis=2))
    assert len(changed)
    assert changed[:, 1].max() < long.shape[1] - 30


@pytest.mark.parametrize(
    ("tiles", "columns", "rows"), [(1, 4, 1), (4, 4, 1), (12, 4, 3), (16, 4, 4), (28, 7, 4)]
)
def test_grid_has_few_gaps(tiles: int, columns: int, rows: int) -> None:
    boxes = thumbnail_boxes([tile()] * tiles)

    assert len({top for _, top, _, _ in boxes}) == rows
    height, width = pixels_of([tile()] * tiles).shape[:2]
    assert width // (WIDEST + 24) == columns
    assert height < 200 + rows * (TALLEST + 110)


def test_sheet_without_pictures_has_a_heading() -> None:
    sheet = pixels_of([])

    assert thumbnail_boxes([]) == []
    assert (sheet.max(axis=(0, 1)) > 200).all()
