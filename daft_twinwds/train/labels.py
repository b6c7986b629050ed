"""Which bucket each row belongs to: by the shape of its picture, or by a column."""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from daft_twinwds.errors import DecodeError
from daft_twinwds.query.picture_info import read_infos
from daft_twinwds.query.schema import KEY, URL
from daft_twinwds.shards.options import StorageOptions, options_of
from daft_twinwds.shards.storage import open_file
from daft_twinwds.train.buckets import (
    ASPECT_CLASSES,
    Buckets,
    aspect_class,
    aspect_places,
    class_of_path,
)
from daft_twinwds.train.selection import Selection

__all__ = ["ASPECT_RATIO", "Labeller"]

ASPECT_RATIO = "aspect_ratio"
"""What to bucket by for pictures of one shape per batch."""

_ROWS_AT_ONCE: Final = 2**16


@dataclass(frozen=True, slots=True, kw_only=True)
class Labeller:
    """Puts the rows of selections into buckets."""

    bucket_by: str | None
    """`ASPECT_RATIO`, a column, or None for a single bucket."""
    picture: str | None
    """The column whose pictures have the aspect ratio."""
    storage: StorageOptions | Mapping[str, StorageOptions]
    num_threads: int
    skip_bad: bool
    """Whether a picture whose header cannot be read is left to the decoder to skip."""

    def buckets_of(self, selection: Selection) -> Buckets:
        """Return the buckets of one selection.

        Raises:
            ValueError: There is no such column, or there are no pictures.
            TypeError: A label is null, or neither a text nor an integer.
            DecodeError: A picture's header cannot be read.
            StorageError: A file cannot be read.
        """
        return self.buckets_of_all([selection])

    def buckets_of_all(self, selections: Sequence[Selection]) -> Buckets:
        """Return the buckets of selections that are one after the other."""
        if self.bucket_by is None:
            return Buckets.whole(sum(map(len, selections)))
        # One that is listed several times is looked at once.
        found = {id(selection): self._labels(selection) for selection in selections}
        if len(selections) == 1:
            return Buckets.from_codes(*found[id(selections[0])])
        names: list[Any] = []
        first = {}
        for key, labels in found.items():
            first[key] = len(names)
            names.extend(labels.names)
        codes = [
            np.add(found[key].codes, first[key], dtype=np.int32) for key in map(id, selections)
        ]
        return Buckets.from_codes(names, np.concatenate(codes))

    def _labels(self, selection: Selection) -> "_Labels":
        assert self.bucket_by is not None
        if self.bucket_by == ASPECT_RATIO:
            return self._aspects(selection)
        names = [name for name in selection.table.column_names if name not in selection.media]
        if self.bucket_by not in names:
            raise ValueError(
                f"bucket_by={self.bucket_by!r}: there is no such column of values; expected "
                f"{ASPECT_RATIO!r} or one of {names}"
            )
        return _Labels.of(selection.table.column(self.bucket_by))

    def _aspects(self, selection: Selection) -> "_Labels":
        """Take the class from where it is known without reading: columns, folders, captions."""
        table, picture = selection.table, self.picture
        if picture is None:
            raise ValueError(
                f"bucket_by={ASPECT_RATIO!r}: the selection has no column of pictures; there are "
                f"{table.column_names}"
            )
        names = table.column_names
        sides = (f"{picture}_width", f"{picture}_height")
        if set(sides) <= set(names):
            known = _classes(*(table.column(name) for name in sides))
            if known is not None:
                return known
        if URL in names:
            known = _classes_of_paths(table.column(URL))
            if known is not None:
                return known
        caption = table.column("caption") if "caption" in names else None
        if caption is not None and pa.types.is_struct(caption.type):
            fields = {field.name for field in caption.type}
            if {"width", "height"} <= fields:
                known = _classes(*(pc.struct_field(caption, name) for name in ("width", "height")))
                if known is not None:
                    return known
        return self._classes_of_headers(selection, picture)

    def _classes_of_headers(self, selection: Selection, picture: str) -> "_Labels":
        refs = selection.table.column(picture).to_pylist()
        by_path: dict[str, list[int]] = {}
        for row, ref in enumerate(refs):
            if ref is not None:
                by_path.setdefault(ref["path"], []).append(row)
        labels: list[str | None] = [None] * len(refs)

        def look(path: str) -> None:
            rows = by_path[path]
            with open_file(path.removeprefix("file://"), options_of(self.storage, picture)) as file:
                positions = [refs[row]["position"] for row in rows]
                sizes = [
                    len(file) - refs[row]["position"]
                    if refs[row]["size"] is None
                    else refs[row]["size"]
                    for row in rows
                ]
                infos = read_infos(file, positions, sizes)
            pairs = zip(infos.widths.to_pylist(), infos.heights.to_pylist(), strict=True)
            for row, (width, height) in zip(rows, pairs, strict=True):
                if width and height:
                    labels[row] = aspect_class(width, height)

        with ThreadPoolExecutor(self.num_threads, "daft-twinwds-headers") as pool:
            list(pool.map(look, by_path))
        # Where its decoder finds out the same, any class will do.
        known = [label or ("1_1" if self.skip_bad else None) for label in labels]
        if None in known:
            key = selection.table.column(KEY)[known.index(None)].as_py()
            raise DecodeError(
                f"{key!r} ({picture}): no width and height in the picture's header, or no "
                f"picture; expected one for bucket_by={ASPECT_RATIO!r}; drop the row, or pass "
                "on_error='skip'"
            )
        return _Labels.of(pa.chunked_array([pa.array(known, pa.string())]))


class _Labels(NamedTuple):
    """The label of each row."""

    names: Sequence[Any]
    """Labels, of which one may be there several times."""
    codes: NDArray[np.integer]
    """Which of them each row has, (rows,)."""

    @classmethod
    def of(cls, column: pa.ChunkedArray) -> "_Labels":
        """Return the values of a column; of one that can be no label, the first for all rows."""
        if pa.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        texts = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
        if not (pa.types.is_integer(column.type) or any(is_(column.type) for is_ in texts)):
            return cls(column.slice(0, 1).to_pylist(), np.zeros(len(column), np.int8))
        # A null becomes a name like any other: `Buckets` refuses it, and names its row.
        coded = column.dictionary_encode(null_encoding="encode").combine_chunks()
        return cls(coded.dictionary.to_pylist(), coded.indices.to_numpy())


def _classes(widths: pa.ChunkedArray, heights: pa.ChunkedArray) -> _Labels | None:
    """Return each picture's class, or None if a side is not known."""
    for sides in (widths, heights):
        if not pa.types.is_integer(sides.type) or sides.null_count:
            return None
        if len(sides) and pc.min(sides).as_py() < 1:
            return None
    codes = np.empty(len(widths), np.int8)
    for first in range(0, len(codes), _ROWS_AT_ONCE):
        some = (sides.slice(first, _ROWS_AT_ONCE).to_numpy() for sides in (widths, heights))
        codes[first : first + _ROWS_AT_ONCE] = aspect_places(*some)
    return _Labels(ASPECT_CLASSES, codes)


def _classes_of_paths(urls: pa.ChunkedArray) -> _Labels | None:
    coded = urls.combine_chunks().dictionary_encode()
    if isinstance(coded, pa.ChunkedArray):
        coded = coded.combine_chunks()
    known = [class_of_path(url or "") for url in coded.dictionary.to_pylist()]
    if coded.null_count or None in known:
        return None
    # The packer has a class that training has not.
    names = [
        name if name in ASPECT_CLASSES else aspect_class(*map(int, name.split("_")))
        for name in known
        if name is not None
    ]
    return _Labels(names, coded.indices.to_numpy())
