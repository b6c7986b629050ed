import json
import tarfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import simplejpeg
from hypothesis import given
from hypothesis import strategies as st
from typing_extensions import override

from daft_twinwds._scenery.painting import paint
from daft_twinwds._scenery.words import HOURS, scene_of
from daft_twinwds.testing import (
    _shard_name,
    assert_resumes_exactly,
    encode_jpeg,
    make_twin_dataset,
    write_tar,
)


def members_of(path: Path) -> list[tuple[str, bytes]]:
    with tarfile.open(path, "r:") as tar:
        return [(member.name, tar.extractfile(member).read()) for member in tar]  # type: ignore[union-attr]


def captions_of(root: Path) -> list[dict[str, object]]:
    tars = sorted(root.glob("caption/*/*.tar"))
    return [json.loads(content) for tar in tars for _, content in members_of(tar)]


def files_of(root: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in root.rglob("*")
        if path.suffix == ".tar"
    }


def test_dataset_has_the_twin_layout_and_keys_that_run_on(tmp_path: Path) -> None:
    root = make_twin_dataset(tmp_path / "data", num_shards=2, samples_per_shard=3)

    assert root == tmp_path / "data"
    names = {
        str(name): [member for member, _ in members_of(root / name)] for name in files_of(root)
    }
    assert names == {
        "image/part_000000/000000.tar": ["id_0.jpg", "id_1.jpg", "id_2.jpg"],
        "image/part_000000/000001.tar": ["id_3.jpg", "id_4.jpg", "id_5.jpg"],
        "caption/part_000000/000000.tar": ["id_0.json", "id_1.json", "id_2.json"],
        "caption/part_000000/000001.tar": ["id_3.json", "id_4.json", "id_5.json"],
    }


def test_manifest_lists_what_was_written(tmp_path: Path) -> None:
    root = make_twin_dataset(tmp_path, num_shards=2, samples_per_shard=3)

    assert json.loads((root / "wdinfo.json").read_text()) == {
        "data_keys": ["image", "caption"],
        "data_list": ["part_000000/000000.tar", "part_000000/000001.tar"],
        "data_list_key_count": [3, 3],
        "root": str(tmp_path.resolve()),
        "total_key_count": 6,
    }


def test_equal_arguments_give_equal_bytes_in_another_folder(tmp_path: Path) -> None:
    one = make_twin_dataset(tmp_path / "one", samples_per_shard=5, seed=3)
    other = make_twin_dataset(tmp_path / "other", samples_per_shard=5, seed=3)

    assert files_of(one) == files_of(other)


def test_another_seed_gives_other_pictures(tmp_path: Path) -> None:
    one = make_twin_dataset(tmp_path / "one", num_shards=1, seed=0)
    other = make_twin_dataset(tmp_path / "other", num_shards=1, seed=1)

    tar = "image/part_000000/000000.tar"
    assert not set(members_of(one / tar)) & set(members_of(other / tar))


def test_part_folder_holds_a_thousand_shards() -> None:
    assert _shard_name(999) == "part_000000/000999.tar"
    assert _shard_name(1000) == "part_000001/000000.tar"


def test_pictures_have_the_asked_size_and_captions_say_it(tmp_path: Path) -> None:
    root = make_twin_dataset(tmp_path, num_shards=1, samples_per_shard=3, image_size=(40, 30))

    (tar,) = root.glob("image/*/*.tar")
    for _, content in members_of(tar):
        assert simplejpeg.decode_jpeg(content).shape == (30, 40, 3)
    assert [(caption["width"], caption["height"]) for caption in captions_of(root)] == [
        (40, 30)
    ] * 3


def test_several_sizes_are_taken_in_turns_over_all_shards(tmp_path: Path) -> None:
    sizes = [(32, 18), (18, 32), (24, 24)]

    root = make_twin_dataset(tmp_path, num_shards=2, samples_per_shard=2, image_size=sizes)

    written = []
    for tar in sorted(root.glob("image/*/*.tar")):
        for _, content in members_of(tar):
            height, width, *_ = simplejpeg.decode_jpeg_header(content)
            written.append((width, height))
    assert written == [*sizes, sizes[0]]


def test_captions_hold_a_prompt_always_and_the_others_sometimes(tmp_path: Path) -> None:
    captions = captions_of(make_twin_dataset(tmp_path, num_shards=1, samples_per_shard=6))

    assert all(isinstance(caption["prompt"], str) for caption in captions)
    assert ["prompt_medium" in caption for caption in captions] == [True, True, False] * 2
    assert ["prompt_short" in caption for caption in captions] == [True, False] * 3


def test_other_caption_fields_have_one_type_each(tmp_path: Path) -> None:
    captions = captions_of(make_twin_dataset(tmp_path))

    types = {"width": int, "height": int, "score": float, "source": str, "tags": list}
    for caption in captions:
        assert {name: type(caption[name]) for name in types} == types
    assert all(0 <= caption["score"] <= 10 for caption in captions)  # type: ignore[operator]
    assert len({caption["score"] for caption in captions}) > 10


def test_own_captions_replace_the_painted_ones(tmp_path: Path) -> None:
    def caption(sample: int) -> Mapping[str, object]:
        return {"prompt": f"number {sample}", "odd": sample % 2 == 1}

    root = make_twin_dataset(tmp_path, samples_per_shard=1, caption=caption)

    assert captions_of(root) == [
        {"prompt": "number 0", "odd": False},
        {"prompt": "number 1", "odd": True},
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        pytest.param({"num_shards": 0}, "num_shards must be at least 1, got 0", id="no-shards"),
        pytest.param(
            {"samples_per_shard": 0}, "samples_per_shard must be at least 1, got 0", id="no-samples"
        ),
        pytest.param({"seed": -1}, "seed must be at least 0, got -1", id="negative-seed"),
        pytest.param({"image_size": (64, 0)}, r"in \[1, 65500\], got \(64, 0\)", id="flat"),
        pytest.param({"image_size": (64, 48, 3)}, r"got \(64, 48, 3\)", id="three-sides"),
        pytest.param({"image_size": []}, r"list of such pairs, .* got \[\]", id="no-sizes"),
        pytest.param({"image_size": (65501, 1)}, r"got \(65501, 1\)", id="too-wide-for-jpeg"),
        pytest.param({"quality": 101}, r"quality must be in \[1, 100\], got 101", id="quality"),
    ],
)
def test_numbers_out_of_range_are_refused(
    tmp_path: Path, arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        make_twin_dataset(tmp_path, **arguments)


def test_five_neighbours_show_all_hours_and_tags_name_them() -> None:
    for start in range(20):
        shown = {tag for index in range(start, start + 5) for tag in scene_of(7, index).tags}

        assert set(HOURS) <= shown


def test_words_tell_the_parts_of_the_scene() -> None:
    scenes = [scene_of(0, index) for index in range(20)]

    lake = next(scene for scene in scenes if scene.water and scene.clouds)
    assert lake.long.startswith(lake.medium[0].upper() + lake.medium[1:])
    assert lake.long.endswith("mirrored in a still lake")
    assert "drifting clouds" in lake.long
    assert {"lake", "clouds"} <= set(lake.tags)
    assert len({scene.long for scene in scenes}) > 15


@given(index=st.integers(0, 400), width=st.integers(1, 60), height=st.integers(1, 60))
def test_scene_of_any_size_is_painted_the_same_twice(index: int, width: int, height: int) -> None:
    scene = scene_of(1, index)

    pixels = paint(scene, width, height)

    assert pixels.shape == (height, width, 3)
    assert pixels.dtype == np.uint8
    assert np.array_equal(pixels, paint(scene, width, height))


def test_day_is_brighter_than_night() -> None:
    brightness = {
        scene.hour: paint(scene, 64, 48).mean() for scene in (scene_of(0, i) for i in range(5))
    }

    assert brightness["night"] < brightness["dusk"] < brightness["day"]


def test_lake_mirrors_the_shore_darker() -> None:
    scene = next(s for s in (scene_of(0, i) for i in range(60)) if s.water and s.hour == "day")

    pixels = paint(scene, 320, 180).astype(float)

    shore = round(0.76 * 180)
    above, below = pixels[shore - 3 : shore].mean(), pixels[shore : shore + 3].mean()
    assert below == pytest.approx(0.75 * above + 4, abs=3)


def test_sun_or_moon_of_the_caption_is_in_sight() -> None:
    for index in range(40):
        scene = scene_of(5, index)

        pixels = paint(scene, 160, 90)

        assert (pixels == HOURS[scene.hour].glow).all(axis=-1).sum() > 15, scene.long


def test_large_picture_is_photo_sized_on_disk() -> None:
    content = encode_jpeg(paint(scene_of(0, 3), 1920, 1080))

    assert 300_000 < len(content) < 1_000_000


def test_tar_holds_the_members_in_order_and_nothing_of_this_machine(tmp_path: Path) -> None:
    members = [("b.txt", b"second letter"), ("a.txt", b""), ("b.txt", b"again")]

    path = write_tar(tmp_path / "new" / "folder" / "x.tar", members)

    assert members_of(path) == members
    with tarfile.open(path, "r:") as tar:
        assert {(m.mtime, m.uid, m.gid, m.uname, m.gname) for m in tar} == {(0, 0, 0, "", "")}


@pytest.mark.parametrize(
    ("kind", "magic"),
    [
        pytest.param("ustar", b"ustar\x0000", id="ustar"),
        pytest.param("gnu", b"ustar  \x00", id="gnu"),
        pytest.param("pax", b"ustar\x0000", id="pax"),
    ],
)
def test_tar_has_headers_of_the_asked_kind(tmp_path: Path, kind: str, magic: bytes) -> None:
    name = "long/" * 60 + "name.txt" if kind != "ustar" else "name.txt"

    path = write_tar(tmp_path / "x.tar", [(name, b"content")], format=kind)  # type: ignore[arg-type]

    assert path.read_bytes()[257:265] == magic
    assert members_of(path) == [(name, b"content")]


def test_name_too_long_for_ustar_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="name is too long"):
        write_tar(tmp_path / "x.tar", [("n" * 300, b"")])


def test_unknown_tar_format_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="one of ustar, gnu, pax, got 'zip'"):
        write_tar(tmp_path / "x.tar", [], format="zip")  # type: ignore[arg-type]


def test_jpeg_holds_the_picture() -> None:
    pixels = paint(scene_of(0, 0), 64, 48)

    decoded = simplejpeg.decode_jpeg(encode_jpeg(pixels, quality=100))

    assert decoded.shape == pixels.shape
    assert np.abs(decoded.astype(int) - pixels).mean() < 4


def test_jpeg_of_a_view_is_that_of_its_copy() -> None:
    flipped = paint(scene_of(0, 0), 64, 48)[:, ::-1]

    assert encode_jpeg(flipped) == encode_jpeg(flipped.copy())


@pytest.mark.parametrize(
    "pixels",
    [
        pytest.param(np.zeros((4, 4), np.uint8), id="grey"),
        pytest.param(np.zeros((4, 4, 4), np.uint8), id="four-channels"),
        pytest.param(np.zeros((4, 4, 3), np.float32), id="float"),
    ],
)
def test_pixels_of_another_kind_are_refused(pixels: np.ndarray) -> None:
    with pytest.raises(ValueError, match=r"must be \(height, width, 3\) uint8, got \(4, 4"):
        encode_jpeg(pixels)


class Counting:
    """A loader of two epochs of three arrays each, as a user might write it."""

    def __init__(self) -> None:
        self.position = 0

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for number in range(self.position % 3, 3):
            self.position += 1
            yield self.item(number)

    def item(self, number: int) -> dict[str, Any]:
        return {"keys": [f"id_{number}"], "pixels": np.full((2, 2), number)}

    def state_dict(self) -> Mapping[str, Any]:
        return {"position": self.position}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        self.position = state_dict["position"]


class Forgetting(Counting):
    """Begins again."""

    @override
    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        super().load_state_dict({"position": state_dict["position"] // 3 * 3})


class Skipping(Counting):
    """Saves what it made ahead as if it had been handed out."""

    @override
    def state_dict(self) -> Mapping[str, Any]:
        return {"position": self.position + 1} if self.position == 2 else super().state_dict()


class Remembering(Counting):
    """Leaks its last item through memory that all loaders share."""

    made: ClassVar[list[int]] = []

    @override
    def item(self, number: int) -> dict[str, Any]:
        self.made.append(number)
        return {"pixels": np.array(len(self.made))}


class Short(Counting):
    """Ends for good after an epoch."""

    @override
    def __iter__(self) -> Iterator[dict[str, Any]]:
        return super().__iter__() if self.position < 3 else iter([])


def test_a_loader_that_goes_on_exactly_passes() -> None:
    assert_resumes_exactly(Counting, steps=6)


@pytest.mark.parametrize(
    ("make_loader", "message"),
    [
        (Forgetting, "loaded at step 1: state .* was saved again as"),
        (Skipping, r"resumed after step 2: step 2 gives .*id_0.*(\n.*)*, expected .*id_2"),
        (Remembering, "resumed after step 0: step 0 gives"),
        (Short, "the loader has no 6 steps, but 3"),
    ],
)
def test_loaders_that_do_not_go_on_exactly_are_found(
    make_loader: Callable[[], Counting], message: str
) -> None:
    with pytest.raises(AssertionError, match=message):
        assert_resumes_exactly(make_loader, steps=6)
