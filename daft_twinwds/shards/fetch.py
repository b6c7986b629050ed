"""A range of a remote object, whole or not at all: tried again, read on, and watched."""

import logging
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeVar

from daft_twinwds.errors import StorageError, TwinWebDatasetError
from daft_twinwds.shards.failures import UNSATISFIABLE, Failure, failure_of, to_error
from daft_twinwds.shards.options import StorageOptions
from daft_twinwds.shards.sources import Answer, Source
from daft_twinwds.shards.stats import record
from daft_twinwds.shards.urls import Url

__all__ = ["Piece", "fetch", "pause", "retried"]

logger = logging.getLogger(__name__)

_Result = TypeVar("_Result")

MAX_PAUSE: Final = 10.0
"""Seconds between two tries at most."""

PROGRESS: Final = 1 << 16
"""Bytes that, having come, make the failure after them the first one again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """Consecutive bytes of an object."""

    start: int
    data: bytes
    size: int
    """Bytes of the whole object."""
    tag: str | None
    """Changes with the object's content, where the server tells."""

    @property
    def stop(self) -> int:
        """Behind the last byte."""
        return self.start + len(self.data)


def fetch(source: Source, start: int, stop: int, *, url: Url, options: StorageOptions) -> Piece:
    """Return bytes ``start`` to ``stop`` of an object, fewer only where the object ends.

    What fails is tried again after a pause, unless it is certain to fail again; an answer that
    breaks off, or is slower than the set rate, is given up and the rest asked for. Every wait
    has an end: those for a connection, for the next bytes and for the whole answer.

    Args:
        source: The object.
        start: First byte.
        stop: Behind the last byte; more than ``start``.
        url: Where the object is, for messages.
        options: Timeouts, retries and the rate.

    Returns:
        The bytes; all of the object where the server can send nothing less. Nothing, of an
        object of size 0, where the object is empty.

    Raises:
        MissingObjectError: There is no such object.
        StorageError: It cannot be read, or changed meanwhile.
    """
    return _Fetch(source, start, stop, url=url, options=options).run()


def retried(
    action: Callable[[], _Result], *, where: str, url: Url, options: StorageOptions
) -> _Result:
    """Return what ``action`` returns, tried again where its failure may pass.

    Args:
        action: Sends requests; may raise anything.
        where: What is being done, for messages.
        url: To what.
        options: Retries.

    Raises:
        MissingObjectError: There is nothing of that name.
        StorageError: It failed for good.
    """
    failures = 0
    while True:
        begin = time.perf_counter()
        try:
            return action()
        except TwinWebDatasetError:
            raise
        except Exception as error:  # noqa: BLE001  # each client and file system has its own errors
            failure = failure_of(error)
        finally:
            record(requests=1, seconds=time.perf_counter() - begin)
        failures += 1
        if failure.is_final or failures > options.retries:
            raise to_error(failure, where=where, url=url, options=options, tries=failures)
        seconds = pause(failures, options)
        logger.info("%s: %s; asking again in %.1f s", where, failure.reason, seconds)
        record(retries=1)
        time.sleep(seconds)


def pause(failures: int, options: StorageOptions) -> float:
    """Return the seconds to wait before the next try, at random, so that readers spread out.

    Args:
        failures: Failures so far, at least 1.
        options: The first pause.
    """
    longest = min(MAX_PAUSE, options.backoff * 2.0 ** min(failures - 1, 30))
    return longest * (0.5 + random.random() / 2)


class _Slow(Exception):
    """The answer comes below the set rate."""


class _Fetch:
    def __init__(
        self, source: Source, start: int, stop: int, *, url: Url, options: StorageOptions
    ) -> None:
        self._source = source
        self._start = start
        self._stop = stop
        self._url = url
        self._options = options
        self._parts: list[bytes] = []
        self._reached = start
        self._version: tuple[int, str | None] | None = None
        self._received = 0
        self._times_slow = 0

    def run(self) -> Piece:
        failures = tries = 0
        while True:
            before = self._reached
            failure = self._try()
            # Nothing that happens behind the last byte matters.
            if failure is None or (self._version is not None and self._reached >= self._stop):
                return self._piece()
            if failure.status == UNSATISFIABLE and self._start == 0 and self._version is None:
                # No first byte can be sent of nothing.
                return Piece(start=0, data=b"", size=0, tag=None)
            failures = 1 if self._reached - before >= PROGRESS else failures + 1
            tries += 1
            if failure.is_final or failures > self._options.retries:
                where = f"{self._url}: reading bytes {self._start} to {self._stop}"
                raise to_error(
                    failure, where=where, url=self._url, options=self._options, tries=tries
                )
            seconds = pause(failures, self._options)
            logger.info(
                "%s: %s at byte %d; asking again in %.1f s",
                self._url,
                failure.reason,
                self._reached,
                seconds,
            )
            record(retries=1)
            time.sleep(seconds)

    def _try(self) -> Failure | None:
        """Send one request and take what comes; return why it was not all."""
        begin, before, requests = time.perf_counter(), self._received, 1
        try:
            answer = self._source.get(self._reached, self._stop)
            requests = answer.requests
            self._check(answer)
            self._take(answer)
        except TwinWebDatasetError:
            raise
        except _Slow:
            self._times_slow += 1
            reason = f"slower than {self._options.min_rate / 1e3:.0f} kB/s"
            return Failure(reason=reason, is_final=False)
        except Exception as error:  # noqa: BLE001  # each client and file system has its own errors
            return failure_of(error)
        finally:
            seconds = time.perf_counter() - begin
            came = self._received - before
            record(requests=requests, num_bytes=came, seconds=seconds)
        if self._reached < self._stop:
            return Failure(
                reason=f"the answer ended at byte {self._reached}, {self._stop} was promised",
                is_final=False,
            )
        return None

    def _check(self, answer: Answer) -> None:
        """Refuse another object's bytes, and learn where this one ends."""
        version = (answer.size, answer.tag)
        if self._version not in (None, version):
            raise StorageError(
                f"{self._url}: was replaced while it was read ({self._version} became {version}, "
                "size and tag); expected files that stay as they are; read the dataset again"
            )
        self._version = version
        self._stop = min(self._stop, answer.size)
        if (answer.start, answer.stop) == (self._reached, self._stop):
            return
        if (answer.start, answer.stop) != (0, answer.size):
            raise StorageError(
                f"{self._url}: bytes {answer.start} to {answer.stop} came; expected "
                f"{self._reached} to {self._stop}; the server or a proxy is faulty"
            )
        self._parts.clear()
        self._start = self._reached = 0
        self._stop = answer.size

    def _take(self, answer: Answer) -> None:
        watch = self._times_slow < self._options.retries
        begin, since = time.perf_counter(), 0
        for chunk in answer.chunks:
            self._parts.append(chunk)
            self._reached += len(chunk)
            self._received += len(chunk)
            since += len(chunk)
            if self._reached > self._stop:
                raise StorageError(
                    f"{self._url}: more bytes came than the {self._stop - self._start} asked for "
                    f"at byte {self._start}; the server or a proxy is faulty"
                )
            seconds = time.perf_counter() - begin
            if seconds >= self._options.rate_window:
                if (
                    watch
                    and self._reached < self._stop
                    and since < self._options.min_rate * seconds
                ):
                    raise _Slow
                begin, since = begin + seconds, 0

    def _piece(self) -> Piece:
        assert self._version is not None
        size, tag = self._version
        data = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
        return Piece(start=self._start, data=data, size=size, tag=tag)
