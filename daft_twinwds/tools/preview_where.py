"""A filter in SQL -> a Daft expression."""

import re
from collections.abc import Mapping
from typing import Final

import daft
from daft.expressions import Expression

from daft_twinwds.errors import SchemaError
from daft_twinwds.query._daft import check_predicate

__all__ = ["sql_condition"]

_NAME: Final = r'(?:[A-Za-z_]\w*|"(?:[^"]|"")+")'
_TOKEN: Final = re.compile(
    rf"""
    '(?:[^']|'')*'                                        # a text
    | --[^\n]*
    | (?P<path>(?<![\w.]){_NAME}(?:\.{_NAME})*)(?![\w.])(?!\s*\()
    """,
    re.VERBOSE,
)
_PLAIN: Final = re.compile(r"[A-Za-z_]\w*")


def sql_condition(text: str, dtypes: Mapping[str, daft.DataType]) -> Expression:
    """Return the condition that a text in Daft's SQL states.

    Fields of structs are written ``caption.prompt``, which Daft's own `sql_expr` does not know.

    Args:
        text: As ``"image_width >= 3840 AND caption.prompt LIKE '%lake%'"``.
        dtypes: Columns that it may look at.

    Raises:
        SchemaError: It is no condition over these columns.
    """
    sql = _with_fields(text, dtypes)
    try:
        daft.sql_expr(sql)
    except Exception as error:  # the type that Daft raises cannot be imported
        raise _refusal(text, _reason_of(error), dtypes) from error
    try:
        # Without brackets, what follows a complete expression is ignored.
        condition = daft.sql_expr(f"(\n{sql}\n)")
    except Exception as error:
        raise _refusal(text, "it goes on behind a whole condition", dtypes) from error
    try:
        check_predicate(condition, dtypes)
    except SchemaError as error:
        raise _refusal(text, _reason_of(error.__cause__ or error), dtypes) from error
    return condition


def _with_fields(text: str, dtypes: Mapping[str, daft.DataType]) -> str:
    """Write fields of structs as Daft understands them."""

    def replaced(found: re.Match[str]) -> str:
        if found["path"] is None:
            return found[0]
        first, *fields = (_unquoted(name) for name in re.findall(_NAME, found["path"]))
        if first not in dtypes or not _PLAIN.fullmatch(first):
            return found[0]
        if not fields:
            return first
        if not dtypes[first].is_struct():
            return found[0]
        made = first
        for field in fields:
            escaped = field.replace("'", "''")
            made = f"struct_get({made}, '{escaped}')"
        return made

    return _TOKEN.sub(replaced, text)


def _unquoted(name: str) -> str:
    return name[1:-1].replace('""', '"') if name.startswith('"') else name


def _reason_of(error: BaseException) -> str:
    """Return what is wrong, in a line."""
    text = str(error)
    missing = re.search(r'Column "(.+?)" not found', text)
    if missing is not None:
        return f"there is no column {missing[1]!r}"
    field = re.search(r"Field (.+?) not found in schema: (\[.*\])", text)
    if field is not None:
        return f"there is no field {field[1]!r}, only {field[2]}"
    kind = re.search(r"downcast (\S+) to .*BooleanType", text)
    if kind is not None:
        return f"its value is {kind[1]}, not true or false"
    last = text.strip().splitlines()[-1].strip()
    return last.removeprefix("REASON: ").partition("DaftError::")[2] or last.removeprefix(
        "REASON: "
    )


def _refusal(text: str, reason: str, dtypes: Mapping[str, daft.DataType]) -> SchemaError:
    return SchemaError(
        f"where: {text!r} cannot be applied ({reason}); expected a condition in SQL over the "
        f"columns {', '.join(dtypes)}; write it as: image_width >= 3840 AND caption.prompt LIKE "
        "'%lake%'"
    )
