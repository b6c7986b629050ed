"""Folders of raw files -> a twin data set: ``pack``."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from daft_twinwds.shards.modalities import requested_columns
from daft_twinwds.shards.urls import required_local
from daft_twinwds.tools.pack_report import LeftOut, PackedLeaf, PackProgress, PackReport
from daft_twinwds.tools.pack_run import Packing
from daft_twinwds.tools.pack_settings import OnDouble, PackSettings
from daft_twinwds.train.batches import available_cpus

__all__ = ["LeftOut", "PackProgress", "PackReport", "PackedLeaf", "pack"]

PathLike = str | os.PathLike[str]


def pack(  # noqa: PLR0913  # the public function holds all defaults
    input_dir: PathLike,
    output_dir: PathLike,
    *,
    modalities: Sequence[str] | None = None,
    optional: Sequence[str] = (),
    shard_size: int = 20,
    max_shard_bytes: int = 500 * 2**20,
    size_based_on: str | None = None,
    shuffle: bool = True,
    seed: int = 0,
    limit: int | None = None,
    dataset_name: str | None = None,
    key_prefix: str | None = None,
    dry_run: bool = False,
    max_file_bytes: int = 2**30,
    num_workers: int | None = None,
    part_size: int = 1000,
    classify_aspect_ratio: bool = True,
    duration_bins: Sequence[float] | None = None,
    resume: bool = False,
    strict: bool = False,
    check: bool = False,
    keep_folders: bool = False,
    on_double: OnDouble = "error",
    progress: Callable[[PackProgress], None] | None = None,
) -> PackReport:
    """Pack folders of raw files into twin tars with manifests.

    ::

        input_dir/image/a.jpg  b.PNG ...          output_dir/aspect_ratio_16_9/wdinfo.json
        input_dir/caption/a.json  b.json ...                 .../image/part_000000/000000.tar
                                                             .../caption/part_000000/000000.tar

    A sample is the files of one stem, which is a file's name up to its last dot, whatever the
    suffix and its case. Its key is the stem behind a prefix; the webdataset package ends keys at
    their first dot, so that stems for it should hold none. The same files, flags and seed give
    the same tars, on every machine. Reading gives back exactly the files that were packed; what was
    not is in ``pack_report.jsonl``, one line each with the reason.

    Every file of the output appears under its name when it is whole, and the manifests last. What
    a killed run leaves behind is finished by ``resume``: the result equals that of a run that was
    not killed. ``pack_plan.jsonl`` says which file went where.

    Args:
        input_dir: Folder with a sub-folder per modality.
        output_dir: Folder of the data set: new, or empty, or with ``resume`` one that was begun.
        modalities: Sub-folders to pack; all by default.
        optional: Those of them that a sample may lack; read with ``on_missing="null"``.
        shard_size: Most samples in a shard.
        max_shard_bytes: Most bytes of a shard's files in `size_based_on`. A single larger file
            gets a shard of its own.
        size_based_on: Modality that shards are filled up and classified by: by default ``image``,
            else ``video``, else all together.
        shuffle: Put the samples in an order that depends on ``seed`` and their stems; else they
            are sorted by stem.
        seed: Which order.
        limit: Pack at most so many samples, the first of that order.
        dataset_name: Makes keys ``<dataset_name>__<stem>``.
        key_prefix: Makes keys ``<key_prefix><stem>``; excludes ``dataset_name``.
        dry_run: Only return what would be written.
        max_file_bytes: Larger files are left out.
        num_workers: Threads that read, decode and copy; the CPUs of this process by default. Many
            small files are copied by as many worker processes, unless it is 1.
        part_size: Shards per ``part_`` folder.
        classify_aspect_ratio: Divide pictures or videos, as they are shown, among folders
            ``aspect_ratio_16_9`` and so on, by the nearest of PiD's classes.
        duration_bins: Borders in seconds, the last of which may be infinite; videos of
            ``[low, high)`` go into ``duration_<low>_<high>``.
        resume: Go on with what was begun in ``output_dir``, if anything was. Flags and input must
            be those of then.
        strict: Anything but hidden files that would be left out is an error before anything is
            written.
        check: Decode all pictures and parse all texts, and leave out what fails. Whether captions
            have the same fields and types is for `validate` to tell.
        keep_folders: Pack sub-folders of modalities, too; they become a part of the key. Else what
            lies in them is left out.
        on_double: Two files of one stem in a modality, ``x.jpg`` and ``x.png``: ``"error"``, or
            ``"skip"`` all but the first by name.
        progress: Called from this thread after each step.

    Returns:
        What was packed and what was left out.

    Raises:
        LayoutError: The input holds no samples, or files that must not be left out; or the output
            holds something else, or another packing writes there.
        ResumeError: What was begun has other flags or another input.
        StorageError: A file cannot be read or written, or a worker process was killed.
        MissingDependencyError: Videos are to be measured and PyAV is not installed.
        ValueError: An argument is out of its range, or a URL, or two exclude each other.
    """
    if dataset_name is not None and key_prefix is not None:
        raise ValueError(
            f"dataset_name={dataset_name!r} makes a key's prefix, and key_prefix={key_prefix!r} is "
            "another; give one of them"
        )
    if isinstance(optional, str):
        raise TypeError(f"optional must be a list of folder names, got the string {optional!r}")
    if num_workers is not None and num_workers < 1:
        raise ValueError(f"num_workers must be at least 1, got {num_workers}")
    if dataset_name is not None:
        key_prefix = f"{dataset_name}__"
    folders = requested_columns(modalities)
    settings = PackSettings(
        modalities=None if folders is None else tuple(folders.values()),
        optional=frozenset(optional),
        shard_size=shard_size,
        max_shard_bytes=max_shard_bytes,
        size_based_on=size_based_on,
        shuffle=shuffle,
        seed=seed,
        limit=limit,
        key_prefix=key_prefix or "",
        max_file_bytes=max_file_bytes,
        part_size=part_size,
        classify_aspect_ratio=classify_aspect_ratio,
        duration_bins=None if duration_bins is None else tuple(map(float, duration_bins)),
        check=check,
        keep_folders=keep_folders,
        on_double=on_double,
    )
    packing = Packing(
        source=_folder("input_dir", input_dir, cure="copy the files to this machine first"),
        output=_folder("output_dir", output_dir, cure="copy what is packed to the store"),
        settings=settings,
        num_workers=num_workers or available_cpus(),
        progress=progress or (lambda _: None),
    )
    return packing.run(dry_run=dry_run, resume=resume, strict=strict)


def _folder(name: str, path: PathLike, *, cure: str) -> Path:
    return Path(required_local(name, os.fspath(path), cure=cure)).resolve()
