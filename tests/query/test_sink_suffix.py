import pytest

from daft_twinwds.query.schema import media_of
from daft_twinwds.query.sink_suffix import suffix_of_bytes


@pytest.mark.parametrize(
    ("head", "suffix", "medium"),
    [
        pytest.param(b"\xff\xd8\xff\xe0", "jpg", "image"),
        pytest.param(b"\x89PNG\r\n\x1a\n", "png", "image"),
        pytest.param(b"RIFF\0\0\0\0WEBPVP8 ", "webp", "image"),
        pytest.param(b"P6\n1 1\n", "ppm", "image"),
        pytest.param(b"P5 1 1\n", "pgm", "image"),
        pytest.param(b"\0\0\0\x1cftypavif\0\0\0\0avif", "avif", "image"),
        pytest.param(b"\0\0\0\x1cftypheic\0\0\0\0mif1", "heic", "image"),
        pytest.param(b"RIFF\0\0\0\0WAVEfmt ", "wav", "audio"),
        pytest.param(b"fLaC", "flac", "audio"),
        pytest.param(b"OggS", "ogg", "audio"),
        pytest.param(b"ID3\x03", "mp3", "audio"),
        pytest.param(b"\0\0\0\x1cftypM4A \0\0\0\0", "m4a", "audio"),
        pytest.param(b"\0\0\0\x1cftypisom\0\0\0\0", "mp4", "video"),
        pytest.param(b"\0\0\0\x14ftypqt  \0\0\0\0", "mov", "video"),
        pytest.param(b"RIFF\0\0\0\0AVI LIST", "avi", "video"),
        pytest.param(b"\x1a\x45\xdf\xa3\x01\0B\x82\x84webm", "webm", "video"),
        pytest.param(b"\x1a\x45\xdf\xa3\x01\0B\x82\x88matroska", "mkv", "video"),
        pytest.param(b"\x93NUMPY\x01\0", "npy", "unknown"),
        pytest.param(b"RIFF\0\0\0\0ACONanih", None, "unknown"),
        pytest.param(b'{"a": 1}', None, "unknown"),
        pytest.param(b"", None, "unknown"),
    ],
    ids=str,
)
def test_bytes_tell_a_suffix_that_readers_take_for_their_medium(
    head: bytes, suffix: str | None, medium: str
) -> None:
    assert suffix_of_bytes(head) == suffix
    assert media_of(suffix or "") == medium
