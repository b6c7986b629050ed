"""What stands at one place of a catalog file, checked; a message names the place, not the value."""

import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import date, datetime, time
from typing import Any, Final, TypeAlias, get_args

import daft
from typing_extensions import override

from daft_twinwds.errors import LayoutError
from daft_twinwds.query.sql_text import check_table_name, dtype_of, predicate_of
from daft_twinwds.shards.urls import Url, is_url

__all__ = ["Check", "Place", "choice", "fields", "name_of"]

Check: TypeAlias = "Callable[[Place, Any], Any]"
"""Returns a value that stands at a place as it is used, or raises `LayoutError`."""

_PLAIN: Final = re.compile(r"[A-Za-z0-9_]+")
_SECRETS: Final = re.compile(
    r"access|azure|bearer|config|credential|gcs|key_?id|password|s3|sas|secret|session|token"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A key of a file, for messages."""

    file: str
    """Path of the file."""
    key: str = ""
    """The names that lead there, ``sources.a.root``."""

    def at(self, name: object) -> "Place":
        """Return the place of a name below this one."""
        shown = str(name) if isinstance(name, str) and _PLAIN.fullmatch(name) else repr(name)
        return replace(self, key=f"{self.key}.{shown}" if self.key else shown)

    def item(self, number: int) -> "Place":
        """Return the place of an item in a list."""
        return replace(self, key=f"{self.key}[{number}]")

    def error(self, message: str) -> LayoutError:
        """Return an error that says where."""
        return LayoutError(f"{self}: {message}")

    @override
    def __str__(self) -> str:
        return f"{self.file}: {self.key}" if self.key else self.file


def fields(
    place: Place, value: object, checks: Mapping[str, Check], *, required: Iterable[str] = ()
) -> dict[str, Any]:
    """Return a table of known keys, each checked.

    Raises:
        LayoutError: It is no table, or a key is unknown, missing or wrong. Credentials are refused
            without being shown.
    """
    if not isinstance(value, dict):
        raise place.error(f"found {_described(value)}; expected a table with keys of {[*checks]}")
    for name in value:
        if name in checks:
            continue
        if isinstance(name, str) and _SECRETS.search(name.lower().replace("-", "_")):
            raise place.at(name).error(
                "credentials and endpoints do not belong in this file; take them out, and pass "
                "io_config= to daft_twinwds.attach"
            )
        raise place.at(name).error(f"no such key; expected one of {[*checks]}")
    for name in required:
        if name not in value:
            raise place.error(f"no {name!r}; expected it; add the key")
    return {name: checks[name](place.at(name), item) for name, item in value.items()}


def name_of(place: Place, name: object) -> str:
    """Return a table's name."""
    try:
        check_table_name(name)  # type: ignore[arg-type]  # whatever the file has
    except (TypeError, ValueError) as error:
        raise place.at(name).error(str(error)) from error
    return str(name)


def text(place: Place, value: object) -> str:
    """Return a text that is not empty."""
    if not isinstance(value, str) or not value:
        raise _wrong(place, value, "text")
    return value


def texts(place: Place, value: object) -> tuple[str, ...]:
    """Return the texts of a list; a single one may stand without it."""
    if isinstance(value, str):
        value = [value]
    return text_list(place, value)


def text_list(place: Place, value: object) -> tuple[str, ...]:
    """Return the texts of a list that is not empty."""
    if not isinstance(value, list) or not value:
        raise _wrong(place, value, "a list of texts")
    return tuple(text(place.item(number), item) for number, item in enumerate(value))


def location(place: Place, value: object) -> str:
    """Return a path or URL that holds no secret."""
    path = text(place, value)
    if is_url(path):
        url = Url.parse(path)
        if url.user or url.query:
            raise place.error(
                f"{url}: a URL with a password or query; expected none, as they may be secret; "
                "take it out and pass io_config= to daft_twinwds.attach, or attach a TwinTable"
            )
    return path


def locations(place: Place, value: object) -> tuple[str, ...]:
    """Return one or more paths or URLs."""
    if isinstance(value, str):
        return (location(place, value),)
    return tuple(location(place.item(i), path) for i, path in enumerate(text_list(place, value)))


def modalities(place: Place, value: object) -> tuple[str, ...] | dict[str, str]:
    """Return folders, or column -> folder."""
    if isinstance(value, dict) and value:
        return {
            text(place, column): location(place.at(column), item) for column, item in value.items()
        }
    if not isinstance(value, list):
        raise _wrong(place, value, "a list of folders, or a table of column = folder")
    return text_list(place, value)


def schema(place: Place, value: object) -> dict[str, daft.DataType]:
    """Return column -> type."""
    if not isinstance(value, dict) or not value:
        raise _wrong(place, value, "a table of column = type")
    return {
        text(place, column): _parsed(place.at(column), item, dtype_of)
        for column, item in value.items()
    }


def where(place: Place, value: object) -> str:
    """Return a condition in SQL, as text."""
    _parsed(place, value, predicate_of)
    return str(value)


def flag(place: Place, value: object) -> bool:
    """Return a truth value."""
    if not isinstance(value, bool):
        raise _wrong(place, value, "true or false")
    return value


def count(place: Place, value: object) -> int:
    """Return a whole number from 1 on."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise _wrong(place, value, "a whole number of at least 1")
    return value


def weight(place: Place, value: object) -> float:
    """Return a finite number above 0."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise _wrong(place, value, "a number above 0")
    if not 0 < value < math.inf:
        raise place.error(f"found {value}; expected a finite number above 0")
    return value


def choice(literal: object) -> Check:
    """Return a check for one of the texts that a ``Literal`` has."""
    values = get_args(literal)

    def check(place: Place, value: object) -> str:
        if not isinstance(value, str):
            raise _wrong(place, value, f"one of {values}")
        if value not in values:
            raise place.error(f"found {value!r}; expected one of {values}")
        return value

    return check


def _parsed(place: Place, value: object, parse: Callable[[str], Any]) -> Any:
    try:
        return parse(text(place, value))
    except ValueError as error:
        raise place.error(str(error)) from error


def _wrong(place: Place, value: object, expected: str) -> LayoutError:
    hint = "" if isinstance(value, str | list | dict) else "; put quotes around what is text"
    return place.error(f"found {_described(value)}; expected {expected}{hint}")


def _described(value: object) -> str:
    """Return what kind of value it is; the value itself may be a secret."""
    if value is None:
        return "nothing (null)"
    empty = "" if value or not isinstance(value, str | list | dict) else "an empty "
    kinds: tuple[tuple[type | tuple[type, ...], str], ...] = (
        (bool, "true or false"),
        ((int, float), "a number"),
        (str, f"{empty}text"),
        (list, f"{empty or 'a '}list"),
        (dict, f"{empty or 'a '}table"),
        ((date, datetime, time), "a date or time"),
    )
    return next((kind for types, kind in kinds if isinstance(value, types)), type(value).__name__)
