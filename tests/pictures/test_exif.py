import io
import logging
import struct

import numpy as np
import pytest
from PIL import Image, ImageOps

from daft_twinwds.pictures.exif import UPRIGHT, orientation_of, swaps_sides, turned

orientations = pytest.mark.parametrize("orientation", range(1, 9))


def exif_block(entries: bytes, count: int, order: str = "<") -> bytes:
    magic = b"II*\0" if order == "<" else b"MM\0*"
    return magic + struct.pack(f"{order}IH", 8, count) + entries + bytes(4)


@orientations
def test_turning_agrees_with_pillow(orientation: int) -> None:
    stored = np.arange(2 * 3 * 3, dtype=np.uint8).reshape(2, 3, 3)
    exif = Image.Exif()
    exif[0x0112] = orientation
    file = io.BytesIO()
    Image.fromarray(stored).save(file, "PNG", exif=exif)

    shown = turned(stored, orientation_of(exif.tobytes()))

    np.testing.assert_array_equal(shown, np.asarray(ImageOps.exif_transpose(Image.open(file))))
    assert (shown.shape[:2] == stored.shape[1::-1]) == swaps_sides(orientation)


@pytest.mark.parametrize("order", ["<", ">"], ids=["little-endian", "big-endian"])
@pytest.mark.parametrize("kind", [pytest.param(3, id="short"), pytest.param(4, id="long")])
@pytest.mark.parametrize("prefix", [b"", b"Exif\0\0"], ids=["bare", "prefixed"])
def test_orientation_is_read_in_both_byte_orders_and_widths(
    order: str, kind: int, prefix: bytes
) -> None:
    value = struct.pack(f"{order}H" if kind == 3 else f"{order}I", 8).ljust(4, b"\0")
    other = struct.pack(f"{order}HHI4x", 0x010F, 2, 1)
    entry = struct.pack(f"{order}HHI", 0x0112, kind, 1) + value

    assert orientation_of(prefix + exif_block(other + entry, 2, order)) == 8


def test_block_without_an_orientation_is_upright_without_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    block = exif_block(struct.pack("<HHI4x", 0x010F, 2, 1), 1)

    assert orientation_of(block) == UPRIGHT
    assert not caplog.records


@pytest.mark.parametrize(
    ("block", "reason"),
    [
        pytest.param(b"", "expected a TIFF header, found b''", id="empty"),
        pytest.param(b"Exif\0\0garbage!", "expected a TIFF header", id="no-tiff"),
        pytest.param(
            b"II*\0\xff\xff\xff\x7f", "ends before its directory does", id="far-directory"
        ),
        pytest.param(exif_block(b"", 9)[:12], "ends before its directory does", id="cut-directory"),
        pytest.param(
            exif_block(struct.pack("<HHI4x", 0x0112, 2, 1), 1), "has type 2", id="text-for-a-number"
        ),
        pytest.param(
            exif_block(struct.pack("<HHIHH", 0x0112, 3, 1, 9, 0), 1),
            "orientation 9 ignored; expected 1 to 8",
            id="no-such-orientation",
        ),
    ],
)
def test_broken_block_is_upright_with_a_warning(
    block: bytes, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "daft_twinwds"):
        assert orientation_of(block) == UPRIGHT

    assert reason in caplog.text
