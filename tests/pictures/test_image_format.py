import io

import pytest
from PIL import Image

from daft_twinwds.pictures.image_format import FORMATS, format_of, looks_like


@pytest.mark.parametrize("name", FORMATS)
def test_format_is_told_by_content(name: str) -> None:
    file = io.BytesIO()
    Image.new("RGB", (16, 16)).save(file, name)

    assert format_of(file.getvalue()) == name


@pytest.mark.parametrize("name", ["EPS", "PCX", "ICO", "TGA"])
def test_format_that_is_not_read_is_not_told(name: str) -> None:
    file = io.BytesIO()
    Image.new("RGB", (16, 16)).save(file, name)

    assert format_of(file.getvalue()) is None


def test_avif_is_told_by_a_compatible_brand_and_heic_is_not() -> None:
    avif = b"\0\0\0\x1cftypmif1\0\0\0\0mif1avifmiaf"
    heic = b"\0\0\0\x18ftypheic\0\0\0\0mif1heic"

    assert format_of(avif) == "AVIF"
    assert format_of(heic) is None
    assert looks_like(heic) == "an ISO media file of brand 'heic'"


@pytest.mark.parametrize(
    ("data", "guess"),
    [
        pytest.param(b"", "no bytes at all", id="empty"),
        pytest.param(bytes(900), "900 zero bytes", id="zeros"),
        pytest.param(b"<html><body>404 not found</body></html>", "an HTML page", id="html"),
        pytest.param(b"\xef\xbb\xbf\r\n <!DOCTYPE html>", "an HTML page", id="html-after-bom"),
        pytest.param(b"<?xml version='1.0'?><Error/>", "an XML document", id="xml"),
        pytest.param(b"<Error><Code>AccessDenied", "an XML error page", id="s3-error"),
        pytest.param(b"<svg xmlns='...'", "an SVG drawing", id="svg"),
        pytest.param(b'{"prompt": "a cat"}', "JSON text", id="json"),
        pytest.param(b"%PDF-1.7", "a PDF document", id="pdf"),
        pytest.param(b"PK\x03\x04....", "a zip archive", id="zip"),
        pytest.param(b"\x1f\x8b\x08", "gzip data", id="gzip"),
        pytest.param(
            b"version https://git-lfs.github.com/spec/v1", "a Git LFS pointer", id="git-lfs"
        ),
        pytest.param(
            b"\x5f\x82\xc2", "3 bytes of an unknown kind, starting with 5f 82 c2", id="noise"
        ),
    ],
)
def test_message_says_what_strange_bytes_look_like(data: bytes, guess: str) -> None:
    assert format_of(data) is None
    assert looks_like(data).startswith(guess)
