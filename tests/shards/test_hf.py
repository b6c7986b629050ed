"""hf:// against a hub on 127.0.0.1 that answers what the client library asks of it."""

import json
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote

import huggingface_hub.constants
import numpy as np
import pytest
from typing_extensions import override

from daft_twinwds.shards.layout import find_dataset
from daft_twinwds.shards.options import HfOptions, StorageOptions
from daft_twinwds.shards.storage import MissingObjectError, open_file, read_range

CONTENT = np.random.default_rng(0).bytes(600_000)
REPO = "/datasets/me/set"
TARS = ["part_000000/000000.tar", "part_000000/a b%20#.tar"]


class Hub:
    """Files of one data set repository."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.log: list[tuple[str, str, str | None]] = []

    def entries(self, folder: str, *, recursive: bool) -> list[dict[str, Any]]:
        """What the tree endpoint answers."""
        below = f"{folder}/" if folder else ""
        found: dict[str, dict[str, Any]] = {}
        for path, content in self.files.items():
            if not path.startswith(below):
                continue
            name, deeper, _ = path[len(below) :].partition("/")
            if recursive or not deeper:
                found[path] = self.entry(path, content)
            if deeper:
                found[below + name] = {"type": "directory", "path": below + name, "oid": "0"}
        return list(found.values())

    def entry(self, path: str, content: bytes) -> dict[str, Any]:
        """What the hub says of one file."""
        return {"type": "file", "path": path, "size": len(content), "oid": "0"}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    hub: Hub

    @override
    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_POST(self) -> None:
        body = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
        files = self.hub.files
        self._note()
        self._json([self.hub.entry(path, files[path]) for path in body["paths"] if path in files])

    def do_GET(self) -> None:
        path = self._note()
        tree = re.fullmatch(rf"/api{REPO}/tree/main/?(.*)", path)
        data = re.fullmatch(rf"{REPO}/resolve/main/(.*)", path)
        if tree:
            self._json(self.hub.entries(tree[1], recursive="recursive=True" in self.path))
        elif path == f"/api{REPO}/revision/main" or path == f"/api{REPO}":
            self._json({"id": "me/set", "sha": "0", "private": False, "tags": [], "siblings": []})
        elif data and data[1] in self.hub.files:
            self._range(self.hub.files[data[1]])
        else:
            self._answer(404, b"{}")

    def _note(self) -> str:
        path = unquote(self.path.partition("?")[0])
        self.hub.log.append((self.command, path, self.headers.get("Range")))
        return path

    def _range(self, content: bytes) -> None:
        asked = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range") or "")
        assert asked
        self._answer(206, content[int(asked[1]) : int(asked[2]) + 1])

    def _json(self, value: Any) -> None:
        self._answer(200, json.dumps(value).encode())

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """A hub with a twin data set, which the client library takes for its own."""
    hub = Hub()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"hub": hub}))
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    endpoint = f"http://127.0.0.1:{server.server_address[1]}"
    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", endpoint)
    monkeypatch.setattr(
        huggingface_hub.constants,
        "HUGGINGFACE_CO_URL_TEMPLATE",
        endpoint + "/{repo_id}/resolve/{revision}/{filename}",
    )
    for folder in ("caption", "image"):
        for name in TARS:
            hub.files[f"train/{folder}/{name}"] = CONTENT
    yield hub
    huggingface_hub.close_session()
    server.shutdown()
    server.server_close()


def options_of(request: pytest.FixtureRequest) -> StorageOptions:
    """Options of a test's own, so that no test gets another's client."""
    return StorageOptions(hf=HfOptions(token=f"hf_{request.node.name}"), retries=1)


def test_ranges_are_exact(hub: Hub, request: pytest.FixtureRequest) -> None:
    path = f"hf://datasets/me/set/train/image/{TARS[1]}"
    options = options_of(request)

    with open_file(path, options) as file:
        assert file.read(1000, 300_000) == CONTENT[1000:301_000]
        assert len(file) == len(CONTENT)
        assert file.read_many([5, 590_000], [6, 7]) == [CONTENT[5:11], CONTENT[590_000:590_007]]

    ranges = [span for _, place, span in hub.log if "/resolve/" in place]
    assert ranges[0] == "bytes=1000-300999"
    assert read_range(path, 599_990, None, options) == CONTENT[-10:]


def test_a_dataset_is_found_by_listing(hub: Hub, request: pytest.FixtureRequest) -> None:
    dataset = find_dataset("hf://datasets/me/set/train", options=options_of(request))

    assert dataset.modalities == ("caption", "image")
    assert [shard.name for shard in dataset.iter_shards()] == sorted(TARS)
    for shard in dataset.iter_shards():
        with shard.open("image") as file:
            assert file.read(0, 3) == CONTENT[:3]


def test_a_missing_file_is_told(hub: Hub, request: pytest.FixtureRequest) -> None:
    with pytest.raises(
        MissingObjectError, match=r"^hf://datasets/me/set/none: .*404.*check the pa"
    ):
        read_range("hf://datasets/me/set/none", 0, 1, options_of(request))
