"""Where data lies: local paths and URLs as plain strings, and what may be shown of them.

A path in this package is an absolute local path or a URL. Object stores' URLs are literal, as
their command lines take them: ``s3://bucket/a b#c.tar`` names the key ``a b#c.tar``. HTTP URLs are
percent-encoded, as everywhere.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, Self
from urllib.parse import quote, unquote

from typing_extensions import override

from daft_twinwds.errors import StorageError

__all__ = [
    "Url",
    "is_url",
    "iter_parents",
    "join",
    "local_path",
    "required_local",
    "scheme_of",
    "shown",
]

HTTP: Final = frozenset({"http", "https"})

_URL: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://([^/?#]*)(.*)", re.DOTALL)
# What stands before the @ there is no name and password but a container.
_CONTAINER_AT_ACCOUNT: Final = frozenset({"abfs", "abfss"})
# Of a path's characters those that mean themselves; "%" begins what is already encoded.
_SAFE_IN_PATH: Final = "/%!$&'()*+,;=:@~"


@dataclass(frozen=True, slots=True, kw_only=True)
class Url:
    """A URL in its parts. As a string it shows neither a password nor a query."""

    scheme: str
    """Lower-case, ``s3`` or ``https``."""
    authority: str
    """Bucket, container or host with its port."""
    path: str
    """Below the authority, without the slash between; percent-encoded for HTTP only."""
    user: str = field(default="", repr=False)
    """``name:password``, to be kept secret."""
    query: str = field(default="", repr=False)
    """What follows the ``?`` of an HTTP URL: often a signature, so to be kept secret."""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Take a URL apart.

        Raises:
            ValueError: It is none.
        """
        found = _URL.fullmatch(text)
        if found is None:
            raise ValueError(f"expected a URL such as s3://bucket/data, got {text!r}")
        scheme, authority, path = found[1].lower(), found[2], found[3]
        user, query = "", ""
        if scheme not in _CONTAINER_AT_ACCOUNT:
            user, _, authority = authority.rpartition("@")
        if scheme in HTTP:
            # Some signatures begin with a "#" that should have been encoded; nothing is sent of it.
            path, _, query = path.partition("#")[0].partition("?")
            path = quote(path, safe=_SAFE_IN_PATH)
        else:
            # An object store's authority ends at its first slash, whatever stands before.
            authority, path = _split_literal(authority + path)
        return cls(
            scheme=scheme, authority=authority, path=path.lstrip("/"), user=user, query=query
        )

    @override
    def __str__(self) -> str:
        """The URL without what is secret in it."""
        return f"{self.scheme}://{self.authority}" + (f"/{self.path}" if self.path else "")

    def with_secrets(self) -> str:
        """Return the URL whole, to be sent and never to be shown."""
        user = f"{self.user}@" if self.user else ""
        query = f"?{self.query}" if self.query else ""
        return f"{self.scheme}://{user}{self.authority}/{self.path}{query}"


def scheme_of(path: str) -> str | None:
    """Return a URL's scheme, lower-case, or ``None`` for a local path."""
    found = _URL.fullmatch(path)
    return None if found is None else found[1].lower()


def is_url(path: str) -> bool:
    """Return whether ``path`` is a URL other than ``file://``."""
    return scheme_of(path) not in (None, "file")


def shown(path: str) -> str:
    """Return what a message may show: a local path as it is, a URL without its secrets."""
    return str(Url.parse(path)) if is_url(path) else path


def join(folder: str, *names: str) -> str:
    """Return the path of what lies below ``folder``.

    Args:
        folder: A local path or URL; an HTTP URL's query stays its query.
        names: Literal relative names, which may hold ``/``; percent-encoded here for HTTP.
            Empty ones are left out.
    """
    below = "/".join(name for name in names if name)
    if not below:
        return folder
    if scheme_of(folder) not in HTTP:
        return f"{folder.rstrip('/')}/{below}"
    url = Url.parse(folder)
    path = f"{url.path.rstrip('/')}/{quote(below, errors='surrogateescape')}".lstrip("/")
    return Url(
        scheme=url.scheme, authority=url.authority, path=path, user=url.user, query=url.query
    ).with_secrets()


def required_local(name: str, path: str, *, cure: str) -> str:
    """Return a path of this machine's files, which may have been a ``file://`` URL.

    Args:
        name: Of the argument, for the message.
        path: What was given.
        cure: What to do instead.

    Raises:
        ValueError: It is the URL of something else.
        StorageError: It names another machine.
    """
    if is_url(path):
        raise ValueError(f"{name}: {shown(path)} is a URL; expected a local path; {cure}")
    return local_path(path)


def local_path(url: str) -> str:
    """Return the path that a ``file://`` URL means; anything else as it is.

    Raises:
        StorageError: It names another machine.
    """
    if scheme_of(url) != "file":
        return url
    rest = url.partition("://")[2]
    host, slash, path = rest.partition("/")
    if host.lower() not in ("", "localhost") or not slash:
        raise StorageError(
            f"{url}: machine {host!r} was found; expected file:///absolute/path, as only this "
            "machine's files are read by that scheme"
        )
    return unquote(f"/{path}", errors="surrogateescape")


def iter_parents(path: str) -> Iterator[str]:
    """Yield the folders above ``path``, the nearest first."""
    start = path.find("://") + 3 if is_url(path) else 1
    while (slash := path.rfind("/", start)) >= 0:
        path = path[:slash]
        yield path


def _split_literal(rest: str) -> tuple[str, str]:
    authority, _, path = rest.partition("/")
    return authority, path
