"""Each kind of fault inside tars: found, placed, and no end to the search."""

import io
import json
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import daft
import numpy as np
import pytest

from daft_twinwds.testing import encode_jpeg, make_twin_dataset, write_tar
from daft_twinwds.tools.index import build_index
from daft_twinwds.tools.validate import Fault, ValidateProgress, ValidationReport, validate

SHARD = "part_000000/000000.tar"
JPEG = encode_jpeg(np.zeros((16, 24, 3), np.uint8))


def text(number: int, **fields: object) -> bytes:
    return json.dumps({"prompt": f"picture {number}", **fields}).encode()


def pictures(*numbers: int) -> list[tuple[str, bytes]]:
    return [(f"id_{number}.jpg", JPEG) for number in numbers]


def captions(*numbers: int) -> list[tuple[str, bytes]]:
    return [(f"id_{number}.json", text(number)) for number in numbers]


class Twins:
    """A data set without a manifest, whose tars can be replaced one by one."""

    def __init__(self, root: Path) -> None:
        self.root = root
        for modality, members in (("image", pictures(0, 1, 2)), ("caption", captions(0, 1, 2))):
            self.write(modality, members)

    def write(self, modality: str, members: Sequence[tuple[str, bytes]], shard: int = 0) -> Path:
        return write_tar(self.path(modality, shard), members)

    def path(self, modality: str, shard: int = 0) -> Path:
        return self.root / modality / "part_000000" / f"{shard:06d}.tar"

    def members(self, modality: str) -> dict[str, tarfile.TarInfo]:
        with tarfile.open(self.path(modality)) as tar:
            return {member.name: member for member in tar.getmembers()}

    def place(self, modality: str, name: str) -> int:
        return self.members(modality)[name].offset_data


@pytest.fixture
def twins(tmp_path: Path) -> Twins:
    return Twins(tmp_path / "twins")


def places(report: ValidationReport) -> list[tuple[str, str | None, str | None, int | None]]:
    return [(fault.kind, fault.modality, fault.key, fault.offset) for fault in report.faults]


def only_fault(report: ValidationReport) -> Fault:
    (fault,) = report.faults
    assert report.counts == {fault.kind: 1}
    return fault


def only_warning(report: ValidationReport) -> Fault:
    (warning,) = report.warnings
    assert report.is_sound
    assert report.counts == {warning.kind: 1}
    return warning


def test_sound_data_set_has_no_fault_and_is_counted(twins: Twins) -> None:
    report = validate(twins.root, decode=True)

    assert report == ValidationReport(
        faults=(),
        warnings=(),
        counts={},
        num_leaves=1,
        num_shards=1,
        num_keys=3,
        num_members=6,
        num_decoded=3,
    )
    assert report.is_sound


@pytest.mark.parametrize(
    ("size", "words"),
    [
        pytest.param(-1, "cut at byte", id="in-a-payload"),
        pytest.param(100, "inside the header", id="in-a-header"),
    ],
)
def test_cut_tar_is_damaged_at_the_header_that_lacks_its_member(
    twins: Twins, size: int, words: str
) -> None:
    header = twins.members("image")["id_2.jpg"].offset
    end = twins.place("image", "id_2.jpg") + len(JPEG) if size < 0 else header
    path = twins.path("image")
    path.write_bytes(path.read_bytes()[: end + size])

    fault = only_fault(validate(twins.root))

    assert (fault.kind, fault.modality, fault.shard) == ("damaged tar", "image", SHARD)
    assert fault.offset == header
    assert fault.path == str(path)
    assert words in fault.text
    assert fault.line.startswith(f"{path}: byte {header}: ")


def test_header_with_a_wrong_checksum_is_damaged_there(twins: Twins) -> None:
    header = twins.members("caption")["id_1.json"].offset
    data = bytearray(twins.path("caption").read_bytes())
    data[header] ^= 1
    twins.path("caption").write_bytes(data)

    fault = only_fault(validate(twins.root))

    assert (fault.kind, fault.modality, fault.offset) == ("damaged tar", "caption", header)
    assert "wrong checksum" in fault.text


def test_joined_tars_are_damaged_at_the_second(twins: Twins) -> None:
    first = twins.path("image").read_bytes()
    twins.path("image").write_bytes(first + first)

    fault = only_fault(validate(twins.root))

    assert (fault.kind, fault.offset) == ("damaged tar", len(first))
    assert "another header after the end marker" in fault.text


@pytest.mark.parametrize(
    ("content", "words"),
    [
        pytest.param(b"\x1f\x8b" + bytes(600), "gzip", id="gzip"),
        pytest.param(b"", "an empty file", id="empty"),
        pytest.param(bytes(1 << 20), "start with zeros", id="zeros"),
    ],
)
def test_what_is_no_tar_is_damaged_from_its_first_byte(
    twins: Twins, content: bytes, words: str
) -> None:
    twins.path("image").write_bytes(content)

    fault = only_fault(validate(twins.root))

    assert (fault.kind, fault.offset) == ("damaged tar", 0)
    assert words in fault.text


def test_missing_end_marker_is_a_warning_where_the_tar_ends(twins: Twins) -> None:
    path = twins.path("image")
    last = twins.place("image", "id_2.jpg") + len(JPEG)
    end = last + -last % 512
    path.write_bytes(path.read_bytes()[:end])

    warning = only_warning(validate(twins.root))

    assert (warning.kind, warning.modality, warning.offset) == ("no end marker", "image", end)


def test_single_end_block_and_bytes_after_it_are_warnings(twins: Twins) -> None:
    last = twins.place("image", "id_2.jpg") + len(JPEG)
    end = last + -last % 512
    data = twins.path("image").read_bytes()[:end] + bytes(512) + b"x" * 512
    twins.path("image").write_bytes(data)

    report = validate(twins.root)

    assert report.is_sound
    assert [(warning.kind, warning.offset) for warning in report.warnings] == [
        ("single end block", end),
        ("bytes after the end marker", end),
    ]


def test_sidecars_of_macos_are_one_warning_per_tar(twins: Twins) -> None:
    twins.write("image", [("._id_0.jpg", b"x"), *pictures(0, 1, 2), (".DS_Store", b"x")])

    warning = only_warning(validate(twins.root))

    assert (warning.kind, warning.modality) == ("members left out", "image")
    assert "macOS sidecars skipped: 2" in warning.text


def test_every_name_that_is_not_utf_8_is_a_fault(twins: Twins) -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for name, data in (("caf\udce9.jpg", JPEG), *pictures(0, 1, 2), ("\udcff.jpg", JPEG)):
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    twins.path("image").write_bytes(buffer.getvalue())

    report = validate(twins.root)

    assert [(fault.kind, fault.offset) for fault in report.faults] == [
        ("bad name", 0),
        ("bad name", 4 * (512 + len(JPEG) + -len(JPEG) % 512)),
    ]
    assert r"b'caf\xe9.jpg'" in report.faults[0].text


def test_member_without_a_suffix_is_a_fault(twins: Twins) -> None:
    twins.write("image", [*pictures(0, 1, 2), ("README", b"hello")])

    fault = only_fault(validate(twins.root))

    assert (fault.kind, fault.modality, fault.key) == ("no suffix", "image", "README")
    assert fault.offset == twins.place("image", "README")


def test_doubled_key_is_one_fault_at_its_second_member(twins: Twins) -> None:
    twins.write("image", [*pictures(0, 1, 2), ("id_1.png", b"x"), ("id_1.jpeg", JPEG)])

    report = validate(twins.root)

    assert report.counts["duplicate key"] == 1
    fault = report.faults[0]
    assert (fault.kind, fault.key) == ("duplicate key", "id_1")
    assert fault.offset == twins.place("image", "id_1.png")
    assert "3 members" in fault.text


def test_equal_copies_of_a_member_are_a_fault_as_scans_refuse_them(twins: Twins) -> None:
    twins.write("caption", [*captions(0, 1, 2), *captions(1)])

    assert only_fault(validate(twins.root)).kind == "duplicate key"


def test_keys_that_a_twin_lacks_are_named_in_the_twin_that_lacks_them(twins: Twins) -> None:
    twins.write("image", pictures(1, 2, 3))
    twins.write("caption", captions(0, 1, 2))

    report = validate(twins.root)

    assert places(report) == [
        ("missing key", "caption", "id_3", None),
        ("missing key", "image", "id_0", None),
    ]
    assert f"as 'id_3.jpg' at byte {twins.place('image', 'id_3.jpg')}" in report.faults[0].text
    assert report.num_keys == 2


def test_keys_lost_in_a_damaged_tar_are_not_listed_as_missing(twins: Twins) -> None:
    path = twins.path("image")
    path.write_bytes(path.read_bytes()[:600])

    assert only_fault(validate(twins.root)).kind == "damaged tar"


def test_same_keys_in_another_order_are_a_warning_that_names_pid(twins: Twins) -> None:
    twins.write("image", pictures(0, 2, 1))

    warning = only_warning(validate(twins.root))

    assert (warning.kind, warning.modality, warning.key) == ("different order", "image", "id_2")
    assert warning.offset == twins.place("image", "id_2.jpg")
    assert "PiD's loader pairs by position" in warning.text


def test_member_of_another_kind_than_its_column_is_a_fault(twins: Twins) -> None:
    numbers = range(70)
    twins.write("image", pictures(*numbers))
    # Behind the members whose suffixes decide what a modality holds.
    twins.write("caption", [*captions(*numbers)[:-1], ("id_69.txt", b"hello")])

    fault = only_fault(validate(twins.root))

    assert (fault.kind, fault.modality, fault.key) == ("odd suffix", "caption", "id_69")
    assert fault.offset == twins.place("caption", "id_69.txt")


def test_captions_that_contradict_each_other_are_a_fault_and_still_looked_into(
    twins: Twins,
) -> None:
    documents = [b'{"size": 1}', b'{"size": "large"}', b"{"]
    members = [(f"id_{number}.json", document) for number, document in enumerate(documents)]
    twins.write("caption", members)

    report = validate(twins.root)

    assert [(fault.kind, fault.modality, fault.key) for fault in report.faults] == [
        ("bad schema", "caption", None),
        ("bad text", "caption", "id_2"),
    ]
    assert "found integer in" in report.faults[0].text


@pytest.mark.parametrize(
    ("document", "words"),
    [
        pytest.param(b"{", "no readable JSON", id="cut"),
        pytest.param(b"", "an empty document", id="empty"),
        pytest.param(b'{"prompt": "\xe9"}', "no readable JSON", id="latin-1"),
        pytest.param(b'{"prompt": 18446744073709551616}', "field 'prompt'", id="no-int64"),
    ],
)
def test_text_that_cannot_be_read_is_a_fault(twins: Twins, document: bytes, words: str) -> None:
    twins.write("caption", [*captions(0, 1), ("id_2.json", document)])

    fault = only_fault(validate(twins.root))

    assert (fault.kind, fault.modality, fault.key) == ("bad text", "caption", "id_2")
    assert fault.offset == twins.place("caption", "id_2.json")
    assert words in fault.text


def test_plain_texts_and_numbers_are_held_against_what_their_suffix_means(twins: Twins) -> None:
    twins.write("caption", [("id_0.txt", b"caf\xc3\xa9"), ("id_1.txt", b"\xe9"), ("id_2.txt", b"")])
    twins.write("label", [("id_0.cls", b" 7\n"), ("id_1.cls", b"seven"), ("id_2.cls", b"-1")])

    report = validate(twins.root)

    assert places(report) == [
        ("bad text", "caption", "id_1", twins.place("caption", "id_1.txt")),
        ("bad text", "label", "id_1", twins.place("label", "id_1.cls")),
    ]
    assert "'utf-8' codec can't decode" in report.faults[0].text
    assert "found 'seven'" in report.faults[1].text


def test_texts_are_held_against_a_declared_type(twins: Twins) -> None:
    integer = daft.DataType.struct({"prompt": daft.DataType.int64()})

    report = validate(twins.root, schema={"caption": integer})

    assert report.counts == {"bad text": 3}
    assert "field 'prompt': found text 'picture 0'" in report.faults[0].text


def test_field_that_a_declared_type_lacks_is_a_fault_unless_it_is_to_be_ignored(
    twins: Twins,
) -> None:
    twins.write("caption", [*captions(0, 1), ("id_2.json", text(2, mood="calm"))])
    schema = {"caption": daft.DataType.struct({"prompt": daft.DataType.string()})}

    fault = only_fault(validate(twins.root, schema=schema))
    ignored = validate(twins.root, schema=schema, extra_fields="ignore")

    assert (fault.kind, fault.modality, fault.key) == ("extra field", "caption", "id_2")
    assert fault.offset == twins.place("caption", "id_2.json")
    assert "field 'mood': found text 'calm'" in fault.text
    assert ignored.is_sound


def test_field_in_a_shard_that_inference_did_not_look_into_is_a_fault(twins: Twins) -> None:
    for shard in range(20):
        twins.write("image", pictures(shard), shard)
        twins.write("caption", captions(shard), shard)
    twins.write("caption", [("id_1.json", text(1, mood="calm"))], 1)

    fault = only_fault(validate(twins.root, workers=3))

    assert (fault.kind, fault.shard, fault.key, fault.offset) == (
        "extra field",
        "part_000000/000001.tar",
        "id_1",
        512,
    )


def test_text_larger_than_any_scan_reads_is_a_fault(
    twins: Twins, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("daft_twinwds.tools.validate_members.MAX_TEXT_BYTES", 100)
    twins.write("caption", [*captions(0, 1), ("id_2.json", text(2, mood="calm" * 30))])

    fault = only_fault(validate(twins.root))

    assert (fault.kind, fault.key) == ("bad text", "id_2")
    assert "at most 100 was expected" in fault.text


def test_picture_that_is_none_is_a_fault_without_decoding(twins: Twins) -> None:
    twins.write("image", [*pictures(0, 1), ("id_2.jpg", b"<html>404</html>")])

    fault = only_fault(validate(twins.root))

    assert (fault.kind, fault.modality, fault.key) == ("bad picture", "image", "id_2")
    assert fault.offset == twins.place("image", "id_2.jpg")
    assert "HTML page" in fault.text


def test_cut_picture_is_a_fault_only_when_it_is_decoded(twins: Twins) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (64, 64, 3)).astype(np.uint8)
    cut = encode_jpeg(pixels)[:-200]
    twins.write("image", [*pictures(0, 1), ("id_2.jpg", cut)])

    by_header = validate(twins.root)
    decoded = validate(twins.root, decode=True)

    assert (by_header.is_sound, by_header.num_decoded) == (True, 0)
    assert decoded.num_decoded == 3
    fault = only_fault(decoded)
    assert (fault.kind, fault.key) == ("bad picture", "id_2")
    assert fault.offset == twins.place("image", "id_2.jpg")
    assert "Premature end of JPEG file" in fault.text


def test_pictures_in_a_column_of_plain_files_are_looked_at_too(twins: Twins) -> None:
    twins.write("image", [*pictures(0), ("id_1.bin", b"x"), ("id_2.png", b"x")])

    fault = only_fault(validate(twins.root))

    assert (fault.kind, fault.key) == ("bad picture", "id_2")


def test_pictures_that_are_read_as_bytes_are_not_looked_at(twins: Twins) -> None:
    twins.write("image", [*pictures(0, 1), ("id_2.jpg", b"x")])

    report = validate(twins.root, schema={"image": daft.DataType.binary()}, decode=True)

    assert (report.is_sound, report.num_decoded) == (True, 0)


def test_key_rule_is_that_of_the_scan(twins: Twins) -> None:
    twins.write("image", [("a.b.jpg", JPEG)])
    twins.write("caption", [("a.json", text(0))])

    by_last, by_first = validate(twins.root), validate(twins.root, key_split="first")

    assert by_last.counts == {"missing key": 2}
    assert by_first.counts == {}


def test_search_goes_on_after_each_fault_and_keeps_the_order_of_shards(tmp_path: Path) -> None:
    root = make_twin_dataset(tmp_path / "many", num_shards=9, samples_per_shard=2)
    for shard in (7, 0, 3):
        path = root / f"image/part_000000/{shard:06d}.tar"
        path.write_bytes(path.read_bytes()[:1000])

    reports = [validate(root, workers=workers) for workers in (1, 4)]

    assert reports[0] == reports[1]
    assert [fault.shard for fault in reports[0].faults] == [
        f"part_000000/{shard:06d}.tar" for shard in (0, 3, 7)
    ]


def test_faults_beyond_the_bound_are_counted_by_kind(twins: Twins) -> None:
    for shard in range(3):
        twins.write("image", [(f"id_{number}.jpg", b"x") for number in range(4)], shard)
        twins.write("caption", [*captions(0, 1, 2), ("id_3.json", b"{")], shard)

    report = validate(twins.root, max_faults=5)

    assert report.counts == {"bad picture": 12, "bad text": 3}
    kept = [fault.kind for fault in report.faults]
    assert (kept.count("bad picture"), kept.count("bad text")) == (5, 3)
    assert report.num_faults == 15


def test_progress_is_told_after_each_shard(tmp_path: Path) -> None:
    root = make_twin_dataset(tmp_path / "many", num_shards=3, samples_per_shard=1)
    (root / "image/part_000000/000001.tar").write_bytes(b"")
    steps: list[ValidateProgress] = []

    validate(root, progress=steps.append)

    assert [(step.done, step.total, step.num_faults) for step in steps] == [
        (1, 3, 0),
        (2, 3, 1),
        (3, 3, 1),
    ]
    assert steps[0].shard == str(root / SHARD)


def test_fresh_index_is_no_warning_and_a_stale_one_is(tmp_path: Path) -> None:
    root = make_twin_dataset(tmp_path / "many", num_shards=2, samples_per_shard=2)
    build_index(root)
    before = validate(root)
    write_tar(root / "caption/part_000000/000001.tar", captions(2, 3))

    warning = only_warning(validate(root))

    assert before.counts == {}
    assert (warning.kind, warning.shard) == ("stale index", "part_000000/000001.tar")
    assert "has changed since" in warning.text


def test_damaged_index_is_a_warning_for_each_shard(tmp_path: Path) -> None:
    root = make_twin_dataset(tmp_path / "many", num_shards=2, samples_per_shard=2)
    build_index(root)
    (path,) = (root / ".twin_index").glob("*.parquet")
    path.write_bytes(path.read_bytes()[:-1])

    assert validate(root).counts == {"stale index": 2}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        pytest.param({"key_split": "middle"}, "key_split must be one of", id="key-split"),
        pytest.param({"extra_fields": "keep"}, "extra_fields must be one of", id="extra-fields"),
        pytest.param({"workers": 0}, "workers must be at least 1", id="workers"),
        pytest.param({"max_faults": 0}, "max_faults must be at least 1", id="max-faults"),
        pytest.param(
            {"fix_manifest": True, "modalities": ["image"]}, "pass no modalities", id="fix-some"
        ),
        pytest.param({"schema": {"mask": daft.DataType.binary()}}, "no column 'mask'", id="schema"),
    ],
)
def test_wrong_arguments_are_refused(twins: Twins, arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        validate(twins.root, **arguments)
