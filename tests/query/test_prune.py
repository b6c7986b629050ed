"""Bounds exclude no shard that has a matching row."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import daft
import pyarrow as pa
import pytest
from daft.expressions import Expression
from daft.recordbatch import RecordBatch
from hypothesis import given
from hypothesis import strategies as st

from daft_twinwds.query._daft import filter_batch
from daft_twinwds.query.index_stats import iter_stats
from daft_twinwds.query.prune import Pruner
from daft_twinwds.shards.index_format import LeafStats

col: Any = daft.col  # Daft types its comparisons as truth values
lit: Any = daft.lit
TYPES = {"int": pa.int64(), "float": pa.float64(), "text": pa.large_string(), "flag": pa.bool_()}
DTYPES = {
    **{name: daft.DataType.from_arrow_type(type_) for name, type_ in TYPES.items()},
    "s": daft.DataType.struct(
        {"int": daft.DataType.int64(), "o": daft.DataType.struct({"text": daft.DataType.string()})}
    ),
    "list": daft.DataType.list(daft.DataType.int64()),
}

ints = st.integers(-3, 3) | st.sampled_from([2**53, 2**53 + 1, -(2**63), 2**63 - 1])
floats = st.sampled_from(
    [0.0, -0.0, 1.0, -1.5, 2.5, math.inf, -math.inf, math.nan, 2.0**53, 5e-324]
)
texts = st.text("ab\u00e9\U0001f600", max_size=3) | st.sampled_from(["a" * 63, "a" * 64, "a" * 65])
flags = st.booleans()
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "int": ints,
    "float": floats,
    "text": texts,
    "flag": flags,
}

LEAVES: dict[str, tuple[str, Callable[[], Expression]]] = {
    "int": ("int", lambda: col("int")),
    "float": ("float", lambda: col("float")),
    "text": ("text", lambda: col("text")),
    "flag": ("flag", lambda: col("flag")),
    "s.int": ("int", lambda: col("s")["int"]),
    "s.o.text": ("text", lambda: col("s")["o"]["text"]),
}
COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "<": lambda left, right: left < right,
    "<=": lambda left, right: left <= right,
    ">": lambda left, right: left > right,
    ">=": lambda left, right: left >= right,
    "==": lambda left, right: left == right,
    "!=": lambda left, right: left != right,
}

Condition = tuple[str, Expression]
"""How it is written, for the reader of an example; and what it is."""


@st.composite
def leaves(draw: st.DrawFn) -> Condition:
    name = draw(st.sampled_from(sorted(LEAVES)))
    kind, make = LEAVES[name]
    form = draw(st.sampled_from(["compare", "swapped", "is_in", "between", "null", "truth", "odd"]))
    numbers = ints | floats
    values = numbers if kind in ("int", "float") else VALUES[kind]
    if form in ("compare", "swapped"):
        symbol, value = draw(st.sampled_from(sorted(COMPARISONS))), draw(values)
        compare = COMPARISONS[symbol]
        if form == "swapped":
            return f"{value} {symbol} {name}", compare(lit(value), make())
        return f"{name} {symbol} {value}", compare(make(), lit(value))
    if form == "is_in":
        items = draw(st.lists(VALUES[kind], min_size=1, max_size=3))
        return f"{name} in {items}", make().is_in(items)
    if form == "between" and kind in ("int", "float"):
        low, high = draw(VALUES[kind]), draw(VALUES[kind])
        return f"{low} <= {name} <= {high}", make().between(low, high)
    if form == "truth":
        return "flag", col("flag")
    if form == "odd":
        return "int % 2 == 1", (col("int") % 2) == 1
    return f"{name} is null", make().is_null()


conditions: st.SearchStrategy[Condition] = st.recursive(
    leaves(),
    lambda inner: st.one_of(
        st.tuples(inner, inner).map(
            lambda pair: (f"({pair[0][0]} and {pair[1][0]})", pair[0][1] & pair[1][1])
        ),
        st.tuples(inner, inner).map(
            lambda pair: (f"({pair[0][0]} or {pair[1][0]})", pair[0][1] | pair[1][1])
        ),
        inner.map(lambda one: (f"not {one[0]}", ~one[1])),
    ),
    max_leaves=4,
)


@st.composite
def shards(draw: st.DrawFn) -> list[dict[str, Any]]:
    size = draw(st.integers(1, 4))
    row = st.fixed_dictionaries(
        {name: st.none() | values for name, values in VALUES.items()}
        | {
            "s": st.none()
            | st.fixed_dictionaries(
                {
                    "int": st.none() | ints,
                    "o": st.none() | st.fixed_dictionaries({"text": st.none() | texts}),
                }
            )
        }
    )
    return draw(st.lists(row, min_size=size, max_size=size))


def batch_of(rows: list[dict[str, Any]]) -> tuple[RecordBatch, dict[tuple[str, ...], LeafStats]]:
    fields = {**TYPES, "s": DTYPES["s"].to_arrow_dtype()}
    arrays = {name: pa.array([row[name] for row in rows], type_) for name, type_ in fields.items()}
    stats = {
        path: one for name, array in arrays.items() for path, one in iter_stats(array, (name,))
    }
    return RecordBatch.from_pydict(arrays), stats


@given(condition=conditions, data=st.lists(shards(), min_size=1, max_size=4), known=st.booleans())
def test_a_shard_that_is_excluded_has_no_matching_row(
    condition: Condition, data: list[list[dict[str, Any]]], known: bool
) -> None:
    batches = [batch_of(rows) for rows in data]
    pruner = Pruner(condition[1], DTYPES)

    might = pruner.might_match(
        [len(rows) for rows in data],
        lambda number, path: batches[number][1].get(path) if known or number else None,
    )

    for (batch, _), kept in zip(batches, might.tolist(), strict=True):
        assert kept or len(filter_batch(batch, condition[1])) == 0


EXCLUDED: list[tuple[str, Callable[[], Expression]]] = [
    ("above", lambda: col("int") > 10),
    ("below", lambda: lit(0.5) > col("int")),
    ("equal", lambda: col("text") == "c"),
    ("is_in", lambda: col("text").is_in(["c", "d"])),
    ("between", lambda: col("float").between(3, 4)),
    ("not", lambda: ~((col("int") <= 10) | (col("float") > 1))),
    ("or", lambda: (col("int") > 10) | (col("text") > "b")),
    ("and", lambda: (col("int") % 2 == 1) & (col("int") > 10)),
    ("null", lambda: col("int").is_null()),
    ("not null", lambda: col("flag").not_null()),
    ("field", lambda: col("s")["int"] < 7),
    ("nothing but nulls", lambda: col("flag") | (col("s")["o"]["text"] != "")),
    ("one value", lambda: col("s")["int"] != 7),
    ("unsigned", lambda: col("int") >= 2**63),
]


@pytest.mark.parametrize(("name", "condition"), EXCLUDED)
def test_a_shard_without_a_match_is_excluded(
    name: str, condition: Callable[[], Expression]
) -> None:
    rows = [
        {"int": 1, "float": 0.5, "text": "a", "flag": None, "s": {"int": 7, "o": None}},
        {"int": 9, "float": 2.5, "text": "b", "flag": None, "s": {"int": 7, "o": None}},
    ]
    batch, stats = batch_of(rows)

    pruner = Pruner(condition(), DTYPES)

    assert len(filter_batch(batch, condition())) == 0
    assert pruner.excludes_any
    assert pruner.might_match([2], lambda number, path: stats.get(path)).tolist() == [False]


MATCHED: list[tuple[str, dict[str, Any], Callable[[], Expression]]] = [
    ("no number is above all", {"float": math.nan}, lambda: col("float") > 99),
    ("minus zero is below zero", {"float": -0.0}, lambda: col("float") < 0.0),
    ("zero is above minus zero", {"float": 0.0}, lambda: col("float") > -0.0),
    ("among items both zeros are one", {"float": -0.0}, lambda: col("float").is_in([0.0])),
    ("one null", {"int": None}, lambda: col("int").is_null()),
    ("one value", {"int": 1}, lambda: col("int").not_null()),
    ("the lowest", {"int": 1}, lambda: col("int") <= 1),
    ("the highest", {"text": "b"}, lambda: col("text") >= "b"),
    ("a long text", {"text": "z" * 100}, lambda: col("text") > "z" * 99),
    ("the beginning of a long text", {"text": "z" * 100}, lambda: col("text") != "z" * 64),
    ("rounded", {"int": 2**53 + 1}, lambda: col("int") == float(2**53)),
    ("false", {"flag": False}, lambda: ~col("flag")),
]


@pytest.mark.parametrize(("name", "row", "condition"), MATCHED)
def test_a_shard_with_one_matching_row_is_kept(
    name: str, row: dict[str, Any], condition: Callable[[], Expression]
) -> None:
    nothing: dict[str, Any] = dict.fromkeys([*TYPES, "s"])
    other = {**nothing, "int": 0, "float": 0.0, "text": "a", "flag": True}
    for rows in ([nothing | row], [other, nothing | row], [nothing | row, other]):
        batch, stats = batch_of(rows)
        pruner = Pruner(condition(), DTYPES)

        assert len(filter_batch(batch, condition())) >= 1
        might = pruner.might_match([len(rows)], partial(_of, stats))
        assert might.tolist() == [True]


def _of(
    stats: dict[tuple[str, ...], LeafStats], number: int, path: tuple[str, ...]
) -> LeafStats | None:
    return stats.get(path)


def test_what_is_no_number_hides_no_number_beside_it() -> None:
    nothing: dict[str, Any] = dict.fromkeys([*TYPES, "s"])
    batch, stats = batch_of([nothing | {"float": 0.5}, nothing | {"float": math.nan}])

    for condition in (col("float") < 1, col("float") > 1, col("float") == 0.5):
        assert len(filter_batch(batch, condition)) == 1
        assert Pruner(condition, DTYPES).might_match([2], partial(_of, stats)).tolist() == [True]


UNKNOWN: list[tuple[str, Callable[[], Expression]]] = [
    ("function", lambda: col("text").contains("z")),
    ("two columns", lambda: col("int") > col("float")),
    ("arithmetic", lambda: col("int") + 1 > 100),
    ("cast", lambda: col("int").cast("float64") > 100),
    ("no number", lambda: col("float") > math.nan),
    ("null", lambda: col("int") == lit(None)),
    ("list", lambda: col("list").is_null()),
    ("one of two", lambda: (col("int") > 100) | col("text").contains("z")),
    ("items of another type", lambda: col("int").is_in([0.5, 100.5])),
]


@pytest.mark.parametrize(("name", "condition"), UNKNOWN)
def test_what_bounds_say_nothing_of_excludes_nothing(
    name: str, condition: Callable[[], Expression]
) -> None:
    pruner = Pruner(condition(), DTYPES)

    assert pruner.might_match([1], lambda number, path: LeafStats(None, None, 0)).tolist() == [True]
