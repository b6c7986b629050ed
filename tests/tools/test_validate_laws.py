"""What is packed is sound; no header can change unnoticed; what is sound can be read."""

import contextlib
import json
import re
from pathlib import Path

import numpy as np
import pytest
from daft.exceptions import DaftCoreException
from hypothesis import given, settings
from hypothesis import strategies as st

import daft_twinwds
from daft_twinwds.errors import TwinWebDatasetError
from daft_twinwds.testing import encode_jpeg, make_twin_dataset, write_tar
from daft_twinwds.tools.pack import pack
from daft_twinwds.tools.terminal import printable
from daft_twinwds.tools.validate import validate
from daft_twinwds.tools.validate_report import Fault, Findings

JPEG = encode_jpeg(np.zeros((16, 24, 3), np.uint8))
NUM_MEMBERS = 3
CHECKSUM = range(148, 156)
"""Its own bytes may change without its value doing so: zeros and spaces around the digits."""


@settings(max_examples=10)
@given(
    num_shards=st.integers(1, 4),
    samples_per_shard=st.integers(1, 4),
    seed=st.integers(0, 9),
    workers=st.integers(1, 3),
    decode=st.booleans(),
)
def test_painted_data_sets_are_sound(
    tmp_path_factory: pytest.TempPathFactory,
    num_shards: int,
    samples_per_shard: int,
    seed: int,
    workers: int,
    decode: bool,
) -> None:
    root = make_twin_dataset(
        tmp_path_factory.mktemp("painted"),
        num_shards=num_shards,
        samples_per_shard=samples_per_shard,
        image_size=[(16, 12), (8, 8)],
        seed=seed,
    )

    report = validate(root, workers=workers, decode=decode)

    assert report.counts == {}
    assert report.num_shards == num_shards
    assert report.num_keys == num_shards * samples_per_shard
    assert report.num_decoded == (report.num_keys if decode else 0)


@settings(max_examples=10)
@given(
    sizes=st.lists(st.sampled_from([(16, 9), (9, 16), (8, 8)]), min_size=1, max_size=7),
    shard_size=st.integers(1, 4),
    seed=st.integers(0, 9),
)
def test_packed_data_sets_are_sound(
    tmp_path_factory: pytest.TempPathFactory,
    sizes: list[tuple[int, int]],
    shard_size: int,
    seed: int,
) -> None:
    folder = tmp_path_factory.mktemp("packed")
    for modality in ("image", "caption"):
        (folder / "raw" / modality).mkdir(parents=True)
    for number, (width, height) in enumerate(sizes):
        picture = encode_jpeg(np.zeros((height, width, 3), np.uint8))
        (folder / f"raw/image/{number}.v1.jpg").write_bytes(picture)
        caption = {"prompt": f"picture {number}", **({"score": 1.5} if number % 2 else {})}
        (folder / f"raw/caption/{number}.v1.json").write_text(json.dumps(caption))
    packed = pack(folder / "raw", folder / "out", shard_size=shard_size, seed=seed)

    report = validate(folder / "out", decode=True)

    assert report.counts == {}
    assert (report.num_keys, report.num_shards) == (len(sizes), packed.num_shards)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("small")
    numbers = range(NUM_MEMBERS)
    write_tar(root / "image/part_000000/000000.tar", [(f"{n}.jpg", JPEG) for n in numbers])
    write_tar(root / "caption/part_000000/000000.tar", [(f"{n}.json", b"{}") for n in numbers])
    return root


@given(
    member=st.integers(0, NUM_MEMBERS - 1),
    byte=st.integers(0, 511).filter(lambda byte: byte not in CHECKSUM),
    change=st.integers(1, 255),
)
def test_changed_byte_of_a_header_is_a_fault_there(
    small: Path, member: int, byte: int, change: int
) -> None:
    path = small / "caption/part_000000/000000.tar"
    sound = path.read_bytes()
    header = member * 1024
    changed = bytearray(sound)
    changed[header + byte] ^= change
    path.write_bytes(changed)

    report = validate(small)
    path.write_bytes(sound)

    (fault,) = report.faults
    assert (fault.kind, fault.modality, fault.offset) == ("damaged tar", "caption", header)
    assert fault.shard == "part_000000/000000.tar"
    assert validate(small).counts == {}


@given(byte=st.sampled_from(CHECKSUM), change=st.integers(1, 255))
def test_changed_checksum_is_a_fault_unless_it_is_the_same_number(
    small: Path, byte: int, change: int
) -> None:
    path = small / "caption/part_000000/000000.tar"
    sound = path.read_bytes()
    changed = bytearray(sound)
    changed[1024 + byte] ^= change
    path.write_bytes(changed)

    report = validate(small)
    path.write_bytes(sound)

    field = bytes(changed[1024 + CHECKSUM.start : 1024 + CHECKSUM.stop]).partition(b"\0")[0]
    right = sound[1024 + CHECKSUM.start : 1024 + CHECKSUM.stop].partition(b"\0")[0]
    is_number = re.fullmatch(rb" *[0-7]+ *", field) is not None
    if is_number and int(field, 8) == int(right, 8):
        assert report.is_sound
    elif is_number:
        assert [fault.offset for fault in report.faults] == [1024]
    else:
        # Python reads some more spellings, such as 00_1, which may be the same number.
        assert report.is_sound or [fault.offset for fault in report.faults] == [1024]


@settings(max_examples=20)
@given(cut=st.integers(0, 8 * 1024))
def test_what_is_sound_is_read_and_what_is_not_is_refused(small: Path, cut: int) -> None:
    path = small / "caption/part_000000/000000.tar"
    sound = path.read_bytes()
    path.write_bytes(sound[:cut])

    report = validate(small)
    keys: list[str] | None = None
    # Daft makes errors of its own of those that its tasks raise.
    with contextlib.suppress(TwinWebDatasetError, DaftCoreException):
        keys = daft_twinwds.read_twin_webdataset(small).to_pydict()["__key__"]
    path.write_bytes(sound)

    assert report.is_sound == (keys is not None)
    assert keys is None or len(keys) == report.num_keys


@given(st.text())
def test_printable_text_commands_no_terminal_and_stays_as_it_is_where_it_can(text: str) -> None:
    shown = printable(text)

    assert shown.isprintable()
    assert shown == text or not text.isprintable()


@given(
    st.lists(st.lists(st.sampled_from(["bad text", "bad picture", "stale root"]), max_size=6)),
    st.integers(1, 4),
)
def test_merged_findings_keep_the_first_of_each_kind_and_count_all(
    parts: list[list[str]], max_faults: int
) -> None:
    whole, one = Findings(max_faults), Findings(max_faults)

    for number, kinds in enumerate(parts):
        part = Findings(max_faults)
        for place, kind in enumerate(kinds):
            fault = Fault(kind=kind, path=f"{number}-{place}", text="")  # type: ignore[arg-type]
            part.add(fault)
            one.add(fault)
        whole.merge(part)

    assert whole.kept == one.kept
    assert whole.counts == one.counts
    assert whole.num_faults() == whole.counts["bad text"] + whole.counts["bad picture"]
