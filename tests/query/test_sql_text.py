"""SQL as text: conditions with fields of structs, types, names; and what is refused."""

from typing import Any

import daft
import pytest
from hypothesis import given
from hypothesis import strategies as st

from daft_twinwds.query.sql_text import check_table_name, dtype_of, predicate_of

col: Any = daft.col  # Daft types its comparisons as truth values

ROWS = {
    "key": ["a", "it's", 'q"q'],
    "caption": [
        {"score": 1.5, "deep": {"word": "x", "my field": 1}},
        {"score": 6.0, "deep": {"word": "y.z", "my field": 2}},
        {"score": None, "deep": None},
    ],
    "number": [1, 2, 3],
}


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        ("caption.score > 5", ["it's"]),
        ("caption['score'] > 5", ["it's"]),
        ("caption.score>1 AND caption.score<=1.5e0", ["a"]),
        ("caption.deep.word = 'x' OR key = 'it''s'", ["a", "it's"]),
        ('caption.deep."my field" IN (2, 3)', ["it's"]),
        ("caption.score IS NULL", ['q"q']),
        ("number - 1 = -(-1)", ["it's"]),
        ("NOT (caption.score IS NOT NULL)\n", ['q"q']),
        ("key = '; -- /* select'' caption.score'", []),
        ("length(caption.deep.word) = 3", ["it's"]),
        ("true", ["a", "it's", 'q"q']),
    ],
)
def test_a_condition_keeps_the_rows_that_sql_keeps(text: str, keys: list[str]) -> None:
    rows = daft.from_pydict(ROWS)

    assert rows.where(predicate_of(text)).to_pydict()["key"] == keys
    assert daft.sql(f"SELECT key FROM rows WHERE {text}", rows=rows).to_pydict()["key"] == keys


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        ("caption['deep'].word LIKE '%.z'", ["it's"]),
        ("caption.deep['my field'] BETWEEN 1 AND 2", ["a", "it's"]),
    ],
)
def test_brackets_and_dots_may_be_mixed(text: str, keys: list[str]) -> None:
    assert daft.from_pydict(ROWS).where(predicate_of(text)).to_pydict()["key"] == keys


@pytest.mark.parametrize("name", ["from", "table", "values"])
def test_words_that_may_begin_a_query_are_columns_as_well(name: str) -> None:
    rows = daft.from_pydict({name: [1, 2]})

    assert rows.where(predicate_of(f'("{name}" > 1)')).to_pydict() == {name: [2]}


def test_a_field_is_what_daft_itself_makes_of_it() -> None:
    assert str(predicate_of("caption.score")) == str(col("caption")["score"])
    assert predicate_of("caption.score")._expr._eq(col("caption")["score"]._expr)


@given(name=st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1))
def test_a_quoted_field_may_have_any_name(name: str) -> None:
    quoted = '"' + name.replace('"', '""') + '"'
    in_brackets = "['" + name.replace("'", "''") + "']"

    for field in (f".{quoted}", in_brackets):
        assert predicate_of(f"x{field}")._expr._eq(col("x")[name]._expr)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "is no condition"),
        ("caption.score >", "is no condition"),
        ("caption.score > 5 OR", "is no condition"),
        ("caption.score > 5 garbage", "it goes on behind a whole condition"),
        ("a > 5) OR (b > 1", r"unexpected '\)' at character 5"),
        ("(a > 5", r"'\)' is missing"),
        ("a > 5; DROP TABLE x", "unexpected ';'"),
        ("a > 5 -- and more", "unexpected '--'"),
        ("a > 5 /* and more */", r"unexpected '/\*'"),
        ("a IN (SELECT x FROM read_parquet('/etc/x'))", "a query inside it"),
        ("EXISTS(select 1)", "a query inside it"),
        ("a IN (\"Select\" x FROM read_parquet('/etc/x'))", "a query inside it"),
        ("a IN (FROM read_parquet('/etc/x'))", "a query inside it"),
        ("a IN ( \"from\" read_parquet('/etc/x'))", "a query inside it"),
        ("a IN (FROM '/etc/x')", "a query inside it"),
        ('a IN (WITH b AS ("select" 1) TABLE b)', "a query inside it"),
        ("EXISTS(TABLE b)", "a query inside it"),
        ("`a` > 1", "unexpected '`'"),
        ("a = 'x", 'unexpected "\'" at character 4'),
        ('"a b" > 1', r'the column "a b", whose name is no plain word'),
        ('"a b".c > 1', r'the column "a b", whose name is no plain word'),
        ("nothing(a)", "`nothing` not found"),
        ("f(a).b > 1", "is no condition"),
        ("tags[0] = 'x'", "is no condition"),
        ("a.b.f(c)", "is no condition"),
    ],
)
def test_other_text_is_no_condition(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason) as caught:
        predicate_of(text)
    assert "expected one as caption.score > 5" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "dtype"),
    [
        ("text", daft.DataType.string()),
        ("bigint", daft.DataType.int64()),
        (
            "STRUCT<prompt TEXT, scores DOUBLE[]>",
            daft.DataType.struct(
                {
                    "prompt": daft.DataType.string(),
                    "scores": daft.DataType.list(daft.DataType.float64()),
                }
            ),
        ),
    ],
)
def test_a_type_is_named_as_in_sql(text: str, dtype: daft.DataType) -> None:
    assert dtype_of(text) == dtype


@pytest.mark.parametrize("text", ["", "nonsense", "int; select", "int, y int", "int>", "int y"])
def test_other_text_is_no_type(text: str) -> None:
    with pytest.raises(ValueError, match=r"is no type in SQL \(.*expected one as text, bigint"):
        dtype_of(text)


@pytest.mark.parametrize("name", ["landscapes", "_a1", "Photos"])
def test_a_name_that_sql_understands_is_fine(name: str) -> None:
    check_table_name(name)


@pytest.mark.parametrize(
    "name", ["", "a b", "1a", "a.b", 'a"', "a;b", "b\u00e4ume", "a\n", "table"]
)
def test_other_names_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="cannot be queried by SQL; expected letters, digits"):
        check_table_name(name)


@pytest.mark.parametrize(
    ("check", "what"),
    [(predicate_of, "a condition"), (dtype_of, "a type"), (check_table_name, "a table's name")],
)
def test_what_is_no_text_is_refused(check: Any, what: str) -> None:
    with pytest.raises(TypeError, match=f"{what} must be text, got int"):
        check(3)
