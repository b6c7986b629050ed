"""Daft's expressions, taken apart: like `_daft`, the place for what is private about them."""

from functools import lru_cache
from typing import Any, NamedTuple

import daft
from daft.expressions import Expression

__all__ = ["Operation", "is_literal", "literal_of", "names_path", "operation_of"]


class Operation(NamedTuple):
    """An operator and what it is applied to."""

    name: str
    """As Daft calls it: ``"and"``, ``"less_than"``, ``"is_in"``."""
    operands: list[Any]
    """Expressions, and lists of expressions."""


class _Literal(NamedTuple):
    value: object


def operation_of(expression: Expression) -> Operation | None:
    """Take an operator apart; None for columns, literals, and what Daft does not take apart."""
    found = _visit(expression)
    return found if isinstance(found, Operation) else None


def is_literal(expression: Expression) -> bool:
    """Whether an expression is a plain value."""
    return isinstance(_visit(expression), _Literal)


def literal_of(expression: Expression) -> object:
    """Return the value of a literal; None if that is null, or the expression is no literal."""
    found = _visit(expression)
    return found.value if isinstance(found, _Literal) else None


def names_path(expression: Expression, path: tuple[str, ...]) -> bool:
    """Whether an expression is exactly this column, or this field of it."""
    inner = _inner(expression)
    return any(inner._eq(form) for form in _forms_of(path))  # noqa: SLF001


@lru_cache(maxsize=4096)
def _forms_of(path: tuple[str, ...]) -> list[Any]:
    """Return the expressions that are this path: as users write it, and as plans have it."""
    roots = [daft.col(path[0])]
    resolved = getattr(daft.daft, "resolved_col", None)
    if resolved is not None:
        roots.append(Expression._from_pyexpr(resolved(path[0])))  # noqa: SLF001
    forms = []
    for form in roots:
        for name in path[1:]:
            form = form[name]
        forms.append(_inner(form))
    return forms


class _Visitor:
    """What Daft calls with the uppermost part of an expression."""

    def visit_(self, name: str, operands: list[Any]) -> Operation:
        return Operation(name, operands)

    def visit_lit(self, value: object) -> _Literal:
        return _Literal(value)


def _visit(expression: Expression) -> Operation | _Literal | None:
    try:
        found = _inner(expression).accept(_Visitor())
    except Exception:  # noqa: BLE001  # functions, columns, casts: whatever Daft says of these
        return None
    return found if isinstance(found, Operation | _Literal) else None


def _inner(expression: Expression) -> Any:
    return expression._expr  # noqa: SLF001  # nothing public tells of an expression's parts
