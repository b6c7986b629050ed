"""Which shards a filter excludes, by what their values lie between.

For each shard the question is whether any of its rows might match. Each comparison of a column
with a literal becomes one of the column's bounds with it, ``x > 5`` becomes ``high > 5``, and Daft
itself evaluates it, so that its rules of order and conversion hold. Whatever else a filter
consists of might match.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import daft
import numpy as np
import pyarrow as pa
from daft import col, lit
from daft.expressions import Expression
from daft.series import Series
from numpy.typing import NDArray

from daft_twinwds.query._daft import evaluate, make_batch
from daft_twinwds.query._daft_expressions import literal_of, operation_of
from daft_twinwds.query.predicates import Path, path_of
from daft_twinwds.shards.index_format import LeafStats

__all__ = ["Pruner"]

_OPPOSITE: Final = {
    "less_than": "greater_than_or_equal",
    "less_than_or_equal": "greater_than",
    "greater_than": "less_than_or_equal",
    "greater_than_or_equal": "less_than",
    "equal": "not_equal",
    "not_equal": "equal",
    "is_null": "not_null",
    "not_null": "is_null",
}
_SWAPPED: Final = {
    "less_than": "greater_than",
    "less_than_or_equal": "greater_than_or_equal",
    "greater_than": "less_than",
    "greater_than_or_equal": "less_than_or_equal",
    "equal": "equal",
    "not_equal": "not_equal",
}
_ROWS: Final = "rows"


@dataclass(frozen=True, slots=True)
class _Leaf:
    """A column or field that is compared, and the columns that its bounds are in."""

    path: Path
    type: pa.DataType
    number: int

    @property
    def low(self) -> Expression:
        return col(f"low {self.number}")

    @property
    def high(self) -> Expression:
        return col(f"high {self.number}")

    @property
    def nulls(self) -> Expression:
        return col(f"nulls {self.number}")


class Pruner:
    """Excludes shards.

    Args:
        predicate: The filter.
        dtypes: All columns that it may name.
    """

    def __init__(self, predicate: Expression, dtypes: Mapping[str, daft.DataType]) -> None:
        self._dtypes = dtypes
        self._leaves: dict[Path, _Leaf] = {}
        self._condition = self._might(predicate, negated=False)

    @property
    def excludes_any(self) -> bool:
        """Whether there is anything in the filter that can exclude a shard."""
        return self._condition is not None

    def might_match(
        self, num_rows: Sequence[int], stats_of: Callable[[int, Path], LeafStats | None]
    ) -> NDArray[np.bool_]:
        """Say for each of many shards whether any of its rows might match.

        Args:
            num_rows: Rows of each shard.
            stats_of: Number of a shard, path -> what its values lie between, if that is known.
        """
        if self._condition is None:
            return np.ones(len(num_rows), np.bool_)
        columns = {_ROWS: Series.from_arrow(pa.array(num_rows, pa.int64()), _ROWS)}
        for leaf in self._leaves.values():
            stats = [stats_of(number, leaf.path) for number in range(len(num_rows))]
            columns |= _bounds(leaf, stats)
        result = evaluate(make_batch(columns), self._condition.fill_null(lit(True)))
        might: NDArray[np.bool_] = result.to_arrow().to_numpy(zero_copy_only=False)
        return might

    def _might(self, expression: Expression, *, negated: bool) -> Expression | None:
        """Return the condition under which a shard might match; None if there is no telling."""
        operation = operation_of(expression)
        if operation is None:
            return self._truth(expression, negated=negated)
        name, operands = operation
        if name == "not":
            return self._might(operands[0], negated=not negated)
        if name in ("and", "or"):
            left, right = (self._might(operand, negated=negated) for operand in operands)
            if (name == "and") != negated:
                return left if right is None else right if left is None else left & right
            return None if left is None or right is None else left | right
        if name in ("is_null", "not_null"):
            return self._null(_OPPOSITE[name] if negated else name, operands[0])
        if name in _SWAPPED:
            return self._compare(_OPPOSITE[name] if negated else name, *operands)
        if name == "between" and not negated:
            low = self._compare("greater_than_or_equal", operands[0], operands[1])
            high = self._compare("less_than_or_equal", operands[0], operands[2])
            return low if high is None else high if low is None else low & high
        if name == "is_in" and not negated:
            return self._is_in(*operands)
        return None

    def _truth(self, expression: Expression, *, negated: bool) -> Expression | None:
        """A boolean column as a condition."""
        return self._compare("equal", expression, lit(not negated))

    def _null(self, name: str, operand: Expression) -> Expression | None:
        leaf = self._leaf(operand)
        if leaf is None:
            return None
        return leaf.nulls > lit(0) if name == "is_null" else leaf.nulls < col(_ROWS)

    def _compare(self, name: str, left: Expression, right: Expression) -> Expression | None:
        leaf, literal = self._leaf(left), right
        if leaf is None:
            leaf, literal, name = self._leaf(right), left, _SWAPPED[name]
        if leaf is None or not _is_comparable(literal_of(literal), leaf.type):
            return None
        low, high = leaf.low, leaf.high
        condition = {
            "less_than": low < literal,
            "less_than_or_equal": low <= literal,
            "greater_than": high > literal,
            "greater_than_or_equal": high >= literal,
            "equal": (low <= literal) & (high >= literal),
            "not_equal": (low != literal) | (high != literal),
        }[name]
        # Bounds are not known where they are null, unless it is because there are no values.
        return condition.fill_null(lit(True)) & (leaf.nulls < col(_ROWS))

    def _is_in(self, operand: Expression, items: Sequence[Expression]) -> Expression | None:
        leaf = self._leaf(operand)
        condition: Expression | None = None
        for item in items:
            value = literal_of(item)
            if leaf is None or not _is_comparable(value, leaf.type):
                return None
            lowest = highest = item
            if pa.types.is_floating(leaf.type) and value == 0:
                # Here, unlike in comparisons, Daft takes both zeros for one.
                lowest, highest = lit(-0.0), lit(0.0)
            elif pa.types.is_integer(leaf.type) and isinstance(value, float):
                return None
            one = (leaf.low <= highest) & (leaf.high >= lowest)
            one = one.fill_null(lit(True)) & (leaf.nulls < col(_ROWS))
            condition = one if condition is None else condition | one
        return condition

    def _leaf(self, expression: Expression) -> _Leaf | None:
        path = path_of(expression, self._dtypes)
        if path is None:
            return None
        type_ = _type_at(path, self._dtypes)
        if type_ is None:
            return None
        return self._leaves.setdefault(path, _Leaf(path, type_, len(self._leaves)))


def _type_at(path: Path, dtypes: Mapping[str, daft.DataType]) -> pa.DataType | None:
    """Return the type of a column or field if its bounds may be known."""
    dtype = dtypes[path[0]]
    for name in path[1:]:
        dtype = dtype.fields[name]
    known = {
        daft.DataType.int64(): pa.int64(),
        daft.DataType.float64(): pa.float64(),
        daft.DataType.string(): pa.large_string(),
        daft.DataType.bool(): pa.bool_(),
    }
    return known.get(dtype)


def _is_comparable(value: object, type_: pa.DataType) -> bool:
    """Whether comparing a column with a literal keeps to the order of its values."""
    if isinstance(value, bool):
        return bool(pa.types.is_boolean(type_))
    if isinstance(value, str):
        return bool(pa.types.is_large_string(type_))
    if isinstance(value, int | float):
        is_number = pa.types.is_integer(type_) or pa.types.is_floating(type_)
        return is_number and not math.isnan(value)
    return False


def _bounds(leaf: _Leaf, stats: Sequence[LeafStats | None]) -> dict[str, Series]:
    """Return the columns that the conditions look at; null is what is not known."""
    stats = [one if one is not None and _fits(one, leaf.type) else None for one in stats]
    known = [LeafStats(None, None, 0) if one is None else one for one in stats]
    return {
        name: Series.from_arrow(values, name)
        for name, values in {
            f"low {leaf.number}": _values([one.low for one in known], leaf.type),
            f"high {leaf.number}": _values([one.high for one in known], leaf.type),
            f"nulls {leaf.number}": pa.array(
                [None if one is None else one.nulls for one in stats], pa.int64()
            ),
        }.items()
    }


def _fits(stats: LeafStats, type_: pa.DataType) -> bool:
    """Whether bounds are of a type, as those of a shard whose texts are of another are not."""
    bounds = [bound for bound in (stats.low, stats.high) if bound is not None]
    if pa.types.is_integer(type_) and any(isinstance(bound, float) for bound in bounds):
        return False
    return all(_is_comparable(bound, type_) for bound in bounds)


def _values(bounds: Sequence[object], type_: pa.DataType) -> pa.Array:
    if pa.types.is_floating(type_):
        # The integers of some shards may have become numbers, by rounding that keeps their order.
        bounds = [None if bound is None else float(bound) for bound in bounds]  # type: ignore[arg-type]
    return pa.array(bounds, type_)
