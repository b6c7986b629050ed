"""Catalog files: TOML and YAML say the same, and what is wrong is named by file and key."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import daft
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from daft.io import IOConfig, S3Config
from daft.session import Session

from daft_twinwds.errors import LayoutError, MissingDependencyError, StorageError
from daft_twinwds.query.catalog import TwinTable, TwinUnion, attach, tables_of
from daft_twinwds.query.catalog_file import DatasetEntry, PartEntry, load_catalog_file
from daft_twinwds.testing import make_twin_dataset

TOML = """
[sources.photos]
root = "data/photos"
modalities = ["image", "caption"]
where = "caption.score >= 2"
weight = 3
on_missing = "null"
on_error = "skip"
key_split = "first"
extra_fields = "ignore"
index = "off"
include = "new"
exclude = ["old"]
picture_info = true
batch_size = 2
sample_keys = "keys.parquet"

[sources.paintings]
root = ["data/paintings", "/elsewhere/p", "s3://bucket/p", "file:///x", "~/p"]
modalities = { text = "caption" }
schema = { text = "struct<prompt text, score double>" }
aspect_ratios = ["16,9"]

[sources.sketches]
root = "data/sketches"

[datasets.art]
sources = [
    "photos",
    { source = "sketches", where = "caption.score < 2", columns = ["caption", "__key__"], weight = 0.5 },
]
"""
YAML = """
sources:
  photos:
    root: data/photos
    modalities: [image, caption]
    where: caption.score >= 2
    weight: 3
    on_missing: "null"
    on_error: skip
    key_split: first
    extra_fields: ignore
    index: "off"
    include: new
    exclude: [old]
    picture_info: true
    batch_size: 2
    sample_keys: keys.parquet
  paintings:
    root: [data/paintings, /elsewhere/p, s3://bucket/p, "file:///x", ~/p]
    modalities: {text: caption}
    schema: {text: "struct<prompt text, score double>"}
    aspect_ratios: ["16,9"]
  sketches: {root: data/sketches}
datasets:
  art:
    sources:
      - photos
      - source: sketches
        where: caption.score < 2
        columns: [caption, __key__]
        weight: 0.5
"""


@pytest.fixture(autouse=True)
def session() -> Iterator[Session]:
    """A session of its own for each test."""
    with Session() as session:
        yield session


def write(folder: Path, content: str, name: str = "twins.toml") -> Path:
    path = folder / name
    path.write_text(content)
    return path


def test_toml_and_yaml_say_the_same(tmp_path: Path) -> None:
    from_toml = load_catalog_file(write(tmp_path, TOML))

    assert load_catalog_file(write(tmp_path, YAML, "twins.yaml")) == from_toml
    assert load_catalog_file(write(tmp_path, YAML, "twins.YML")) == from_toml


def test_everything_in_a_file_is_taken_over(tmp_path: Path) -> None:
    catalog = load_catalog_file(write(tmp_path, TOML))

    photos, paintings, sketches = catalog.sources
    assert photos.root == (str(tmp_path / "data/photos"),)
    assert photos.modalities == ("image", "caption")
    assert photos.where == "caption.score >= 2"
    assert photos.options == {
        "on_missing": "null",
        "on_error": "skip",
        "key_split": "first",
        "extra_fields": "ignore",
        "index": "off",
        "include": ("new",),
        "exclude": ("old",),
        "picture_info": True,
        "batch_size": 2,
        "sample_keys": str(tmp_path / "keys.parquet"),
    }
    assert paintings.root == (
        str(tmp_path / "data/paintings"),
        "/elsewhere/p",
        "s3://bucket/p",
        "file:///x",
        str(Path("~/p").expanduser()),
    )
    assert paintings.modalities == {"text": "caption"}
    assert str(paintings.options["schema"]["text"]) == "Struct[prompt: String, score: Float64]"
    assert (sketches.modalities, sketches.where, sketches.options) == (None, None, {})
    first = PartEntry(source="photos", where=None, columns=None, weight=3)
    second = PartEntry(
        source="sketches", where="caption.score < 2", columns=("caption", "__key__"), weight=0.5
    )
    assert catalog.datasets == (DatasetEntry(name="art", parts=(first, second)),)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The data sets of the file, four samples each; not in the current folder."""
    for name, below in (("photos", "new"), ("paintings", ""), ("sketches", "")):
        make_twin_dataset(
            tmp_path / "data" / name / below,
            num_shards=2,
            samples_per_shard=2,
            caption=lambda i: {"prompt": f"{name} {i}", "score": float(i)},  # noqa: B023
        )
    pq.write_table(pa.table({"key": ["id_3", "id_1", "id_2"]}), tmp_path / "keys.parquet")
    return tmp_path


@pytest.mark.parametrize(("content", "name"), [(TOML, "twins.toml"), (YAML, "twins.yaml")])
def test_a_file_s_names_are_queried(folder: Path, content: str, name: str) -> None:
    attached = attach(write(folder, content, name))

    assert list(attached) == ["photos", "paintings", "sketches", "art"]
    assert daft.sql("SELECT __key__ FROM photos").to_pydict() == {"__key__": ["id_3", "id_2"]}
    assert daft.sql(
        "SELECT __source__, __key__, caption.prompt AS p FROM art WHERE caption.score <> 3"
    ).to_pydict() == {
        "__source__": ["photos", "sketches", "sketches"],
        "__key__": ["id_2", "id_0", "id_1"],
        "p": ["photos 2", "sketches 0", "sketches 1"],
    }
    art = attached["art"]
    assert isinstance(art, TwinUnion)
    assert art.weights == {"photos": 3, "sketches": 0.5}
    assert art.read(sources=["sketches"]).to_pydict()["image"] == [None, None]


def test_conditions_of_a_source_and_its_part_hold_both(folder: Path) -> None:
    content = """
    [sources.a]
    root = "data/photos"
    where = "caption.score = 0 OR caption.score > 2"
    [datasets.b]
    sources = [{ source = "a", where = "caption.score = 1 OR caption.score < 3" }]
    """

    (_, union) = tables_of(load_catalog_file(write(folder, content)))

    assert union.read().to_pydict()["__key__"] == ["id_0"]


def test_a_relative_path_of_the_file_is_of_the_current_folder(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(folder, '[sources.a]\nroot = "photos"', "data/twins.toml")
    monkeypatch.chdir(folder)

    with attach("data/twins.toml"):
        assert daft.read_table("a").count_rows() == 4


def test_credentials_come_beside_the_file(tmp_path: Path) -> None:
    config = IOConfig(s3=S3Config(key_id="hunter2"))

    tables = tables_of(load_catalog_file(write(tmp_path, TOML)), io_config=config)

    sources = [table for table in tables if isinstance(table, TwinTable)]
    (union,) = (table for table in tables if isinstance(table, TwinUnion))
    assert [source._options["io_config"] for source in sources] == [config] * 3
    assert [source._options["io_config"] for source in union.sources.values()] == [config] * 2
    assert "hunter2" not in repr(tables)


def test_reading_a_file_looks_at_no_data(tmp_path: Path) -> None:
    attached = attach(write(tmp_path, TOML))

    with pytest.raises(LayoutError, match="data/sketches"):
        attached["sketches"].read()


A = '[sources.a]\nroot = "x"\n'


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "sources: found no named tables; expected some, as [sources.NAME]"),
        ("[sources]", "sources: found no named tables"),
        ("sources = 3", "sources: found no named tables"),
        (A + "[tables.x]", "tables: no such key; expected one of ['sources', 'datasets']"),
        ("[sources]\na = 'x'", "sources.a: found text; expected a table with keys of ['root', "),
        ("[sources.a]", "sources.a: no 'root'; expected it; add the key"),
        (A + "modality = []", "sources.a.modality: no such key; expected one of ['root', 'moda"),
        (
            "[sources.a]\nroot = 3",
            "sources.a.root: found a number; expected a list of texts; put q",
        ),
        ("[sources.a]\nroot = ''", "sources.a.root: found an empty text; expected text"),
        ("[sources.a]\nroot = []", "sources.a.root: found an empty list; expected a list of texts"),
        ("[sources.a]\nroot = ['x', 3]", "sources.a.root[1]: found a number; expected text"),
        (A + "modalities = 'x'", "sources.a.modalities: found text; expected a list of folders"),
        (A + "modalities = {}", "sources.a.modalities: found an empty table; expected a list"),
        (A + "modalities = {x = 1}", "sources.a.modalities.x: found a number; expected text"),
        (A + "where = 'x >'", "sources.a.where: 'x >' is no condition in SQL ("),
        (A + "where = true", "sources.a.where: found true or false; expected text; put quotes"),
        (A + "weight = 0", "sources.a.weight: found 0; expected a finite number above 0"),
        (A + "weight = inf", "sources.a.weight: found inf; expected a finite number above 0"),
        (A + "weight = nan", "sources.a.weight: found nan; expected a finite number above 0"),
        (A + "weight = true", "sources.a.weight: found true or false; expected a number above 0"),
        (A + "on_missing = 'fail'", "sources.a.on_missing: found 'fail'; expected one of ('error'"),
        (A + "index = false", "sources.a.index: found true or false; expected one of ('auto', "),
        (A + "picture_info = 'yes'", "sources.a.picture_info: found text; expected true or false"),
        (A + "batch_size = 0", "sources.a.batch_size: found a number; expected a whole number of"),
        (A + "aspect_ratios = [16.9]", "sources.a.aspect_ratios[0]: found a number; expected text"),
        (A + "include = 1979-05-27", "sources.a.include: found a date or time; expected a list"),
        (A + "schema = {x = 'nonsense'}", "sources.a.schema.x: 'nonsense' is no type in SQL ("),
        (A + "schema = 'text'", "sources.a.schema: found text; expected a table of column = type"),
        (
            "[sources.'a b']\nroot='x'",
            "sources.'a b': a table named 'a b' cannot be queried by SQL",
        ),
        ("[sources.table]\nroot='x'", "sources.table: a table named 'table' cannot be queried"),
        (A + "[datasets.a]\nsources=['a']", "datasets.a: a source has this name as well; expected"),
        (A + "[datasets.b]", "datasets.b: no 'sources'; expected it"),
        (A + "[datasets.b]\nsources='a'", "datasets.b.sources: expected a list of the names of"),
        (A + "[datasets.b]\nsources=[]", "datasets.b.sources: expected a list of the names of"),
        (
            A + "[datasets.b]\nsources=[3]",
            "datasets.b.sources[0]: found a number; expected a table",
        ),
        (
            A + "[datasets.b]\nsources=['c']",
            "datasets.b.sources[0]: no source 'c'; expected one of",
        ),
        (
            A + "[datasets.b]\nsources=['a', 'a']",
            "datasets.b.sources[1]: source 'a' is in the list",
        ),
        (
            A + "[datasets.b]\nsources=['b']",
            "datasets.b.sources[0]: 'b' is a data set; expected so",
        ),
        (
            A + "[datasets.b]\nsources=['c']\n[datasets.c]\nsources=['b']",
            "datasets.b.sources[0]: 'c' is a data set; expected sources",
        ),
        (A + "[datasets.b]\nsources=[{where='x > 1'}]", "datasets.b.sources[0]: no 'source'"),
        (
            A + "[datasets.b]\nsources=[{source='a', where='x >'}]",
            "datasets.b.sources[0].where: 'x >' is no condition in SQL",
        ),
        (
            A + "[datasets.b]\nsources=[{source='a', on_missing='skip'}]",
            "datasets.b.sources[0].on_missing: no such key; expected one of ['source', 'where', ",
        ),
        (A + "[datasets.b]\nweight = 1", "datasets.b.weight: no such key; expected one of ['sour"),
        ("root = what", ": no TOML (Invalid value (at line 1, column 8)); mend the file"),
        ("x = " + "[" * 5000, ": no TOML (nested too deeply); mend the file"),
    ],
)
def test_what_is_wrong_is_named_by_file_and_key(tmp_path: Path, content: str, message: str) -> None:
    path = write(tmp_path, content)

    with pytest.raises(LayoutError) as caught:
        attach(path)

    assert str(path) in str(caught.value)
    assert message in str(caught.value)
    assert daft.list_tables() == []


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("sources: [", ": no YAML ("),
        (
            "sources:\n  a: {root: x}\n  a: {root: y}\n",
            ": no YAML (a key is there twice at line 2)",
        ),
        ("sources: {a: {root: x, on_missing: null}}", "found nothing (null); expected one of"),
        ("sources: {a: {root: x, aspect_ratios: [16:9]}}", "[0]: found a number; expected text; p"),
        ("sources: {1: {root: x}}", "sources.1: a table's name must be text, got int"),
        (
            "sources: {a: {root: !!python/object/apply:os.getcwd []}}",
            "could not determine a constr",
        ),
        ("sources: {a: {root: 2026-13-45}}", "no YAML (something that YAML cannot hold)"),
        ("{1: 2}", ": 1: no such key; expected one of ['sources', 'datasets']"),
        ("- a", ": found a list; expected a table"),
        ("", ": found nothing (null); expected a table"),
        ("[" * 5000, ": no YAML ("),
        ("sources: !!map [a]", ": no YAML (expected a mapping node, but found sequence at line 1)"),
        ("sources: !!map a", ": no YAML (expected a mapping node, but found scalar at line 1)"),
    ],
)
def test_what_is_wrong_in_yaml_is_named_too(tmp_path: Path, content: str, message: str) -> None:
    path = write(tmp_path, content, "twins.yml")

    with pytest.raises(LayoutError, match=re.escape(message)) as caught:
        attach(path)

    assert str(path) in str(caught.value)


def test_keys_merged_from_an_anchor_are_no_doubles(tmp_path: Path) -> None:
    content = "sources:\n  a: &a {root: x}\n  b:\n    <<: *a\n    root: y\n"

    catalog = load_catalog_file(write(tmp_path, content, "twins.yaml"))

    assert [entry.root for entry in catalog.sources] == [
        (str(tmp_path / "x"),),
        (str(tmp_path / "y"),),
    ]


SECRETS = [
    f"[sources.a]\nroot = 'x'\n{line}"
    for line in (
        "key_id = 'hunter2'",
        "access_key = 'hunter2'",
        "session-token = 'hunter2'",
        "io_config = {s3 = {key_id = 'hunter2'}}",
        "s3 = {access_key = 'hunter2'}",
        "Password = 'hunter2'",
    )
]


@pytest.mark.parametrize("content", SECRETS)
def test_credentials_in_a_file_are_refused_and_not_shown(tmp_path: Path, content: str) -> None:
    with pytest.raises(LayoutError, match=r"credentials .* do not belong in this file.*io_config="):
        check_not_shown(tmp_path, content, "twins.toml")


@pytest.mark.parametrize(
    ("content", "name"),
    [
        ("[sources.a]\nroot = 'https://me:hunter2@host/x'", "a.toml"),
        ("[sources.a]\nroot = 'https://host/x?sig=hunter2'", "a.toml"),
        ("[sources.a]\nroot = 'x'\nmodalities = {i = 's3://k:hunter2@b/i'}", "a.toml"),
        ("[sources.a]\nroot = hunter2", "a.toml"),
        ("[sources.a]\nroot = 'x'\nkey_id = 'hunter2\n", "a.toml"),
        ("sources: {a: {root: x, key_id: hunter2", "a.yaml"),
        ("sources:\n  a:\n    key_id: hunter2\n   x: 1", "a.yaml"),
        ("sources: {a: {root: x, access_key: 'hunter2}}", "a.yaml"),
        ("- hunter2", "a.yaml"),
        ("sources: {a: {root: x, batch_size: hunter2}}", "a.yaml"),
    ],
)
def test_what_is_wrong_shows_no_value_that_may_be_secret(
    tmp_path: Path, content: str, name: str
) -> None:
    with pytest.raises(LayoutError):
        check_not_shown(tmp_path, content, name)


def check_not_shown(folder: Path, content: str, name: str) -> None:
    """Check the error and all that led to it, as a traceback shows them."""
    try:
        attach(write(folder, content, name))
    except LayoutError as error:
        cause: BaseException | None = error
        while cause is not None:
            assert "hunter2" not in str(cause)
            cause = cause.__cause__ or cause.__context__
        raise


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("twins.json", "no catalog by its name; expected .toml, .yaml or .yml"),
        ("s3://bucket/twins.toml", "a catalog on a server; expected a local file"),
    ],
)
def test_other_files_are_refused(name: str, message: str) -> None:
    with pytest.raises(LayoutError, match=re.escape(message)):
        attach(name)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=r"twins\.toml: cannot be read \(No such file"):
        attach(tmp_path / "twins.toml")
    (tmp_path / "latin.toml").write_bytes(b"# \xe4")
    with pytest.raises(LayoutError, match=r"latin\.toml: byte 2 is no UTF-8; expected text"):
        attach(tmp_path / "latin.toml")


def test_yaml_without_its_package_names_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "yaml", None)

    with pytest.raises(MissingDependencyError, match=r"pip install 'daft-twinwds\[yaml\]'"):
        attach(write(tmp_path, YAML, "twins.yaml"))
    assert next(iter(attach(write(tmp_path, TOML)))) == "photos"
