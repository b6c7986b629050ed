"""Which bucket each row belongs to: by the shape of its picture, or by a column."""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from daft_twinwds.errors import DecodeError
from daft_twinwds.query.picture_info import read_infos
from daft_twinwds.query.schema import KEY, URL
from daft_twinwds.shards.options import StorageOptions, options_of
from daft_twinwds.shards.storage import open_file
from daft_twinwds.train.buckets import (
    ASPECT_CLASSES,
    Buckets,
    aspect_class,
    aspect_classes,
    class_of_path,
)
from daft_twinwds.train.selection import Selection

__all__ = ["ASPECT_RATIO", "Labeller"]

ASPECT_RATIO = "aspect_ratio"
"""What to bucket by for pictures of one shape per batch."""


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
        labels = {id(selection): self._labels(selection) for selection in selections}
        return Buckets.from_labels(
            [label for selection in selections for label in labels[id(selection)]]
        )

    def _labels(self, selection: Selection) -> list[Any]:
        assert self.bucket_by is not None
        if self.bucket_by == ASPECT_RATIO:
            return self._aspects(selection)
        names = [name for name in selection.table.column_names if name not in selection.media]
        if self.bucket_by not in names:
            raise ValueError(
                f"bucket_by={self.bucket_by!r}: there is no such column of values; expected "
                f"{ASPECT_RATIO!r} or one of {names}"
            )
        values: list[Any] = selection.table.column(self.bucket_by).to_pylist()
        return values

    def _aspects(self, selection: Selection) -> list[str]:
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
            if known:
                return known
        if URL in names:
            known = _classes_of_paths(table.column(URL))
            if known:
                return known
        caption = table.column("caption") if "caption" in names else None
        if caption is not None and pa.types.is_struct(caption.type):
            fields = {field.name for field in caption.type}
            if {"width", "height"} <= fields:
                known = _classes(*(pc.struct_field(caption, name) for name in ("width", "height")))
                if known:
                    return known
        return self._classes_of_headers(selection, picture)

    def _classes_of_headers(self, selection: Selection, picture: str) -> list[str]:
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
        return [label for label in known if label is not None]


def _classes(widths: pa.ChunkedArray, heights: pa.ChunkedArray) -> list[str] | None:
    """Return each picture's class, or None if a side is not known."""
    for sides in (widths, heights):
        if not pa.types.is_integer(sides.type) or sides.null_count:
            return None
        if len(sides) and pc.min(sides).as_py() < 1:
            return None
    classes: list[str] = aspect_classes(widths.to_numpy(), heights.to_numpy()).tolist()
    return classes


def _classes_of_paths(urls: pa.ChunkedArray) -> list[str] | None:
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
    labels: list[str] = np.array(names, np.str_)[coded.indices.to_numpy()].tolist()
    return labels
