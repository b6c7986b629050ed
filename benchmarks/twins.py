"""Synthetic twins for the benchmarks: many small samples with long captions."""

import io
import json
import random
import tarfile
from pathlib import Path

WORDS = [
    "river",
    "mountain",
    "morning",
    "light",
    "city",
    "market",
    "child",
    "horse",
    "window",
    "garden",
    "old",
    "stone",
    "bridge",
    "boat",
    "quiet",
    "winter",
    "forest",
    "red",
    "blue",
    "golden",
    "wide",
    "narrow",
    "street",
    "painted",
    "wooden",
    "door",
    "under",
    "above",
]


def make_small_twins(root: Path, *, shards: int, samples: int, words: int) -> Path:
    """Write ``shards`` pairs of ``samples`` tiny pictures (not decodable) and long captions."""
    draw = random.Random(0)
    number = 0
    for shard in range(shards):
        name = f"part_000000/{shard:06d}.tar"
        pictures, captions = [], []
        for _ in range(samples):
            caption = {
                "prompt": " ".join(draw.choices(WORDS, k=words)),
                "prompt_short": " ".join(draw.choices(WORDS, k=5)),
                "width": 3840,
                "height": 2160,
                "aesthetic": round(draw.uniform(0, 10), 3),
            }
            pictures.append((f"id_{number}.jpg", b"\xff\xd8" + draw.randbytes(600) + b"\xff\xd9"))
            captions.append((f"id_{number}.json", json.dumps(caption).encode()))
            number += 1
        _write(root / "image" / name, pictures)
        _write(root / "caption" / name, captions)
    return root


def _write(path: Path, members: list[tuple[str, bytes]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as tar:
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
