"""Writing a data set as a whole: staged under hidden names, then published, the manifest last.

What a writer does is undone, or finished, from a journal alone: of the tars that it names those
stay which the manifest names, so that a kill at any moment leaves either the old data set or the
new one, and the next writer removes the rest.
"""

import json
import re
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Final, Self

from daft_twinwds.errors import LayoutError, TwinWebDatasetError
from daft_twinwds.shards.manifest import (
    MANIFEST_NAME,
    Manifest,
    is_relative_folder,
    read_manifest,
)
from daft_twinwds.shards.manifest_write import manifest_content
from daft_twinwds.shards.options import StorageOptions
from daft_twinwds.shards.paths import Place, require_text
from daft_twinwds.shards.storage import read_range
from daft_twinwds.shards.trees import is_tar
from daft_twinwds.shards.urls import is_url, join, local_path, scheme_of
from daft_twinwds.shards.write_folder import LOCK, LocalFolder, WriteFolder

__all__ = ["WriteTarget"]

_STAGING: Final = re.compile(r"\.write-[0-9a-f]{32}")
_SHARD: Final = re.compile(r"part_(\d{1,12})/(\d{1,12})[^/]*$")
_JOURNAL: Final = ".publish.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteTarget:
    """One writing of a data set into a folder. It pickles and is the same in all processes."""

    folder: WriteFolder
    """Where the data set is to be."""
    token: str
    """32 hexadecimal digits that no other writing has."""
    version: str | None = None
    """Of the manifest that was there when the writing began."""

    @classmethod
    def at(cls, path: str, options: StorageOptions) -> Self:
        """Return a new writing into a folder, which is not touched yet.

        Args:
            path: A local path, or a URL of an object store.
            options: How it is accessed.

        Raises:
            LayoutError: The path is not UTF-8.
            ValueError: Nothing can be written to such a URL.
        """
        path = local_path(path)
        token = uuid.uuid4().hex
        if not is_url(path):
            place = Place.of(path, options)
            require_text(place.path)
            return cls(folder=LocalFolder(path=place.path), token=token)
        from daft_twinwds.shards.new_object import WRITABLE

        if scheme_of(path) not in WRITABLE:
            raise ValueError(
                f"path: nothing can be written to {scheme_of(path)}://; expected a local path or "
                "a URL of s3://, gs://, az:// or abfs[s]://; write there and copy it"
            )
        from daft_twinwds.shards.write_remote import RemoteFolder

        place = Place.of(path, options)
        require_text(place.path)
        return cls(folder=RemoteFolder(path=place.path, options=place.options), token=token)

    @property
    def path(self) -> str:
        """Where the data set is to be, as messages show it."""
        return self.folder.path

    @contextmanager
    def claimed(self) -> Iterator["WriteTarget"]:
        """Hold the folder for this writing, and clean up before and after it.

        Yields:
            This writing, which now knows what was there.

        Raises:
            LayoutError: Another writer is at work.
            StorageError: The folder cannot be used.
        """
        self.folder.children()
        with self.folder.hold(self._staging):
            try:
                for name in self.folder.children():
                    is_other = _STAGING.fullmatch(name) and name != self._staging
                    if is_other and self.folder.is_left(name):
                        self._clean(name)
                yield replace(self, version=self.folder.version())
            except BaseException as error:
                try:
                    self._clean(self._staging)
                except TwinWebDatasetError as second:
                    error.add_note(f"Nor could what was written be removed: {second}")
                raise
            self._clean(self._staging)

    def visible(self) -> list[str]:
        """Return the names in the folder that are not hidden."""
        return [name for name in self.folder.children() if not name.startswith(".")]

    def manifest(self) -> Manifest | None:
        """Return what the folder's manifest says, if there is one.

        Raises:
            LayoutError: It is wrong.
            StorageError: It cannot be read.
        """
        if not self.folder.exists(MANIFEST_NAME):
            return None
        return read_manifest(join(self.path, MANIFEST_NAME), self.folder.options)

    def staged(self, modality: str, name: str) -> str:
        """Return where a tar lies until it is published, relative to the folder."""
        return f"{self._staging}/{modality}/{name}"

    def require_wanted(self) -> None:
        """Refuse to go on once the writing has failed elsewhere and been cleaned up.

        Raises:
            LayoutError: It has.
        """
        if not self.folder.exists(f"{self._staging}/{LOCK}"):
            raise LayoutError(
                f"{self.path}: this writing has ended already, as another of its tasks failed; "
                "look for that task's error"
            )

    def shard_names(self, old: Iterable[str], count: int, *, part_size: int) -> list[str]:
        """Return the names of new shards, which follow the old ones.

        Args:
            old: Names that the data set has had so far.
            count: How many new ones.
            part_size: Shards in one part folder.
        """
        first = 0
        for name in old:
            found = _SHARD.match(name)
            if found is not None:
                part, tar = int(found[1]), int(found[2])
                # A part that is full, or fuller than that, ends; the next one begins.
                first = max(first, part * part_size + min(tar + 1, part_size))
        ending = "" if self.folder.keeps_others_out else f"-{self.token[:12]}"
        places = (divmod(number, part_size) for number in range(first, first + count))
        return [f"part_{part:06d}/{tar:06d}{ending}.tar" for part, tar in places]

    def publish(
        self,
        moves: Mapping[str, str],
        *,
        modalities: Sequence[str],
        names: Sequence[str],
        counts: Sequence[int],
        old: Iterable[str] = (),
    ) -> None:
        """Give staged tars their names, and write the manifest.

        Args:
            moves: Where a tar is staged -> where it is to be, both relative to the folder.
            modalities: Of the manifest.
            names: Of the manifest.
            counts: Of the manifest.
            old: Tars that go when the manifest is there and does not name them.

        Raises:
            LayoutError: Another writer was at work, or a name is taken.
            StorageError: Something cannot be written.
        """
        # What is taken is not ours, so it must be in no journal.
        self.folder.require_free(moves.values())
        journal = json.dumps([*moves.values(), *old])
        with self.folder.create(f"{self._staging}/{_JOURNAL}") as file:
            file.write(journal.encode())
        self.folder.move(moves)
        content = manifest_content(self.path, modalities=modalities, names=names, counts=counts)
        self.folder.write_manifest(content, self.version)

    @property
    def _staging(self) -> str:
        return f".write-{self.token}"

    def _clean(self, staging: str) -> None:
        """Remove a staging folder, and of the tars in its journal those in no manifest."""
        journal = f"{staging}/{_JOURNAL}"
        if self.folder.exists(journal):
            path = join(self.path, journal)
            data = read_range(path, 0, options=self.folder.options)
            manifest = self.manifest()
            kept = set() if manifest is None else _tars_of(manifest)
            self.folder.remove(name for name in _names_in(data, path) if name not in kept)
        self.folder.drop(staging)


def _tars_of(manifest: Manifest) -> set[str]:
    names = manifest.names.to_pylist()
    return {f"{modality}/{name}" for modality in manifest.modalities for name in names}


def _names_in(journal: bytes, path: str) -> list[str]:
    try:
        names = json.loads(journal)
    except (ValueError, RecursionError) as error:
        raise _damaged(path) from error
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise _damaged(path)
    # It is ours, yet whatever it holds, nothing outside the folder and no other file goes.
    return [name for name in names if is_relative_folder(name) and is_tar(name)]


def _damaged(path: str) -> LayoutError:
    return LayoutError(
        f"{path}: is damaged; expected the list of the tars that a writer which was killed has "
        f"moved; remove the folder that it lies in, and tars that {MANIFEST_NAME} does not name"
    )
