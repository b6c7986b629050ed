"""Tables by name: what SQL reads of them, what it opens, and how names come and go."""

import os
import pickle
from collections.abc import Iterator
from inspect import signature
from pathlib import Path
from typing import Any

import daft
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from daft.exceptions import DaftCoreException
from daft.io import IOConfig, S3Config
from daft.session import Session

from daft_twinwds.errors import AlignmentError, LayoutError, SchemaError
from daft_twinwds.query.catalog import TwinTable, TwinUnion, attach
from daft_twinwds.query.catalog_table import OPTIONS
from daft_twinwds.query.read import read_twin_webdataset
from daft_twinwds.shards.stats import storage_stats
from daft_twinwds.testing import make_twin_dataset, write_tar

col: Any = daft.col  # Daft types its comparisons as truth values

GARBAGE = b"this is no tar" * 100


@pytest.fixture(autouse=True)
def session() -> Iterator[Session]:
    """A session of its own for each test."""
    with Session() as session:
        yield session


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Four shards of three samples, of scores 0, 1, 2 and so on."""
    return make_twin_dataset(
        tmp_path / "twins",
        num_shards=4,
        samples_per_shard=3,
        caption=lambda i: {"prompt": f"sample {i}", "score": float(i), "kind": "ab"[i % 2]},
    )


def tar(root: Path, modality: str, shard: int) -> Path:
    return root / modality / "part_000000" / f"{shard:06d}.tar"


def query(text: str) -> dict[str, Any]:
    return daft.sql(text).to_pydict()


def test_a_table_is_read_by_name_and_by_sql(root: Path) -> None:
    daft.attach_table(TwinTable("landscapes", root))

    assert daft.read_table("landscapes").to_arrow() == read_twin_webdataset(root).to_arrow()
    assert query("SELECT __key__ FROM landscapes WHERE caption.score > 9") == {
        "__key__": ["id_10", "id_11"]
    }
    assert query("SELECT __key__, caption.prompt AS p FROM landscapes WHERE __key__ = 'id_3'") == {
        "__key__": ["id_3"],
        "p": ["sample 3"],
    }
    assert query("SELECT * FROM landscapes LIMIT 2")["__key__"] == ["id_0", "id_1"]


def test_an_alias_may_be_another_name(root: Path) -> None:
    daft.attach_table(TwinTable("landscapes", root), "l")

    assert query("SELECT count(*) AS n FROM l") == {"n": [12]}
    with pytest.raises(Exception, match="Table not found: landscapes"):
        daft.sql("SELECT * FROM landscapes")


def test_the_schema_is_that_of_the_rows(root: Path) -> None:
    table = TwinTable("landscapes", root, picture_info=True)

    assert table.schema() == read_twin_webdataset(root, picture_info=True).schema()


def test_tables_are_grouped_and_joined(root: Path, tmp_path: Path) -> None:
    other = make_twin_dataset(
        tmp_path / "other",
        num_shards=1,
        samples_per_shard=5,
        caption=lambda i: {"prompt": f"other {i}", "rank": 10 - i},
    )
    attach([TwinTable("a", root), TwinTable("b", other)])

    joined = query(
        "SELECT a.__key__ AS k, a.caption.score AS s, r FROM a "
        "JOIN (SELECT __key__, caption.rank AS r FROM b WHERE caption.rank < 9) AS c "
        "ON a.__key__ = c.__key__ ORDER BY k"
    )
    grouped = query(
        "SELECT kind, count(*) AS n, max(score) AS best FROM "
        "(SELECT caption.kind AS kind, caption.score AS score FROM a) GROUP BY kind ORDER BY kind"
    )

    assert joined == {"k": ["id_2", "id_3", "id_4"], "s": [2.0, 3.0, 4.0], "r": [8, 7, 6]}
    assert grouped == {"kind": ["a", "b"], "n": [6, 6], "best": [10.0, 11.0]}


def test_a_filter_in_sql_opens_no_pictures_of_shards_without_a_match(root: Path) -> None:
    daft.attach_table(TwinTable("landscapes", root))
    some = daft.sql("SELECT __key__, image FROM landscapes WHERE caption.score > 9")
    all_rows = daft.sql("SELECT __key__, image FROM landscapes")
    for shard in (0, 1, 2):
        tar(root, "image", shard).write_bytes(GARBAGE)

    assert some.to_pydict()["__key__"] == ["id_10", "id_11"]
    with pytest.raises(DaftCoreException, match=r"image/part_000000/00000[012]\.tar"):
        all_rows.collect()


def test_a_condition_of_the_table_may_hold_functions_and_opens_as_little(root: Path) -> None:
    schema = {"image": daft.DataType.file()}
    table = TwinTable("last", root, where="caption.prompt LIKE '%e 1_'", schema=schema)
    for shard in (0, 1, 2):
        tar(root, "image", shard).write_bytes(GARBAGE)
    daft.attach_table(table)

    rows = query("SELECT __key__, image FROM last WHERE caption.score < 11")

    assert rows["__key__"] == ["id_10"]


def test_columns_that_sql_does_not_select_are_not_opened(root: Path) -> None:
    daft.attach_table(TwinTable("landscapes", root, schema={"image": daft.DataType.file()}))
    for shard in range(4):
        tar(root, "image", shard).write_bytes(GARBAGE)

    assert len(query("SELECT caption.score FROM landscapes")["score"]) == 12
    assert query("SELECT count(*) AS n FROM landscapes") == {"n": [12]}
    assert daft.read_table("landscapes").count_rows() == 12


def test_a_limit_in_sql_leaves_later_shards_alone(root: Path) -> None:
    daft.attach_table(TwinTable("landscapes", root))
    df = daft.sql("SELECT __key__, image FROM landscapes LIMIT 2")
    for shard in (1, 2, 3):
        tar(root, "image", shard).write_bytes(GARBAGE)

    assert df.to_pydict()["__key__"] == ["id_0", "id_1"]


def test_counting_reads_less_than_the_rows(tmp_path: Path) -> None:
    root = make_twin_dataset(tmp_path / "big", num_shards=2, image_size=(640, 480))
    daft.attach_table(TwinTable("landscapes", root, index="off"))
    df = daft.sql("SELECT __key__ FROM landscapes")
    before = storage_stats()

    assert df.count_rows() == 16

    assert 0 < (storage_stats() - before).bytes < tar(root, "image", 0).stat().st_size


def test_rows_that_came_since_are_there_at_the_next_query(root: Path) -> None:
    daft.attach_table(TwinTable("landscapes", root))
    before = daft.read_table("landscapes").count_rows()

    make_twin_dataset(root, num_shards=5, samples_per_shard=3)

    assert (before, daft.read_table("landscapes").count_rows()) == (12, 15)


def test_options_of_a_read_stand_in_for_the_table_s(root: Path) -> None:
    write_tar(tar(root, "caption", 0), [("id_0.json", b'{"prompt": "x"}')])
    daft.attach_table(TwinTable("landscapes", root))

    assert daft.read_table("landscapes", on_missing="skip").count_rows() == 10
    with pytest.raises(DaftCoreException, match=AlignmentError.__name__):
        daft.read_table("landscapes").collect()


def test_the_condition_of_a_read_adds_to_the_table_s(root: Path) -> None:
    table = TwinTable("landscapes", root, where=col("caption")["score"] > 8, columns=["__key__"])

    assert table.read(where="caption.score < 10").to_pydict() == {"__key__": ["id_9"]}
    assert table.read(where=col("caption")["score"] >= 11).to_pydict() == {"__key__": ["id_11"]}
    assert table.read().count_rows() == 3


def test_columns_are_those_of_the_table_in_its_order(root: Path) -> None:
    table = TwinTable("landscapes", root, ["caption"], columns=["caption", "__key__"])

    assert table.read().column_names == ["caption", "__key__"]
    assert TwinTable("t", root, {"text": "caption"}).read().column_names == [
        "__key__",
        "__url__",
        "text",
    ]
    with pytest.raises(ValueError, match=r"table 't': no column 'image'; the columns are \['__key"):
        TwinTable("t", root, ["caption"], columns=["image"]).read()


def test_a_condition_on_what_is_not_there_is_an_error_at_the_read(root: Path) -> None:
    table = TwinTable("landscapes", root, where="caption.nothing > 1")

    with pytest.raises(SchemaError, match=r"where: .*expected a condition on the columns"):
        table.read()


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"name": "a b"}, ValueError, "a table named 'a b' cannot be queried"),
        ({"where": "a >"}, ValueError, "'a >' is no condition in SQL"),
        ({"modality": 1}, ValueError, r"Unsupported option\(s\) for TwinTable.*'modality'"),
    ],
)
def test_wrong_arguments_of_a_table_are_refused(
    root: Path, arguments: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        TwinTable(**{"name": "t", "path": root, **arguments})


def test_wrong_options_of_a_read_are_refused(root: Path) -> None:
    with pytest.raises(ValueError, match=r"Unsupported option\(s\) for TwinTable\.read.*'path'"):
        TwinTable("t", root).read(path="elsewhere")


def test_a_table_takes_every_keyword_of_the_reader() -> None:
    reader = set(signature(read_twin_webdataset).parameters) - {"path", "modalities", "where"}

    assert reader == OPTIONS


def test_a_table_pickles_and_shows_no_secret(root: Path) -> None:
    secret = IOConfig(s3=S3Config(key_id="hunter2", access_key="hunter2"))
    table = TwinTable("t", root, where="caption.score > 9", columns=["__key__"], io_config=secret)
    union = TwinUnion("u", [table], weights={"t": 2})

    again, union_again = pickle.loads(pickle.dumps((table, union)))

    assert again.read().to_pydict() == {"__key__": ["id_10", "id_11"]}
    assert union_again.weights == {"t": 2}
    assert repr(again) == f"TwinTable('t', {str(root)!r})"
    assert repr(union_again) == "TwinUnion('u', ['t'])"
    with_password = TwinTable("t", ["https://me:hunter2@host/data?sig=hunter2", "s3://b/x"])
    assert repr(with_password) == "TwinTable('t', 'https://host/data', 's3://b/x')"


def test_what_is_attached_is_detached(root: Path) -> None:
    attached = attach([TwinTable("a", root), TwinTable("b", root)])

    assert (list(attached), len(attached), repr(attached)) == (
        ["a", "b"],
        2,
        "Attached(['a', 'b'])",
    )
    assert daft.get_table("a") is attached["a"]
    attached.detach()
    attached.detach()
    assert daft.list_tables() == []


def test_a_with_block_detaches_at_its_end_also_by_an_error(root: Path, session: Session) -> None:
    with attach(TwinTable("a", root)) as attached:
        assert attached["a"].read().count_rows() == 12
    gone = not session.has_table("a")
    with pytest.raises(Exception, match="Table not found: b"), attach(TwinTable("a", root)):
        daft.sql("SELECT * FROM a JOIN b ON true")

    assert gone
    assert not session.has_table("a")


def test_detaching_leaves_another_table_of_that_name(root: Path) -> None:
    first = attach(TwinTable("a", root))
    daft.detach_table("a")
    second = attach(TwinTable("a", root, columns=["__key__"]))

    first.detach()

    assert daft.get_table("a") is second["a"]


def test_detaching_is_from_the_session_that_it_was_attached_to(root: Path) -> None:
    attached = attach(TwinTable("a", root))
    with Session() as inner:
        inner.attach_table(TwinTable("a", root))
        attached.detach()
        assert inner.has_table("a")

    assert not daft.has_table("a")


def test_a_name_that_is_taken_is_refused_and_nothing_is_attached(root: Path) -> None:
    first = attach(TwinTable("b", root))

    with pytest.raises(ValueError, match=r"has a table 'b' already; .*daft\.detach_table\('b'\)"):
        attach([TwinTable("a", root), TwinTable("b", root), TwinTable("c", root)])

    assert daft.get_table("b") is first["b"]
    assert len(daft.list_tables()) == 1


def test_two_tables_of_one_name_are_refused(root: Path) -> None:
    with pytest.raises(ValueError, match="table 'a' twice"):
        attach([TwinTable("a", root), TwinTable("a", root)])

    assert daft.list_tables() == []


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"tables": [3]}, TypeError, "attach takes the path of a catalog file, .* got int"),
        ({"tables": [], "io_config": IOConfig()}, ValueError, "io_config is for a file's sources"),
    ],
)
def test_wrong_arguments_of_attach_are_refused(
    arguments: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        attach(**arguments)


def test_any_table_of_daft_can_be_attached_along(root: Path) -> None:
    scores = daft.from_pydict({"k": ["id_1", "id_5"], "good": [True, False]})

    attach([TwinTable("twins", root), daft.catalog.Table.from_df("scores", scores)])

    assert query("SELECT __key__ FROM twins JOIN scores ON __key__ = k WHERE good") == {
        "__key__": ["id_1"]
    }


def test_why_sql_finds_no_table_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """Daft drops the error of a table that cannot be read."""
    table = TwinTable("nothing", "/not/there")
    attach([table, TwinUnion("both", [table])])

    for name in ("nothing", "both"):
        with pytest.raises(Exception, match=f"Table not found: {name}"):
            daft.sql(f"SELECT * FROM {name}")
        with pytest.raises(LayoutError, match="/not/there: not found"):
            daft.read_table(name)
        assert f"table {name!r}: /not/there: not found" in caplog.text


def test_rows_are_appended_and_overwritten(root: Path, tmp_path: Path) -> None:
    source = TwinTable("source", root, where="caption.score < 2")
    table = TwinTable("copy", tmp_path / "copy", ["image", "caption"])
    other = source.read().with_column("__key__", col("__key__") + "_more")
    with attach([source, table]):
        daft.write_table("copy", source.read(), mode="overwrite")
        first = daft.read_table("copy").to_pydict()["__key__"]
        daft.write_table("copy", other, mode="append", max_shard_samples=1)
        both = daft.read_table("copy").to_pydict()
        table.overwrite(other)
        last = daft.read_table("copy").to_pydict()["__key__"]

    assert first == ["id_0", "id_1"]
    assert both["__key__"] == ["id_0", "id_1", "id_0_more", "id_1_more"]
    assert [caption["prompt"] for caption in both["caption"]] == ["sample 0", "sample 1"] * 2
    assert len(set(both["__url__"])) == 3
    assert last == ["id_0_more", "id_1_more"]


def test_columns_are_written_to_the_folders_that_they_are_read_from(
    root: Path, tmp_path: Path
) -> None:
    modalities = {"picture": "left/image", "text": "caption"}
    rows = TwinTable("s", root, {"picture": "image", "text": "caption"}).read()

    TwinTable("t", tmp_path / "new", modalities).append(rows)

    assert (tmp_path / "new" / "left" / "image").is_dir()
    assert TwinTable("t", tmp_path / "new", modalities).read().count_rows() == 12


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"where": "__key__ = 'x'"}, "it has where="),
        ({"columns": ["__key__"]}, "it has columns="),
        ({"include": "x"}, "it has include="),
        ({"sample_keys": "x.parquet"}, "it has sample_keys="),
        ({"path": ["a", "b"]}, "it has several paths"),
        ({"path": "data/*"}, r"its path '/.*/data/\*' may be a pattern"),
        ({"modalities": {"image": "/elsewhere"}}, "a modality of it has a root of its own"),
    ],
)
@pytest.mark.parametrize("method", ["append", "overwrite"])
def test_what_is_not_one_whole_data_set_is_not_written(
    tmp_path: Path, arguments: dict[str, Any], reason: str, method: str
) -> None:
    table = TwinTable(**{"name": "t", "path": tmp_path / "x", **arguments})

    with pytest.raises(ValueError, match=f"table 't': {reason}, so that .*write_twin_webdataset"):
        getattr(table, method)(daft.from_pydict({"__key__": ["x"], "text": ["y"]}))


def test_wrong_options_of_a_write_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"Unsupported option\(s\) for TwinTable\.append.*'mode'"):
        TwinTable("t", tmp_path).append(daft.from_pydict({"__key__": ["x"]}), mode="error")


@pytest.mark.parametrize("mode", ["bogus", "error", "Append", None])
def test_a_mode_that_is_none_overwrites_nothing(root: Path, tmp_path: Path, mode: Any) -> None:
    rows = TwinTable("s", root).read()
    table = TwinTable("t", tmp_path / "new")
    table.write(rows)

    with (
        attach(table),
        pytest.raises(ValueError, match="mode must be 'append' or 'overwrite', got"),
    ):
        daft.write_table("t", rows.limit(1), mode=mode)

    assert table.read().count_rows() == 12


def test_a_relative_path_is_that_of_the_folder_where_the_table_was_made(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "else[1]").mkdir()
    keys = tmp_path / "keys.parquet"
    pq.write_table(pa.table({"key": ["id_3", "id_1"]}), keys)
    monkeypatch.chdir(root.parent)
    one = TwinTable("one", root.name)
    several = TwinTable("several", [root.name, Path(root.name) / "nothing"])
    some = TwinTable("some", root.name, sample_keys=os.path.relpath(keys))
    monkeypatch.chdir(tmp_path / "else[1]")
    new = TwinTable("new", "new")
    new.append(one.read())
    monkeypatch.chdir("/")

    assert one.read().count_rows() == 12
    assert set(some.read().to_pydict()["__key__"]) == {"id_1", "id_3"}
    assert repr(several) == f"TwinTable('several', {str(root)!r}, {str(root / 'nothing')!r})"
    new.overwrite(one.read().limit(3))
    assert new.read().count_rows() == 3
    assert (tmp_path / "else[1]/new/wdinfo.json").is_file()


def test_what_is_no_path_makes_no_table() -> None:
    path: Any
    for path, kind in (("", ValueError), ([], ValueError), (b"x", TypeError), ({}, TypeError)):
        with pytest.raises(kind, match="path must"):
            TwinTable("t", path)
