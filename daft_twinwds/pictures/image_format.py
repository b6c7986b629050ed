"""What bytes are: the picture format by content, never by suffix, or a guess for the message."""

__all__ = ["FORMATS", "format_of", "looks_like"]

FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "AVIF", "JPEG2000", "PPM")
"""Names as in Pillow. Formats that run programs or hold no pixels (EPS, SVG, WMF) are left out."""

_SIGNATURES = {
    b"\xff\xd8\xff": "JPEG",
    b"\x89PNG\r\n\x1a\n": "PNG",
    b"GIF87a": "GIF",
    b"GIF89a": "GIF",
    b"BM": "BMP",
    b"II*\0": "TIFF",
    b"MM\0*": "TIFF",
    b"II+\0": "TIFF",
    b"MM\0+": "TIFF",
    b"\0\0\0\x0cjP  \r\n\x87\n": "JPEG2000",
    b"\xff\x4f\xff\x51": "JPEG2000",
    **{b"P%d%c" % (kind, space): "PPM" for kind in range(1, 7) for space in b" \t\r\n"},
}

_STRANGERS = {
    b"version https://git-lfs": "a Git LFS pointer, the file itself was not fetched",
    b"<?xml": "an XML document",
    b"<svg": "an SVG drawing",
    b"<error": "an XML error page",
    b"<": "an HTML page",
    b"{": "JSON text",
    b"[": "JSON text",
    b"%pdf": "a PDF document",
    b"%!ps": "a PostScript document",
    b"pk\x03\x04": "a zip archive",
    b"\x1f\x8b": "gzip data",
    b"8bps": "a Photoshop document",
}
"""Start of the bytes, in lower case and without leading space -> what they are."""


def format_of(data: bytes) -> str | None:
    """Return one of `FORMATS`, or None."""
    for signature, name in _SIGNATURES.items():
        if data.startswith(signature):
            return name
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "WEBP"
    if data[4:8] == b"ftyp" and (b"avif" in _brands(data) or b"avis" in _brands(data)):
        return "AVIF"
    return None


def _brands(data: bytes) -> list[bytes]:
    """Return the brands of an ISO media file; HEIC and AVIF differ in nothing else."""
    size = min(int.from_bytes(data[:4], "big"), 256)
    return [data[start : start + 4] for start in range(8, size, 4)]


def looks_like(data: bytes) -> str:
    """Say in a few words what bytes are that are no picture we read."""
    if not data:
        return "no bytes at all"
    if not data.strip(b"\0"):
        return f"{len(data)} zero bytes"
    start = data[:64].removeprefix(b"\xef\xbb\xbf").lstrip().lower()
    for signature, name in _STRANGERS.items():
        if start.startswith(signature):
            return name
    if data[4:8] == b"ftyp":
        return f"an ISO media file of brand {data[8:12].decode('ascii', 'replace')!r}"
    return f"{len(data)} bytes of an unknown kind, starting with {data[:8].hex(' ')}"
