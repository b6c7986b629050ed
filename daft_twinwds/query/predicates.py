"""What a filter looks at: columns, and fields of structs."""

from collections.abc import Iterator, Mapping

import daft
from daft.expressions import Expression

from daft_twinwds.query._daft import required_columns
from daft_twinwds.query._daft_expressions import is_literal, names_path, operation_of

__all__ = ["Path", "needed_fields", "path_of"]

Path = tuple[str, ...]
"""A column, and the field in it, and the field in that."""

_TRANSPARENT = frozenset(
    {
        "and",
        "or",
        "not",
        "equal",
        "not_equal",
        "less_than",
        "less_than_or_equal",
        "greater_than",
        "greater_than_or_equal",
        "eq_null_safe",
        "between",
        "is_in",
        "is_null",
        "not_null",
        "plus",
        "minus",
        "multiply",
        "true_divide",
        "floor_divide",
        "modulus",
        "xor",
    }
)
"""Operators that look at nothing but their operands."""


def needed_fields(
    predicate: Expression, dtypes: Mapping[str, daft.DataType]
) -> dict[str, frozenset[Path]]:
    """Return what a predicate looks at.

    Daft takes operators apart, but no functions. Of these it is known only which columns they
    need, so that each of these counts as a whole.

    Returns:
        Column -> paths below it; the empty path is the whole column. No path begins with another.
    """
    paths = set(_iter_paths(predicate, dtypes))
    least = {path for path in paths if not any(path[:n] in paths for n in range(1, len(path)))}
    columns = {path[0] for path in least}
    return {
        column: frozenset(path[1:] for path in least if path[0] == column) for column in columns
    }


def path_of(expression: Expression, dtypes: Mapping[str, daft.DataType]) -> Path | None:
    """Return the column or field that an expression is, None if it is anything else."""
    for name, dtype in dtypes.items():
        for path in _iter_below((name,), dtype):
            if names_path(expression, path):
                return path
    return None


def _iter_paths(expression: Expression, dtypes: Mapping[str, daft.DataType]) -> Iterator[Path]:
    if is_literal(expression):
        return
    path = path_of(expression, dtypes)
    if path is not None:
        yield path
        return
    operation = operation_of(expression)
    if operation is not None and operation.name in _TRANSPARENT:
        for operand in operation.operands:
            for part in operand if isinstance(operand, list) else [operand]:
                yield from _iter_paths(part, dtypes)
        return
    yield from ((column,) for column in required_columns(expression, dtypes))


def _iter_below(path: Path, dtype: daft.DataType) -> Iterator[Path]:
    yield path
    if dtype.is_struct():
        for name, field in dtype.fields.items():
            yield from _iter_below((*path, name), field)
