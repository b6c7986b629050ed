"""Text out of data, as a terminal may be given it."""

__all__ = ["printable"]


def printable(text: str) -> str:
    """Return text that can only be looked at: what commands a terminal is escaped.

    A name may hold any character, and some move the cursor, change colours or turn the direction
    of writing.
    """
    if text.isprintable():
        return text
    return "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode()
        for letter in text
    )
