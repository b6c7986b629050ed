"""Makes twin datasets, tars and pictures for tests and examples.

Nothing is downloaded: pictures are painted, and their captions say what is to be seen. The same
arguments give the same bytes.
"""

import io
import json
import tarfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Literal, Protocol, cast

import numpy as np
import numpy.typing as npt
import simplejpeg

from daft_twinwds._scenery.painting import paint
from daft_twinwds._scenery.words import Scene, scene_of

__all__ = ["Resumable", "assert_resumes_exactly", "encode_jpeg", "make_twin_dataset", "write_tar"]

SHARDS_PER_PART = 1000
"""Shards in one ``part_`` folder, as PiD's packer has it."""
LARGEST_SIDE = 65500
"""Largest width or height of a JPEG that libjpeg writes, in pixels."""

_FORMATS = {"ustar": tarfile.USTAR_FORMAT, "gnu": tarfile.GNU_FORMAT, "pax": tarfile.PAX_FORMAT}

Size = tuple[int, int]


class Resumable(Protocol):
    """A loader whose position can be saved."""

    def __iter__(self) -> Iterator[Any]: ...
    def state_dict(self) -> Mapping[str, Any]: ...
    def load_state_dict(self, state_dict: Mapping[str, Any], /) -> None: ...


def assert_resumes_exactly(make_loader: Callable[[], Resumable], *, steps: int) -> None:
    """Check that a loader that is killed after any step goes on as if it had not been.

    Every state goes through JSON and into a fresh loader, so that nothing can leak through memory:
    the one before the first step, those in the middle, the last one; and each is saved again right
    after it was loaded. From the middle on it is resumed twice in a row. An iteration that ends is
    begun again, so that ``steps`` may be more than one has.

    Args:
        make_loader: Returns a new loader each time, all alike.
        steps: How many steps to look at; more than an epoch has, to see the next one.

    Raises:
        AssertionError: The loader goes on otherwise; the step is named.
    """
    loader = make_loader()
    states = [json.dumps(loader.state_dict())]
    seen = []
    for item in islice(_forever(loader), steps):
        seen.append(item)
        states.append(json.dumps(loader.state_dict()))
    assert len(seen) == steps, f"the loader has no {steps} steps, but {len(seen)}"

    for step, state in enumerate(states):
        resumed = make_loader()
        resumed.load_state_dict(json.loads(state))
        again = json.dumps(resumed.state_dict())
        assert again == state, f"loaded at step {step}: state {state} was saved again as {again}"
        half = (steps - step) // 2
        rest = list(islice(_forever(resumed), half))
        once_more = make_loader()
        once_more.load_state_dict(json.loads(json.dumps(resumed.state_dict())))
        rest += islice(_forever(once_more), steps - step - half)
        for place, (got, wanted) in enumerate(zip(rest, seen[step:], strict=True), start=step):
            assert _is_same(got, wanted), (
                f"resumed after step {step}: step {place} gives {got}, expected {wanted}"
            )


def _forever(loader: Resumable) -> Iterator[Any]:
    """Iterate again and again, until an iteration is empty."""
    is_empty = False
    while not is_empty:
        is_empty = True
        for item in loader:
            is_empty = False
            yield item


def _is_same(left: Any, right: Any) -> bool:
    """Compare batches: dictionaries and lists of arrays, tensors and values."""
    if isinstance(left, Mapping) and isinstance(right, Mapping):
        return left.keys() == right.keys() and all(
            _is_same(left[name], right[name]) for name in left
        )
    if isinstance(left, list | tuple) and isinstance(right, list | tuple):
        return len(left) == len(right) and all(map(_is_same, left, right))
    if hasattr(left, "shape") and hasattr(right, "shape"):
        return bool(left.shape == right.shape and (left == right).all())
    return bool(left == right)


def make_twin_dataset(
    path: str | Path,
    *,
    num_shards: int = 2,
    samples_per_shard: int = 8,
    image_size: Size | Sequence[Size] = (64, 48),
    seed: int = 0,
    quality: int = 90,
    caption: Callable[[int], Mapping[str, object]] | None = None,
) -> Path:
    """Write a small twin dataset of painted landscapes and their captions.

    ::

        path/image/part_000000/000000.tar     id_0.jpg  id_1.jpg ...
        path/caption/part_000000/000000.tar   id_0.json id_1.json ...
        path/wdinfo.json

    Keys run on over the shards, from ``id_0``. Five neighbouring samples show all five hours of
    the day. A caption holds ``prompt``; ``prompt_medium`` in two of three samples and
    ``prompt_short`` in every second; ``width``, ``height``, ``score`` (a made-up float in
    ``[0, 10]``), ``source`` (a made-up word) and ``tags`` (what is to be seen, among it the hour).

    Args:
        path: Folder of the dataset, made if it is not there. Files of the same names are
            replaced, others stay.
        num_shards: Shards per modality, at least 1.
        samples_per_shard: Samples in each shard, at least 1.
        image_size: ``(width, height)`` in pixels, or several, which the samples take in turns.
        seed: Which series of pictures, at least 0.
        quality: JPEG quality, in ``[1, 100]``. A 3840 x 2160 picture has about 2 MB at 90.
        caption: Called with a sample's number, returns the JSON object to write instead of the
            picture's own caption.

    Returns:
        ``path``, ready for `daft_twinwds.read_twin_webdataset`.

    Raises:
        ValueError: A number is out of its range.
    """
    _check_at_least("num_shards", num_shards, 1)
    _check_at_least("samples_per_shard", samples_per_shard, 1)
    _check_at_least("seed", seed, 0)
    sizes = _sizes_of(image_size)

    root = Path(path)
    shards = [_shard_name(number) for number in range(num_shards)]
    for number, shard in enumerate(shards):
        first = number * samples_per_shard
        samples = range(first, first + samples_per_shard)
        write_tar(root / "image" / shard, _iter_pictures(samples, seed, sizes, quality))
        write_tar(root / "caption" / shard, _iter_captions(samples, seed, sizes, caption))

    manifest = {
        "data_keys": ["image", "caption"],
        "data_list": shards,
        "data_list_key_count": [samples_per_shard] * num_shards,
        "root": str(root.resolve()),
        "total_key_count": num_shards * samples_per_shard,
    }
    (root / "wdinfo.json").write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")
    return root


def write_tar(
    path: str | Path,
    members: Iterable[tuple[str, bytes]],
    *,
    format: Literal["ustar", "gnu", "pax"] = "ustar",  # noqa: A002 - tarfile's own word for it
) -> Path:
    """Write an uncompressed tar whose bytes depend on the arguments alone.

    Args:
        path: File to write; missing folders are made, an old file is replaced.
        members: Name and content of each member, in archive order. Names may repeat.
        format: Kind of the headers. ``"ustar"`` holds names up to 100 bytes, or 255 with a slash
            in the right place; ``"gnu"`` and ``"pax"`` hold any.

    Returns:
        ``path``.

    Raises:
        ValueError: The format is none of the three, or cannot hold a name.
    """
    if format not in _FORMATS:
        raise ValueError(f"format must be one of {', '.join(_FORMATS)}, got {format!r}")
    file = Path(path)
    file.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(file, "w", format=_FORMATS[format]) as tar:
        for name, content in members:
            # A new TarInfo has mtime, uid and gid 0 and no user name: nothing of this machine.
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return file


def encode_jpeg(pixels: npt.NDArray[np.uint8], quality: int = 90) -> bytes:
    """Return a picture as a JPEG file, with colour at half resolution as cameras write it.

    Args:
        pixels: ``(height, width, 3)`` uint8: red, green, blue.
        quality: In ``[1, 100]``.

    Raises:
        ValueError: The shape, the dtype or the quality is another.
    """
    if pixels.ndim != 3 or pixels.shape[2] != 3 or pixels.dtype != np.uint8:
        raise ValueError(
            f"pixels must be (height, width, 3) uint8, got {pixels.shape} {pixels.dtype}"
        )
    if not 1 <= quality <= 100:
        raise ValueError(f"quality must be in [1, 100], got {quality}")
    encoded = simplejpeg.encode_jpeg(
        np.ascontiguousarray(pixels), quality, colorspace="RGB", colorsubsampling="420"
    )
    return bytes(encoded)


def _check_at_least(name: str, value: int, least: int) -> None:
    if value < least:
        raise ValueError(f"{name} must be at least {least}, got {value}")


def _sizes_of(image_size: Size | Sequence[Size]) -> Sequence[Size]:
    """Return the sizes that the samples take in turns."""
    one = bool(image_size) and isinstance(image_size[0], int)
    sizes = cast("Sequence[Size]", [image_size] if one else image_size)
    if not sizes or not all(_is_size(size) for size in sizes):
        raise ValueError(
            "image_size must be (width, height) or a list of such pairs, each side in "
            f"[1, {LARGEST_SIDE}], got {image_size}"
        )
    return sizes


def _is_size(size: Sequence[int]) -> bool:
    return len(size) == 2 and all(1 <= side <= LARGEST_SIDE for side in size)


def _shard_name(number: int) -> str:
    part, tar = divmod(number, SHARDS_PER_PART)
    return f"part_{part:06d}/{tar:06d}.tar"


def _iter_pictures(
    samples: range, seed: int, sizes: Sequence[Size], quality: int
) -> Iterator[tuple[str, bytes]]:
    for sample in samples:
        width, height = sizes[sample % len(sizes)]
        pixels = paint(scene_of(seed, sample), width, height)
        yield f"id_{sample}.jpg", encode_jpeg(pixels, quality)


def _iter_captions(
    samples: range,
    seed: int,
    sizes: Sequence[Size],
    caption: Callable[[int], Mapping[str, object]] | None,
) -> Iterator[tuple[str, bytes]]:
    for sample in samples:
        content = caption(sample) if caption else _caption_of(scene_of(seed, sample), sizes)
        yield f"id_{sample}.json", json.dumps(content).encode()


def _caption_of(scene: Scene, sizes: Sequence[Size]) -> dict[str, object]:
    sample = scene.index
    width, height = sizes[sample % len(sizes)]
    rng = np.random.default_rng((scene.seed, sample, 2))
    prompts = {"prompt": scene.long}
    if sample % 3 != 2:
        prompts["prompt_medium"] = scene.medium
    if sample % 2 == 0:
        prompts["prompt_short"] = scene.short
    return {
        **prompts,
        "width": width,
        "height": height,
        "score": round(float(rng.uniform(0, 10)), 2),
        "source": str(rng.choice(["archive", "field", "studio"])),
        "tags": scene.tags,
    }
