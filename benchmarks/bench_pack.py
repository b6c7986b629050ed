"""Packing folders of raw files, against a plain loop over ``tarfile`` that writes the same shards.

The loop does the same work: it pairs the files that are not empty, measures the pictures by Pillow where
classes are asked for, and gives each tar its name when it is whole and on the disk; its tars are the same
to the byte, which is checked. It is told which shard is whose, and cannot be resumed. It runs a second
time without waiting for the disk, which packing always does.

Run: python benchmarks/bench_pack.py [--files 10000] [--shard-sizes 20 500] [--workers 2]
         [--runs 5] [--data FOLDER_OF_A_TWIN_DATA_SET]
"""

import argparse
import json
import os
import random
import tarfile
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from PIL import ExifTags, Image
from resident import resident_with_children, sampled
from twins import WORDS

from daft_twinwds.testing import encode_jpeg
from daft_twinwds.tools.pack import PackReport, pack
from daft_twinwds.tools.pack_plan import iter_plan

MODALITIES = ("caption", "image")


def make_small_files(root: Path, count: int) -> None:
    """Write pairs of a small JPEG, different in size from file to file, and a caption."""
    import numpy as np

    draw = random.Random(0)
    pixels = np.random.default_rng(0).integers(0, 256, (96, 128, 3), np.uint8)
    picture = encode_jpeg(pixels)
    for modality in MODALITIES:
        (root / modality).mkdir(parents=True)
    for number in range(count):
        # What follows a JPEG's end marker is nobody's pixels.
        (root / "image" / f"id_{number}.jpg").write_bytes(picture + bytes(draw.randrange(4000)))
        caption = json.dumps({"prompt": " ".join(draw.choices(WORDS, k=80))})
        (root / "caption" / f"id_{number}.json").write_text(caption)


def unpack(data: Path, root: Path) -> None:
    for tar in sorted(data.rglob("*.tar")):
        modality = tar.parts[-3]
        with tarfile.open(tar) as archive:
            archive.extractall(root / modality, filter="data")


def plain_loop(source: Path, plan: Path, output: Path, *, classify: bool, sync: bool) -> None:
    """Pair the files, measure the pictures and write the tars of a plan, as a script would."""
    stems = [
        {path.stem for path in (source / modality).iterdir() if path.stat().st_size}
        for modality in MODALITIES
    ]
    paired = set.intersection(*stems)
    if classify:
        for path in (source / "image").iterdir():
            ratio_of(path)
    counts = []
    for _, _, shard in iter_plan(str(plan)):
        for modality in MODALITIES:
            path = output / shard.tar(modality)
            path.parent.mkdir(parents=True, exist_ok=True)
            part = path.with_suffix(".part")
            with part.open("wb") as opened:
                with tarfile.open(fileobj=opened, mode="w", format=tarfile.USTAR_FORMAT) as tar:
                    for name, file, _ in shard.members(modality):
                        assert Path(file).stem in paired
                        tar.add(source / modality / file, name, filter=anonymous)
                if sync:
                    opened.flush()
                    os.fsync(opened.fileno())
            part.replace(path)
        counts.append(len(list(shard.members("image"))))
    (output / "wdinfo.json").write_text(json.dumps({"data_list_key_count": counts}))


def anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.mode, member.mtime, member.uid, member.gid = 0o644, 0, 0, 0
    member.uname = member.gname = ""
    return member


def ratio_of(path: Path) -> float:
    with Image.open(path) as image:
        width, height = image.size
        if image.getexif().get(ExifTags.Base.Orientation, 1) > 4:
            width, height = height, width
        return width / height


def seconds_of(function: Callable[[Path], object], output: Path) -> float:
    """Return how long it takes to fill a new folder, whose files are emptied afterwards.

    That frees the memory of the page cache for the next run: on virtual machines the first touch
    of memory can take longer than all else. Deleting the files would free their inodes, too, which
    makes file systems slow to create new ones.
    """
    start = time.perf_counter()
    function(output)
    seconds = time.perf_counter() - start
    for path in output.rglob("*.tar"):
        os.truncate(path, 0)
    return seconds


def compare(
    what: str, source: Path, *, shard_size: int, workers: int, runs: int, classify: bool
) -> None:
    reports: list[PackReport] = []

    def ours(output: Path) -> None:
        reports.append(
            pack(
                source,
                output,
                shard_size=shard_size,
                num_workers=workers,
                classify_aspect_ratio=classify,
            )
        )

    # New folders each time, and none is deleted before the end: see `seconds_of`.
    folder = source.with_name(f"{shard_size}_{classify}")
    outputs = [folder / str(number) for number in range(3 * runs + 2)]
    plan, check = outputs.pop(), outputs.pop()
    with sampled(resident_with_children) as peak:
        ours(plan)
    plain_loop(source, plan, check, classify=classify, sync=False)
    require_same_tars(plan, check)
    our_times, their_times, unsynced_times = [], [], []
    # In turns, as other work on the machine should slow all of them down alike.
    for _ in range(runs):
        for times, sync in ((their_times, True), (unsynced_times, False)):
            loop = partial(plain_loop, source, plan, classify=classify, sync=sync)
            times.append(seconds_of(loop, outputs.pop()))
        our_times.append(seconds_of(ours, outputs.pop()))
    our_time, their_time, unsynced = min(our_times), min(their_times), min(unsynced_times)
    report = reports[-1]
    print(
        f"{what}, {report.num_samples} samples, {report.num_bytes / 1e6:.0f} MB, "
        f"{report.num_shards} shards, aspect ratios {'read' if classify else 'not read'}: "
        f"daft_twinwds {our_time:.2f} s with {workers} workers, tarfile {their_time:.2f} s: "
        f"{their_time / our_time:.1f} times as fast (at least 3 is asked for); tarfile without "
        f"syncing {unsynced:.2f} s: {unsynced / our_time:.1f} times; peak memory {peak[0] / 1e6:.0f} MB"
    )


def require_same_tars(ours: Path, theirs: Path) -> None:
    for path in sorted(theirs.rglob("*.tar")):
        if path.read_bytes() != (ours / path.relative_to(theirs)).read_bytes():
            raise RuntimeError(f"{path}: not what daft_twinwds has packed")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=10_000, help="pairs of small files")
    parser.add_argument("--shard-sizes", type=int, nargs="+", default=[20, 500])
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--data", type=Path, help="a twin data set whose files are packed as well")
    args = parser.parse_args()
    options = {"workers": args.workers, "runs": args.runs}
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "small" / "raw"
        make_small_files(source, args.files)
        for shard_size in args.shard_sizes:
            for classify in (False, True):
                compare("small files", source, shard_size=shard_size, classify=classify, **options)
        if args.data:
            source = Path(folder) / "large" / "raw"
            unpack(args.data, source)
            compare("files of --data", source, shard_size=20, classify=True, **options)


if __name__ == "__main__":
    main()
