"""A filter in SQL -> a Daft expression."""

from collections.abc import Mapping

import daft
from daft.expressions import Expression

from daft_twinwds.errors import SchemaError
from daft_twinwds.query._daft import predicate_fault
from daft_twinwds.query.sql_text import SqlTextError, predicate_of

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
    fault = predicate_fault(condition, dtypes)
    if fault is not None:
        raise _refusal(text, fault, dtypes)
    return condition


def _refusal(text: str, reason: str, dtypes: Mapping[str, daft.DataType]) -> SchemaError:
    return SchemaError(
        f"where: {text!r} cannot be applied ({reason}); expected a condition in SQL over the "
        f"columns {', '.join(dtypes)}; write it as: image_width >= 3840 AND caption.prompt LIKE "
        "'%lake%'"
    )
