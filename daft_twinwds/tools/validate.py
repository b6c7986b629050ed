"""Finds everything that is wrong with a data set: ``validate``."""

import os
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Final, get_args

import daft
import numpy as np
import numpy.typing as npt

from daft_twinwds.errors import SchemaError, StorageError
from daft_twinwds.query.index_use import settled_use
from daft_twinwds.query.infer import infer_columns
from daft_twinwds.query.io_options import AnyConfig, storage_options
from daft_twinwds.query.schema import Column, declared_column
from daft_twinwds.query.text import ExtraFields
from daft_twinwds.shards.dataset import Dataset, Shard
from daft_twinwds.shards.leaves import LeafFilter
from daft_twinwds.shards.samples import KeySplit
from daft_twinwds.tools.validate_fix import fix_manifests, require_local
from daft_twinwds.tools.validate_layout import FoundLeaf, Layout, find_layout
from daft_twinwds.tools.validate_report import (
    Fault,
    Findings,
    Kind,
    ValidateProgress,
    ValidationReport,
)
from daft_twinwds.tools.validate_shard import CheckedShard, ShardCheck
from daft_twinwds.train.batches import available_cpus

__all__ = ["Fault", "ValidateProgress", "ValidationReport", "validate"]

PathLike = str | os.PathLike[str]

_AHEAD: Final = 2
"""Shards per worker that are begun before the oldest is done."""


def validate(  # noqa: PLR0913  # the public function holds all defaults
    root: PathLike | Sequence[PathLike],
    *,
    modalities: Sequence[str] | Mapping[str, str] | None = None,
    key_split: KeySplit = "last",
    schema: Mapping[str, daft.DataType] | None = None,
    extra_fields: ExtraFields = "error",
    include: str | Sequence[str] | None = None,
    exclude: str | Sequence[str] | None = None,
    aspect_ratios: Sequence[str] | None = None,
    decode: bool = False,
    workers: int | None = None,
    max_faults: int = 1000,
    fix_manifest: bool = False,
    io_config: AnyConfig | Mapping[str, AnyConfig] | None = None,
    progress: Callable[[ValidateProgress], None] | None = None,
) -> ValidationReport:
    """Look at all of a data set and list what is wrong with it.

    What has no fault here is read by `read_twin_webdataset` with its strict defaults, without an
    index as well as with one, and, if ``decode`` was given, decoded by `DecodeImage`. Nothing
    ends the search: a tar that is cut is looked into as far as it is whole, and so are all others.

    Headers, texts and the pictures' first bytes are read; with ``decode`` all of the pictures.
    Shards are looked into side by side, and none is in memory for longer than that takes.

    Args:
        root: As in `read_twin_webdataset`.
        modalities: As in `read_twin_webdataset`.
        key_split: As in `read_twin_webdataset`.
        schema: As in `read_twin_webdataset`. Types that are not given are inferred as scans do
            it, from some of the shards, so that what a scan would refuse later is found.
        extra_fields: As in `read_twin_webdataset`.
        include: As in `read_twin_webdataset`.
        exclude: As in `read_twin_webdataset`.
        aspect_ratios: As in `read_twin_webdataset`.
        decode: Decode every picture, whole.
        workers: Threads; the CPUs of this process by default.
        max_faults: Faults of each kind that are kept; all are counted.
        fix_manifest: Write the true counts, and where each leaf is, into the manifests of a
            local data set; what else they say stays. They are written after all tars were found
            to be sound, or not at all.
        io_config: As in `read_twin_webdataset`.
        progress: Called from this thread after each shard.

    Returns:
        All that is wrong, in the order of leaves and shards whatever the number of workers.

    Raises:
        LayoutError: There is no data set, or ``fix_manifest`` was given and it is not local or
            its tars are not sound.
        StorageError: The root cannot be listed, or a manifest not written.
        ValueError: An argument is none of those that it can be.
    """
    for name, value, choices in (
        ("key_split", key_split, get_args(KeySplit)),
        ("extra_fields", extra_fields, get_args(ExtraFields)),
    ):
        if value not in choices:
            raise ValueError(f"{name} must be one of {choices}, got {value!r}")
    for name, number in (("workers", workers), ("max_faults", max_faults)):
        if number is not None and number < 1:
            raise ValueError(f"{name} must be at least 1, got {number}")
    if fix_manifest and modalities is not None:
        raise ValueError("fix_manifest counts what all modalities hold; pass no modalities with it")
    findings = Findings(max_faults)
    workers = workers or available_cpus()
    with ThreadPoolExecutor(workers, thread_name_prefix="daft-twinwds-validate") as executor:
        try:
            layout = find_layout(
                root,
                modalities=modalities,
                leaf_filter=LeafFilter.from_arguments(include, exclude, aspect_ratios),
                options=storage_options(io_config),
                findings=findings,
                executor=executor,
            )
            if fix_manifest:
                require_local(layout)
            run = _Run(
                layout=layout,
                check=ShardCheck(
                    columns=_columns(layout, schema or {}, key_split, findings),
                    key_split=key_split,
                    extra_fields=extra_fields,
                    decode=decode,
                    check_index=_has_index(layout),
                    max_faults=max_faults,
                ),
                findings=findings,
                executor=executor,
                ahead=_AHEAD * workers,
                progress=progress or (lambda _: None),
            )
            counts = [run.leaf(found) for found in layout.leaves]
        except BaseException:
            executor.shutdown(cancel_futures=True)
            raise
    return run.report(fix_manifests(layout, counts, findings) if fix_manifest else ())


@dataclass(slots=True, kw_only=True)
class _Run:
    """One call of `validate`."""

    layout: Layout
    check: ShardCheck
    findings: Findings
    executor: ThreadPoolExecutor
    ahead: int
    progress: Callable[[ValidateProgress], None]
    done: int = 0
    num_keys: int = 0
    num_members: int = 0
    num_decoded: int = 0
    total: int = field(init=False)

    def __post_init__(self) -> None:
        self.total = sum(len(found.leaf.names) for found in self.layout.leaves)

    def leaf(self, found: FoundLeaf) -> npt.NDArray[np.int64]:
        """Look into a leaf; return the samples of each shard, in order."""
        counts = np.zeros(len(found.leaf.names), np.int64)
        is_whole = True
        for index, (shard, checked) in enumerate(self._checked(found)):
            self.findings.merge(checked.findings)
            counts[index] = checked.num_keys
            is_whole &= checked.is_whole
            self.num_keys += checked.num_keys
            self.num_members += checked.num_members
            self.num_decoded += checked.num_decoded
            self.done += 1
            self.progress(
                ValidateProgress(
                    done=self.done,
                    total=self.total,
                    shard=shard.url,
                    num_faults=self.findings.num_faults(),
                )
            )
        manifest = found.manifest
        is_whole &= manifest is not None and len(manifest.names) == len(counts)
        if manifest is not None and is_whole and manifest.total != counts.sum():
            text = (
                f"total_key_count is {manifest.total}; expected {counts.sum()}, as many samples as "
                "the tars have; correct it by daft-twinwds validate --fix-manifest"
            )
            self.findings.add(Fault(kind="wrong total", path=manifest.path, text=text))
        return counts

    def _checked(self, found: FoundLeaf) -> Iterator[tuple[Shard, CheckedShard]]:
        """Yield what was found of each shard, in order; few are in work at a time."""
        begun: deque[tuple[Shard, Future[CheckedShard]]] = deque()
        for index in range(len(found.leaf.names)):
            shard = found.leaf.shard(index)
            future = self.executor.submit(
                self.check.run, shard, own=found.own, claimed=found.claimed(index)
            )
            begun.append((shard, future))
            if len(begun) == self.ahead:
                shard, future = begun.popleft()
                yield shard, future.result()
        for shard, future in begun:
            yield shard, future.result()

    def report(self, fixed: tuple[str, ...]) -> ValidationReport:
        kept = self.findings.kept
        return ValidationReport(
            faults=tuple(fault for fault in kept if not fault.is_warning),
            warnings=tuple(fault for fault in kept if fault.is_warning),
            counts=dict(+self.findings.counts),
            num_leaves=len(self.layout.leaves),
            num_shards=self.done,
            num_keys=self.num_keys,
            num_members=self.num_members,
            num_decoded=self.num_decoded,
            fixed=fixed,
        )


def _columns(
    layout: Layout,
    schema: Mapping[str, daft.DataType],
    key_split: KeySplit,
    findings: Findings,
) -> dict[str, Column | None]:
    """Return column -> type; None, and a fault, where the members contradict each other."""
    unknown = [name for name in schema if name not in layout.columns]
    if unknown and layout.leaves:
        raise ValueError(
            f"schema: no column {unknown[0]!r}; the modalities are {list(layout.columns)}"
        )
    columns: dict[str, Column | None] = {}
    for name in layout.columns:
        if name in schema:
            columns[name] = declared_column(name, schema[name])
            continue
        dataset = layout.of_column(name)
        try:
            # Without an index, so that what is read with one can be read without.
            (columns[name],) = infer_columns(
                dataset, {}, key_split=key_split, strict=False, index="off"
            )
        except (SchemaError, StorageError) as error:
            columns[name] = None
            kind: Kind = "bad schema" if isinstance(error, SchemaError) else "unreadable tar"
            text = f"no type could be inferred, so that JSON is parsed and nothing more: {error}"
            path = layout.leaves[0].leaf.root
            findings.add(Fault(kind=kind, path=path, modality=name, text=text))
    return columns


def _has_index(layout: Layout) -> bool:
    leaves = tuple(found.leaf for found in layout.leaves)
    dataset = Dataset(leaves=leaves, modalities=layout.columns, skipped={})
    return settled_use(dataset, "auto") != "off"
