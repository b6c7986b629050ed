"""Several tables as one: columns by name, types that hold all, and which source a row is of."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import daft
import pytest
from daft.exceptions import DaftCoreException
from daft.session import Session
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from daft_twinwds.errors import SchemaError
from daft_twinwds.query.catalog import TwinTable, TwinUnion, attach
from daft_twinwds.testing import make_twin_dataset, write_tar
from daft_twinwds.train import Mix, Selection, TwinLoader

col: Any = daft.col  # Daft types its comparisons as truth values

GARBAGE = b"this is no tar" * 100
TAR = "part_000000/000000.tar"

Make = Callable[..., TwinTable]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """Make a table of one shard and two samples, with these captions."""

    def make(name: str, caption: Callable[[int], dict[str, Any]], **options: Any) -> TwinTable:
        root = make_twin_dataset(
            tmp_path / name, num_shards=1, samples_per_shard=2, caption=caption
        )
        return TwinTable(name, root, **options)

    return make


def dtypes_of(df: daft.DataFrame) -> dict[str, str]:
    return {field.name: str(field.dtype) for field in df.schema()}


def test_rows_of_the_sources_follow_each_other_and_name_them(make: Make) -> None:
    union = TwinUnion(
        "all",
        [make("b", lambda i: {"prompt": f"b{i}"}), make("a", lambda i: {"prompt": f"a{i}"})],
    )

    rows = union.read().to_pydict()

    assert list(rows) == ["__key__", "__url__", "image", "caption", "__source__"]
    assert rows["__source__"] == ["b", "b", "a", "a"]
    assert [caption["prompt"] for caption in rows["caption"]] == ["b0", "b1", "a0", "a1"]
    assert all(isinstance(file, daft.File) for file in rows["image"])
    assert union.schema() == union.read().schema()


def test_structs_have_the_fields_of_all_and_integers_become_floats(make: Make) -> None:
    first = make("a", lambda i: {"prompt": "x", "score": i, "box": {"w": 1}, "tags": [1]})
    second = make("b", lambda i: {"score": i / 2, "box": {"h": 2}, "tags": [0.5], "more": True})

    df = TwinUnion("all", [first, second]).read().exclude("image", "__url__")

    caption = df.schema()["caption"].dtype
    assert str(caption) == (
        "Struct[prompt: String, prompt_medium: String, prompt_short: String, score: Float64, "
        "box: Struct[w: Int64, h: Int64], tags: List[Float64], more: Bool]"
    )
    rows = df.to_pydict()["caption"]
    assert [row["score"] for row in rows] == [0.0, 1.0, 0.0, 0.5]
    assert [row["box"] for row in rows] == [{"w": 1, "h": None}] * 2 + [{"w": None, "h": 2}] * 2
    assert [row["tags"] for row in rows] == [[1.0], [1.0], [0.5], [0.5]]
    assert [row["more"] for row in rows] == [None, None, True, True]


def test_a_column_that_a_source_lacks_is_null_there(make: Make) -> None:
    first = make("a", lambda i: {"prompt": "x"}, columns=["__key__", "caption"])
    second = make("b", lambda i: {"prompt": "y"}, picture_info=True)

    rows = TwinUnion("all", [first, second]).read().to_pydict()

    assert list(rows)[-1] == "__source__"
    assert rows["image_width"] == [None, None, 64, 64]
    assert [file is None for file in rows["image"]] == [True, True, False, False]
    assert rows["__url__"][:2] == [None, None]


def test_files_of_different_media_become_plain_files(make: Make, tmp_path: Path) -> None:
    write_tar(tmp_path / "b" / "media" / TAR, [("k.mp4", b"x")])
    write_tar(tmp_path / "a" / "media" / TAR, [("k.jpg", b"y")])
    tables = [TwinTable(name, tmp_path / name) for name in "ab"]

    df = TwinUnion("all", tables).read()

    assert dtypes_of(df)["media"] == "File[Unknown]"
    assert [file.position for file in df.to_pydict()["media"]] == [512, 512]


def test_integers_of_two_widths_become_the_wider(tmp_path: Path) -> None:
    write_tar(tmp_path / "label" / TAR, [("k.cls", b"3")])
    narrow = TwinTable("narrow", tmp_path, schema={"label": daft.DataType.int8()})

    df = TwinUnion("all", [narrow, TwinTable("wide", tmp_path)]).read()

    assert dtypes_of(df)["label"] == "Int64"
    assert df.to_pydict()["label"] == [3, 3]


def test_types_that_contradict_each_other_are_refused_with_their_field(make: Make) -> None:
    first = make("a", lambda i: {"box": [{"score": None}]})
    second = make("b", lambda i: {"box": [{"score": 0.5}]})

    with pytest.raises(
        SchemaError,
        match=r"union 'all': caption\.box\[\]\.score: Float64 in source 'b' and String in those "
        r"before it; .*declare the column's type with schema",
    ):
        TwinUnion("all", [first, second]).read()


def test_a_declared_type_settles_a_contradiction(make: Make) -> None:
    schema = {"caption": daft.DataType.struct({"score": daft.DataType.float64()})}
    first = make("a", lambda i: {"score": None}, schema=schema)
    second = make("b", lambda i: {"score": 0.5})

    rows = TwinUnion("all", [first, second]).read().to_pydict()["caption"]

    assert [row["score"] for row in rows] == [None, None, 0.5, 0.5]


def test_a_column_named_as_the_source_s_is_refused(tmp_path: Path) -> None:
    write_tar(tmp_path / "label" / TAR, [("k.cls", b"3")])
    table = TwinTable("a", tmp_path, {"__source__": "label"})

    with pytest.raises(
        SchemaError, match=r"source 'a' has a column '__source__'; expected another"
    ):
        TwinUnion("all", [table]).read()


def test_filters_and_projections_reach_the_scans_of_all_sources(make: Make) -> None:
    first = make("a", lambda i: {"prompt": "x", "score": i})
    second = make("b", lambda i: {"prompt": "x", "score": 10.5, "more": 1})
    with Session():
        attach(TwinUnion("everything", [first, second]))
        df = daft.sql("SELECT __key__, image FROM everything WHERE caption.score > 5")
        counted = daft.sql("SELECT caption.score FROM everything")
        opened = daft.sql("SELECT image FROM everything")
        image_of(first).write_bytes(GARBAGE)

        assert df.to_pydict()["__key__"] == ["id_0", "id_1"]
        image_of(second).write_bytes(GARBAGE)
        assert counted.count_rows() == 4
        with pytest.raises(DaftCoreException, match=r"image/part_000000/000000\.tar"):
            opened.collect()


def image_of(table: TwinTable) -> Path:
    return Path(table._path) / "image" / TAR  # type: ignore[arg-type]


def test_only_the_sources_that_are_asked_for_are_scanned_with_the_columns_of_all(
    make: Make,
) -> None:
    first = make("a", lambda i: {"prompt": "x"})
    second = make("b", lambda i: {"prompt": "x", "more": 1})
    union = TwinUnion("everything", [first, second])
    only_first, only_second = union.read(sources=["a"]), union.read(sources=["b"])
    image_of(first).write_bytes(GARBAGE)

    assert only_second.to_pydict()["__source__"] == ["b", "b"]
    assert only_first.schema() == only_second.schema()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sources": ["c"]}, r"sources: no source 'c'; the sources are \['a'\]"),
        ({"sources": []}, "would read nothing"),
        ({"where": "x"}, r"Unsupported option\(s\) for TwinUnion\.read"),
        ({"schema": {}}, r"Unsupported option\(s\) for TwinUnion\.read"),
    ],
)
def test_wrong_options_of_a_read_are_refused(
    tmp_path: Path, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        TwinUnion("all", [TwinTable("a", tmp_path)]).read(**options)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"sources": []}, ValueError, "expected one or more different names"),
        ({"sources": [TwinTable("a", "x"), TwinTable("a", "y")]}, ValueError, "different names"),
        ({"sources": ["a"]}, TypeError, "sources must be TwinTables, got str"),
        ({"weights": {"b": 1}}, ValueError, "weights: no source 'b'"),
        ({"name": "a b"}, ValueError, "cannot be queried by SQL"),
    ],
)
def test_wrong_arguments_of_a_union_are_refused(
    arguments: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        TwinUnion(**{"name": "all", "sources": [TwinTable("a", "x")], **arguments})


def test_a_mode_that_is_none_is_refused_before_a_union_s_writing_is() -> None:
    union: Any = TwinUnion("everything", [TwinTable("a", "x")])
    df = daft.from_pydict({"__key__": ["x"]})

    with pytest.raises(ValueError, match="table 'everything': mode must be 'append' or 'overwrit"):
        union.write(df, "bogus")
    with pytest.raises(NotImplementedError, match="cannot be written"):
        union.write(df, "append")


@pytest.mark.parametrize("method", ["append", "overwrite"])
def test_a_union_cannot_be_written(method: str) -> None:
    union = TwinUnion("everything", [TwinTable("a", "x")])

    with pytest.raises(NotImplementedError, match=r"union 'everything' of \['a'\] cannot be writ"):
        getattr(union, method)(daft.from_pydict({"__key__": ["x"]}))


def test_options_of_a_read_reach_all_sources(make: Make) -> None:
    first = make("a", lambda i: {"prompt": "x"})
    write_tar(Path(first._path) / "caption" / TAR, [("id_0.json", b"{}")])  # type: ignore[arg-type]
    union = TwinUnion("everything", [first, make("b", lambda i: {"prompt": "x"})])

    assert union.read(on_missing="skip").count_rows() == 3


def test_a_mix_for_training_is_made_of_the_frames_and_weights(make: Make) -> None:
    first = make("a", lambda i: {"prompt": f"a{i}"})
    second = make("b", lambda i: {"prompt": f"b{i}", "more": 1})
    union = TwinUnion("everything", [first, second], weights={"a": 3})
    parts = {
        name: (Selection.from_dataframe(df), union.weights[name])
        for name, df in union.frames().items()
    }

    loader = TwinLoader(
        Mix(parts, stop="endless"), batch_size=8, decode={}, epochs=None, num_threads=1
    )
    batch = next(iter(loader))

    assert union.weights == {"a": 3, "b": 1}
    assert sorted(batch["__source__"]) == ["a"] * 6 + ["b"] * 2


numbers = st.integers(-(2**53), 2**53) | st.floats(-1e6, 1e6)
documents = st.fixed_dictionaries(
    {},
    optional={
        "prompt": st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=5),
        "number": numbers,
        "box": st.fixed_dictionaries({}, optional={"w": numbers, "tags": st.lists(numbers)}),
    },
)


@settings(max_examples=15)
@given(captions=st.lists(st.lists(documents, min_size=1, max_size=3), min_size=1, max_size=3))
def test_a_union_has_the_rows_of_each_source_with_nulls_for_what_it_lacks(
    captions: list[list[dict[str, Any]]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Whatever each source's own fields are inferred to be."""
    root = tmp_path_factory.mktemp("twins")
    for number, texts in enumerate(captions):
        members = [(f"k{i}.json", json.dumps(text).encode()) for i, text in enumerate(texts)]
        write_tar(root / f"s{number}" / "caption" / TAR, members)
    tables = [TwinTable(f"s{number}", root / f"s{number}") for number in range(len(captions))]

    try:
        rows = TwinUnion("everything", tables).read().to_pydict()
    except SchemaError as error:
        # A field without a value in one source is text there, and nothing but text joins it.
        if "that was always null is taken for text" not in str(error):
            raise
        reject()

    fields = rows["caption"]
    expected = [text for texts in captions for text in texts]
    assert rows["__source__"] == [f"s{n}" for n, texts in enumerate(captions) for _ in texts]
    assert [without_nulls(row) for row in fields] == [without_nulls(text) for text in expected]
    assert len({tuple(row) for row in fields}) == 1


def without_nulls(value: Any) -> Any:
    """Return a document without its nulls and what holds nothing else."""
    if not isinstance(value, dict):
        return value
    left = {name: without_nulls(item) for name, item in value.items()}
    return {name: item for name, item in left.items() if item not in (None, {}, "{}")}
