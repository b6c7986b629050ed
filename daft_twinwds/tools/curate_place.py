"""The folder that a curation writes into: one run at a time, and what the next one goes on with.

::

    output/.curate/job.json                         what is done, with which arguments
                   looks/000000/000000012.parquet   rows of a shard that may stay
                   copies/000000/000000012.json     what of them has been written
                   stage/                           files that have no name yet
"""

import json
import shutil
import uuid
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from daft_twinwds.errors import LayoutError, StorageError
from daft_twinwds.shards.enclosing import require_outside
from daft_twinwds.shards.file_lock import file_lock
from daft_twinwds.shards.new_file import new_file
from daft_twinwds.shards.paths import require_text
from daft_twinwds.shards.unfinished import JOB_NAME
from daft_twinwds.shards.write_folder import LocalFolder

__all__ = ["CurationFolder"]

_WORK, _, _JOB = JOB_NAME.partition("/")
_LOCK: Final = "lock"
_PER_FOLDER: Final = 1000
_COLUMNS: Final = "columns"
"""The one among the arguments that is found in the source."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CurationFolder:
    """Where the new data set is to be. It pickles and is the same in all processes."""

    path: str
    """Absolute."""

    @property
    def target(self) -> LocalFolder:
        """The folder, to write tars into."""
        return LocalFolder(path=self.path)

    @property
    def looks(self) -> Path:
        """Folder of the looks' folders."""
        return self._work / "looks"

    def look(self, number: int) -> Path:
        """Return where the rows of a shard are noted that may stay."""
        return self.looks / _numbered(number, "parquet")

    def copy(self, number: int) -> Path:
        """Return where it is noted which rows of a shard are written."""
        return self._work / "copies" / _numbered(number, "json")

    def stage(self) -> str:
        """Return a name that nothing has, relative to the folder.

        A node that was given up may still be writing the same shard.
        """
        return f"{_WORK}/stage/{uuid.uuid4().hex}"

    def put(self, path: Path, content: bytes) -> None:
        """Write a small file at once.

        Raises:
            StorageError: It cannot be written.
        """
        staged = f"{self.path}/{self.stage()}"
        with new_file(staged) as file:
            file.write(content)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            Path(staged).replace(path)
        except OSError as error:
            raise self._unusable(error) from error

    @contextmanager
    def held(self, arguments: Mapping[str, Any]) -> Iterator[None]:
        """Hold the folder for one run that has these arguments.

        Args:
            arguments: What must be equal for a run to go on with another's work; JSON holds it.

        Raises:
            LayoutError: Another run is at work, or has left work that was begun with other
                arguments; or the folder holds something else, lies in a data set, or its path is
                not UTF-8.
            StorageError: It cannot be used.
        """
        require_text(self.path)
        if self._saved() is None:
            self._require_empty()
        with ExitStack() as stack:
            try:
                stack.enter_context(
                    file_lock(
                        self._work / _LOCK,
                        where=self.path,
                        doing="is curating into this folder",
                        cure="wait for it, or write elsewhere",
                    )
                )
            except OSError as error:
                raise self._unusable(error) from error
            self._begin(arguments)
            yield

    def finish(self) -> None:
        """Remove all but the data set; to be called while the folder is held."""
        try:
            self._clear()
        except OSError as error:
            raise self._unusable(error) from error

    @property
    def _work(self) -> Path:
        return Path(self.path) / _WORK

    def _clear(self) -> None:
        """Remove all but the data set; a run that waits for the lock may make the folder again."""
        # Without it nobody takes the rest for something to go on with.
        (self._work / _JOB).unlink(missing_ok=True)
        for path in self._work.iterdir():
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            elif path.name != _LOCK:
                path.unlink()
        (self._work / _LOCK).unlink()
        with suppress(OSError):
            self._work.rmdir()

    def _begin(self, arguments: Mapping[str, Any]) -> None:
        saved = self._saved()
        if saved is None:
            try:
                self._require_empty()
            except LayoutError:
                self._clear()
                raise
            content = json.dumps(arguments, indent=2).encode()
            self.put(self._work / _JOB, content)
        elif saved != arguments:
            raise self._begun_otherwise(saved, arguments)

    def _begun_otherwise(
        self, saved: Mapping[str, Any], arguments: Mapping[str, Any]
    ) -> LayoutError:
        others = [name for name in arguments if saved.get(name) != arguments[name]]
        if others == [_COLUMNS]:
            changes = list(_changes(saved.get(_COLUMNS), arguments[_COLUMNS]))
            more = f" and {len(changes) - 5} more" if len(changes) > 5 else ""
            return LayoutError(
                f"{self.path}: holds an unfinished curation, since whose begin the columns of the "
                f"source have changed: {', '.join(changes[:5])}{more}; expected the same, to go on "
                f"with it; write elsewhere, or remove {self.path}; with schema= their types do not "
                "depend on what the source holds"
            )
        # What follows from other arguments says nothing on its own.
        found = ", ".join(name for name in others if name != _COLUMNS) or "of another version"
        return LayoutError(
            f"{self.path}: holds an unfinished curation with other arguments ({found}); expected "
            f"the same, to go on with it; give those, write elsewhere, or remove {self.path}"
        )

    def _saved(self) -> Any:
        """Return the arguments of the run that has left its work here, or None."""
        path = self._work / _JOB
        try:
            return json.loads(path.read_bytes())
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise self._unusable(error) from error
        except ValueError as error:
            raise LayoutError(
                f"{path}: is damaged ({error}); expected what an earlier run has written; remove "
                f"{self.path} and begin again"
            ) from error

    def _require_empty(self) -> None:
        visible = [name for name in self.target.children() if not name.startswith(".")]
        if visible:
            more = f" and {len(visible) - 5} more" if len(visible) > 5 else ""
            raise LayoutError(
                f"{self.path}: {', '.join(visible[:5])}{more} found; expected a new or empty "
                "folder, or an unfinished curation; write elsewhere"
            )
        require_outside(self.path)

    def _unusable(self, error: OSError) -> StorageError:
        return StorageError(
            f"{self.path}: cannot be written ({error.strerror}); expected a folder that can be "
            "written to and locked; check its permissions and its file system"
        )


def _changes(old: Any, new: Any, name: str = "") -> Iterator[str]:
    """Yield what differs between the types of columns, or of the fields of structs."""
    if not (isinstance(old, dict) and isinstance(new, dict)):
        if old != new:
            yield f"{name} from {_type_text(old)} to {_type_text(new)}"
        return
    for field in dict.fromkeys([*old, *new]):
        inner = f"{name}.{field}" if name else field
        yield from _changes(old.get(field), new.get(field), inner)


def _type_text(found: Any) -> str:
    if found is None:
        return "nothing"
    return "a struct" if isinstance(found, dict) else str(found)


def _numbered(number: int, suffix: str) -> str:
    return f"{number // _PER_FOLDER:06d}/{number:09d}.{suffix}"
