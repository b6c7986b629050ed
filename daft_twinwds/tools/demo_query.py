"""The demo's questions to Daft: what the columns are, which rows are kept, what was pushed down."""

import io
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import daft
from daft import col
from daft.datatype import MediaType
from daft.expressions import Expression

import daft_twinwds
from daft_twinwds.errors import LayoutError, TwinWebDatasetError
from daft_twinwds.tools.demo_steps import PreviewRow, QueryStep, ScanPlan, TableStep
from daft_twinwds.train import Selection

__all__ = ["KEY", "PROMPT", "URL", "DemoQuery", "printable", "read_plan"]

KEY, URL, PROMPT = "__key__", "__url__", "prompt"
PREVIEW_ROWS = 6
IO_COUNTERS = Path("/proc/self/io")
"""Where Linux counts the bytes that this process has read, cached or not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoQuery:
    """One data set and the rows that the demo asks for."""

    root: str
    word: str | None
    """Kept prompts hold it, as it is written; None keeps all."""
    above: float | None
    """Kept captions have a score above it; None keeps all."""

    def everything(self) -> Selection:
        """Return all rows of the data set: keys and pictures.

        Raises:
            LayoutError: No modality holds pictures.
            TwinWebDatasetError: There is no row.
        """
        df = daft_twinwds.read_twin_webdataset(self.root)
        selection = Selection.from_dataframe(df.select(KEY, URL, self.picture_of(df)))
        if not len(selection):
            raise TwinWebDatasetError(
                f"{self.root}: holds no samples; expected at least one; check the path"
            )
        return selection

    def picture_of(self, df: daft.DataFrame) -> str:
        """Return the first column of pictures."""
        pictures = daft.DataType.file(MediaType.image())
        for field in df.schema():
            if field.dtype == pictures:
                return str(field.name)
        raise LayoutError(
            f"{self.root}: none of the columns {df.column_names} holds pictures; expected a "
            "folder of tars with .jpg or .png members; check the path"
        )

    def table(self, *, num_rows: int) -> TableStep:
        """Look at the first rows, out of ``num_rows``."""
        start = time.perf_counter()
        df = daft_twinwds.read_twin_webdataset(self.root)
        picture = self.picture_of(df)
        columns = [KEY, *_caption_columns(df).values(), col(picture)]
        head = df.select(*columns).limit(PREVIEW_ROWS)
        selection = Selection.from_dataframe(head)
        return TableStep(
            columns={field.name: str(field.dtype) for field in df.schema()},
            rows=[_preview(row, picture) for row in selection.rows(range(len(selection)))],
            num_rows=num_rows,
            plan=read_plan(head),
            seconds=time.perf_counter() - start,
        )

    def kept(self, everything: Selection) -> tuple[Selection, QueryStep]:
        """Ask for the rows; also tell what that took.

        Args:
            everything: All rows, for comparison.

        Returns:
            Keys, URLs, pictures and (if there are any) prompts of the rows that were kept.

        Raises:
            LayoutError: A word was asked for, and no modality holds prompts.
            TwinWebDatasetError: No row was kept.
        """
        start, read_before = time.perf_counter(), _bytes_read()
        df = daft_twinwds.read_twin_webdataset(self.root)
        prompt = _caption_columns(df).get(PROMPT)
        where = shown_where = None
        if self.word is not None:
            if prompt is None:
                raise LayoutError(
                    f"{self.root}: none of the columns {df.column_names} holds prompts; expected "
                    "captions with a field 'prompt', or texts; leave the word out"
                )
            where = prompt.contains(self.word)
            shown_where = f"{_source_of(df)}.contains({self.word!r})"
            df = daft_twinwds.read_twin_webdataset(self.root, where=where)
        shown_filter = None
        if self.above is not None:
            df = df.where(col("caption")["score"] > self.above)
            shown_filter = f"col('caption')['score'] > {self.above}"
        picture = self.picture_of(df)
        df = df.select(KEY, URL, *([] if prompt is None else [prompt]), picture)
        selection = Selection.from_dataframe(df)
        seconds, read_after = time.perf_counter() - start, _bytes_read()
        if not len(selection):
            raise TwinWebDatasetError(
                f"{self.root}: none of {len(everything)} prompts contains {self.word!r}; "
                "expected at least one; try another word, upper and lower case differ"
            )
        return selection, QueryStep(
            where=shown_where,
            filter=shown_filter,
            num_rows=len(everything),
            num_kept=len(selection),
            num_shards_kept=num_shards(selection),
            kept_bytes=picture_bytes(selection),
            read_bytes=None if None in (read_before, read_after) else read_after - read_before,
            plan=read_plan(df),
            seconds=seconds,
        )


