"""Which rows are equal to an earlier one: computed by Daft, so that it is spread as well."""

import re

import daft
import numpy as np
from daft import col
from numpy.typing import NDArray

from daft_twinwds.tools.curate_look import HASH, PLACE, ROWS
from daft_twinwds.tools.curate_place import CurationFolder

__all__ = ["doubles_in", "doubles_of"]

_FIRST = "first"


def doubles_in(folder: CurationFolder) -> NDArray[np.int64]:
    """Return the `PLACE` of each row that has the hash of an earlier one, in order.

    Whatever the order of work, of equal rows the first in the data set's order stays. Only
    those that do not come back here.

    Args:
        folder: Where at least one look has been noted.
    """
    # Daft takes paths for patterns.
    looks = re.sub(r"([\\*?\[\]{}])", r"\\\1", str(folder.looks))
    rows = daft.read_parquet(f"{looks}/*/*.parquet").select(HASH, PLACE)
    firsts = rows.groupby(HASH).agg(col(PLACE).min().alias(_FIRST))
    doubles = rows.join(firsts, on=HASH).where(col(PLACE) != col(_FIRST)).select(PLACE)
    places: NDArray[np.int64] = doubles.to_arrow().column(PLACE).to_numpy()
    return np.sort(places)


def doubles_of(places: NDArray[np.int64], number: int) -> NDArray[np.int64]:
    """Return those of one shard."""
    start, stop = np.searchsorted(places, [number * ROWS, (number + 1) * ROWS])
    return places[start:stop].copy()
