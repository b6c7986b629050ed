"""A page to look at samples: ``preview``."""

import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import daft
from daft import col, lit
from daft.expressions import Expression

from daft_twinwds.query._daft import required_columns
from daft_twinwds.query.io_options import AnyConfig, storage_options
from daft_twinwds.query.read import read_twin_webdataset
from daft_twinwds.query.report import scan_report
from daft_twinwds.query.schema import KEY, URL
from daft_twinwds.shards.new_file import new_file
from daft_twinwds.shards.urls import required_local, scheme_of, shown
from daft_twinwds.tools.preview_page import PageFacts, iter_page
from daft_twinwds.tools.preview_report import PreviewProgress, PreviewReport
from daft_twinwds.tools.preview_tiles import SampleTile, TileMaker
from daft_twinwds.tools.preview_where import sql_condition
from daft_twinwds.train.batches import available_cpus
from daft_twinwds.train.selection import Selection

__all__ = ["PreviewProgress", "PreviewReport", "write_preview"]

PathLike = str | os.PathLike[str]
Config = AnyConfig | Mapping[str, AnyConfig] | None

_HASH = "__preview_hash__"
_INFOS = ("width", "height", "format")


def write_preview(  # noqa: PLR0913  # the public function holds all defaults
    source: PathLike | Sequence[PathLike] | daft.DataFrame,
    output: PathLike,
    *,
    where: str | Expression | None = None,
    limit: int = 48,
    sample: bool = False,
    seed: int = 0,
    count: bool = True,
    title: str | None = None,
    thumbnail_side: int = 480,
    io_config: Config = None,
    workers: int | None = None,
    progress: Callable[[PreviewProgress], None] | None = None,
) -> PreviewReport:
    """Write samples as one HTML page that needs nothing else: no network, no script.

    Each sample is shown by its pictures, side by side, its key and its caption; opened, by all its
    values. Above are histograms of the pictures that are shown. A picture that cannot be decoded
    leaves a tile with the reason, a missing one an empty tile. Memory is bounded by the samples
    that are shown, and equal data gives equal bytes.

    Args:
        source: A data set, as in `read_twin_webdataset`, of which bad members and keys that a twin
            lacks are no error; or a DataFrame with ``__key__``.
        output: The page; an old one is replaced.
        where: Samples to show, as a condition in SQL over the columns, fields as
            ``caption.prompt``, or as an expression. Of a data set there are ``image_width``,
            ``image_height`` and ``image_format``, too.
        limit: Most samples.
        sample: Take them at random instead of from the beginning. All captions are read for it.
        seed: Which of them.
        count: Count all samples that match, to tell how many are not shown.
        title: Heading; the name of the data set by default.
        thumbnail_side: Longest side of a picture on the page, in pixels. Nothing is enlarged.
        io_config: As in `read_twin_webdataset`.
        workers: Threads that read and decode; the CPUs of this process by default.
        progress: Called from this thread after each sample.

    Returns:
        What the page shows.

    Raises:
        LayoutError: The folders or manifests do not make a data set.
        SchemaError: The filter is no condition over the columns, or texts do not make one.
        StorageError: Something cannot be listed, read or written.
        TypeError: A DataFrame holds decoded pictures or Python objects.
        ValueError: An argument is none of those that it can be, or a DataFrame has no keys.
    """
    for name, value in (("limit", limit), ("thumbnail_side", thumbnail_side)):
        if value < 1:
            raise ValueError(f"{name} must be at least 1, got {value}")
    if workers is not None and workers < 1:
        raise ValueError(f"workers must be at least 1, got {workers}")
    path = required_local("output", os.fspath(output), cure="copy the page to the store")
    if where is not None and not isinstance(where, str | Expression):
        raise TypeError(f"where must be SQL or a Daft expression, got {where!r}")
    df = _matching(source, where, io_config)
    picked = df.select(*_shown_columns(df))
    if sample:
        # The least hashes are as good as any; unlike Daft's own sampling, in any order of reading.
        names = [name for name in (URL, KEY) if name in df.column_names]
        parts = [col(name).fill_null(lit("")) for name in names]
        text = parts[0] if len(parts) == 1 else parts[0] + lit("/") + parts[1]
        picked = picked.with_column(_HASH, text.hash(seed=lit(seed)))
        picked = picked.sort([_HASH, *names]).limit(limit).exclude(_HASH)
    else:
        picked = picked.limit(limit)
    before = scan_report()
    selection = Selection.from_dataframe(picked)
    left_out = Counter(scan_report()) - Counter(before)
    num_samples: int | None = None
    if len(selection) < limit:
        num_samples = len(selection)
    elif count:
        before = scan_report()
        num_samples = df.select(KEY).count_rows()
        # This scan has met all that the other one met.
        left_out = Counter(scan_report()) - Counter(before)
    tiles = _Tiles(selection, thumbnail_side, workers or available_cpus(), io_config, progress)
    place = None if isinstance(source, daft.DataFrame) else _place_of(source)
    facts = PageFacts(
        title=title or _title_of(place),
        place=place,
        where=None if where is None else str(where),
        seed=seed if sample else None,
        num_samples=num_samples,
        left_out=dict(left_out),
    )
    made = tiles.make()
    num_bytes = 0
    with new_file(path) as file:
        for part in iter_page(facts, made):
            num_bytes += file.write(part.encode("utf-8", "backslashreplace"))
    pictures = [picture for tile in made for picture in tile.pictures]
    return PreviewReport(
        output=path,
        num_shown=len(made),
        num_samples=num_samples,
        num_pictures=sum(picture.thumbnail is not None for picture in pictures),
        num_unreadable=sum(picture.fault is not None for picture in pictures),
        num_bytes=num_bytes,
        left_out=dict(left_out),
    )


def _matching(
    source: PathLike | Sequence[PathLike] | daft.DataFrame,
    where: str | Expression | None,
    io_config: Config,
) -> daft.DataFrame:
    """Return the rows that a filter keeps."""
    if isinstance(source, daft.DataFrame):
        if where is None:
            return source
        dtypes = {field.name: field.dtype for field in source.schema()}
        return source.where(sql_condition(where, dtypes) if isinstance(where, str) else where)

    def read(condition: Expression | None, *, picture_info: bool) -> daft.DataFrame:
        return read_twin_webdataset(
            source,
            where=condition,
            on_missing="null",
            on_error="skip",
            extra_fields="ignore",
            picture_info=picture_info,
            io_config=io_config,
        )

    if where is None:
        return read(None, picture_info=False)
    df = read(None, picture_info=True)
    dtypes = {field.name: field.dtype for field in df.schema()}
    condition = sql_condition(where, dtypes) if isinstance(where, str) else where
    # Counting would look into every picture, whether or not the filter does.
    picture_info = not required_columns(condition, dtypes).isdisjoint(_info_names(df))
    # Given to the reader and not to df.where, a function decides which tars are opened.
    return read(condition, picture_info=picture_info)


def _shown_columns(df: daft.DataFrame) -> list[str]:
    """Return all columns but those that are read off the pictures anyway."""
    infos = _info_names(df)
    return [name for name in df.column_names if name not in infos]


def _info_names(df: daft.DataFrame) -> set[str]:
    pictures = [field.name for field in df.schema() if field.dtype.is_file()]
    return {f"{name}_{what}" for name in pictures for what in _INFOS}


@dataclass(frozen=True, slots=True)
class _Tiles:
    """Turns rows into tiles, by threads."""

    selection: Selection
    side: int
    workers: int
    io_config: Config
    progress: Callable[[PreviewProgress], None] | None

    def make(self) -> list[SampleTile]:
        media = self.selection.media
        names = [name for name in self.selection.table.column_names if name not in (KEY, URL)]
        maker = TileMaker(
            pictures=[name for name in names if media.get(name) == "image"],
            others=[name for name in names if media.get(name, "image") != "image"],
            texts=[name for name in names if name not in media],
            side=self.side,
            storage=storage_options(self.io_config),
        )
        made = []
        with ThreadPoolExecutor(self.workers, "daft-twinwds-preview") as pool:
            for tile in pool.map(maker.make, self.selection.rows(range(len(self.selection)))):
                made.append(tile)
                if self.progress is not None:
                    total = len(self.selection)
                    self.progress(PreviewProgress(done=len(made), total=total))
        return made


def _place_of(source: PathLike | Sequence[PathLike]) -> str:
    items = [source] if isinstance(source, str | os.PathLike) else source
    return ", ".join(_shown_place(os.fspath(item)) for item in items)


def _shown_place(path: str) -> str:
    # The page may be read elsewhere, where a relative path would say nothing.
    return str(Path(path).expanduser().absolute()) if scheme_of(path) is None else shown(path)


def _title_of(place: str | None) -> str:
    if place is None:
        return "DataFrame"
    name = Path(place.rstrip("/")).name
    return name if name not in ("", ".", "..") else Path(place).resolve().name or place
