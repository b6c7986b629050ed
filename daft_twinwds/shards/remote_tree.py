"""Folders of servers: prefixes of a bucket's keys, fsspec's folders, and what HTTP leaves of them."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NoReturn, Protocol

import obstore
import pyarrow as pa
from obstore.store import ObjectStore

from daft_twinwds.errors import LayoutError
from daft_twinwds.shards.clients import OBJECT_SCHEMES, file_system, object_store
from daft_twinwds.shards.fetch import retried
from daft_twinwds.shards.manifest import MANIFEST_NAME
from daft_twinwds.shards.options import StorageOptions
from daft_twinwds.shards.remote import RemoteFile
from daft_twinwds.shards.sources import strong_tag
from daft_twinwds.shards.storage import MissingObjectError
from daft_twinwds.shards.tar_state import DIGEST_BYTES, TarState
from daft_twinwds.shards.trees import Kind, Listing, Tars, is_tar
from daft_twinwds.shards.urls import HTTP, Url

if TYPE_CHECKING:
    from collections.abc import Iterable

    from obstore import ObjectMeta

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

    def scan(self, folder: str) -> NoReturn:
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

    def tars(self, folder: str) -> NoReturn:
        """Refuse, as `scan`."""
        self.scan(folder)


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

    def tars(self, folder: str) -> Tars:
        """See `Tree.tars`. One request per thousand names, however deep they lie."""
        pages: list[Tars] = self._run(folder, lambda lister: lister.tars())
        names = [page.names for page in pages]
        versions = [page.versions for page in pages if page.versions is not None]
        tells = any(some.null_count < len(some) for some in versions)
        return Tars(
            names=pa.concat_arrays(names) if names else pa.array([], pa.string()),
            versions=pa.concat_arrays(versions) if tells else None,
        )

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

    def tars(self) -> list[Tars]:
        """Return all visible tars below it, with versions or without."""


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

    def tars(self) -> list[Tars]:
        start = len(self.name) + 1 if self.name else 0
        return [
            _page((meta["path"][start:], meta) for meta in page)
            for page in obstore.list(self.store, self.name or None, chunk_size=PAGE)
        ]


def _page(objects: "Iterable[tuple[str, ObjectMeta]]") -> Tars:
    found = [(name, meta) for name, meta in objects if _is_visible_tar(name)]
    states = (TarState(size=meta["size"], tag=strong_tag(meta["e_tag"])) for _, meta in found)
    return Tars(
        names=pa.array([name for name, _ in found], pa.string()),
        versions=pa.array([state.digest for state in states], pa.binary(DIGEST_BYTES)),
    )


def _is_visible_tar(name: str) -> bool:
    return is_tar(name) and not name.startswith(".") and "/." not in name


class _Folder:
    """One of fsspec's, whose files have no tags when they are read, whatever a listing tells."""

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

    def tars(self) -> list[Tars]:
        try:
            paths = self._system.find(self._path)
        except FileNotFoundError:
            return []
        start = len(self._path.strip("/")) + 1
        names = (path.strip("/")[start:] for path in paths)
        return [Tars(names=pa.array(filter(_is_visible_tar, names), pa.string()))]
