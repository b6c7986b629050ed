"""The twins of one shard -> rows by key, never by place."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from daft_twinwds.errors import AlignmentError
from daft_twinwds.shards.samples import Samples

__all__ = ["Alignment", "OnMissing", "align"]

OnMissing = Literal["error", "skip", "null"]

MISSING = "key missing in a modality"
DAMAGED = "key lost in a damaged tar"
UNLISTED = "key not in sample_keys"

EXAMPLES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Alignment:
    """Rows of one shard."""

    keys: list[str]
    """One key per row, each once."""
    rows: Mapping[str, NDArray[np.int64]]
    """Column -> place of each row's member among that column's samples; -1 where it is null."""
    dropped: Mapping[str, int]
    """Reason -> keys that became no row."""


def align(
    twins: Mapping[str, Samples],
    *,
    on_missing: OnMissing,
    wanted: Mapping[str, int] | None = None,
) -> Alignment:
    """Join the samples of one shard's modalities by key.

    Args:
        twins: Column -> samples, at least one.
        on_missing: A key that not all twins hold: ``"error"``, ``"skip"`` (the rows are exactly
            the intersection) or ``"null"`` (the union). Keys that a twin spoils, and keys that
            a twin lost where it is damaged, are dropped and counted under every policy.
        wanted: Key -> rank. Other keys become no rows; rows come in the order of the ranks.

    Returns:
        Rows in the order of the first modality, then keys that only later ones hold. Nothing
        that is left out is uncounted.

    Raises:
        AlignmentError: Twins disagree on the keys and ``on_missing="error"``.
    """
    first = next(iter(twins.values()))
    spoilt = {key: bad.reason for samples in twins.values() for key, bad in samples.bad.items()}
    dropped = Counter(spoilt.values())
    same = all(samples.keys == first.keys for samples in twins.values())
    if same and wanted is None:
        places = np.arange(len(first.keys), dtype=np.int64)
        return Alignment(keys=first.keys, rows=dict.fromkeys(twins, places), dropped=dropped)

    places_of = {
        column: {key: place for place, key in enumerate(samples.keys)}
        for column, samples in twins.items()
    }
    union = dict.fromkeys(key for samples in twins.values() for key in samples.keys)
    keys = [key for key in union if key not in spoilt]
    if wanted is not None:
        dropped[UNLISTED] += sum(key not in wanted for key in keys)
        keys = sorted((key for key in keys if key in wanted), key=wanted.__getitem__)
    if not same:
        keys = _settle(keys, twins, places_of, on_missing, dropped)
    rows = {
        column: np.fromiter((places.get(key, -1) for key in keys), np.int64, len(keys))
        for column, places in places_of.items()
    }
    return Alignment(keys=keys, rows=rows, dropped=+dropped)


def _settle(
    keys: list[str],
    twins: Mapping[str, Samples],
    places_of: Mapping[str, Mapping[str, int]],
    on_missing: OnMissing,
    dropped: Counter[str],
) -> list[str]:
    """Decide about the keys that not all twins hold."""
    damaged = [column for column, samples in twins.items() if samples.fault is not None]
    lost = {key for key in keys if any(key not in places_of[column] for column in damaged)}
    dropped[DAMAGED] += len(lost)
    keys = [key for key in keys if key not in lost]
    if on_missing == "null":
        return keys
    whole = [key for key in keys if all(key in places for places in places_of.values())]
    if on_missing == "error" and len(whole) != len(keys):
        raise AlignmentError(_missing_message(keys, twins, places_of))
    dropped[MISSING] += len(keys) - len(whole)
    return whole


def _missing_message(
    keys: list[str], twins: Mapping[str, Samples], places_of: Mapping[str, Mapping[str, int]]
) -> str:
    gaps = []
    for column, places in places_of.items():
        lacking = [key for key in keys if key not in places]
        if not lacking:
            continue
        examples = ", ".join(
            f"{key!r} ({_holder(key, twins, places_of)})" for key in lacking[:EXAMPLES]
        )
        more = ", ..." if len(lacking) > EXAMPLES else ""
        gaps.append(
            f"{twins[column].path} ({column}) lacks {len(lacking)} of {len(keys)} keys: "
            f"{examples}{more}"
        )
    return (
        f"{'; '.join(gaps)}; expected the same keys in all twins; pack the missing members, or "
        "pass on_missing='skip' (only complete rows) or on_missing='null' (nulls in the gaps)"
    )


def _holder(
    key: str, twins: Mapping[str, Samples], places_of: Mapping[str, Mapping[str, int]]
) -> str:
    column = next(column for column, places in places_of.items() if key in places)
    return f"{column} has {twins[column].names[places_of[column][key]]!r}"
