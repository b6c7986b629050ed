"""Folders of servers: prefixes of a bucket's keys, fsspec's folders, and what HTTP leaves of them."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, Protocol

import obstore
from obstore.store import ObjectStore

from daft_twinwds.errors import LayoutError
from daft_twinwds.shards.clients import OBJECT_SCHEMES, file_system, object_store
from daft_twinwds.shards.fetch import retried
from daft_twinwds.shards.manifest import MANIFEST_NAME
from daft_twinwds.shards.options import StorageOptions
from daft_twinwds.shards.remote import RemoteFile
from daft_twinwds.shards.storage import MissingObjectError
from daft_twinwds.shards.trees import Kind, Listing, is_tar
from daft_twinwds.shards.urls import HTTP, Url

__all__ = ["HttpTree", "ListedTree", "remote_tree"]

PAGE: Final = 1000
"""Names in one answer to a request for a listing."""


def remote_tree(url: str, options: StorageOptions) -> "HttpTree | ListedTree":
    """Return the folders at a URL; what is listed is remembered as long as the tree is."""
    return HttpTree() if Url.parse(url).scheme in HTTP else ListedTree(options)


class HttpTree:
    """Files behind HTTP, which has no folders: whatever a manifest names is taken to be there."""

    can_list: Final = False

    def kind_of(self, path: str) -> Kind:
        """Return what a path's name says that it is; nothing is asked."""
        return "file" if path.rpartition("/")[2] == MANIFEST_NAME else "folder"

    def scan(self, folder: str) -> Listing:
        """Refuse.

        Raises:
            LayoutError: Always.
        """
        raise LayoutError(
            f"{folder}: an HTTP server lists no folders; expected the URL of a folder with a "
            f"{MANIFEST_NAME}, or of that; name each leaf, or give the bucket by s3://, gs:// or az://"
        )

    def identity(self, path: str) -> str:
        """Return the path."""
        return path

    def iter_tars(self, folder: str) -> Iterator[str]:
        """Refuse, as `scan`."""
        self.scan(folder)
        yield from ()


class ListedTree:
    """Folders of an object store or an fsspec file system."""

    can_list: Final = True

    def __init__(self, options: StorageOptions) -> None:
        self._options = options
        self._scans: dict[str, Listing] = {}
        self._is_fresh = False

    def kind_of(self, path: str) -> Kind | None:
        """See `Tree.kind_of`; a name that is both is a folder."""
        folder, _, name = path.rpartition("/")
        if not Url.parse(path).path:
            return "folder"
        known = self._scans.get(folder)
        if known is not None and not name.startswith("."):
            if name in known.folders:
                return "folder"
            return "file" if name in known.files else None
        listing = self.scan(path)
        if listing.folders or listing.files:
            return "folder"
        try:
            with RemoteFile(path, self._options) as file:
                len(file)
        except MissingObjectError:
            return None
        return "file"

    def scan(self, folder: str) -> Listing:
        """See `Tree.scan`. One request per thousand names, once per folder."""
        if folder not in self._scans:
            folders, files = self._run(folder, lambda lister: lister.children())
            self._scans[folder] = Listing(
                folders=sorted({name for name in folders if not name.startswith(".")}),
                files=sorted({name for name in files if not name.startswith(".")}),
            )
        known = self._scans[folder]
        return Listing(folders=list(known.folders), files=list(known.files))

    def identity(self, path: str) -> str:
        """Return the path."""
        return path

    def iter_tars(self, folder: str) -> Iterator[str]:
        """See `Tree.iter_tars`. One request per thousand names, however deep they lie."""
        for name in self._run(folder, lambda lister: lister.below()):
            if is_tar(name) and not name.startswith(".") and "/." not in name:
                yield name

    def _run(self, folder: str, ask: Any) -> Any:
        url = Url.parse(folder)
        lister = self._lister(url)
        return retried(lambda: ask(lister), where=f"{url}: listing", url=url, options=self._options)

    def _lister(self, url: Url) -> "_Lister":
        if url.scheme in OBJECT_SCHEMES:
            store, name = object_store(url, self._options)
            return _Prefix(store=store, name=name)
        system, path = file_system(url, self._options)
        if not self._is_fresh:
            # It may have been listed before, and files may have come since.
            system.invalidate_cache()
            self._is_fresh = True
        return _Folder(system, path)


class _Lister(Protocol):
    """One folder; each method sends requests, and may raise anything."""

    def children(self) -> tuple[list[str], list[str]]:
        """Return the names of folders and of files in it."""

    def below(self) -> list[str]:
        """Return the paths of all files below it, relative to it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Prefix:
    store: ObjectStore
    name: str

    def children(self) -> tuple[list[str], list[str]]:
        found = obstore.list_with_delimiter(self.store, self.name or None)
        return (
            [str(prefix).rstrip("/").rpartition("/")[2] for prefix in found["common_prefixes"]],
            [meta["path"].rpartition("/")[2] for meta in found["objects"]],
        )

    def below(self) -> list[str]:
        start = len(self.name) + 1 if self.name else 0
        return [
            meta["path"][start:]
            for page in obstore.list(self.store, self.name or None, chunk_size=PAGE)
            for meta in page
        ]


class _Folder:
    def __init__(self, system: Any, path: str) -> None:
        self._system = system
        self._path = path.rstrip("/")

    def children(self) -> tuple[list[str], list[str]]:
        try:
            entries = self._system.ls(self._path, detail=True)
        except (FileNotFoundError, NotADirectoryError):
            return [], []
        folders: list[str] = []
        files: list[str] = []
        for entry in entries:
            name = entry["name"].rstrip("/")
            if name.strip("/") != self._path.strip("/"):
                found = folders if entry["type"] == "directory" else files
                found.append(name.rpartition("/")[2])
        return folders, files

    def below(self) -> list[str]:
        try:
            names = self._system.find(self._path)
        except FileNotFoundError:
            return []
        start = len(self._path.strip("/")) + 1
        return [name.strip("/")[start:] for name in names]
