"""One packing, from the listing of the input to the manifests of the output."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from daft_twinwds.errors import LayoutError
from daft_twinwds.shards.unfinished import PLAN_NAME
from daft_twinwds.tools.pack_classify import Classifier
from daft_twinwds.tools.pack_fill import Places
from daft_twinwds.tools.pack_input import HIDDEN, list_folders
from daft_twinwds.tools.pack_output import claimed, require_apart, require_unused
from daft_twinwds.tools.pack_plan import (
    PlanHead,
    iter_plan,
    plan_shards,
    read_plan_head,
    summary_of,
    write_plan,
)
from daft_twinwds.tools.pack_report import (
    LeftOut,
    PackedLeaf,
    PackProgress,
    PackReport,
    read_left_out,
    write_left_out,
)
from daft_twinwds.tools.pack_samples import Samples, join, shuffled
from daft_twinwds.tools.pack_settings import PackSettings, main_modality
from daft_twinwds.tools.pack_shards import write_shards
from daft_twinwds.tools.pack_workers import Load, Workers

__all__ = ["Packing"]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Prepared:
    """What is to be written."""

    head: PlanHead
    left_out: tuple[LeftOut, ...]
    leaves: tuple[PackedLeaf, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Packing:
    """A call of `daft_twinwds.tools.pack.pack`, whose arguments have been checked."""

    source: Path
    """The input folder, absolute and without links."""
    output: Path
    """The output folder, likewise."""
    settings: PackSettings
    """What decides the bytes."""
    num_workers: int
    """Threads that look into files; threads or processes that fill tars."""
    progress: Callable[[PackProgress], None]
    """Called after each step."""

    def run(self, *, dry_run: bool, resume: bool, strict: bool) -> PackReport:
        """Pack, or say what would be packed.

        Raises:
            See `daft_twinwds.tools.pack.pack`.
        """
        require_apart(self.source, self.output)
        require_unused(self.output, resume=resume)
        if dry_run:
            prepared = self._prepare(None, resume=resume, strict=strict)
            return self._report(prepared, tars_found=0, dry_run=True)
        with claimed(self.output) as lock, Workers(self.num_workers, lock=lock) as workers:
            # Another packing may have come and gone since the first look.
            require_unused(self.output, resume=resume)
            prepared = self._prepare(workers, resume=resume, strict=strict)
            return self._report(prepared, tars_found=self._write(prepared, workers), dry_run=False)

    def _prepare(self, workers: Workers | None, *, resume: bool, strict: bool) -> _Prepared:
        """Take up the plan that is there, or make one and, if somebody is to follow it, write it."""
        output = str(self.output)
        folders, strays = list_folders(self.source, self.settings)
        head = PlanHead(
            flags=self.settings.flags(),
            folders={name: folder.fingerprint for name, folder in folders.items()},
        )
        saved = read_plan_head(output) if resume else None
        if saved is not None:
            head.require_same(saved, path=f"{output}/{PLAN_NAME}")
            return _Prepared(
                head=saved,
                left_out=read_left_out(output),
                leaves=summary_of(line.shard for line in iter_plan(output)),
            )
        main = main_modality(self.settings, list(folders), where=str(self.source))
        samples, incomplete = join(folders, self.settings.optional)
        if self.settings.shuffle:
            samples = shuffled(samples, self.settings.seed)
        wanted = samples.take(range(len(samples))[: self.settings.limit])
        head = replace(head, beyond_limit=len(samples) - len(wanted))
        if workers is not None:
            workers.expect(_load_of(wanted))
        leaves, unfit = self._leaves_of(wanted, main)
        left_out = [*strays, *incomplete, *unfit]
        for folder in folders.values():
            left_out += folder.left_out
        left_out.sort(key=lambda item: (item.key, item.modality, item.file))
        self._require_enough(left_out, num_samples=len(wanted) - len(unfit), strict=strict)
        shards = plan_shards(leaves, main, self.settings)
        if workers is not None:
            # With the plan the packing is begun; what it left out has to be known by then.
            write_left_out(output, left_out)
            write_plan(output, head, shards)
            shards = (line.shard for line in iter_plan(output))
        return _Prepared(head=head, left_out=tuple(left_out), leaves=summary_of(shards))

    def _leaves_of(
        self, samples: Samples, main: str | None
    ) -> tuple[dict[str, Samples], list[LeftOut]]:
        classifier = Classifier(settings=self.settings, samples=samples, main=main)

        def progress(done: int) -> None:
            self.progress(PackProgress(stage="inspect", done=done, total=len(samples)))

        return classifier.leaves(num_workers=self.num_workers, progress=progress)

    def _require_enough(
        self, left_out: Sequence[LeftOut], *, num_samples: int, strict: bool
    ) -> None:
        """Refuse to write nothing, or less than everything where all is wanted."""
        missed = [item for item in left_out if item.reason != HIDDEN]
        shown = [f"{item.modality}/{item.file} ({item.reason})".lstrip("/") for item in missed[:5]]
        more = [f"and {len(missed) - 5} more"] if len(missed) > 5 else []
        if num_samples == 0:
            found = ", ".join(shown + more) or "no file"
            raise LayoutError(
                f"{self.source}: no sample can be packed, left out are: {found}; expected files of "
                "equal names in all of its folders; correct them, or pass optional or modalities"
            )
        if strict and missed:
            raise LayoutError(
                f"{self.source}: {len(missed)} files or samples would be left out: "
                f"{', '.join(shown + more)}; expected none with strict=True; correct them, or pack "
                "without it"
            )

    def _write(self, prepared: _Prepared, workers: Workers) -> int:
        output, modalities = str(self.output), list(prepared.head.folders)
        total = len(modalities) * sum(leaf.num_shards for leaf in prepared.leaves)
        places = Places(
            plan=f"{output}/{PLAN_NAME}",
            output=output,
            folders=[(name, f"{self.source}/{name}") for name in modalities],
        )
        load = Load(
            num_files=len(modalities) * sum(leaf.num_samples for leaf in prepared.leaves),
            num_bytes=sum(sum(leaf.num_bytes.values()) for leaf in prepared.leaves),
        )

        def progress(done: int, tar: str | None) -> None:
            self.progress(PackProgress(stage="write", done=done, total=total, tar=tar))

        return write_shards(
            output,
            iter_plan(output),
            modalities,
            fill=partial(workers.fill, load, places),
            progress=progress,
        )

    def _report(self, prepared: _Prepared, *, tars_found: int, dry_run: bool) -> PackReport:
        return PackReport(
            output_dir=str(self.output),
            leaves=prepared.leaves,
            left_out=prepared.left_out,
            beyond_limit=prepared.head.beyond_limit,
            tars_found=tars_found,
            dry_run=dry_run,
        )


def _load_of(samples: Samples) -> Load:
    return Load(
        num_files=len(samples) * len(samples.files),
        num_bytes=sum(int(files.sizes.sum()) for files in samples.files.values()),
    )
