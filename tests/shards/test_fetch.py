"""Ranges from a server that does everything wrong: the right bytes or our error, and never a hang."""

import logging
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from daft_twinwds.errors import StorageError
from daft_twinwds.shards import fetch, sources
from daft_twinwds.shards.options import HttpOptions, StorageOptions
from daft_twinwds.shards.stats import storage_stats
from daft_twinwds.shards.storage import MissingObjectError, open_file, read_range
from daft_twinwds.shards.urls import Url

if TYPE_CHECKING:
    from tests.conftest import RangeServer

CONTENT = np.random.default_rng(0).bytes(1 << 20)
START, SIZE = 1000, 500_000
WANTED = CONTENT[START : START + SIZE]

OPTIONS = StorageOptions(backoff=0.01, retries=3)
IMPATIENT = replace(OPTIONS, read_timeout=0.3)
WATCHFUL = replace(OPTIONS, rate_window=0.2, min_rate=3e5)


@pytest.fixture
def server(range_server: "RangeServer") -> "RangeServer":
    range_server.files["/x.tar"] = CONTENT
    return range_server


def read(server: "RangeServer", options: StorageOptions = OPTIONS) -> bytes:
    return read_range(f"{server.url}/x.tar", START, SIZE, options)


def test_a_range_costs_one_request_and_no_look_at_the_size(server: "RangeServer") -> None:
    before = storage_stats()

    assert read(server) == WANTED

    assert [(one.method, one.range) for one in server.requests] == [("GET", "bytes=1000-500999")]
    came = storage_stats() - before
    assert (came.retries, came.bytes) == (0, SIZE)


@pytest.mark.parametrize(
    ("faults", "ranges"),
    [
        pytest.param([{"status": 500}], ["1000-500999"] * 2, id="server-error"),
        pytest.param([{"status": 503}] * 3, ["1000-500999"] * 4, id="as-often-as-allowed"),
        pytest.param([{"status": 429}], ["1000-500999"] * 2, id="too-many-requests"),
        pytest.param(
            [{"status": 400, "body": b"<Error><Code>RequestTimeout</Code></Error>"}],
            ["1000-500999"] * 2,
            id="passing-code-of-s3",
        ),
        pytest.param([{"cut_after": 100}], ["1000-500999", "1100-500999"], id="closed-in-mid-body"),
    ],
)
def test_what_may_pass_is_tried_again_from_where_it_was(
    server: "RangeServer", faults: list[dict[str, Any]], ranges: list[str]
) -> None:
    for fault in faults:
        server.fail("/x.tar", **fault)
    before = storage_stats()

    assert read(server) == WANTED

    assert server.ranges() == [f"bytes={span}" for span in ranges]
    came = storage_stats() - before
    assert (came.requests, came.retries, came.bytes) == (len(ranges), len(ranges) - 1, SIZE)


@pytest.mark.parametrize(
    ("fault", "again"),
    [
        pytest.param({"silence": 1}, "bytes=1000-500999", id="no-answer"),
        pytest.param({"pause": 1, "piece": 100}, "bytes=1100-500999", id="stalled-in-mid-body"),
    ],
)
def test_what_stalls_is_given_up_and_read_on(
    server: "RangeServer", fault: dict[str, Any], again: str
) -> None:
    server.fail("/x.tar", **fault)

    assert read(server, IMPATIENT) == WANTED

    assert server.ranges()[:2] == ["bytes=1000-500999", again]


def test_a_reset_in_mid_body_is_read_on_from_what_had_come(server: "RangeServer") -> None:
    server.fail("/x.tar", cut_after=200_000, is_reset=True)
    before = storage_stats()

    assert read(server) == WANTED

    # A reset takes what lay in the client's buffers with it.
    first, second = (int(str(span)[6:].partition("-")[0]) for span in server.ranges())
    assert (first, second <= 201_000) == (1000, True)
    assert (storage_stats() - before).retries == 1


def test_an_answer_below_the_set_rate_is_given_up_and_read_on(server: "RangeServer") -> None:
    server.fail("/x.tar", pause=0.05, piece=1000)
    before = storage_stats()

    assert read(server, WATCHFUL) == WANTED

    first, second = server.ranges()[:2]
    assert first == "bytes=1000-500999"
    assert second is not None
    assert second != first
    assert (storage_stats() - before).bytes == SIZE


def test_a_line_that_is_slow_for_everybody_is_put_up_with(server: "RangeServer") -> None:
    server.fail_always("/x.tar", pause=0.1, piece=20_000)

    assert read(server, replace(WATCHFUL, retries=2)) == WANTED

    assert len(server.requests) == 3


def test_an_answer_at_the_set_rate_is_left_alone(server: "RangeServer") -> None:
    server.fail("/x.tar", pause=0.05, piece=100_000)

    assert read(server, replace(WATCHFUL, min_rate=1e4)) == WANTED

    assert len(server.requests) == 1


def test_progress_makes_the_next_failure_the_first_again(server: "RangeServer") -> None:
    server.fail_always("/x.tar", cut_after=fetch.PROGRESS)

    assert read(server) == WANTED

    assert len(server.requests) == -(-SIZE // fetch.PROGRESS)


def test_without_progress_it_ends(server: "RangeServer") -> None:
    server.fail_always("/x.tar", cut_after=10)

    with pytest.raises(
        StorageError, match=r"x\.tar: reading bytes 1000 to 501000 failed after 4 tr"
    ):
        read(server)

    assert len(server.requests) == 4


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ({"status": 404}, r"failed \(404 Not Found\); .*; check the path"),
        ({"status": 403}, r"failed \(403 Forbidden\); .*HTTPConfig\(bearer_token"),
        ({"status": 401}, r"failed \(401 Unauthorized\); .*HTTPConfig\(bearer_token"),
        ({"status": 400}, r"failed \(400 Bad Request\); .*; check the path and io_config"),
        ({"status": 410}, r"failed \(410 Gone\); .*; check the path and io_config"),
        ({"status": 301}, r"failed \(301, another region\); .*region_name"),
    ],
)
def test_what_cannot_pass_is_final(
    server: "RangeServer", fault: dict[str, Any], message: str
) -> None:
    server.fail_always("/x.tar", **fault)

    with pytest.raises(StorageError, match=rf"^{server.url}/x.tar: reading bytes .*{message}"):
        read(server)

    assert len(server.requests) == 1


def test_only_what_is_not_there_is_missing(server: "RangeServer") -> None:
    with pytest.raises(MissingObjectError, match=r"none\.tar: reading bytes 0 to 1 failed .404"):
        read_range(f"{server.url}/none.tar", 0, 1)
    server.fail_always("/x.tar", status=403)
    with pytest.raises(StorageError) as caught:
        read(server)
    assert not isinstance(caught.value, MissingObjectError)


def test_a_server_that_is_not_there_is_told_within_the_tries() -> None:
    with pytest.raises(StorageError, match=r"failed after 4 tries \(no connection could be made\)"):
        read_range("http://127.0.0.1:9/x.tar", 0, 1, OPTIONS)


def test_a_server_that_never_answers_ends_in_an_error(server: "RangeServer") -> None:
    server.fail_always("/x.tar", silence=60)
    options = replace(OPTIONS, read_timeout=0.2, retries=2)

    with pytest.raises(StorageError, match=r"after 3 tries \(no bytes came in time\); .*try again"):
        read(server, options)


def test_a_trickle_ends_with_the_time_for_one_request(server: "RangeServer") -> None:
    server.fail_always("/x.tar", pause=0.1, piece=10)  # hours for all of it
    options = replace(OPTIONS, timeout=0.5, retries=1, min_rate=0)

    with pytest.raises(StorageError, match="after 2 tries"):
        read(server, options)


def test_small_files_are_read_whole_where_ranges_are_ignored(server: "RangeServer") -> None:
    server.fail_always("/x.tar", is_whole=True)
    before = storage_stats()

    with open_file(f"{server.url}/x.tar", OPTIONS) as file:
        assert file[5:10] == CONTENT[5:10]
        assert file.read(START, SIZE) == WANTED
        assert len(file) == len(CONTENT)

    assert server.ranges() == ["bytes=0-262143", None]
    assert (storage_stats() - before).requests == 2


def test_a_whole_answer_that_breaks_off_begins_anew(server: "RangeServer") -> None:
    server.fail("/x.tar", is_whole=True)
    server.fail("/x.tar", is_whole=True, cut_after=300_000)
    server.fail("/x.tar", is_whole=True, times=2)

    assert read(server) == WANTED


def test_large_files_are_refused_where_ranges_are_ignored(
    server: "RangeServer", monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "MAX_WHOLE", len(CONTENT) - 1)
    # So slowly that the client has hung up long before the last piece.
    server.fail_always("/x.tar", is_whole=True, pause=0.02)
    before = server.sent

    with pytest.raises(
        StorageError, match=r"the server sends all 1048576 bytes where a range .*answer 206.*copy"
    ):
        read(server)

    time.sleep(0.5)  # all of it would have come
    assert len(server.requests) == 2
    assert server.sent - before <= len(CONTENT)


def test_other_bytes_than_those_asked_for_are_not_taken(server: "RangeServer") -> None:
    server.fail_always("/x.tar", shift=7)

    with pytest.raises(StorageError, match=r"x\.tar: reading bytes 1000 to 501000 failed"):
        read(server)


@pytest.mark.parametrize(
    "content",
    [pytest.param(CONTENT[::-1], id="same-size"), pytest.param(CONTENT[1:], id="shorter")],
)
def test_a_file_replaced_between_two_tries_is_refused(
    server: "RangeServer", content: bytes
) -> None:
    server.fail("/x.tar", cut_after=100_000)
    server.fail("/x.tar", replaces=content)

    with pytest.raises(StorageError, match=r"x\.tar: was replaced while it was read .*; read the"):
        read(server)


class FaultySource:
    """Gives an answer that was not asked for."""

    def __init__(self, **answer: Any) -> None:
        usual = sources.Answer(start=0, stop=10, size=100, tag=None, chunks=[bytes(10)])
        self.answer = replace(usual, **answer)

    def get(self, start: int, stop: int) -> sources.Answer:
        return self.answer


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ({"start": 5, "stop": 15}, "bytes 5 to 15 came; expected 0 to 10; the server or a proxy"),
        ({"stop": 9, "chunks": [bytes(9)]}, "bytes 0 to 9 came; expected 0 to 10"),
        ({"chunks": [bytes(7), bytes(7)]}, "more bytes came than the 10 asked for at byte 0"),
    ],
)
def test_an_answer_to_another_question_is_refused(answer: dict[str, Any], message: str) -> None:
    url = Url.parse("https://host/x")

    with pytest.raises(StorageError, match=f"^https://host/x: {message}"):
        fetch.fetch(FaultySource(**answer), 0, 10, url=url, options=OPTIONS)


def test_what_happens_behind_the_last_byte_does_not_matter() -> None:
    def chunks() -> Iterator[bytes]:
        yield CONTENT[:10]
        raise ConnectionResetError

    url = Url.parse("https://host/x")

    piece = fetch.fetch(FaultySource(chunks=chunks()), 0, 10, url=url, options=OPTIONS)

    assert piece.data == CONTENT[:10]


def test_a_range_past_the_end_is_refused(server: "RangeServer") -> None:
    with pytest.raises(
        StorageError, match=r"5 bytes at byte 1048571, expected 6; .*cut or replaced"
    ):
        read_range(f"{server.url}/x.tar", len(CONTENT) - 5, 6, OPTIONS)
    with pytest.raises(StorageError, match=r"416 Range Not Satisfiable\); .*cut or replaced"):
        read_range(f"{server.url}/x.tar", len(CONTENT), 1, OPTIONS)


def test_the_rest_of_a_file_is_read_without_knowing_its_size(server: "RangeServer") -> None:
    assert read_range(f"{server.url}/x.tar", 1_000_000, None, OPTIONS) == CONTENT[1_000_000:]


def test_an_empty_file_has_no_bytes(server: "RangeServer") -> None:
    server.files["/empty"] = b""

    with open_file(f"{server.url}/empty", OPTIONS) as file:
        assert len(file) == 0
        assert file[0:512] == b""
        assert file.read(0, 0) == b""
        with pytest.raises(StorageError, match="0 bytes at byte 0, expected 1"):
            file.read(0, 1)


def test_tries_are_logged_and_nothing_secret_with_them(
    server: "RangeServer", caplog: pytest.LogCaptureFixture
) -> None:
    server.fail("/x.tar", status=500, body=b"your key is hunter2")
    options = replace(OPTIONS, http=HttpOptions(headers=(("x-key", "hunter2"),)))

    with caplog.at_level(logging.DEBUG):
        read_range(f"{server.url}/x.tar?sig=hunter2", START, SIZE, options)

    assert "x.tar: 500 Internal Server Error at byte 1000; asking again in 0.0 s" in caplog.text
    assert "hunter2" not in caplog.text
    assert server.requests[0].headers["x-key"] == "hunter2"


@pytest.mark.parametrize("failures", range(1, 40))
def test_pauses_double_are_spread_and_have_an_end(failures: int) -> None:
    options = StorageOptions(backoff=0.2)

    pauses = [fetch.pause(failures, options) for _ in range(50)]

    longest = min(10.0, 0.2 * 2 ** (failures - 1))
    assert longest / 2 <= min(pauses)
    assert max(pauses) <= longest
    assert len(set(pauses)) > 1


def test_a_listing_is_tried_again_too() -> None:
    left = [ConnectionError("reset"), TimeoutError(), None]

    def action() -> str:
        error = left.pop(0)
        if error is not None:
            raise error
        return "listed"

    before = storage_stats()

    listed = fetch.retried(action, where="x: listing", url=Url.parse("s3://b"), options=OPTIONS)

    assert listed == "listed"
    assert (storage_stats() - before).retries == 2


def test_an_error_of_our_own_is_passed_on() -> None:
    def action() -> None:
        raise StorageError("ours")

    with pytest.raises(StorageError, match=r"^ours$"):
        fetch.retried(action, where="x: listing", url=Url.parse("s3://b"), options=OPTIONS)
