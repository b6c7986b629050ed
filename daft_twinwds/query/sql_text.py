"""Pieces of SQL as text -> Daft's conditions, types and names, and nothing beyond these."""

import re
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import daft
from daft.expressions import Expression
from daft.session import Session
from daft.sql.sql import sql_expr

__all__ = ["SqlTextError", "check_table_name", "dtype_of", "predicate_of"]

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_QUERY: Final = ("from", "table", "values", "with")
"""What may begin a query besides SELECT, and may be a column's name as well."""
_TOKEN: Final = re.compile(
    r"""(?P<space>\s+)
      | (?P<text>'(?:[^']|'')*')
      | (?P<quoted>"(?:[^"]|"")+")
      | (?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)
      | (?P<word>[^\W\d]\w*)
      | (?P<refused>--|/\*|;)
      | (?P<sign>[-+*/%<>=!,:|&^~().\[\]])""",
    re.VERBOSE,
)


class SqlTextError(ValueError):
    """A text is not the piece of SQL that it should be."""

    def __init__(self, message: str, reason: str) -> None:
        super().__init__(message)
        self.reason = reason
        """What is wrong, without the text and what was expected."""


class _Token(NamedTuple):
    kind: str
    text: str

    @property
    def is_name(self) -> bool:
        return self.kind in ("word", "quoted")

    @property
    def plain(self) -> str:
        """Its text without the quotes."""
        if self.kind == "quoted":
            return self.text[1:-1].replace('""', '"')
        return self.text[1:-1].replace("''", "'") if self.kind == "text" else self.text

    @property
    def literal(self) -> str:
        """The name that it is, as an SQL string."""
        return "'" + self.plain.replace("'", "''") + "'"


def predicate_of(text: str) -> Expression:
    """Return the condition that an SQL text is, as after ``WHERE``.

    Fields of structs are written ``caption.score`` or ``caption['score']``. A query inside the
    condition is refused, since it would be free to read any file.

    Args:
        text: One expression, ``caption.score > 5 AND caption.prompt LIKE '%lake%'``.

    Raises:
        TypeError: It is no text.
        SqlTextError: It is no expression, or more than one.
    """
    if not isinstance(text, str):
        raise TypeError(f"a condition must be text, got {type(text).__name__}")
    tokens = list(_tokens(text))
    _require_no_query(text, tokens)
    sql = "".join(_with_fields(text, tokens))
    try:
        sql_expr(sql)
    except Exception as error:  # no module has the class that Daft raises
        raise _no_condition(text, _reason(error)) from error
    try:
        # Without brackets Daft ignores what stands behind the longest expression.
        return sql_expr(f"({sql})")
    except Exception as error:
        raise _no_condition(text, "it goes on behind a whole condition") from error


def dtype_of(text: str) -> daft.DataType:
    """Return the type that an SQL text names.

    Args:
        text: ``text``, ``bigint``, ``double[]``, ``struct<prompt text, score double>``.

    Raises:
        TypeError: It is no text.
        ValueError: It names no type.
    """
    if not isinstance(text, str):
        raise TypeError(f"a type must be text, got {type(text).__name__}")
    try:
        # As a field it has to end where the text does.
        fields = daft.DataType.from_sql(f"struct<only {text}>").fields
    except Exception as error:  # no module has the class that Daft raises
        raise _no_type(text, _reason(error)) from error
    if len(fields) != 1:
        raise _no_type(text, "more than one type")
    return next(iter(fields.values()))


def check_table_name(name: str) -> None:
    """Check that SQL can call a table so without quotes.

    Raises:
        TypeError: It is no text.
        ValueError: It cannot.
    """
    if not isinstance(name, str):
        raise TypeError(f"a table's name must be text, got {type(name).__name__}")
    if _NAME.fullmatch(name):
        probe = Session()
        probe.create_temp_view(name, daft.from_pydict({"x": [0]}))
        try:
            probe.sql(f"SELECT * FROM {name}")
        except Exception as error:  # no module has the class that Daft raises
            raise _no_name(name) from error
        return
    raise _no_name(name)


def _tokens(text: str) -> Iterator[_Token]:
    depth = place = 0
    while place < len(text):
        found = _TOKEN.match(text, place)
        if found is None:
            raise _no_condition(text, f"unexpected {text[place]!r} at character {place}")
        token = _Token(found.lastgroup or "", found[0])
        if token.kind == "refused":
            raise _no_condition(text, f"unexpected {token.text!r} at character {place}")
        depth += {"(": 1, ")": -1}.get(token.text, 0)
        if depth < 0:
            raise _no_condition(text, f"unexpected ')' at character {place}")
        yield token
        place = found.end()
    if depth:
        raise _no_condition(text, "')' is missing")


def _require_no_query(text: str, tokens: Sequence[_Token]) -> None:
    # Daft opens the files of a query when it parses it. Quotes do not matter: they are taken off.
    tokens = [token for token in tokens if token.kind != "space"]
    for place, token in enumerate(tokens):
        name = token.plain.lower() if token.is_name else ""
        before = _text_at(tokens, place - 1)
        is_field = token.kind == "quoted" and before == "."
        begins = before == "(" and name in _QUERY and _is_value(tokens, place + 1)
        if begins or (name == "select" and not is_field):
            raise _no_condition(text, "a query inside it")


def _is_value(tokens: Sequence[_Token], place: int) -> bool:
    return place < len(tokens) and (tokens[place].is_name or tokens[place].kind == "text")


def _with_fields(text: str, tokens: Sequence[_Token]) -> Iterator[str]:
    """Yield the text again, with each path into a struct as the function that takes it.

    Without a table at hand, Daft's parser takes ``caption.score`` for one column's name.
    """
    place = 0
    while place < len(tokens):
        token = tokens[place]
        fields, end = _fields_after(tokens, place)
        if token.kind == "quoted":
            if not _NAME.fullmatch(token.text[1:-1]):
                raise _no_condition(text, f"the column {token.text}, whose name is no plain word")
            # To Daft the quotes would be part of the name.
            token = _Token("word", token.text[1:-1])
        is_call = end < len(tokens) and tokens[end].text == "("
        if not token.is_name or not fields or is_call or _text_at(tokens, place - 1) == ".":
            yield token.text
            place += 1
            continue
        yield "struct_get(" * len(fields) + token.text
        yield from (f", {field.literal})" for field in fields)
        place = end


def _fields_after(tokens: Sequence[_Token], place: int) -> tuple[list[_Token], int]:
    """Return the names of the fields that follow a column's name, and where they end."""
    fields: list[_Token] = []
    place += 1
    while place + 1 < len(tokens):
        sign, name = tokens[place], tokens[place + 1]
        if sign.text == "." and name.is_name:
            place += 2
        elif sign.text == "[" and name.kind == "text" and _text_at(tokens, place + 2) == "]":
            place += 3
        else:
            break
        fields.append(name)
    return fields, place


def _text_at(tokens: Sequence[_Token], place: int) -> str:
    return tokens[place].text if 0 <= place < len(tokens) else ""


def _reason(error: Exception) -> str:
    return str(error).strip().splitlines()[-1].removeprefix("REASON: ")


def _no_condition(text: str, reason: str) -> SqlTextError:
    return SqlTextError(
        f"{text!r} is no condition in SQL ({reason}); expected one as caption.score > 5 AND "
        "caption.prompt LIKE '%lake%'",
        reason,
    )


def _no_type(text: str, reason: str) -> ValueError:
    return ValueError(
        f"{text!r} is no type in SQL ({reason}); expected one as text, bigint, double[] or "
        "struct<prompt text, score double>"
    )


def _no_name(name: str) -> ValueError:
    return ValueError(
        f"a table named {name!r} cannot be queried by SQL; expected letters, digits and "
        "underscores, no digit first, and no keyword of SQL"
    )
