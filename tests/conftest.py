"""Hypothesis profiles, and servers on 127.0.0.1 that count what they are asked for."""

import logging
import os
import re
import socket
import struct
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from hypothesis import settings
from typing_extensions import override

settings.register_profile("default", max_examples=50, deadline=None)
settings.register_profile("ci", parent=settings.get_profile("default"), derandomize=True)
settings.register_profile("nightly", max_examples=500, deadline=None)

settings.load_profile("ci" if os.environ.get("CI") else "default")


@dataclass(frozen=True, kw_only=True)
class Fault:
    """What a server does wrong with one request."""

    status: int | None = None
    """Answer with this status instead."""
    body: bytes = b""
    """Body of that answer."""
    cut_after: int | None = None
    """Bytes of the body after which the connection is closed."""
    is_reset: bool = False
    """Whether closing is a reset."""
    pause: float = 0.0
    """Seconds to wait after each of the ``piece`` bytes."""
    piece: int = 1 << 16
    silence: float = 0.0
    """Seconds to wait before answering at all."""
    is_whole: bool = False
    """Send everything, whatever range was asked for."""
    shift: int = 0
    """Send bytes that begin so many later than asked for."""
    replaces: bytes | None = None
    """Content that the file has from now on."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """One request as it came."""

    method: str
    path: str
    """Decoded, without the query."""
    target: str
    """As sent."""
    range: str | None
    headers: dict[str, str]


@dataclass
class RangeServer:
    """An HTTP server of files that are in memory or on the disk."""

    url: str = ""
    files: dict[str, bytes | Path] = field(default_factory=dict)
    """Decoded path, with its slash -> content."""
    faults: dict[str, list[Fault]] = field(default_factory=dict)
    """Path -> what goes wrong with its next requests, one after another."""
    always: dict[str, Fault] = field(default_factory=dict)
    """Path -> what goes wrong with all its requests."""
    requests: list[Request] = field(default_factory=list)
    latency: float = 0.0
    """Seconds before each answer."""
    required_query: str = ""
    """Query without which every request is refused."""
    required_header: tuple[str, str] | None = None
    """Header without which every request is refused."""
    has_tags: bool = True
    """Whether answers have an ETag."""
    sent: int = 0
    """Bytes of bodies, each piece counted before its client can have it."""
    in_flight: int = 0
    """Requests that wait for an answer."""
    most_in_flight: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def serve(self, root: Path, below: str = "") -> str:
        """Serve the files of a folder; return their root's URL."""
        for path in sorted(root.rglob("*")):
            if path.is_file():
                self.files[f"{below}/{path.relative_to(root)}"] = path
        return f"{self.url}{below}"

    def fail(self, path: str, *, times: int = 1, **fault: Any) -> None:
        """Do something wrong (see `Fault`) with the next requests for one path."""
        self.faults.setdefault(path, []).extend([Fault(**fault)] * times)

    def fail_always(self, path: str, **fault: Any) -> None:
        """Do something wrong with all requests for one path."""
        self.always[path] = Fault(**fault)

    def ranges(self) -> list[str | None]:
        """Return the ranges asked for, in order."""
        return [request.range for request in self.requests]

    def count(self, path: str) -> int:
        """Requests for one path."""
        return sum(request.path == path for request in self.requests)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = 1 << 16
    state: RangeServer

    @override
    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_HEAD(self) -> None:
        self._note()
        self._answer(403, b"")

    def do_GET(self) -> None:
        state = self.state
        with state.lock:
            state.in_flight += 1
            state.most_in_flight = max(state.most_in_flight, state.in_flight)
        try:
            self._get()
        finally:
            with state.lock:
                state.in_flight -= 1

    def _get(self) -> None:
        state, path = self.state, self._note()
        fault = state.always.get(path) or Fault()
        if state.faults.get(path):
            fault = state.faults[path].pop(0)
        time.sleep(state.latency + fault.silence)
        if state.required_query and self.path.partition("?")[2] != state.required_query:
            self._answer(403, b"<Error><Code>AccessDenied</Code></Error>")
            return
        if state.required_header:
            name, value = state.required_header
            if self.headers.get(name) != value:
                self._answer(401, b"")
                return
        if fault.replaces is not None:
            state.files[path] = fault.replaces
        content = state.files.get(path)
        if fault.status is not None or content is None:
            self._answer(fault.status or 404, fault.body)
            return
        self._send_range(content, fault)

    def _note(self) -> str:
        path = unquote(self.path.partition("?")[0])
        self.state.requests.append(
            Request(
                method=self.command,
                path=path,
                target=self.path,
                range=self.headers.get("Range"),
                headers={name.lower(): value for name, value in self.headers.items()},
            )
        )
        return path

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _send_range(self, content: bytes | Path, fault: Fault) -> None:
        size = content.stat().st_size if isinstance(content, Path) else len(content)
        asked = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range") or "")
        start, stop = 0, size
        if asked and not fault.is_whole:
            start, stop = int(asked[1]) + fault.shift, min(int(asked[2]) + 1 + fault.shift, size)
            if start >= size:
                self.send_response(416)
                self.send_header("Content-Range", f"bytes */{size}")
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {start}-{stop - 1}/{size}")
        else:
            self.send_response(200)
        if self.state.has_tags:
            tag = content.stat().st_ino if isinstance(content, Path) else hash(content)
            self.send_header("ETag", f'"{tag:x}-{size}"')
        self.send_header("Last-Modified", "Sun, 29 Nov 2026 20:00:00 GMT")
        self.send_header("Content-Length", str(stop - start))
        self.end_headers()
        self._send_body(content, start, stop, fault)

    def _send_body(self, content: bytes | Path, start: int, stop: int, fault: Fault) -> None:
        end = stop if fault.cut_after is None else min(stop, start + fault.cut_after)
        try:
            for position in range(start, end, fault.piece):
                data = _bytes_of(content, position, min(end, position + fault.piece))
                with self.state.lock:
                    self.state.sent += len(data)
                self.wfile.write(data)
                self.wfile.flush()
                time.sleep(fault.pause)
        except OSError:  # the client has hung up, as it may
            self.close_connection = True
            return
        if end < stop:
            self._hang_up(is_reset=fault.is_reset)

    def _hang_up(self, *, is_reset: bool) -> None:
        self.wfile.flush()
        if is_reset:
            linger = struct.pack("ii", 1, 0)
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            self.rfile.close()
        else:
            self.connection.shutdown(socket.SHUT_RDWR)
        self.connection.close()
        self.close_connection = True


def _bytes_of(content: bytes | Path, start: int, stop: int) -> bytes:
    if isinstance(content, bytes):
        return content[start:stop]
    with content.open("rb") as file:
        file.seek(start)
        return file.read(stop - start)


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    @override
    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: clients that hang up are what is tested."""


@pytest.fixture(scope="session")
def start_range_server() -> Iterator[Callable[[], RangeServer]]:
    servers: list[_Server] = []

    def start() -> RangeServer:
        state = RangeServer()
        handler = type("Handler", (_Handler,), {"state": state})
        server = _Server(("127.0.0.1", 0), handler)
        state.url = f"http://127.0.0.1:{server.server_address[1]}"
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        servers.append(server)
        return state

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.fixture
def range_server(start_range_server: Callable[[], RangeServer]) -> RangeServer:
    """A server of its own for each test, on 127.0.0.1."""
    return start_range_server()


@dataclass(frozen=True, kw_only=True)
class S3Server:
    """Moto's S3 server, and a client to fill it with."""

    endpoint: str
    client: Any
    backend: Any
    key_id: str = "AKIATWINTESTKEYID"
    access_key: str = "twin-test-secret/access+key"

    def put(self, bucket: str, key: str, content: bytes) -> None:
        """Put an object into a bucket, past the HTTP, which takes its time."""
        self.backend.put_object(bucket, key, content)

    def upload(self, root: Path, bucket: str, below: str = "") -> str:
        """Put the files of a folder into a new bucket; return their root's URL."""
        self.client.create_bucket(Bucket=bucket)
        for path in sorted(root.rglob("*")):
            if path.is_file():
                key = "/".join(filter(None, (below, str(path.relative_to(root)))))
                self.put(bucket, key, path.read_bytes())
        return "/".join(filter(None, (f"s3://{bucket}", below)))


@pytest.fixture(scope="session")
def moto_endpoint() -> Iterator[str]:
    from moto.server import ThreadedMotoServer  # takes seconds, which few tests need

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def s3_server(moto_endpoint: str) -> Iterator[S3Server]:
    """An S3 server without buckets, on 127.0.0.1; everything in it goes with the test."""
    import boto3
    from moto.backends import get_backend
    from moto.core.models import DEFAULT_ACCOUNT_ID

    client = boto3.client(
        "s3",
        endpoint_url=moto_endpoint,
        region_name="us-east-1",
        aws_access_key_id=S3Server.key_id,
        aws_secret_access_key=S3Server.access_key,
    )
    backend = get_backend("s3")[DEFAULT_ACCOUNT_ID]["aws"]
    yield S3Server(endpoint=moto_endpoint, client=client, backend=backend)
    client.close()
    reset_request = urllib.request.Request(f"{moto_endpoint}/moto-api/reset", method="POST")
    urllib.request.urlopen(reset_request).close()
