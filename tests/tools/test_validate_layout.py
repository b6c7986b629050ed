"""What is wrong with folders and manifests, and the correction of the latter."""

import json
import shutil
from pathlib import Path
from typing import Any

import daft
import pytest

import daft_twinwds
from daft_twinwds.errors import LayoutError
from daft_twinwds.shards.options import StorageOptions
from daft_twinwds.testing import make_twin_dataset, write_tar
from daft_twinwds.tools.validate import Fault, ValidationReport, validate

SECOND = "part_000000/000001.tar"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return make_twin_dataset(
        tmp_path / "twins", num_shards=3, samples_per_shard=2, image_size=(16, 16)
    )


@pytest.fixture
def leaves(tmp_path: Path) -> Path:
    for number, name in enumerate(("aspect_ratio_16_9", "aspect_ratio_1_1")):
        make_twin_dataset(
            tmp_path / "leaves" / name,
            num_shards=2,
            samples_per_shard=2,
            image_size=(16, 16),
            seed=number,
        )
    return tmp_path / "leaves"


def manifest_of(root: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((root / "wdinfo.json").read_text())
    return content


def rewrite(folder: Path, **changes: object) -> None:
    content = {**manifest_of(folder), **changes}
    kept = {key: value for key, value in content.items() if value is not ...}
    (folder / "wdinfo.json").write_text(json.dumps(kept))


def only_fault(report: ValidationReport) -> Fault:
    (fault,) = report.faults
    assert report.counts == {fault.kind: 1}
    return fault


def test_tar_that_one_modality_lacks_is_missing_there(root: Path) -> None:
    (root / "caption" / SECOND).unlink()

    report = validate(root)

    fault = only_fault(report)
    assert (fault.kind, fault.modality, fault.shard) == ("missing tar", "caption", SECOND)
    assert fault.path == str(root / "caption" / SECOND)
    assert "image has it" in fault.text
    assert (report.num_shards, report.num_keys) == (3, 4)


def test_listed_tar_that_no_modality_has_is_missing_in_all(root: Path) -> None:
    for modality in ("image", "caption"):
        (root / modality / SECOND).unlink()

    report = validate(root)

    assert [(fault.kind, fault.modality) for fault in report.faults] == [
        ("missing tar", "image"),
        ("missing tar", "caption"),
    ]
    assert "no modality has it" in report.faults[0].text
    assert report.num_shards == 2


def test_tars_that_the_manifest_does_not_list_are_faults(root: Path) -> None:
    name = "part_000000/000009.tar"
    for modality in ("image", "caption"):
        shutil.copy(root / modality / SECOND, root / modality / name)

    report = validate(root)

    assert report.counts == {"unlisted tar": 2}
    assert {(fault.modality, fault.shard) for fault in report.faults} == {
        ("image", name),
        ("caption", name),
    }


def test_without_a_manifest_a_tar_without_a_twin_is_a_fault(root: Path) -> None:
    (root / "wdinfo.json").unlink()
    (root / "image" / SECOND).unlink()

    fault = only_fault(validate(root))

    assert (fault.kind, fault.modality, fault.shard) == ("missing tar", "image", SECOND)


def test_missing_modality_is_one_fault_and_the_others_are_looked_into(root: Path) -> None:
    shutil.rmtree(root / "caption")
    (root / "image" / SECOND).write_bytes(b"")

    report = validate(root)

    assert [(fault.kind, fault.modality) for fault in report.faults] == [
        ("missing modality", "caption"),
        ("damaged tar", "image"),
    ]


def test_only_the_modalities_asked_for_are_looked_into(root: Path) -> None:
    (root / "image" / SECOND).write_bytes(b"")

    assert validate(root, modalities=["caption"]).is_sound
    assert validate(root, modalities={"words": "caption"}).num_members == 6


@pytest.mark.parametrize(
    ("content", "words"),
    [
        pytest.param("{", "not valid JSON", id="no-json"),
        pytest.param('{"data_keys": []}', "missing", id="no-keys"),
    ],
)
def test_leaf_with_a_bad_manifest_is_a_fault_and_the_others_are_looked_into(
    leaves: Path, content: str, words: str
) -> None:
    bad = leaves / "aspect_ratio_16_9"
    (bad / "wdinfo.json").write_text(content)

    report = validate(leaves)

    fault = only_fault(report)
    assert (fault.kind, fault.path) == ("bad layout", str(bad / "wdinfo.json"))
    assert not fault.text.startswith("/")
    assert words in fault.text
    assert (report.num_leaves, report.num_keys) == (1, 4)


def test_leaves_with_different_modalities_are_a_fault_and_all_looked_into(leaves: Path) -> None:
    odd = leaves / "aspect_ratio_1_1"
    rewrite(odd, data_keys=["image"], data_list_key_count=[2, 3])

    report = validate(leaves)

    assert [(fault.kind, fault.path) for fault in report.faults] == [
        ("different modalities", str(odd)),
        ("wrong count", str(odd / "part_000000/000001.tar")),
    ]
    assert report.num_shards == 4


def test_folder_of_tars_without_a_manifest_beside_others_is_a_fault(leaves: Path) -> None:
    stray = leaves / "aspect_ratio_1_1"
    (stray / "wdinfo.json").unlink()

    report = validate(leaves)

    assert set(report.counts) == {"no manifest"}
    assert report.faults[0].path.startswith(str(stray))


def test_leaves_are_chosen_by_the_words_of_their_path(leaves: Path) -> None:
    (leaves / "aspect_ratio_1_1" / "image" / SECOND).write_bytes(b"")

    assert not validate(leaves).is_sound
    assert validate(leaves, aspect_ratios=["16,9"]).is_sound
    assert validate(leaves, exclude="1_1").is_sound
    assert validate(leaves, include="16_9").is_sound


def test_counts_that_the_tars_do_not_bear_out_are_faults(root: Path) -> None:
    rewrite(root, data_list_key_count=[2, 5, 2], total_key_count=9)

    report = validate(root)

    assert [(fault.kind, fault.shard) for fault in report.faults] == [
        ("wrong count", SECOND),
        ("wrong total", None),
    ]
    assert "2 samples were found; expected the 5" in report.faults[0].text
    assert "total_key_count is 9; expected 6" in report.faults[1].text
    assert report.faults[1].path == str(root / "wdinfo.json")


def test_counts_made_from_a_chunk_size_are_held_against_the_total_only(root: Path) -> None:
    rewrite(root, data_list_key_count=..., chunk_size=3)

    assert validate(root).counts == {}

    rewrite(root, total_key_count=7)

    assert validate(root).counts == {"wrong total": 1}


def test_counts_of_shards_with_other_faults_are_not_doubted(root: Path) -> None:
    path = root / "image" / SECOND
    path.write_bytes(path.read_bytes()[:600])
    write_tar(root / "caption/part_000000/000000.tar", [("id_0.json", b"{}")])

    assert validate(root).counts == {"damaged tar": 1, "missing key": 1}


@pytest.mark.parametrize("stated", ["/somewhere/else", "s3://bucket/twins"])
def test_root_of_another_place_is_a_warning(root: Path, stated: str) -> None:
    rewrite(root, root=stated)

    report = validate(root)

    assert report.is_sound
    (warning,) = report.warnings
    assert (warning.kind, warning.path) == ("stale root", str(root / "wdinfo.json"))
    assert repr(stated) in warning.text


def test_root_that_is_another_name_of_the_folder_is_no_warning(root: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(root)

    assert validate(tmp_path / "link").counts == {}
    rewrite(root, root=".")
    assert validate(root).counts == {}


def test_corrected_manifest_keeps_what_it_does_not_know(root: Path) -> None:
    rewrite(root, data_list_key_count=[1, 1, 1], total_key_count=3, root="/old", licence="CC0")

    report = validate(root, fix_manifest=True)

    assert report.fixed == (str(root / "wdinfo.json"),)
    assert report.counts == {}
    assert report.is_sound
    content = manifest_of(root)
    assert content["licence"] == "CC0"
    assert content["data_list_key_count"] == [2, 2, 2]
    assert content["total_key_count"] == 6
    assert content["root"] == str(root)
    assert next(iter(content)) == "data_keys"
    assert validate(root).counts == {}
    assert daft_twinwds.read_twin_webdataset(root).count_rows() == 6


def test_corrected_manifest_is_read_wherever_the_folder_is_moved(
    root: Path, tmp_path: Path
) -> None:
    rewrite(root, root="/old")
    validate(root, fix_manifest=True)
    moved = shutil.move(root, tmp_path / "moved")

    assert validate(moved).is_sound
    assert daft_twinwds.read_twin_webdataset(moved).count_rows() == 6


def test_right_manifests_are_left_alone_and_wrong_ones_of_other_leaves_corrected(
    leaves: Path,
) -> None:
    right, wrong = leaves / "aspect_ratio_16_9", leaves / "aspect_ratio_1_1"
    before = (right / "wdinfo.json").stat()  # reading it may change its time of access
    rewrite(wrong, data_list_key_count=..., chunk_size=7, total_key_count=9)

    report = validate(leaves, fix_manifest=True)

    assert report.fixed == (str(wrong / "wdinfo.json"),)
    after = (right / "wdinfo.json").stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert manifest_of(wrong)["data_list_key_count"] == [2, 2]
    assert manifest_of(wrong)["chunk_size"] == 7


def test_faults_other_than_counts_stay_in_the_report_of_a_correction(root: Path) -> None:
    members = [("id_0.json", b'{"prompt": "a"}'), ("id_1.json", b"{")]
    write_tar(root / "caption/part_000000/000000.tar", members)
    rewrite(root, total_key_count=9)

    report = validate(root, fix_manifest=True)

    assert report.fixed
    assert report.counts == {"bad text": 1}


@pytest.mark.parametrize("fault", ["damaged", "missing", "duplicate", "lacking"])
def test_manifest_of_tars_that_are_not_sound_is_not_corrected(root: Path, fault: str) -> None:
    path = root / "caption" / SECOND
    members = [("id_2.json", b"{}"), ("id_3.json", b"{}")]
    if fault == "damaged":
        path.write_bytes(b"")
    elif fault == "missing":
        path.unlink()
    elif fault == "duplicate":
        write_tar(path, [*members, members[0]])
    else:
        write_tar(path, members[:1])
    rewrite(root, total_key_count=9)
    before = (root / "wdinfo.json").read_bytes()

    with pytest.raises(LayoutError, match="expected sound tars") as refusal:
        validate(root, fix_manifest=True)

    assert SECOND in str(refusal.value)
    assert (root / "wdinfo.json").read_bytes() == before


def test_no_manifest_is_written_where_one_leaf_is_not_sound(leaves: Path) -> None:
    rewrite(leaves / "aspect_ratio_16_9", total_key_count=9)
    (leaves / "aspect_ratio_1_1" / "image" / SECOND).write_bytes(b"")

    with pytest.raises(LayoutError, match="no manifest was changed"):
        validate(leaves, fix_manifest=True)

    assert manifest_of(leaves / "aspect_ratio_16_9")["total_key_count"] == 9


def test_data_set_without_a_manifest_has_nothing_to_correct(root: Path) -> None:
    (root / "wdinfo.json").unlink()

    assert validate(root, fix_manifest=True).fixed == ()


def test_data_set_on_a_server_is_validated(root: Path, range_server: Any) -> None:
    url = range_server.serve(root)

    report = validate(url, decode=True)

    assert report.faults == ()
    assert {warning.kind for warning in report.warnings} == {"stale root"}
    assert (report.num_keys, report.num_decoded) == (6, 6)


def test_tars_that_a_server_lacks_or_refuses_are_faults(root: Path, range_server: Any) -> None:
    (root / "image" / SECOND).unlink()
    url = range_server.serve(root)
    range_server.fail_always("/caption/part_000000/000002.tar", status=503)

    report = validate(url, io_config=StorageOptions(retries=0))

    assert [(fault.kind, fault.modality, fault.shard) for fault in report.faults] == [
        ("unreadable tar", "image", None),
        ("unreadable tar", "caption", None),
        ("missing tar", "image", SECOND),
        ("unreadable tar", "caption", "part_000000/000002.tar"),
    ]
    assert "no type could be inferred" in report.faults[0].text


def test_secrets_of_a_url_are_not_part_of_a_fault(root: Path, range_server: Any) -> None:
    (root / "image" / SECOND).write_bytes(b"")
    range_server.required_query = "signature=hush"

    report = validate(f"{range_server.serve(root)}?signature=hush")

    assert report.counts["damaged tar"] == 1
    assert "hush" not in "".join(fault.line for fault in (*report.faults, *report.warnings))


def test_data_set_in_a_bucket_is_validated_by_its_listing(root: Path, s3_server: Any) -> None:
    (root / "image" / SECOND).unlink()
    url = s3_server.upload(root, "twins")
    config = daft.io.IOConfig(
        s3=daft.io.S3Config(
            endpoint_url=s3_server.endpoint,
            key_id=s3_server.key_id,
            access_key=s3_server.access_key,
            region_name="us-east-1",
        )
    )

    fault = only_fault_beside_roots(validate(url, io_config=config))

    assert (fault.kind, fault.path) == ("missing tar", f"{url}/image/{SECOND}")


def only_fault_beside_roots(report: ValidationReport) -> Fault:
    (fault,) = report.faults
    assert report.counts == {fault.kind: 1, "stale root": 1}
    return fault


def test_manifest_on_a_server_is_not_corrected(root: Path, range_server: Any) -> None:
    with pytest.raises(LayoutError, match="expected a local data set"):
        validate(range_server.serve(root), fix_manifest=True)


def test_options_for_a_column_that_is_not_there_are_refused(root: Path) -> None:
    with pytest.raises(ValueError, match="'mask'"):
        validate(root, io_config={"mask": StorageOptions()})


def test_nothing_at_the_root_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(LayoutError, match="gone"):
        validate(tmp_path / "gone")
