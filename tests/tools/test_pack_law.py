"""Law: what was packed is what is read, for any names, modalities and sizes."""

import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

import daft_twinwds
from daft_twinwds.shards.layout import find_dataset
from daft_twinwds.shards.samples import read_samples
from daft_twinwds.shards.storage import LocalFile
from daft_twinwds.tools.pack import PackReport, pack

Contents = dict[str, dict[str, bytes]]
"""Modality -> key -> payload."""

stems = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="/\\\0"), min_size=1, max_size=20
).filter(lambda stem: not stem.startswith("."))
suffixes = st.sampled_from(["bin", "BIN", "dat", "x", "tar", "Pickle", "\u00e9"])
sizes = st.sampled_from([1, 2, 511, 512, 513, 1024, 10_240])


@st.composite
def inputs(draw: st.DrawFn) -> dict[str, dict[str, tuple[str, bytes]]]:
    """Modality -> stem -> (suffix, payload); not all stems are in all modalities."""
    modalities = draw(st.lists(st.sampled_from("abcd"), min_size=1, max_size=4, unique=True))
    keys = draw(st.lists(stems, min_size=1, max_size=8, unique=True))
    return {
        modality: {
            key: (draw(suffixes), draw(st.binary(min_size=1, max_size=4)) * draw(sizes))
            for key in keys
            if key == keys[0] or draw(st.integers(0, 9))
        }
        for modality in modalities
    }


def write(root: Path, files: dict[str, dict[str, tuple[str, bytes]]]) -> None:
    for modality, content in files.items():
        (root / modality).mkdir(parents=True)
        for stem, (suffix, data) in content.items():
            (root / modality / f"{stem}.{suffix}").write_bytes(data)


def read(root: Path) -> Contents:
    dataset = find_dataset(root)
    contents: Contents = {modality: {} for modality in dataset.modalities}
    for shard in dataset.iter_shards():
        for modality, path in shard.paths.items():
            assert path is not None
            with LocalFile(path) as file:
                samples = read_samples(file, key_split="last", strict=True)
                ranges = zip(samples.positions.tolist(), samples.sizes.tolist(), strict=True)
                payloads = [file.read(position, size) for position, size in ranges]
            contents[modality].update(zip(samples.keys, payloads, strict=True))
    return contents


def packed(root: Path, shard_size: int, max_shard_bytes: int, seed: int) -> PackReport:
    return pack(
        root / "raw",
        root / "data",
        shard_size=shard_size,
        max_shard_bytes=max_shard_bytes,
        seed=seed,
        key_prefix="p-",
        classify_aspect_ratio=False,
        num_workers=2,
    )


@given(
    files=inputs(),
    shard_size=st.integers(1, 4),
    max_shard_bytes=st.sampled_from([1, 2048, 10**9]),
    seed=st.integers(-(10**9), 10**9),
)
def test_what_was_packed_is_read(
    files: dict[str, dict[str, tuple[str, bytes]]],
    shard_size: int,
    max_shard_bytes: int,
    seed: int,
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        write(root / "raw", files)

        report = packed(root, shard_size, max_shard_bytes, seed)

        common = set.intersection(*(set(content) for content in files.values()))
        assert read(root / "data") == {
            modality: {f"p-{stem}": content[stem][1] for stem in common}
            for modality, content in files.items()
        }
    stems_seen = set.union(*(set(content) for content in files.values()))
    assert {item.key for item in report.left_out} == stems_seen - common
    assert report.num_samples == len(common)


@settings(max_examples=10)
@given(files=inputs())
def test_what_was_packed_is_in_the_dataframe(
    files: dict[str, dict[str, tuple[str, bytes]]],
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        write(root / "raw", files)
        packed(root, 3, 10**9, 0)

        rows = daft_twinwds.read_twin_webdataset(root / "data").to_pylist()

        common = set.intersection(*(set(content) for content in files.values()))
        assert {row["__key__"] for row in rows} == {f"p-{stem}" for stem in common}
        for row in rows:
            for modality, content in files.items():
                with row[modality].open() as file:
                    assert file.read() == content[row["__key__"].removeprefix("p-")][1]
