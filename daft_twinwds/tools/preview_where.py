"""A filter in SQL -> a Daft expression."""

import re
from collections.abc import Mapping

import daft
from daft.expressions import Expression

from daft_twinwds.errors import SchemaError
from daft_twinwds.query._daft import check_predicate
from daft_twinwds.query.catalog_sql import SqlTextError, predicate_of

__all__ = ["sql_condition"]


def sql_condition(text: str, dtypes: Mapping[str, daft.DataType]) -> Expression:
    """Return the condition that a text in Daft's SQL states.

    Unlike `predicate_of` it also says which column or field is not there.

    Args:
        text: As ``"image_width >= 3840 AND caption.prompt LIKE '%lake%'"``.
        dtypes: Columns that it may look at.

    Raises:
        SchemaError: It is no condition over these columns.
    """
    try:
        condition = predicate_of(text)
    except SqlTextError as error:
        raise _refusal(text, error.reason, dtypes) from error
    try:
        check_predicate(condition, dtypes)
    except SchemaError as error:
        raise _refusal(text, _reason_of(error.__cause__ or error), dtypes) from error
    return condition


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
