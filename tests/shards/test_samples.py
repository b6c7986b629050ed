"""Names -> keys, and members -> one entry per key."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from daft_twinwds.errors import AlignmentError, TarFormatError
from daft_twinwds.shards import samples as samples_module
from daft_twinwds.shards.samples import BadKey, KeySplit, Samples, read_samples, split_name
from daft_twinwds.shards.storage import LocalFile
from daft_twinwds.testing import write_tar

Members = Sequence[tuple[str, bytes]]

NAMES = st.text(alphabet="aB./\u00df", max_size=8) | st.text(max_size=8)
KEY_SPLITS = st.sampled_from(get_args(KeySplit))


def samples_of(
    path: Path,
    members: Members,
    *,
    key_split: KeySplit = "last",
    strict: bool = True,
    limit: int | None = None,
) -> Samples:
    """Samples of a tar that is written first."""
    with LocalFile(str(write_tar(path, members, format="pax"))) as file:
        return read_samples(file, key_split=key_split, strict=strict, limit=limit)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "image" / "000000.tar"


@pytest.mark.parametrize(
    ("name", "last", "first"),
    [
        pytest.param("id_0.jpg", ("id_0", "jpg"), ("id_0", "jpg"), id="one-dot"),
        pytest.param("a.b.jpg", ("a.b", "jpg"), ("a", "b.jpg"), id="two-dots"),
        pytest.param("v1.2/id_0.jpg", ("v1.2/id_0", "jpg"), ("v1.2/id_0", "jpg"), id="folder"),
        pytest.param("v1.2/a.b.png", ("v1.2/a.b", "png"), ("v1.2/a", "b.png"), id="folder-dots"),
        pytest.param("id_0.JPG", ("id_0", "jpg"), ("id_0", "jpg"), id="upper-case"),
        pytest.param("ID_0.Mask.PNG", ("ID_0.Mask", "png"), ("ID_0", "mask.png"), id="key-case"),
        pytest.param("id_0", ("id_0", ""), ("id_0", ""), id="no-dot"),
        pytest.param("v1.2/id_0", ("v1.2/id_0", ""), ("v1.2/id_0", ""), id="dot-in-folder-only"),
        pytest.param(".jpg", (".jpg", ""), (".jpg", ""), id="leading-dot"),
        pytest.param("a/.jpg", ("a/.jpg", ""), ("a/.jpg", ""), id="leading-dot-in-folder"),
        pytest.param("...jpg", ("...jpg", ""), ("...jpg", ""), id="leading-dots"),
        pytest.param(".id.jpg", (".id", "jpg"), (".id.jpg", ""), id="hidden"),
        pytest.param("id_0.", ("id_0", ""), ("id_0", ""), id="trailing-dot"),
        pytest.param("a..jpg", ("a.", "jpg"), ("a", ".jpg"), id="dots-in-a-row"),
        pytest.param("", ("", ""), ("", ""), id="empty"),
    ],
)
def test_a_name_splits_by_the_rule(
    name: str, last: tuple[str, str], first: tuple[str, str]
) -> None:
    assert split_name(name, "last") == last
    assert split_name(name, "first") == first


@given(name=NAMES)
def test_the_last_dot_splits_as_splitext_does(name: str) -> None:
    stem, extension = os.path.splitext(name)  # noqa: PTH122  # the rule itself, for any text

    assert split_name(name, "last") == (stem, extension[1:].lower())


@given(folder=st.text("aB./", max_size=8), base=st.text("aB.", max_size=8))
def test_the_first_dot_splits_as_webdataset_does(folder: str, base: str) -> None:
    tariterators = pytest.importorskip("webdataset.tariterators")
    name = f"{folder}/x{base}.y"

    key, suffix = tariterators.base_plus_ext(name)

    assert split_name(name, "first") == (key, suffix.lower())


@given(name=NAMES, key_split=KEY_SPLITS)
def test_key_and_suffix_make_the_name_again(name: str, key_split: KeySplit) -> None:
    key, suffix = split_name(name, key_split)

    assert name in (key, f"{key}.") or f"{key}.{name[len(key) + 1 :]}" == name
    assert suffix == name[len(key) + 1 :].lower()


@given(names=st.lists(NAMES, max_size=6), key_split=KEY_SPLITS)
@example(names=["a.jpg", ".jpg"], key_split="last")
@example(names=["a.jpg", "..jpg"], key_split="last")
@example(names=["a.jpg", "b/.jpg"], key_split="last")
@example(names=["a.jpg", "b.c/jpg"], key_split="last")
@example(names=["a.jpg", "b."], key_split="last")
def test_many_names_split_as_each_alone(names: list[str], key_split: KeySplit) -> None:
    keys, suffixes = samples_module._split_names(names, key_split)

    assert list(zip(keys, suffixes, strict=True)) == [split_name(name, key_split) for name in names]


def test_every_member_has_its_key_and_its_bytes(path: Path) -> None:
    members = [("b/id_1.jpg", b"one"), ("id_0.jpg", b""), ("id.2.JPG", b"three")]

    samples = samples_of(path, members)

    assert samples.path == str(path)
    assert samples.keys == ["b/id_1", "id_0", "id.2"]
    assert samples.names == ["b/id_1.jpg", "id_0.jpg", "id.2.JPG"]
    assert samples.suffixes == {"jpg"}
    assert not samples.bad
    assert not samples.notes
    assert samples.fault is None
    content = path.read_bytes()
    ranges = zip(samples.positions.tolist(), samples.sizes.tolist(), strict=True)
    assert [content[start : start + size] for start, size in ranges] == [b"one", b"", b"three"]


def test_the_first_dot_ends_the_key_if_asked_for(path: Path) -> None:
    samples = samples_of(path, [("a.b.jpg", b""), ("c.D.jpg", b"")], key_split="first")

    assert samples.keys == ["a", "c"]
    assert samples.suffixes == {"b.jpg", "d.jpg"}


def test_an_empty_tar_holds_no_samples(path: Path) -> None:
    samples = samples_of(path, [])

    assert samples.keys == []
    assert samples.suffixes == frozenset()
    assert len(samples.positions) == len(samples.sizes) == 0


def test_no_more_members_are_read_than_asked_for(path: Path) -> None:
    members = [("id_0.jpg", b"a"), ("id_1.jpg", b"b"), ("no suffix", b"c")]

    assert samples_of(path, members, limit=2).keys == ["id_0", "id_1"]


def test_a_missing_shard_holds_no_samples() -> None:
    samples = Samples.none("image/000000.tar")

    assert samples.path == "image/000000.tar"
    assert samples.keys == samples.names == []
    assert len(samples.positions) == len(samples.sizes) == 0
    assert samples.fault is None


@pytest.mark.parametrize(
    ("second", "payload"),
    [
        pytest.param("id_1.jpg", b"other", id="other-bytes"),
        pytest.param("id_1.jpg", b"one", id="same-bytes"),
        pytest.param("id_1.png", b"seven", id="other-suffix"),
    ],
)
def test_a_key_held_twice_is_refused_with_both_members(
    path: Path, second: str, payload: bytes
) -> None:
    members = [("id_0.jpg", b""), ("id_1.jpg", b"one"), ("id_2.jpg", b""), (second, payload)]

    with pytest.raises(
        AlignmentError,
        match=rf"{path}: key 'id_1' is held by 2 members, 'id_1.jpg' at byte 1024 and "
        rf"'{second}' at byte 2560; expected one member per key; .*on_error='skip'",
    ):
        samples_of(path, members)


def test_a_key_held_often_is_shown_in_short(path: Path) -> None:
    with pytest.raises(AlignmentError, match="held by 9 members") as caught:
        samples_of(path, [("id_1.jpg", b"")] * 9)

    assert str(caught.value).count("at byte") == 4


def test_of_equal_copies_the_first_stays_when_skipping(path: Path) -> None:
    members = [("id_1.jpg", b"one"), ("id_0.jpg", b""), ("id_1.JPG", b"one"), ("id_1.jpg", b"one")]

    samples = samples_of(path, members, strict=False)

    assert samples.keys == ["id_1", "id_0"]
    assert samples.names == ["id_1.jpg", "id_0.jpg"]
    assert samples.positions.tolist() == [512, 1536]
    assert samples.sizes.tolist() == [3, 0]
    assert samples.notes == {"surplus copy of a member": 2}
    assert not samples.bad


@pytest.mark.parametrize(
    ("copies", "key_split"),
    [
        pytest.param([("id_1.jpg", b"one"), ("id_1.jpg", b"two")], "last", id="other-bytes"),
        pytest.param([("id_1.jpg", b"one"), ("id_1.jpg", b"longer")], "last", id="other-size"),
        pytest.param([("id_1.jpg", b"one"), ("id_1.png", b"one")], "last", id="other-suffix"),
        pytest.param(
            [("id_1.jpg", b"one"), ("id_1.jpg", b"one"), ("id_1.jpg", b"two")], "last", id="third"
        ),
        pytest.param(
            [("id_1.a.jpg", b"one"), ("id_1.b.jpg", b"one")], "first", id="other-compound-suffix"
        ),
    ],
)
def test_of_members_that_differ_none_stays_when_skipping(
    path: Path, copies: Members, key_split: KeySplit
) -> None:
    members = [("id_0.jpg", b""), *copies, ("id_2.jpg", b"")]

    samples = samples_of(path, members, key_split=key_split, strict=False)

    assert samples.keys == ["id_0", "id_2"]
    assert samples.names == ["id_0.jpg", "id_2.jpg"]
    assert samples.bad.keys() == {"id_1"}
    assert str(path) in samples.bad["id_1"].message
    assert repr(copies[1][0]) in samples.bad["id_1"].message
    assert not samples.notes


@pytest.mark.parametrize("name", ["README", "id.1/readme", ".hidden", "trailing."])
def test_a_member_without_suffix_is_refused_with_its_name(path: Path, name: str) -> None:
    with pytest.raises(
        AlignmentError,
        match=rf"{path}: member '{name}' at byte 1024 has no suffix; expected names like "
        r"'id_0.jpg'; remove it, or pass on_error='skip'",
    ):
        samples_of(path, [("id_0.jpg", b""), (name, b"")])


def test_members_without_suffix_are_left_out_and_counted_when_skipping(path: Path) -> None:
    members = [("README", b"x"), ("id_0.jpg", b"a"), ("README", b"y"), ("LICENSE", b"")]

    samples = samples_of(path, members, strict=False)

    assert samples.keys == ["id_0"]
    assert samples.notes == {"member without a suffix": 3}
    assert not samples.bad


def test_suffixes_are_those_of_members_that_stay(path: Path) -> None:
    members = [
        ("README", b""),
        ("id_0.jpg", b"a"),
        ("id_1.jpg", b"b"),
        ("id_1.txt", b"c"),
        ("id_2.PNG", b"d"),
    ]

    samples = samples_of(path, members, strict=False)

    assert samples.keys == ["id_0", "id_2"]
    assert samples.suffixes == {"jpg", "png"}


def test_a_damaged_tar_is_refused_or_read_up_to_its_fault(path: Path) -> None:
    write_tar(path, [(f"id_{number}.jpg", b"x" * 700) for number in range(4)])
    os.truncate(path, 4 * 512 + 100)

    with LocalFile(str(path)) as file:
        with pytest.raises(TarFormatError, match=str(path)):
            read_samples(file, key_split="last", strict=True)
        samples = read_samples(file, key_split="last", strict=False)

    assert samples.keys == ["id_0"]
    assert isinstance(samples.fault, TarFormatError)


def test_what_the_tar_lacks_and_holds_twice_is_counted_together(path: Path) -> None:
    members = [
        ("._id_0.jpg", b"sidecar"),
        ("id_0.jpg", b"a"),
        ("id_0.jpg", b"a"),
        ("README", b""),
        ("caf\udce9_0.jpg", b"latin-1"),
    ]
    write_tar(path, members, format="ustar")

    with LocalFile(str(path)) as file:
        samples = read_samples(file, key_split="last", strict=False)

    assert samples.keys == ["id_0"]
    assert samples.notes == {
        "macOS sidecars skipped": 1,
        "names that are not UTF-8": 1,
        "member without a suffix": 1,
        "surplus copy of a member": 1,
    }


def test_leaving_out_adds_to_what_was_left_out_before(path: Path) -> None:
    samples = samples_of(path, [(f"id_{number}.jpg", b"x") for number in range(4)])

    first = samples.without({1}, bad={"id_1": BadKey("odd", "id_1")}, notes={"a": 1})
    second = first.without({0, 2}, bad={"id_0": BadKey("odd", "id_0")}, notes={"a": 2, "b": 1})

    assert samples.keys == ["id_0", "id_1", "id_2", "id_3"]
    assert second.keys == ["id_2"]
    assert second.names == ["id_2.jpg"]
    assert second.positions.tolist() == [512 + 2 * 1024]
    assert second.bad == {"id_1": BadKey("odd", "id_1"), "id_0": BadKey("odd", "id_0")}
    assert second.notes == {"a": 3, "b": 1}
