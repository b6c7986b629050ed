"""Which caption is drawn: by weight, among those that are there, the same after a resume."""

import pickle
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daft_twinwds.errors import SchemaError
from daft_twinwds.train.captions import PickCaption

FULL = {"prompt": "a long text", "prompt_medium": "a text", "prompt_short": "text"}


def drawn(pick: PickCaption, caption: Any, count: int = 3000) -> Counter[str]:
    return Counter(pick(caption, seed=0, epoch=0, row=row)[1] for row in range(count))


@given(seed=st.integers(0, 2**64 - 1), epoch=st.integers(0, 10**6), row=st.integers(0, 10**12))
def test_the_text_is_that_of_the_field_and_is_drawn_alike_again(
    seed: int, epoch: int, row: int
) -> None:
    text, name = PickCaption()(FULL, seed=seed, epoch=epoch, row=row)

    assert text == FULL[name]
    assert PickCaption()(FULL, seed=seed, epoch=epoch, row=row) == (text, name)


def test_all_fields_are_drawn_equally_often_unless_told_otherwise() -> None:
    counts = drawn(PickCaption(), FULL)

    # Five standard deviations of 3000 draws with a chance of one third: 129.
    assert all(abs(counts[name] - 1000) < 129 for name in FULL)


def test_fields_are_drawn_by_weight() -> None:
    counts = drawn(PickCaption({"prompt": 0.7, "prompt_short": 0.1}), FULL)

    assert set(counts) == {"prompt", "prompt_short"}
    # Five standard deviations of 3000 draws with a chance of one eighth: 91.
    assert abs(counts["prompt_short"] - 375) < 91


@pytest.mark.parametrize("missing", [{}, {"prompt_medium": None}, {"prompt_medium": " \n"}])
def test_the_weight_of_a_missing_field_goes_to_the_others(missing: dict[str, Any]) -> None:
    caption = {"prompt": "a", "prompt_short": "b", **missing}

    counts = drawn(PickCaption({"prompt": 1, "prompt_medium": 7, "prompt_short": 1}), caption)

    assert set(counts) == {"prompt", "prompt_short"}
    assert abs(counts["prompt"] - 1500) < 137


@pytest.mark.parametrize("argument", ["seed", "epoch", "row"])
def test_another_seed_epoch_or_row_draws_anew(argument: str) -> None:
    pick = PickCaption()
    place = {"seed": 1, "epoch": 2, "row": 3}

    names = {pick(FULL, **{**place, argument: value})[1] for value in range(50)}

    assert names == set(FULL)


@pytest.mark.parametrize(
    ("caption", "expected"),
    [
        pytest.param("just a text", ("just a text", "caption"), id="bare-text"),
        pytest.param({"caption": "inside"}, ("inside", "caption"), id="wrapped-text"),
        pytest.param({"caption": {"prompt": "x"}}, ("x", "prompt"), id="wrapped"),
        pytest.param({"captions": {"prompt": "x"}}, ("x", "prompt"), id="wrapped-plural"),
        pytest.param({"captions": {"caption": {"prompt": "x"}}}, ("x", "prompt"), id="twice"),
        pytest.param(
            {"prompt": None, "caption": None, "captions": {"prompt_short": "x"}},
            ("x", "prompt_short"),
            id="beside-null-fields",
        ),
        pytest.param(
            {"prompt": "outer", "caption": {"prompt": "inner"}}, ("outer", "prompt"), id="outer"
        ),
        pytest.param({"prompt": " kept as it is\n"}, (" kept as it is\n", "prompt"), id="spaces"),
        pytest.param({"prompt": "x", "width": 5}, ("x", "prompt"), id="other-fields"),
    ],
)
def test_the_text_is_found_where_it_stands(caption: Any, expected: tuple[str, str]) -> None:
    assert PickCaption()(caption, seed=0, epoch=0, row=0) == expected


@pytest.mark.parametrize(
    ("caption", "found"),
    [
        pytest.param(None, "no text in null", id="null"),
        pytest.param("", "no text in an empty text", id="empty"),
        pytest.param({}, r"no text in an object with the fields \(none\)", id="nothing"),
        pytest.param({"prompt": ""}, "no text in an object with the fields prompt", id="empty-one"),
        pytest.param({"text": "x"}, "no text in an object with the fields text", id="other-name"),
        pytest.param(
            {"caption": ["x"]}, "no text in an object with the fields caption", id="wrapped-list"
        ),
        pytest.param(["x"], "no text in a list", id="list"),
        pytest.param(
            {"prompt": {"text": "x"}}, "prompt is a dict; expected a text or null", id="no-text"
        ),
    ],
)
def test_a_caption_without_a_text_is_refused_with_its_row(caption: Any, found: str) -> None:
    with pytest.raises(SchemaError, match=f"^caption of row 8: {found}"):
        PickCaption()(caption, seed=0, epoch=0, row=8)


@pytest.mark.parametrize(
    ("weights", "error", "message"),
    [
        pytest.param({}, ValueError, "no weights; expected at least one", id="none"),
        pytest.param({"prompt": 0}, ValueError, r"weights\['prompt'\] must be positive", id="zero"),
        pytest.param({"prompt": "1"}, TypeError, r"weights\['prompt'\] must be a num", id="text"),
    ],
)
def test_weights_that_are_none_are_refused(
    weights: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        PickCaption(weights)


@pytest.mark.parametrize("seed", [True, 1.0], ids=repr)
def test_only_integers_are_seeds(seed: Any) -> None:
    with pytest.raises(TypeError, match="must be an int"):
        PickCaption()(FULL, seed=seed, epoch=0, row=0)


def test_later_changes_of_the_given_weights_do_not_count() -> None:
    weights = {"prompt": 1.0}
    pick = PickCaption(weights)

    weights["prompt_short"] = 5.0

    assert set(drawn(pick, FULL, 50)) == {"prompt"}


def test_the_order_of_the_weights_does_not_count() -> None:
    one, other = PickCaption({"prompt": 1, "a": 2}), PickCaption({"a": 2, "prompt": 1})

    assert one == other
    assert drawn(one, {"prompt": "x", "a": "y"}) == drawn(other, {"a": "y", "prompt": "x"})


def test_it_travels_to_other_processes() -> None:
    pick = PickCaption({"prompt": 1, "prompt_short": 2})
    copy = pickle.loads(pickle.dumps(pick))

    assert copy == pick
    assert drawn(copy, FULL, 50) == drawn(pick, FULL, 50)


def test_draws_are_the_same_for_ever() -> None:
    names = [PickCaption()(FULL, seed=0, epoch=1, row=row)[1] for row in range(8)]

    assert names == [
        "prompt_medium",
        "prompt_short",
        "prompt",
        "prompt_medium",
        "prompt_short",
        "prompt_short",
        "prompt",
        "prompt",
    ]
