"""Which of a sample's captions is trained on."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import accumulate
from types import MappingProxyType
from typing import Any, Final

from daft_twinwds.errors import SchemaError
from daft_twinwds.train.permutation import derive_key
from daft_twinwds.train.schedule import integer_weights

__all__ = ["PickCaption"]

EQUALLY: Final[Mapping[str, float]] = MappingProxyType(
    {"prompt": 1, "prompt_medium": 1, "prompt_short": 1}
)
_WRAPPERS: Final = ("caption", "captions")

# What a key draws, other than an order's; never to be changed, as every draw depends on it.
_CAPTION: Final = 3


@dataclass(frozen=True)
class PickCaption:
    """Draw one text of a caption, by weight among those that are there and not empty.

    The draw depends on the seed, the epoch and the row alone, so that a resumed run draws the
    same, while another epoch draws anew.

    Source:
        The caption extractor of PiD.
    """

    weights: Mapping[str, float] = field(default_factory=lambda: dict(EQUALLY))
    """Field -> relative weight, positive; fields that are not named are never drawn."""
    _shares: dict[str, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        # A copy, so that no later change of the caller's mapping gets in; sorted, so that equal
        # weights draw alike.
        object.__setattr__(self, "weights", dict(sorted(self.weights.items())))
        object.__setattr__(self, "_shares", integer_weights(self.weights))

    def __call__(self, caption: Any, *, seed: int, epoch: int, row: int) -> tuple[str, str]:
        """Return a text and the field that it is from.

        Args:
            caption: An object with the named fields; one that holds such an object, or a text,
                as ``caption`` or ``captions``; or a text, which is taken as it is.
            seed: In ``[0, 2**64)``.
            epoch: At least 0.
            row: Which sample; at least 0.

        Returns:
            (text, field); the field of a text that stands by itself is ``"caption"``.

        Raises:
            SchemaError: No text is there, or what should be one is none.
        """
        texts = self._texts(caption, row)
        weights = [self._shares.get(name, 1) for name in texts]
        # The key is uniform in [0, 2**64): scaled in integers, a draw in [0, sum of weights).
        draw = derive_key(seed, epoch, _CAPTION, row) * sum(weights) >> 64
        chosen = next(
            name for name, end in zip(texts, accumulate(weights), strict=True) if draw < end
        )
        return texts[chosen], chosen

    def _texts(self, caption: Any, row: int) -> dict[str, str]:
        """Return the texts to draw from, by field."""
        inner = caption
        while isinstance(inner, Mapping):
            texts = {name: inner[name] for name in self.weights if inner.get(name) is not None}
            for name, text in texts.items():
                if not isinstance(text, str):
                    raise SchemaError(
                        f"caption of row {row}: {name} is a {type(text).__name__}; expected a text "
                        "or null; correct it, or name other fields by PickCaption(weights=...)"
                    )
            texts = {name: text for name, text in texts.items() if text.strip()}
            if texts:
                return texts
            inner = next((inner[name] for name in _WRAPPERS if inner.get(name) is not None), None)
        if isinstance(inner, str) and inner.strip():
            return {"caption": inner}
        raise SchemaError(
            f"caption of row {row}: no text in {_described(caption)}; expected one as "
            f"{' or '.join(self.weights)}, or a text by itself; drop such rows in the query, or "
            "name the fields to draw from by PickCaption(weights=...)"
        )


def _described(caption: Any) -> str:
    if isinstance(caption, Mapping):
        return f"an object with the fields {', '.join(map(str, caption)) or '(none)'}"
    if caption is None:
        return "null"
    return "an empty text" if isinstance(caption, str) else f"a {type(caption).__name__}"
