"""Members whose suffix does not fit their column."""

from daft_twinwds.query.schema import Column
from daft_twinwds.shards.samples import Samples

__all__ = ["odd_places", "odd_suffix_message"]


def odd_places(column: Column, samples: Samples) -> list[int]:
    """Return the places of the members that do not fit, in archive order.

    Args:
        column: What they are to become.
        samples: Members of one tar.
    """
    fitting = column.suffixes
    if fitting is None or samples.suffixes <= fitting:
        return []
    places = range(len(samples.names))
    return [place for place in places if samples.suffix_of(place) not in fitting]


def odd_suffix_message(column: Column, samples: Samples, place: int) -> str:
    """Return what to say of one of `odd_places`."""
    assert column.suffixes is not None
    fitting = ", ".join(f".{suffix}" for suffix in sorted(column.suffixes))
    return (
        f"{samples.path}: member {samples.names[place]!r} at byte {samples.positions[place]} "
        f"has the suffix {samples.suffix_of(place)!r}; the column {column.name!r} holds "
        f"{column.dtype} from {fitting}; move it to another modality, or pass "
        f"schema={{{column.name!r}: daft.DataType.file()}}"
    )
