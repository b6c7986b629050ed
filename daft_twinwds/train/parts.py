"""Several selections as one space of rows."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
from typing_extensions import override

from daft_twinwds.train.mix import Concat, Level, Stop
from daft_twinwds.train.permutation import check_choice, derive_key
from daft_twinwds.train.schedule import integer_weights
from daft_twinwds.train.selection import Selection

__all__ = ["Mix", "Parts"]


class Mix:
    """Several selections drawn by weight; see `TwinLoader`.

    Weights count samples (or batches), not bytes or tokens: part i has its share of any number of
    samples, rounded up or down. Each part is shuffled by itself and starts again when it is
    through.

    Example:
        >>> mix = Mix({"photos": (photos, 0.7), "art": (art, 0.3)})  # doctest: +SKIP
        >>> loader = TwinLoader(mix, batch_size=4)  # doctest: +SKIP
    """

    def __init__(
        self,
        parts: Mapping[str, tuple[Selection, float]],
        *,
        level: Level = "sample",
        stop: Stop = "first_exhausted",
    ) -> None:
        """Name the parts.

        Args:
            parts: Name -> (selection, relative weight).
            level: ``"sample"`` mixes inside each global batch, ``"batch"`` takes every global
                batch from one part.
            stop: When an epoch ends: ``"first_exhausted"``, before any part would begin its
                second pass; ``"all_exhausted"``, when every part has ended its first;
                ``"endless"``, never.

        Raises:
            ValueError: There are no parts, a weight is not positive, or a keyword is none of
                those.
            TypeError: A part is not (selection, weight).
        """
        if not parts:
            raise ValueError("a mix needs at least one part, got none")
        check_choice("level", level, ("sample", "batch"))
        check_choice("stop", stop, ("first_exhausted", "all_exhausted", "endless"))
        pairs: dict[str, Any] = dict(parts)
        for name, part in pairs.items():
            if not isinstance(part, tuple) or len(part) != 2:
                raise TypeError(f"part {name!r} must be (selection, weight), got {part!r}")
        integer_weights({name: weight for name, (_, weight) in parts.items()})
        self.names = tuple(parts)
        """Names of the parts."""
        self.selections = tuple(selection for selection, _ in parts.values())
        """The rows of each."""
        self.weights = tuple(weight for _, weight in parts.values())
        """The weight of each."""
        self.level: Level = level
        """What is mixed."""
        self.stop: Stop = stop
        """When an epoch ends."""

    @override
    def __repr__(self) -> str:
        pairs = zip(self.names, self.weights, strict=True)
        shares = ", ".join(f"{name}: {weight}" for name, weight in pairs)
        return f"Mix({{{shares}}}, level={self.level!r}, stop={self.stop!r})"


@dataclass(frozen=True, eq=False)
class Parts:
    """Selections one after the other as one space of rows; one may be listed several times."""

    selections: tuple[Selection, ...]

    @classmethod
    def of(cls, selections: Iterable[Selection]) -> Self:
        """Check that the selections fit together.

        Raises:
            ValueError: There are none, or they differ in their columns.
            TypeError: One of them is no selection.
        """
        parts = tuple(selections)
        if not parts:
            raise ValueError("a loader needs at least one selection, got none")
        for number, part in enumerate(parts):
            if not isinstance(part, Selection):
                raise TypeError(
                    f"selections[{number}] must be a Selection, got {part!r}; make one by "
                    "Selection.from_dataframe(df)"
                )
            if part.table.column_names != parts[0].table.column_names:
                raise ValueError(
                    f"selections[{number}] has the columns {part.table.column_names}, the first "
                    f"one {parts[0].table.column_names}; expected the same in all; select() the "
                    "same columns before Selection.from_dataframe"
                )
            if dict(part.media) != dict(parts[0].media):
                raise ValueError(
                    f"selections[{number}] has the media {dict(part.media)}, the first one "
                    f"{dict(parts[0].media)}; expected the same in all"
                )
        return cls(parts)

    def __len__(self) -> int:
        """Number of rows over all listings."""
        return self.index.num_rows

    @override
    def __repr__(self) -> str:
        if len(self.selections) == 1:
            return repr(self.selections[0])
        return f"{len(self.selections)} selections of {len(self)} rows"

    @cached_property
    def index(self) -> Concat:
        """Where each listing's rows are."""
        return Concat(tuple(len(selection) for selection in self.selections))

    @property
    def media(self) -> Mapping[str, str]:
        """File column -> medium, the same in all."""
        return self.selections[0].media

    @property
    def columns(self) -> list[str]:
        """Names of the columns, the same in all."""
        names: list[str] = self.selections[0].table.column_names
        return names

    @cached_property
    def fingerprint(self) -> str:
        """Hash of which samples these are; a single selection's own."""
        first, *others = (selection.fingerprint for selection in self.selections)
        if not others:
            return first
        # Fingerprints are hashes already, so that a key made of their parts is one as well.
        halves = [int(text[at : at + 16], 16) for text in (first, *others) for at in (0, 16)]
        return "".join(f"{derive_key(salt, *halves):016x}" for salt in range(4))

    def rows(self, places: Sequence[int]) -> list[dict[str, Any]]:
        """Return some rows, whichever selections they are of, in the order asked for."""
        if len(self.selections) == 1:
            return self.selections[0].rows(places)
        numbers = np.asarray(places, np.int64)
        listings, own = self.index.locate(numbers)
        found: list[dict[str, Any]] = [{}] * len(numbers)
        for listing in np.unique(listings).tolist():
            chosen = np.flatnonzero(listings == listing)
            rows = self.selections[listing].rows(own[chosen])
            for place, row in zip(chosen.tolist(), rows, strict=True):
                found[place] = row
        return found
