"""Builds the index of a data set, or checks it: ``index``."""

import os
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field, replace

from daft_twinwds.errors import StorageError
from daft_twinwds.query._daft import runs_on_ray
from daft_twinwds.query.index_build import states_of
from daft_twinwds.query.io_options import AnyConfig, storage_options
from daft_twinwds.shards.dataset import Leaf, Shard
from daft_twinwds.shards.index_file import open_index
from daft_twinwds.shards.index_format import (
    PartSummary,
    ShardEntry,
    UnusableIndexError,
    file_name,
    index_path,
    part_of,
)
from daft_twinwds.shards.layout import find_dataset
from daft_twinwds.shards.modalities import has_own_root
from daft_twinwds.shards.options import ENVIRONMENT, StorageOptions
from daft_twinwds.shards.samples import KeySplit
from daft_twinwds.shards.urls import is_url
from daft_twinwds.tools.cluster import run_on_cluster
from daft_twinwds.tools.index_part import PartJob, holds
from daft_twinwds.tools.index_place import absolute, index_folder, remove_others
from daft_twinwds.tools.index_report import IndexProgress, IndexReport, PartOutcome
from daft_twinwds.train.batches import available_cpus

__all__ = ["IndexProgress", "IndexReport", "build_index"]

PathLike = str | os.PathLike[str]


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
    output: PathLike | None = None,
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
        output: Folder or URL to put ``.twin_index`` into in place of the data set's root; whoever
            keeps the data set puts it beside the tars then. A web server's can only be built so.
        check: Write nothing, and only find out whether the index that is there holds for every
            shard, and is undamaged.
        workers: Threads; the CPUs of this process by default. On Daft's Ray runner each node
            has as many, part folders are indexed side by side, and all nodes must reach the data
            and the output under the same paths.
        progress: Called from this thread after each shard.

    Returns:
        What the index covers. Shards that are damaged or contradict themselves do not end a
        build, nor do those that cannot be read.

    Raises:
        LayoutError: The folders or manifests do not make a data set, or it is being indexed by
            another process.
        StorageError: The data set cannot be listed, or the index not written.
        ValueError: An argument is none of those that it can be, or there is one output for
            several leaves.
    """
    if key_split not in ("last", "first"):
        raise ValueError(f"key_split must be 'last' or 'first', got {key_split!r}")
    if workers is not None and workers < 1:
        raise ValueError(f"workers must be at least 1, got {workers}")
    options = _side_by_side(storage_options(io_config), workers or 1)
    dataset = find_dataset(
        path,
        modalities=modalities,
        include=include,
        exclude=exclude,
        aspect_ratios=aspect_ratios,
        on_missing="null",
        options=options,
    )
    if output is not None and len(dataset.leaves) > 1:
        raise ValueError(
            f"output is one folder, for {len(dataset.leaves)} leaves, as {dataset.leaves[0].root} "
            f"and {dataset.leaves[1].root}; index them one by one"
        )
    build = _Build(
        total=len(dataset),
        output=None if output is None else absolute(output),
        workers=workers,
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


def _side_by_side(
    options: StorageOptions | Mapping[str, StorageOptions], workers: int
) -> StorageOptions | dict[str, StorageOptions]:
    """Let each worker have a request under way."""
    if isinstance(options, StorageOptions):
        return replace(options, max_requests=max(options.max_requests, workers))
    return {
        column: replace(one, max_requests=max(one.max_requests, workers))
        for column, one in options.items()
    }


@dataclass(slots=True, kw_only=True)
class _Build:
    """One call of `build_index`."""

    total: int
    output: str | None
    workers: int | None
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
        root, options = self._place_for(leaf)
        with index_folder(root) as (folder, stage):
            parts = _parts_of(leaf)
            jobs = [
                PartJob(
                    path=index_path(root, shards[0].name),
                    shards=shards,
                    folders=leaf.folders,
                    head=head,
                    stage=stage,
                    options=options,
                )
                for shards in parts.values()
            ]
            if runs_on_ray():
                for outcome in run_on_cluster(jobs, workers=self.workers):
                    for shard in outcome.shards:
                        self._step(shard.url, shard.is_read)
                    self._take(outcome)
            else:
                for job in jobs:
                    self._take(job.run(executor, lambda shard, read: self._step(shard.url, read)))
            if folder is not None:
                remove_others(folder, {file_name(part) for part in parts})

    def _place_for(self, leaf: Leaf) -> tuple[str, StorageOptions]:
        """Return where the index goes, and how that is accessed."""
        if self.output is None:
            return leaf.root, _options_of(leaf)
        return self.output, _options_of(leaf) if is_url(self.output) else ENVIRONMENT

    def _step(self, shard: str, is_read: bool) -> None:
        self.done += 1
        self.progress(IndexProgress(done=self.done, total=self.total, shard=shard, is_read=is_read))

    def _take(self, part: PartOutcome) -> None:
        self.num_written += part.is_written
        for shard in part.shards:
            self.num_read += shard.is_read
            self.num_rows += shard.num_rows
            self.unreadable_pictures += shard.unreadable_pictures
            for outcome, where in (
                (shard.failure, self.failed),
                (shard.not_indexed, self.not_indexed),
                (shard.text_left_out, self.texts_left_out),
            ):
                if outcome is not None:
                    where[shard.url] = outcome

    def check(self, leaf: Leaf, executor: ThreadPoolExecutor) -> None:
        """Find out which entries of one leaf hold."""
        head = replace(self.head, folders=tuple(leaf.folders.values()))
        shards = [shard for shards in _parts_of(leaf).values() for shard in shards]
        place = self._place_for(leaf)
        futures = {executor.submit(_fault_of, shard, leaf, head, place): shard for shard in shards}
        for future in as_completed(futures):
            entry, fault = future.result()
            url = futures[future].url
            if fault is not None:
                self.out_of_date[url] = fault
            if entry is not None:
                self.num_rows += entry.num_rows
                if entry.fault is not None:
                    self.not_indexed[url] = entry.fault
                if entry.text_fault is not None:
                    self.texts_left_out[url] = entry.text_fault
            self._step(url, is_read=False)


def _fault_of(
    shard: Shard, leaf: Leaf, head: PartSummary, place: tuple[str, StorageOptions]
) -> tuple[ShardEntry | None, str | None]:
    """Return a shard's entry, and why it does not hold."""
    root, options = place
    try:
        with open_index(index_path(root, shard.name), options) as file:
            # With or without texts, what it tells holds.
            if replace(file.summary, entries={}, has_texts=head.has_texts) != head:
                return None, f"{file.path}: was built with other arguments"
            entry = file.summary.entries.get(shard.name)
            if entry is None:
                return None, f"{file.path}: does not tell of it"
            if not holds(entry, leaf.folders, states_of(shard)):
                return entry, "a tar has changed since"
            if entry.num_rows:
                file.read_all(entry)
            return entry, None
    except (UnusableIndexError, StorageError) as error:
        return None, str(error)


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
