"""The feed: rows become batches, in order, in bounded memory, and say what is wrong with them."""

import gc
import logging
import os
import threading
import time
import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import daft_twinwds
from daft_twinwds.errors import DecodeError, MissingDependencyError, StorageError
from daft_twinwds.partition import Partition
from daft_twinwds.testing import encode_jpeg, make_twin_dataset, write_tar
from daft_twinwds.train import DecodeImage, Selection
from daft_twinwds.train.batches import Feed, FeedReport, available_cpus
from daft_twinwds.train.decoders import Decoder, SampleReader, decoders_of

NUMBERS = 256
"""Rows of the file of numbers: row n refers to one byte, which is n."""
SIZE = (48, 64, 3)
"""Height, width and channels of the pictures."""

Batches = list[dict[str, Any]]


@pytest.fixture(scope="module")
def numbers(tmp_path_factory: pytest.TempPathFactory) -> Selection:
    path = tmp_path_factory.mktemp("numbers") / "numbers.bin"
    path.write_bytes(bytes(range(NUMBERS)))
    return selection_of([(str(path), number, 1) for number in range(NUMBERS)])


@pytest.fixture(scope="module")
def twins(tmp_path_factory: pytest.TempPathFactory) -> Selection:
    root = make_twin_dataset(
        tmp_path_factory.mktemp("twins"), num_shards=2, samples_per_shard=5, image_size=(64, 48)
    )
    return Selection.from_dataframe(daft_twinwds.read_twin_webdataset(root))


@pytest.fixture
def damaged(twins: Selection, tmp_path: Path) -> Selection:
    """Ten pictures of which id_2 is cut short and id_5 is no picture."""
    members = {row["__key__"]: content_of(row["image"]) for row in twins.rows(range(10))}
    members["id_2"] = members["id_2"][: len(members["id_2"]) // 2]
    members["id_5"] = b"<html>404</html>"
    write_tar(
        tmp_path / "image" / "000000.tar",
        [(f"{key}.jpg", content) for key, content in members.items()],
    )
    return Selection.from_dataframe(daft_twinwds.read_twin_webdataset(tmp_path))


@pytest.fixture
def report() -> FeedReport:
    return FeedReport()


def selection_of(refs: Sequence[tuple[str, int, int | None] | None]) -> Selection:
    """Make a selection of one File column by hand; the keys are the row numbers."""
    members = [
        None if ref is None else dict(zip(("path", "position", "size"), ref, strict=True))
        for ref in refs
    ]
    type_ = pa.struct({"path": pa.string(), "position": pa.int64(), "size": pa.int64()})
    keys = [str(number) for number in range(len(refs))]
    return Selection(
        pa.table({"__key__": keys, "member": pa.array(members, type_)}), {"member": "unknown"}
    )


def content_of(ref: Any) -> bytes:
    return Path(ref.path).read_bytes()[ref.position :][: ref.size]


def readers_of(selection: Selection, decode: Mapping[str, Decoder] | None) -> dict[str, Decoder]:
    return decoders_of(selection.media, selection.table.column_names, decode)


def feed_of(
    selection: Selection,
    decode: Mapping[str, Decoder] | None = None,
    *,
    batch_size: int = 4,
    num_threads: int = 2,
    prefetch_batches: int = 2,
    skip_bad: bool = False,
) -> Feed:
    return Feed(
        selection=selection,
        reader=SampleReader(decoders=readers_of(selection, decode)),
        batch_size=batch_size,
        num_threads=num_threads,
        prefetch_batches=prefetch_batches,
        skip_bad=skip_bad,
    )


def read_all(feed: Feed, report: FeedReport | None = None) -> Batches:
    places = range(len(feed.selection))
    return list(feed.batches(places, FeedReport() if report is None else report))


def keys_of(batches: Batches) -> list[str]:
    return [key for batch in batches for key in batch["__key__"]]


def decode_threads() -> list[threading.Thread]:
    return [t for t in threading.enumerate() if t.name.startswith("daft-twinwds-decode")]


def wait_until(condition: Callable[[], bool]) -> None:
    """Wait for other threads; a condition that never holds fails the test."""
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline, "waited for 20 seconds"
        time.sleep(0.005)


@pytest.fixture(autouse=True)
def _every_thread_ends() -> Iterator[None]:
    yield
    wait_until(lambda: not decode_threads())


@pytest.mark.parametrize("num_threads", [1, 3])
@pytest.mark.parametrize("prefetch_batches", [0, 1, 5])
def test_pictures_come_decoded_and_in_order(
    twins: Selection, num_threads: int, prefetch_batches: int
) -> None:
    feed = feed_of(twins, num_threads=num_threads, prefetch_batches=prefetch_batches)

    batches = read_all(feed)

    assert [batch["image"].shape for batch in batches] == [(4, *SIZE), (4, *SIZE), (2, *SIZE)]
    assert [batch["__key__"] for batch in batches] == [
        ["id_0", "id_1", "id_2", "id_3"],
        ["id_4", "id_5", "id_6", "id_7"],
        ["id_8", "id_9"],
    ]
    pictures = [DecodeImage()(content_of(row["image"])) for row in twins.rows(range(10))]
    np.testing.assert_array_equal(np.concatenate([b["image"] for b in batches]), pictures)


def test_columns_keep_their_order_and_their_values(twins: Selection) -> None:
    (batch,) = read_all(feed_of(twins, batch_size=10))

    assert list(batch) == ["__key__", "__url__", "image", "caption"]
    assert batch["caption"] == twins.table["caption"].to_pylist()
    assert batch["image"].flags.c_contiguous
    assert batch["image"].flags.writeable


def test_rows_are_read_as_asked_for(twins: Selection, report: FeedReport) -> None:
    batches = list(feed_of(twins, {}).batches([7, 0, 7, 3, 1], report))

    assert [batch["__key__"] for batch in batches] == [["id_7", "id_0", "id_7", "id_3"], ["id_1"]]


def test_no_rows_give_no_batches(twins: Selection, report: FeedReport) -> None:
    assert list(feed_of(twins).batches([], report)) == []
    assert report == FeedReport()


def test_media_that_are_not_named_are_not_read(twins: Selection, tmp_path: Path) -> None:
    gone = selection_of([(str(tmp_path / "nowhere.tar"), 0, 10)] * 3)

    (batch,) = read_all(feed_of(gone, {}))

    assert batch == {"__key__": ["0", "1", "2"]}
    with pytest.raises(StorageError, match=r"nowhere\.tar"):
        read_all(feed_of(gone))


def test_media_other_than_pictures_come_as_bytes(numbers: Selection) -> None:
    first = read_all(feed_of(numbers))[0]

    assert first["member"] == [b"\0", b"\1", b"\2", b"\3"]


def test_decoders_may_be_callables_of_bytes(twins: Selection) -> None:
    (batch,) = read_all(feed_of(twins, {"image": len}, batch_size=10))

    assert batch["image"] == [row["image"].size for row in twins.rows(range(10))]


def test_pictures_are_decoded_as_told(twins: Selection) -> None:
    decode = DecodeImage(size=(10, 20), mode="L")

    (batch,) = read_all(feed_of(twins, {"image": decode}, batch_size=10))

    assert batch["image"].shape == (10, 10, 20, 1)
    np.testing.assert_array_equal(
        batch["image"][9], decode(content_of(twins.rows([9])[0]["image"]))
    )


def test_files_that_are_no_byte_ranges_are_read_whole(tmp_path: Path) -> None:
    name = tmp_path / "a b%20c #1.bin"
    name.write_bytes(b"0123456789")
    selection = selection_of([(str(name), 0, None), (f"file://{name}", 4, None), (str(name), 2, 3)])

    (batch,) = read_all(feed_of(selection))

    assert batch["member"] == [b"0123456789", b"456789", b"234"]


def test_the_report_counts_rows_and_bytes(twins: Selection, report: FeedReport) -> None:
    read_all(feed_of(twins), report)
    read_all(feed_of(twins, {}), report)

    sizes = [row["image"].size for row in twins.rows(range(10))]
    assert report == FeedReport(rows=20, bytes=sum(sizes))


def test_no_more_cpus_are_counted_than_there_are() -> None:
    assert 1 <= available_cpus() <= (os.cpu_count() or 1)


def test_decoders_of_columns_without_media_are_refused(twins: Selection) -> None:
    with pytest.raises(ValueError, match=r"decode: 'caption' is no File column; .* \['image'\]"):
        readers_of(twins, {"caption": bytes})


def test_decoders_that_cannot_be_called_are_refused(twins: Selection) -> None:
    with pytest.raises(TypeError, match=r"decode\['image'\] must be callable, got 'RGB'"):
        readers_of(twins, {"image": "RGB"})  # type: ignore[dict-item]


@pytest.mark.parametrize(
    ("place", "reason"),
    [
        pytest.param(2, "JPEG of 64 x 48 pixels", id="cut"),
        pytest.param(5, r"this is .*; expected a picture", id="no-picture"),
    ],
)
def test_a_picture_that_cannot_be_decoded_is_named(
    damaged: Selection, report: FeedReport, place: int, reason: str
) -> None:
    ref = damaged.rows([place])[0]["image"]

    with pytest.raises(
        DecodeError, match=rf"^{ref.path}: 'id_{place}' \(image, byte {ref.position}\): {reason}"
    ):
        list(feed_of(damaged).batches([0, place, 1], report))


def test_what_a_decoder_raises_is_told_with_its_place(numbers: Selection) -> None:
    empty: dict[bytes, int] = {}

    def decode(data: bytes) -> int:
        return empty[data]

    with pytest.raises(
        DecodeError, match=r"numbers\.bin: '0' \(member, byte 0\): KeyError: b'.x00'$"
    ) as caught:
        read_all(feed_of(numbers, {"member": decode}))

    assert isinstance(caught.value.__cause__, KeyError)


def test_a_tar_that_is_gone_is_named(tmp_path: Path) -> None:
    gone = selection_of([(str(tmp_path / "gone.tar"), 512, 10)])

    with pytest.raises(
        StorageError, match=rf"^{tmp_path}/gone\.tar: '0' \(member, byte 512\): cannot be opened"
    ):
        read_all(feed_of(gone))


def test_a_tar_that_was_cut_since_is_named(numbers: Selection, tmp_path: Path) -> None:
    (tmp_path / "cut.tar").write_bytes(bytes(7))
    cut = selection_of([(str(tmp_path / "cut.tar"), 5, 10)])

    with pytest.raises(StorageError, match=r"cut\.tar: '0' \(member, byte 5\): .*expected 10; the"):
        read_all(feed_of(cut))


def test_a_reference_that_is_null_is_named(numbers: Selection) -> None:
    with pytest.raises(
        DecodeError, match=r"'0': member is null; expected a file; .*col\('member'\)\.not_null"
    ):
        read_all(feed_of(selection_of([None])))


def test_a_null_reference_that_is_not_read_is_no_matter() -> None:
    assert read_all(feed_of(selection_of([None]), {})) == [{"__key__": ["0"]}]


@pytest.mark.parametrize("skip_bad", [False, True])
def test_pictures_of_two_shapes_in_a_batch_are_refused(tmp_path: Path, skip_bad: bool) -> None:
    root = make_twin_dataset(
        tmp_path, num_shards=1, samples_per_shard=4, image_size=[(64, 48), (48, 64)]
    )
    mixed = Selection.from_dataframe(daft_twinwds.read_twin_webdataset(root))

    with pytest.raises(
        DecodeError, match=r"000000\.tar: 'id_\d' \(image, byte \d+\): a picture of .*expected one"
    ):
        read_all(feed_of(mixed, skip_bad=skip_bad))

    shapes = [batch["image"].shape for batch in read_all(feed_of(mixed, batch_size=1))]
    assert shapes == [(1, 48, 64, 3), (1, 64, 48, 3)] * 2


@pytest.mark.parametrize(
    "error",
    [MemoryError("no room"), MissingDependencyError("pip install"), KeyboardInterrupt()],
    ids=lambda error: type(error).__name__,
)
def test_what_is_no_fault_of_the_sample_is_never_skipped(
    numbers: Selection, error: BaseException
) -> None:
    def decode(data: bytes) -> None:
        raise error

    with pytest.raises(type(error)) as caught:
        read_all(feed_of(numbers, {"member": decode}, skip_bad=True))

    assert caught.value is error


def int_of(content: bytes) -> int:
    return content[0]


@given(
    data=st.data(),
    rows=st.integers(1, 25),
    batch_size=st.integers(1, 6),
    prefetch_batches=st.integers(0, 4),
    num_threads=st.integers(1, 3),
)
def test_skipping_keeps_batches_full_and_every_good_row(
    numbers: Selection,
    data: st.DataObject,
    rows: int,
    batch_size: int,
    prefetch_batches: int,
    num_threads: int,
) -> None:
    bad = data.draw(st.frozensets(st.integers(0, rows - 1), max_size=rows - 1))

    def decode(content: bytes) -> int:
        if content[0] in bad:
            raise ValueError("bad")
        return content[0]

    report = FeedReport()
    feed = feed_of(
        numbers,
        {"member": decode},
        batch_size=batch_size,
        num_threads=num_threads,
        prefetch_batches=prefetch_batches,
        skip_bad=True,
    )
    batches = list(feed.batches(range(rows), report))

    lengths = [len(batch["member"]) for batch in batches]
    assert set(lengths[:-1]) <= {batch_size}
    assert 1 <= lengths[-1] <= batch_size
    members = list(chain.from_iterable(batch["member"] for batch in batches))
    assert sorted(members) == sorted(set(range(rows)) - bad)
    assert [str(member) for member in members] == keys_of(batches)
    assert report.rows == rows - len(bad)
    assert report.skipped == Counter({"DecodeError": len(bad)} if bad else {})


@given(
    world_size=st.integers(1, 5),
    num_workers=st.integers(1, 4),
    rows=st.integers(0, 40),
    batch_size=st.integers(1, 5),
)
def test_ranks_and_workers_share_every_row_exactly_once(
    numbers: Selection, world_size: int, num_workers: int, rows: int, batch_size: int
) -> None:
    feed = feed_of(numbers, {"member": int_of}, batch_size=batch_size)
    shares = []
    for rank in range(world_size):
        for worker in range(num_workers):
            reader = Partition(
                rank=rank, world_size=world_size, worker=worker, num_workers=num_workers
            )
            batches = feed.batches(reader.slice_of(rows), FeedReport())
            shares.append(list(chain.from_iterable(batch["member"] for batch in batches)))

    assert sorted(chain.from_iterable(shares)) == list(range(rows))
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


def test_bad_pictures_are_replaced_counted_and_logged(
    damaged: Selection,
    twins: Selection,
    report: FeedReport,
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING, "daft_twinwds"):
        batches = read_all(feed_of(damaged, skip_bad=True), report)

    assert [batch["image"].shape for batch in batches] == [(4, *SIZE), (4, *SIZE)]
    good = [number for number in range(10) if number not in (2, 5)]
    assert sorted(keys_of(batches)) == [f"id_{number}" for number in good]
    for batch in batches:
        for key, pixels in zip(batch["__key__"], batch["image"], strict=True):
            (row,) = twins.rows([int(key.removeprefix("id_"))])
            np.testing.assert_array_equal(pixels, DecodeImage()(content_of(row["image"])))
    assert (report.rows, report.skipped) == (8, Counter(DecodeError=2))
    assert report.last_skipped == caplog.messages[-1].removeprefix("skipped: ")
    assert sorted(key for key in ("'id_2'", "'id_5'") if key in caplog.text) == ["'id_2'", "'id_5'"]
    assert all(isinstance(arg, str) for record in caplog.records for arg in record.args or ())


def test_a_spare_picture_of_another_shape_is_refused(
    damaged: Selection, twins: Selection, tmp_path: Path, report: FeedReport
) -> None:
    (bad,) = damaged.rows([5])
    (good,) = twins.rows([0])
    other = DecodeImage(size=(8, 8))(content_of(good["image"]))
    members = [
        ("a.jpg", content_of(good["image"])),
        ("b.jpg", content_of(bad["image"])),
        ("c.jpg", encode_jpeg(other)),
    ]
    write_tar(tmp_path / "mixed" / "image" / "000000.tar", members)
    rows = Selection.from_dataframe(daft_twinwds.read_twin_webdataset(tmp_path / "mixed"))

    with pytest.raises(DecodeError, match=r"'c' \(image, byte \d+\): a picture of \(8, 8, 3\)"):
        read_all(feed_of(rows, batch_size=2, prefetch_batches=0, skip_bad=True), report)

    assert report.skipped == Counter(DecodeError=1)


def test_reasons_are_counted_apart(numbers: Selection, tmp_path: Path, report: FeedReport) -> None:
    name = numbers.rows([0])[0]["member"].path
    gone = str(tmp_path / "gone.tar")
    rows = selection_of([None, (gone, 0, 1), (name, 5, 1), (name, NUMBERS - 1, 9)])

    (batch,) = read_all(feed_of(rows, skip_bad=True), report)

    assert batch == {"__key__": ["2"], "member": [b"\5"]}
    assert report.skipped == Counter(DecodeError=1, StorageError=2)


def test_rows_that_are_all_bad_are_an_error_with_the_last_reason(report: FeedReport) -> None:
    nulls = selection_of([None] * 9)

    with pytest.raises(
        DecodeError,
        match=r"Selection\(9 rows; .*: not one of this reader's 9 rows could be read; expected "
        r"some; the last one: '\d': member is null",
    ):
        read_all(feed_of(nulls, skip_bad=True), report)

    assert report.skipped == Counter(DecodeError=9)


def test_a_pass_without_a_good_row_is_an_error_after_a_good_pass(numbers: Selection) -> None:
    first = numbers.rows([0])[0]["member"]
    rows = selection_of([(first.path, 0, 1), None])
    report = FeedReport()
    feed = feed_of(rows, skip_bad=True)

    assert keys_of(list(feed.batches([0], report))) == ["0"]
    with pytest.raises(DecodeError, match="not one of this reader's 1 rows could be read"):
        list(feed.batches([1], report))


class Watched:
    """A decoder that counts, and that can be held up."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.go.set()
        self.begun = 0
        self._lock = threading.Lock()

    def has_begun(self, samples: int) -> bool:
        return self.begun == samples

    def __call__(self, content: bytes) -> int:
        with self._lock:
            self.begun += 1
        assert self.go.wait(20)
        return content[0]


@pytest.mark.parametrize("prefetch_batches", [0, 1, 3])
def test_as_many_batches_as_asked_for_are_made_ahead(
    numbers: Selection, prefetch_batches: int
) -> None:
    decode = Watched()
    feed = feed_of(numbers, {"member": decode}, prefetch_batches=prefetch_batches)
    batches = feed.batches(range(NUMBERS), FeedReport())
    assert decode.begun == 0, "nothing is read before the first batch is asked for"

    for number in range(1, 5):
        next(batches)
        ahead = 4 * (number + prefetch_batches)

        wait_until(partial(decode.has_begun, ahead))
        time.sleep(0.05)
        assert decode.begun == ahead
    batches.close()


def test_closing_stops_after_the_samples_that_are_being_decoded(numbers: Selection) -> None:
    decode = Watched()
    feed = feed_of(numbers, {"member": decode}, num_threads=2, prefetch_batches=20)
    batches = feed.batches(range(NUMBERS), FeedReport())
    next(batches)
    wait_until(partial(decode.has_begun, 84))
    decode.go.clear()
    next(batches)
    wait_until(partial(decode.has_begun, 86))

    batches.close()
    decode.go.set()

    wait_until(lambda: not decode_threads())
    assert decode.begun == 86


def test_an_iterator_that_is_dropped_stops(numbers: Selection) -> None:
    batches = feed_of(numbers).batches(range(NUMBERS), FeedReport())
    next(batches)
    assert decode_threads()

    del batches

    wait_until(lambda: not decode_threads())


def test_an_error_stops_the_threads(damaged: Selection, report: FeedReport) -> None:
    batches = feed_of(damaged).batches([2] * 100, report)

    with pytest.raises(DecodeError, match="id_2"):
        next(batches)

    wait_until(lambda: not decode_threads())
    assert list(batches) == []


def test_two_passes_at_once_do_not_disturb_each_other(numbers: Selection) -> None:
    feed = feed_of(numbers, {"member": int_of})
    ours, theirs = (feed.batches(range(40), FeedReport()) for _ in range(2))

    pairs = [(a["member"], b["member"]) for a, b in zip(ours, theirs, strict=True)]

    assert all(a == b for a, b in pairs)
    assert list(chain.from_iterable(a for a, _ in pairs)) == list(range(40))


def test_batches_that_were_dropped_leave_their_memory_to_later_ones(
    twins: Selection, report: FeedReport
) -> None:
    places = [number % 10 for number in range(100)]

    addresses = [b["image"].ctypes.data for b in feed_of(twins).batches(places, report)]

    assert len(addresses) == 25
    assert len(set(addresses)) <= 4


def test_batches_that_are_kept_never_share_memory(twins: Selection, report: FeedReport) -> None:
    places = [number % 10 for number in range(100)]
    kept = list(feed_of(twins).batches(places, report))

    pictures = np.stack([DecodeImage()(content_of(row["image"])) for row in twins.rows(range(10))])
    for number, batch in enumerate(kept):
        expected = pictures[places[4 * number :][:4]]
        np.testing.assert_array_equal(batch["image"], expected)


def test_nothing_but_the_caller_holds_on_to_a_batch(damaged: Selection) -> None:
    """Not even errors of bad samples: they would, until the garbage collector comes."""
    places = [number % 10 for number in range(60)]
    gc.disable()
    try:
        batches = feed_of(damaged, skip_bad=True).batches(places, FeedReport())
        leases = []
        for batch in batches:
            leases.append(weakref.ref(batch["image"].base))
            del batch
            assert leases[-1]() is None
    finally:
        gc.enable()

    assert len(leases) == 12
