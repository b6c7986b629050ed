"""Quantities as people read them."""

__all__ = ["bytes_text"]


def bytes_text(num_bytes: int) -> str:
    """Return a number of bytes in decimal units, as ``"2.1 MB"``."""
    for unit, size in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if num_bytes >= size:
            return f"{num_bytes / size:,.1f} {unit}"
    return f"{num_bytes} B"
