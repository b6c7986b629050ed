"""Builds the index of a data set, or checks it: ``index``."""

import fcntl
import os
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from daft_twinwds.errors import LayoutError, StorageError
from daft_twinwds.query.index_build import states_of
from daft_twinwds.query.io_options import AnyConfig, storage_options
from daft_twinwds.shards.dataset import Leaf, Shard
from daft_twinwds.shards.index_file import IndexFile, open_index
from daft_twinwds.shards.index_format import (
    INDEX_FOLDER,
    PartSummary,
    UnusableIndexError,
    file_name,
    index_path,
    part_of,
)
from daft_twinwds.shards.layout import find_dataset
from daft_twinwds.shards.modalities import has_own_root
from daft_twinwds.shards.options import ENVIRONMENT, StorageOptions
from daft_twinwds.shards.samples import KeySplit
from daft_twinwds.shards.urls import is_url, local_path, scheme_of
from daft_twinwds.tools.index_part import BuiltPart, PartBuild, holds
from daft_twinwds.tools.index_report import IndexProgress, IndexReport
from daft_twinwds.train.batches import available_cpus

__all__ = ["IndexProgress", "IndexReport", "build_index"]

PathLike = str | os.PathLike[str]

_STAGE = ".stage"
_LOCK = ".lock"


def build_index(  # noqa: PLR0913  # the public function holds all defaults
    path: PathLike | Sequence[PathLike],
    modalities: Sequence[str] | Mapping[str, str] | None = None,
    *,
    key_split: KeySplit = "last",
    text: bool = True,
    include: str | Sequence[str] | None = None,
    exclude: str | Sequence[str] | None = None,
    aspect_ratios: Sequence[str] | None = None,
    io_config: AnyConfig | Mapping[str, AnyConfig] | None = None,
    check: bool = False,
    workers: int | None = None,
    progress: Callable[[IndexProgress], None] | None = None,
) -> IndexReport:
    """Write down what the tars of a data set hold, so that scans need not read them for it.

    ::

        root/.twin_index/part_000000.parquet      beside root/image/part_000000/*.tar

    One Parquet file per part folder has, for every key, where its members are, the texts, and
    the pictures' sizes and formats. Scans use it where it is, and only as far as it still holds:
    a tar that has changed since is read as if there were no index.

    Only shards that changed since the last time are read, by as many threads as there are
    workers. What was read of a shard is put aside until its part folder is whole, so that a build
    that was killed goes on where it stood. An index gets its name when it is whole.

    Args:
        path: As in `read_twin_webdataset`.
        modalities: Folders to index; all by default. Scans that need others do not use the index.
        key_split: As scans will have it; those with the other one do not use the index.
        text: Whether texts are part of the index; else they are read from the tars, by range.
        include: As in `read_twin_webdataset`.
        exclude: As in `read_twin_webdataset`.
        aspect_ratios: As in `read_twin_webdataset`.
        io_config: As in `read_twin_webdataset`.
        check: Write nothing, and only find out whether the index that is there holds for every
            shard, and is undamaged.
        workers: Threads; the CPUs of this process by default.
        progress: Called from this thread after each shard.

    Returns:
        What the index covers. Shards that are damaged or contradict themselves do not end a
        build, nor do those that cannot be read.

    Raises:
        LayoutError: The folders or manifests do not make a data set, or it is being indexed by
            another process.
        StorageError: The data set cannot be listed, or the index not written.
        ValueError: An argument is none of those that it can be.
    """
    if key_split not in ("last", "first"):
        raise ValueError(f"key_split must be 'last' or 'first', got {key_split!r}")
    if workers is not None and workers < 1:
        raise ValueError(f"workers must be at least 1, got {workers}")
    options = storage_options(io_config)
    dataset = find_dataset(
        path,
        modalities=modalities,
        include=include,
        exclude=exclude,
        aspect_ratios=aspect_ratios,
        on_missing="null",
        options=options,
    )
    build = _Build(
        total=len(dataset),
        head=PartSummary(key_split=key_split, folders=(), has_texts=text),
        progress=progress or (lambda _: None),
    )
    with ThreadPoolExecutor(workers or available_cpus()) as executor:
        try:
            for leaf in dataset.leaves:
                if check:
                    build.check(leaf, executor)
                else:
                    build.run(leaf, executor)
        except BaseException:
            executor.shutdown(cancel_futures=True)
            raise
    return build.report()


@dataclass(slots=True, kw_only=True)
class _Build:
    """One call of `build_index`."""

    total: int
    head: PartSummary
    progress: Callable[[IndexProgress], None]
    done: int = 0
    num_read: int = 0
    num_rows: int = 0
    num_written: int = 0
    unreadable_pictures: int = 0
    not_indexed: dict[str, str] = field(default_factory=dict)
    texts_left_out: dict[str, str] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    out_of_date: dict[str, str] = field(default_factory=dict)

    def report(self) -> IndexReport:
        return IndexReport(
            num_shards=self.total,
            num_read=self.num_read,
            num_rows=self.num_rows,
            num_written=self.num_written,
            not_indexed=self.not_indexed,
            texts_left_out=self.texts_left_out,
            unreadable_pictures=self.unreadable_pictures,
            failed=self.failed,
            out_of_date=self.out_of_date,
        )

    def run(self, leaf: Leaf, executor: ThreadPoolExecutor) -> None:
        """Index one leaf."""
        head = replace(self.head, folders=tuple(leaf.folders.values()))
        with _index_folder(leaf.root) as (folder, stage):
            parts = _parts_of(leaf)
            for shards in parts.values():
                path = index_path(leaf.root, shards[0].name)
                with ExitStack() as stack:
                    build = PartBuild(
                        path=path,
                        shards=shards,
                        folders=leaf.folders,
                        head=head,
                        stage=stage,
                        options=_options_of(leaf),
                        old=_usable(path, head, _options_of(leaf), stack),
                    )
                    self._run_part(build, executor)
            if folder is not None:
                _remove_others(folder, {file_name(part) for part in parts})

    def _run_part(self, build: PartBuild, executor: ThreadPoolExecutor) -> None:
        futures = build.start(executor)
        for future in as_completed(futures):
            found = future.result()
            self._step(found.shard, is_read=found.is_read)
        self._take(build.finish([future.result() for future in futures], executor))

    def _step(self, shard: Shard, *, is_read: bool) -> None:
        self.done += 1
        self.progress(
            IndexProgress(done=self.done, total=self.total, shard=shard.url, is_read=is_read)
        )

    def _take(self, part: BuiltPart) -> None:
        self.num_written += part.is_written
        for item in part.found:
            self.num_read += item.is_read
            self.unreadable_pictures += item.unreadable_pictures
            if item.failure is not None:
                self.failed[item.shard.url] = item.failure
                continue
            entry = part.entries[item.shard.name]
            self.num_rows += entry.num_rows
            if entry.fault is not None:
                self.not_indexed[item.shard.url] = entry.fault
            for tar in entry.tars.values():
                if tar is not None and tar.text_fault is not None:
                    self.texts_left_out[item.shard.url] = tar.text_fault

    def check(self, leaf: Leaf, executor: ThreadPoolExecutor) -> None:
        """Find out which entries of one leaf hold."""
        head = replace(self.head, folders=tuple(leaf.folders.values()))
        shards = [shard for shards in _parts_of(leaf).values() for shard in shards]
        futures = {executor.submit(_fault_of, shard, leaf, head): shard for shard in shards}
        for future in as_completed(futures):
            num_rows, fault = future.result()
            self.num_rows += num_rows
            if fault is not None:
                self.out_of_date[futures[future].url] = fault
            self._step(futures[future], is_read=False)


def _fault_of(shard: Shard, leaf: Leaf, head: PartSummary) -> tuple[int, str | None]:
    """Return the rows of a shard's entry, and why it does not hold."""
    try:
        with open_index(index_path(leaf.root, shard.name), _options_of(leaf)) as file:
            if replace(file.summary, entries={}) != head:
                return 0, f"{file.path}: was built with other arguments"
            entry = file.summary.entries.get(shard.name)
            if entry is None:
                return 0, f"{file.path}: does not tell of it"
            if not holds(entry, leaf.folders, states_of(shard)):
                return entry.num_rows, "a tar has changed since"
            if entry.num_rows:
                file.read_all(entry)
            return entry.num_rows, None
    except (UnusableIndexError, StorageError) as error:
        return 0, str(error)


def _parts_of(leaf: Leaf) -> dict[str, list[Shard]]:
    """Return part folder -> its shards, both in order."""
    parts: dict[str, list[Shard]] = defaultdict(list)
    for index in range(len(leaf.names)):
        shard = leaf.shard(index)
        parts[part_of(shard.name)].append(shard)
    return parts


def _options_of(leaf: Leaf) -> StorageOptions:
    """Return how the leaf's own folder is accessed: as the modalities in it are."""
    inside = (column for column, folder in leaf.folders.items() if not has_own_root(folder))
    return leaf.options.get(next(inside, ""), ENVIRONMENT)


def _usable(
    path: str, head: PartSummary, options: StorageOptions, stack: ExitStack
) -> IndexFile | None:
    """Open the index that is there, if it was built with the same arguments."""
    try:
        file = stack.enter_context(open_index(path, options))
    except UnusableIndexError:
        return None
    return file if replace(file.summary, entries={}) == head else None


@contextmanager
def _index_folder(root: str) -> Iterator[tuple[Path | None, Path]]:
    """Yield the index's folder, held for one build, and a folder to put shards aside in.

    Object stores have no folders to hold: there the same index is written twice at worst.

    Raises:
        LayoutError: Another build holds the folder.
        StorageError: It cannot be made.
    """
    if is_url(root):
        with tempfile.TemporaryDirectory() as temporary:
            yield None, Path(temporary)
        return
    folder = Path(local_path(root) if scheme_of(root) == "file" else root) / INDEX_FOLDER
    stage = folder / _STAGE
    try:
        stage.mkdir(parents=True, exist_ok=True)
        lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise StorageError(
            f"{folder}: cannot be written ({error.strerror}); expected a folder beside the "
            "modalities that an index can be put into; check its permissions"
        ) from error
    try:
        _hold(lock, root)
        yield folder, stage
        stage.rmdir()
    finally:
        os.close(lock)


def _hold(lock: int, root: str) -> None:
    try:
        # The system drops the lock of a process that dies, however it dies.
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise LayoutError(
            f"{root}: another process is indexing this data set; expected one at a time; wait for "
            "it"
        ) from error


def _remove_others(folder: Path, names: set[str]) -> None:
    """Remove the indexes of part folders that are gone, and what was put aside of gone shards."""
    for path in folder.glob("*.parquet"):
        if path.name not in names:
            path.unlink()
    for path in (folder / _STAGE).iterdir():
        path.unlink()
