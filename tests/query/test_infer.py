"""What columns a data set is found to have."""

import json
import os
import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import daft
import pytest
from daft.datatype import MediaType
from hypothesis import given
from hypothesis import strategies as st

from daft_twinwds.errors import AlignmentError, SchemaError, TarFormatError
from daft_twinwds.query import infer, text
from daft_twinwds.query.infer import infer_columns
from daft_twinwds.query.schema import Column
from daft_twinwds.shards.align import OnMissing
from daft_twinwds.shards.layout import find_dataset
from daft_twinwds.shards.samples import KeySplit
from daft_twinwds.testing import write_tar

Shard = Mapping[str, bytes]

STRING = daft.DataType.string()
INT64 = daft.DataType.int64()
FLOAT64 = daft.DataType.float64()
PROMPTS = {"prompt": STRING, "prompt_medium": STRING, "prompt_short": STRING}
IMAGE = daft.DataType.file(MediaType.image())
FILE = daft.DataType.file()


def struct(**fields: daft.DataType) -> daft.DataType:
    dtype: daft.DataType = daft.DataType.struct(fields)
    return dtype


def write_modality(root: Path, modality: str, shards: Sequence[Shard]) -> None:
    for number, members in enumerate(shards):
        write_tar(root / modality / "part_000000" / f"{number:06d}.tar", members.items())


def documents(*values: object) -> Shard:
    """Members of a JSON modality; bytes are taken as they are."""
    return {
        f"id_{number}.json": value if isinstance(value, bytes) else json.dumps(value).encode()
        for number, value in enumerate(values)
    }


def columns_of(
    root: Path,
    *,
    schema: Mapping[str, Any] | None = None,
    key_split: KeySplit = "last",
    strict: bool = True,
    on_missing: OnMissing = "error",
) -> dict[str, Column]:
    dataset = find_dataset(root, on_missing=on_missing)
    columns = infer_columns(dataset, schema or {}, key_split=key_split, strict=strict, index="off")
    assert [column.name for column in columns] == list(dataset.modalities)
    return {column.name: column for column in columns}


def dtype_of(root: Path, modality: str, shards: Sequence[Shard], **options: Any) -> daft.DataType:
    """Type that is inferred for the only modality of a data set."""
    write_modality(root, modality, shards)
    return columns_of(root, **options)[modality].dtype


def field_of(dtype: daft.DataType, name: str) -> daft.DataType:
    return dict(dtype.fields.items())[name]


@pytest.mark.parametrize(
    ("members", "kind", "dtype", "suffixes"),
    [
        pytest.param({"a.json": b'{"x": 1}'}, "json", struct(x=INT64), {"json"}, id="json"),
        pytest.param({"a.txt": b"5", "b.text": b""}, "text", STRING, {"txt", "text"}, id="text"),
        pytest.param(
            {"a.cls": b"5", "b.id": b""}, "integer", INT64, {"cls", "id", "index"}, id="integer"
        ),
        pytest.param({"a.npy": b"", "b.pickle": b""}, "file", FILE, None, id="other-files"),
        pytest.param({"a.png": b"", "b.mp4": b""}, "file", FILE, None, id="several-media"),
    ],
)
def test_suffixes_decide_what_a_modality_holds(
    tmp_path: Path, members: Shard, kind: str, dtype: daft.DataType, suffixes: set[str] | None
) -> None:
    write_modality(tmp_path, "extra", [members])

    column = columns_of(tmp_path)["extra"]

    assert (column.kind, column.dtype, column.suffixes) == (kind, dtype, suffixes)
    assert not column.declared


def test_suffixes_are_known_in_any_case(tmp_path: Path) -> None:
    members = {"id_0.JPG": b"", "id_1.Jpeg": b"", "id_2.jpg": b"", "id_3.PNG": b""}
    write_modality(tmp_path, "image", [members])

    column = columns_of(tmp_path)["image"]

    assert column.dtype == IMAGE
    assert column.suffixes is not None
    assert column.suffixes >= {"jpg", "jpeg", "png"}


def test_a_column_per_modality_comes_in_the_order_of_the_data_set(tmp_path: Path) -> None:
    write_modality(tmp_path, "image", [{"a.jpg": b""}])
    write_modality(tmp_path, "caption", [documents({"prompt": "x"})])
    write_modality(tmp_path, "label", [{"a.cls": b"1"}])

    columns = columns_of(tmp_path)

    assert list(columns) == list(find_dataset(tmp_path).modalities)
    assert {name: column.kind for name, column in columns.items()} == {
        "image": "file",
        "caption": "json",
        "label": "integer",
    }


def test_a_modality_of_two_kinds_is_refused_with_both_members(tmp_path: Path) -> None:
    write_modality(tmp_path, "caption", [documents({}), {"id_1.txt": b"x"}])

    with pytest.raises(
        SchemaError,
        match=r"caption: one column cannot hold .*000000.tar: 'id_0.json' \(json\) and "
        r".*000001.tar: 'id_1.txt' \(text\); expected members of one kind; .*"
        r"schema=\{'caption': daft.DataType.file\(\)\}",
    ):
        columns_of(tmp_path)


def test_with_the_first_dot_a_compound_suffix_is_a_plain_file(tmp_path: Path) -> None:
    write_modality(tmp_path, "mask", [{"id_0.mask.png": b"", "id_1.mask.png": b""}])

    assert columns_of(tmp_path, key_split="last")["mask"].dtype == IMAGE
    assert columns_of(tmp_path, key_split="first")["mask"].dtype == FILE


def test_a_declared_column_is_taken_as_it_is(tmp_path: Path) -> None:
    write_modality(tmp_path, "caption", [{"id_0.json": b"broken", "id_1.txt": b""}])
    write_modality(tmp_path, "image", [{"id_0.jpg": b"", "id_1.jpg": b""}])

    columns = columns_of(tmp_path, schema={"caption": STRING})

    assert columns["caption"].kind == "text"
    assert columns["caption"].declared
    assert columns["image"].dtype == IMAGE


def test_a_declared_column_that_is_not_there_is_refused(tmp_path: Path) -> None:
    write_modality(tmp_path, "image", [{"id_0.jpg": b""}])

    with pytest.raises(
        ValueError, match=r"schema: no column 'captoin'; the modalities are \['image'\]"
    ):
        columns_of(tmp_path, schema={"image": FILE, "captoin": STRING})


def test_a_caption_always_has_pid_s_prompts(tmp_path: Path) -> None:
    dtype = dtype_of(tmp_path, "caption", [documents({"prompt_short": "a", "score": 1})])

    assert dtype == struct(**PROMPTS, score=INT64)


def test_other_json_has_the_fields_that_are_there(tmp_path: Path) -> None:
    dtype = dtype_of(tmp_path, "meta", [documents({"b": 1.5}, {"b": 2, "a": [True]})])

    assert dtype == struct(b=FLOAT64, a=daft.DataType.list(daft.DataType.bool()))


def test_a_bare_text_is_a_prompt_in_captions_only(tmp_path: Path) -> None:
    write_modality(tmp_path, "caption", [documents("bare", {"score": 1})])
    write_modality(tmp_path, "title", [documents("bare", None)])

    columns = columns_of(tmp_path)

    assert columns["caption"].dtype == struct(**PROMPTS, score=INT64)
    assert columns["title"].dtype == STRING
    assert columns["title"].kind == "json"


def test_a_bare_text_beside_other_values_is_refused_outside_captions(tmp_path: Path) -> None:
    write_modality(tmp_path, "title", [documents("bare", {"score": 1})])

    with pytest.raises(SchemaError, match=r"the document: found text in .* and object in"):
        columns_of(tmp_path)


def test_null_fixes_no_type(tmp_path: Path) -> None:
    values = [None] * 8 + ["eight", "nine"]
    shards = [
        documents(*({"prompt": "x", "note": value} for value in part))
        for part in (values[:5], values[5:])
    ]

    assert field_of(dtype_of(tmp_path, "caption", shards), "note") == STRING


def test_a_field_of_the_last_sample_is_found(tmp_path: Path) -> None:
    late = {"prompt": "x", "prompt_medium": "m", "source": {"kind": "a", "tags": ["b"]}}
    shards = [documents({"prompt": "x"}, {"prompt": "x"}), documents({"prompt": "x"}, late)]

    dtype = dtype_of(tmp_path, "caption", shards)

    assert field_of(dtype, "source") == struct(kind=STRING, tags=daft.DataType.list(STRING))


@pytest.mark.parametrize("value", ["2024-01-02", "007", "true", "null", "1e5", "{}", '{"a": 1}'])
def test_text_that_looks_typed_is_text(tmp_path: Path, value: str) -> None:
    dtype = dtype_of(tmp_path, "caption", [documents({"prompt": value, "note": value})])

    assert dtype == struct(**PROMPTS, note=STRING)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-be", "utf-32"])
def test_documents_are_understood_in_any_encoding_of_json(tmp_path: Path, encoding: str) -> None:
    name = "caf\u00e9"
    document = json.dumps({name: 1}, ensure_ascii=False).encode(encoding)

    assert dtype_of(tmp_path, "meta", [documents(document)]) == struct(**{name: INT64})


def test_documents_that_contradict_each_other_are_refused_with_both(tmp_path: Path) -> None:
    write_modality(tmp_path, "meta", [documents({"size": 5}), documents({"size": "large"})])

    with pytest.raises(
        SchemaError,
        match=r"field 'size': found integer in .*000000.tar: 'id_0.json' and text in "
        r".*000001.tar: 'id_0.json'; .*schema=",
    ):
        columns_of(tmp_path)


def test_captions_that_are_no_objects_are_refused(tmp_path: Path) -> None:
    write_modality(tmp_path, "caption", [documents([1, 2])])

    with pytest.raises(
        SchemaError, match=r"found object in PiD's caption layout and list in .*'id_0.json'"
    ):
        columns_of(tmp_path)


@pytest.mark.parametrize(
    ("document", "message"),
    [
        pytest.param(b"broken", r"'id_1.json': found no readable JSON .* mend", id="no-json"),
        pytest.param(b"", r"'id_1.json': found an empty document; .*on_error='skip'", id="empty"),
        pytest.param(
            json.dumps({"a": "caf\u00e9"}, ensure_ascii=False).encode("latin-1"),
            r"'id_1.json': found no readable JSON",
            id="latin-1",
        ),
        pytest.param(
            b'{"a": 99999999999999999999}', r"'id_1.json': field 'a': found integer", id="too-large"
        ),
        pytest.param(b'{"a": "%s"}' % (b"x" * 100), r"'id_1.json' .* holds 109 bytes", id="long"),
    ],
)
def test_a_bad_document_is_refused_or_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, document: bytes, message: str
) -> None:
    for module in (infer, text):
        monkeypatch.setattr(module, "MAX_TEXT_BYTES", 100)
    write_modality(tmp_path, "meta", [documents({"a": 1}, document, {"b": 1})])

    with pytest.raises(SchemaError, match=message):
        columns_of(tmp_path, strict=True)
    assert columns_of(tmp_path, strict=False)["meta"].dtype == struct(a=INT64, b=INT64)


def test_a_modality_of_bad_documents_alone_still_has_a_type(tmp_path: Path) -> None:
    write_modality(tmp_path, "caption", [documents(b"broken", b"")])
    write_modality(tmp_path, "meta", [documents(b"broken", b"")])

    columns = columns_of(tmp_path, strict=False)

    assert columns["caption"].dtype == struct(**PROMPTS)
    assert columns["meta"].dtype == STRING


@pytest.mark.parametrize(
    ("members", "error", "message"),
    [
        pytest.param(
            [("id_0.jpg", b"a"), ("README", b"b")],
            AlignmentError,
            "'README' .* no suffix",
            id="bare",
        ),
        pytest.param(
            [("id_0.jpg", b"a"), ("id_0.json", b"{}")], AlignmentError, "held by 2", id="twice"
        ),
    ],
)
def test_a_bad_member_is_refused_or_passed_over(
    tmp_path: Path, members: list[tuple[str, bytes]], error: type[Exception], message: str
) -> None:
    write_tar(tmp_path / "image" / "000000.tar", [*members, ("id_1.jpg", b"c")])

    with pytest.raises(error, match=message):
        columns_of(tmp_path, strict=True)
    assert columns_of(tmp_path, strict=False)["image"].dtype == IMAGE


def test_a_damaged_tar_is_refused_or_read_up_to_its_fault(tmp_path: Path) -> None:
    write_modality(tmp_path, "meta", [documents({"a": 1}, {"b": 1})])
    os.truncate(tmp_path / "meta" / "part_000000" / "000000.tar", 3 * 512)

    with pytest.raises(TarFormatError, match=r"000000.tar"):
        columns_of(tmp_path, strict=True)
    assert columns_of(tmp_path, strict=False)["meta"].dtype == struct(a=INT64)


@pytest.mark.parametrize(
    ("modality", "kind"),
    [pytest.param("caption", "json", id="caption"), pytest.param("image", "file", id="other")],
)
def test_a_modality_without_members_has_the_column_of_its_name(
    tmp_path: Path, modality: str, kind: str
) -> None:
    write_modality(tmp_path, modality, [{}, {}])

    column = columns_of(tmp_path)[modality]

    assert column.kind == kind
    assert column.dtype == (struct(**PROMPTS) if kind == "json" else FILE)


def test_a_data_set_without_shards_has_columns(tmp_path: Path) -> None:
    manifest: dict[str, object] = {"data_keys": ["image", "caption"], "data_list": []}
    manifest |= {"data_list_key_count": [], "total_key_count": 0, "root": str(tmp_path)}
    (tmp_path / "wdinfo.json").write_text(json.dumps(manifest))

    columns = columns_of(tmp_path)

    assert columns["image"].dtype == FILE
    assert columns["caption"].dtype == struct(**PROMPTS)


def test_empty_and_missing_shards_are_looked_past(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(infer, "SAMPLED_SHARDS", 2)
    write_modality(tmp_path, "image", [{"a.jpg": b""}] * 6)
    write_modality(tmp_path, "meta", [{}, {}, documents({"a": 1}), documents({"b": 1}), {}, {}])
    (tmp_path / "meta" / "part_000000" / "000005.tar").unlink()

    columns = columns_of(tmp_path, on_missing="null")

    assert columns["meta"].dtype == struct(a=INT64, b=INT64)


def test_no_more_shards_are_looked_into_than_sampled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(infer, "SAMPLED_SHARDS", 3)
    shards = [documents({f"shard_{number}": 1}) for number in range(7)]

    dtype = dtype_of(tmp_path, "meta", shards)

    assert dtype == struct(shard_0=INT64, shard_3=INT64, shard_6=INT64)


def test_texts_are_sampled_over_the_whole_shard(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(infer, "SAMPLED_TEXTS", 5)
    shards = [documents(*({f"{name}_{number}": 1} for number in range(9))) for name in "ab"]

    dtype = dtype_of(tmp_path, "meta", shards)

    names = [name for name, _ in dtype.fields.items()]
    assert names == ["a_0", "a_4", "a_8", "b_0", "b_4", "b_8"]


def test_a_suffix_behind_the_sampled_names_decides_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(infer, "SAMPLED_NAMES", 2)
    write_modality(tmp_path, "image", [{"a.jpg": b"", "b.jpg": b"", "c.npy": b""}])

    assert columns_of(tmp_path)["image"].dtype == IMAGE


@given(num_items=st.integers(0, 5000), most=st.integers(2, 600))
def test_spread_places_are_few_and_even_and_reach_both_ends(num_items: int, most: int) -> None:
    places = list(infer._spread(num_items, most))

    assert places == sorted(set(places))
    assert len(places) == min(num_items, most)
    if places:
        assert (places[0], places[-1]) == (0, num_items - 1)
        steps = {after - before for before, after in pairwise(places)}
        assert not steps or max(steps) - min(steps) <= 1


@given(num_items=st.integers(0, 300), first=st.integers(2, 20))
def test_all_places_come_once_the_spread_ones_first(num_items: int, first: int) -> None:
    order = list(infer._spread_order(num_items, first))

    assert sorted(order) == list(range(num_items))
    assert order[:first] == list(infer._spread(num_items, first))


def test_messages_name_the_whole_path(tmp_path: Path) -> None:
    write_modality(tmp_path, "meta", [documents(b"broken")])
    path = tmp_path / "meta" / "part_000000" / "000000.tar"

    with pytest.raises(SchemaError, match=f"^{re.escape(str(path))}: 'id_0.json': found"):
        columns_of(tmp_path)
