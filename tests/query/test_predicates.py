"""What a filter looks at."""

from collections.abc import Callable
from typing import Any

import daft
import pytest
from daft import lit
from daft.expressions import Expression

from daft_twinwds.query.predicates import needed_fields

col: Any = daft.col  # Daft types its comparisons as truth values
DTYPES = {
    "__key__": daft.DataType.string(),
    "image": daft.DataType.file(),
    "caption": daft.DataType.struct(
        {
            "prompt": daft.DataType.string(),
            "score": daft.DataType.float64(),
            "box": daft.DataType.struct(
                {"width": daft.DataType.int64(), "height": daft.DataType.int64()}
            ),
        }
    ),
    "label": daft.DataType.int64(),
}

CASES: list[tuple[str, Callable[[], Expression], dict[str, set[tuple[str, ...]]]]] = [
    ("nothing", lambda: lit(True), {}),
    ("column", lambda: col("label") > 1, {"label": {()}}),
    ("field", lambda: col("caption")["score"] > 1, {"caption": {("score",)}}),
    ("inner field", lambda: col("caption")["box"]["width"] > 1, {"caption": {("box", "width")}}),
    (
        "several",
        lambda: (
            (col("caption")["score"].is_in([1.0, 2.0]) | (col("label") == 1))
            & ~col("caption")["prompt"].is_null()
        ),
        {"caption": {("score",), ("prompt",)}, "label": {()}},
    ),
    (
        "arithmetic",
        lambda: col("caption")["box"]["width"] * col("caption")["box"]["height"] > 2**20,
        {"caption": {("box", "width"), ("box", "height")}},
    ),
    (
        "a struct and a field of it",
        lambda: col("caption")["box"].is_null() | (col("caption")["box"]["width"] > 1),
        {"caption": {("box",)}},
    ),
    ("whole struct", lambda: col("caption").is_null(), {"caption": {()}}),
    (
        "function of a field",
        lambda: col("caption")["prompt"].contains("x") & (col("label") > 1),
        {"caption": {()}, "label": {()}},
    ),
    ("function of a struct", lambda: col("caption").hash() > 5, {"caption": {()}}),
    (
        "file",
        lambda: col("image").not_null() & (col("__key__") > "a"),
        {"image": {()}, "__key__": {()}},
    ),
    ("no such column", lambda: col("nope") > 1, {name: {()} for name in DTYPES}),
]


@pytest.mark.parametrize(("name", "condition", "needed"), CASES)
def test_needed_fields(
    name: str, condition: Callable[[], Expression], needed: dict[str, set[tuple[str, ...]]]
) -> None:
    assert needed_fields(condition(), DTYPES) == needed
