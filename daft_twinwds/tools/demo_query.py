"""The demo's questions to Daft: what the columns are, which rows are kept, what was pushed down."""

import io
import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import daft
import pyarrow.compute as pc
from daft import col, lit
from daft.datatype import MediaType
from daft.expressions import Expression

from daft_twinwds import read_twin_webdataset
from daft_twinwds.errors import LayoutError, TwinWebDatasetError
from daft_twinwds.tools.demo_steps import PreviewRow, QueryStep, ScanPlan, TableStep
from daft_twinwds.train import Selection

__all__ = [
    "KEY",
    "PROMPT",
    "URL",
    "ask",
    "count_shards",
    "find_all",
    "look",
    "picture_bytes",
    "picture_of",
    "printable",
    "read_plan",
]

KEY, URL, PROMPT = "__key__", "__url__", "prompt"
PREVIEW_ROWS = 6
PICTURES = daft.DataType.file(MediaType.image())
TEXT = daft.DataType.string()
IO_COUNTERS = Path("/proc/self/io")
"""Where Linux counts the bytes that this process has read, be it from disk or from memory."""


def find_all(root: str) -> Selection:
    """Return keys, URLs and pictures of all rows.

    Raises:
        LayoutError: No modality holds pictures.
    """
    df = read_twin_webdataset(root)
    return Selection.from_dataframe(df.select(KEY, URL, _picture_column(df, root)))


def look(root: str, *, num_rows: int) -> TableStep:
    """Return the columns and the first rows, out of ``num_rows``."""
    df = read_twin_webdataset(root)
    shown = [field.alias(name) for name, field in _caption_fields(df).items()]
    head = df.select(KEY, *shown, _picture_column(df, root)).limit(PREVIEW_ROWS)
    plan = read_plan(head)
    start = time.perf_counter()
    selection = Selection.from_dataframe(head)
    return TableStep(
        columns={field.name: str(field.dtype) for field in df.schema()},
        rows=[
            _preview(row, picture_of(selection)) for row in selection.rows(range(len(selection)))
        ],
        num_rows=num_rows,
        plan=plan,
        seconds=time.perf_counter() - start,
    )


def ask(
    root: str, *, word: str | None, least_score: float | None, everything: Selection
) -> tuple[Selection, QueryStep]:
    """Return the rows whose captions are as asked for, and what it took to find them.

    Args:
        root: Data set.
        word: Kept prompts hold it, as it is written; None keeps all.
        least_score: Kept captions have at least this score; None keeps all.
        everything: All rows, to compare with.

    Returns:
        Keys, URLs, pictures and (where the data set has any) prompts.

    Raises:
        LayoutError: A word was asked for, and no modality holds prompts.
        TwinWebDatasetError: No row was kept.
    """
    df = read_twin_webdataset(root)
    prompt = _caption_fields(df).get(PROMPT)
    if word is not None:
        if prompt is None:
            raise LayoutError(
                f"{root}: the columns are {df.column_names}; expected one of captions, with a "
                "field 'prompt', or of texts; ask for no word"
            )
        # Given here and not to df.where, a function of a column decides which tars are opened.
        df = read_twin_webdataset(root, where=prompt.contains(word))
    if least_score is not None:
        df = df.where(col("caption")["score"] >= lit(least_score))
    prompts = [] if prompt is None else [prompt.alias(PROMPT)]
    df = df.select(KEY, URL, *prompts, _picture_column(df, root))
    plan = read_plan(df)
    start, read_before = time.perf_counter(), _bytes_read()
    selection = Selection.from_dataframe(df)
    seconds, read_after = time.perf_counter() - start, _bytes_read()
    if not len(selection):
        score = "" if least_score is None else f" and scores at least {least_score:g}"
        raise TwinWebDatasetError(
            f"{root}: none of {len(everything)} prompts contains {word!r}{score}; expected at "
            "least one; try another word, capitals count"
        )
    return selection, QueryStep(
        word=word,
        least_score=least_score,
        num_rows=len(everything),
        num_kept=len(selection),
        num_shards_kept=count_shards(selection),
        kept_bytes=picture_bytes(selection),
        read_bytes=None if read_before is None or read_after is None else read_after - read_before,
        plan=plan,
        seconds=seconds,
    )


def picture_of(selection: Selection) -> str:
    """Return the name of the column of pictures, the only media of the demo's selections."""
    (name,) = selection.media
    return name


def count_shards(selection: Selection) -> int:
    """Return how many shards the rows come from."""
    return len(pc.unique(selection.table.column(URL)))


def picture_bytes(selection: Selection) -> int:
    """Return the size of all pictures, as their tars hold them."""
    sizes = pc.struct_field(selection.table.column(picture_of(selection)), "size")
    return pc.sum(sizes).as_py() or 0


def read_plan(df: daft.DataFrame) -> ScanPlan:
    """Return what Daft's optimised plan says about the scan of a query that has not run yet."""
    text = io.StringIO()
    df.explain(show_all=True, file=text)
    optimised = text.getvalue().partition("== Optimized")[2].partition("== Physical")[0]
    # Each entry begins after "|   "; Daft breaks long ones and indents what follows further.
    entries = re.sub(r"\n\|    +", " ", optimised)
    tasks = re.search(r"Num Scan Tasks = (\d+)", entries)
    pushdowns = re.findall(r"^\|   (\w+) pushdown = (.+)$", entries, re.MULTILINE)
    return ScanPlan(
        num_tasks=int(tasks[1]) if tasks else None,
        pushdowns={name.lower(): value.strip() for name, value in pushdowns},
    )


def printable(text: str | None) -> str | None:
    """Return a text in one line, without what would move a terminal's cursor or change colours."""
    if text is None:
        return None
    return " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())


def _picture_column(df: daft.DataFrame, root: str) -> str:
    for field in df.schema():
        if field.dtype == PICTURES:
            return str(field.name)
    raise LayoutError(
        f"{root}: the columns are {df.column_names}; expected one of pictures, which is a folder "
        "of tars with .jpg, .png or similar members; check the path"
    )


def _caption_fields(df: daft.DataFrame) -> dict[str, Expression]:
    """Return prompt, width and height, as far as a column of captions or texts has them."""
    dtypes = {field.name: field.dtype for field in df.schema()}
    for name, dtype in dtypes.items():
        if dtype.is_struct() and dtype.fields.get(PROMPT) == TEXT:
            sides = [
                side
                for side in ("width", "height")
                if side in dtype.fields and dtype.fields[side].is_integer()
            ]
            return {field: col(name)[field] for field in (PROMPT, *sides)}
    texts = [name for name, dtype in dtypes.items() if dtype == TEXT and name not in (KEY, URL)]
    return {PROMPT: col(texts[0])} if texts else {}


def _preview(row: Mapping[str, Any], picture: str) -> PreviewRow:
    ref = row[picture]
    return PreviewRow(
        key=printable(row[KEY]) or "",
        prompt=printable(row.get(PROMPT)),
        width=row.get("width"),
        height=row.get("height"),
        tar=printable(Path(ref.path).name) or "",
        position=ref.position,
        size=ref.size,
    )


def _bytes_read() -> int | None:
    if not IO_COUNTERS.is_file():
        return None
    return int(IO_COUNTERS.read_text().split()[1])
