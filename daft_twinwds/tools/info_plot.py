"""What a data set holds, as a picture of plots."""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from daft_twinwds.errors import MissingDependencyError
from daft_twinwds.shards.new_file import new_file
from daft_twinwds.shards.urls import required_local
from daft_twinwds.tools.info_report import DatasetInfo
from daft_twinwds.tools.info_units import bytes_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["write_info_png"]

_COLUMNS = 3
_WIDE, _HIGH = 4.6, 3.3
"""Of one plot, in inches."""
_DPI = 130
_BAR, _INK, _DIM = "#2563c9", "#1b1f27", "#5b6473"
_LONGEST_NAME = 40
_LEAST_BARS = 6
"""Bars that a plot has room for, so that few of them are not thicker than many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plot:
    """One histogram."""

    title: str
    counts: Mapping[str, int]
    is_bytes: bool = False


def write_info_png(info: DatasetInfo, path: str | os.PathLike[str]) -> None:
    """Draw the bytes of the modalities, the pictures' sizes and the texts' lengths.

    Nothing of matplotlib that a process shares is touched: neither its windows nor its settings.

    Args:
        info: What is drawn.
        path: PNG file; an old one is replaced.

    Raises:
        MissingDependencyError: matplotlib is not installed.
        StorageError: The file cannot be written.
        ValueError: The path is a URL.
    """
    file_path = required_local("path", os.fspath(path), cure="copy the picture to the store")
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "matplotlib":
            raise
        raise MissingDependencyError(
            "plots need matplotlib, which is not installed; pip install 'daft-twinwds[plots]'"
        ) from error
    plots = list(_iter_plots(info))
    columns = min(_COLUMNS, len(plots))
    rows = -(-len(plots) // columns)
    figure = Figure(figsize=(columns * _WIDE, rows * _HIGH + 0.5), dpi=_DPI)
    figure.set_layout_engine("constrained", h_pad=0.12, w_pad=0.1)
    heading = f"{_plain(info.root)}: {info.num_samples:,} samples, {info.num_shards:,} shards"
    figure.suptitle(heading, color=_INK, fontsize=13, fontweight="bold", parse_math=False)
    for place, plot in enumerate(plots):
        _draw(figure.add_subplot(rows, columns, place + 1), plot)
    with new_file(file_path) as file:
        figure.savefig(file, format="png")


def _iter_plots(info: DatasetInfo) -> Iterator[_Plot]:
    sizes = {_plain(name): modality.num_bytes for name, modality in info.modalities.items()}
    yield _Plot(title="Bytes by modality", counts=sizes, is_bytes=True)
    for name, pictures in info.pictures.items():
        if pictures.num_pictures:
            yield _Plot(title=f"{name}: resolution", counts=pictures.megapixels)
            yield _Plot(title=f"{name}: largest preset covered", counts=pictures.presets)
            yield _Plot(title=f"{name}: aspect ratio", counts=pictures.aspect_ratios)
    for name, texts in info.texts.items():
        yield _Plot(title=f"{name}: characters", counts=texts.lengths)


def _draw(axes: "Axes", plot: _Plot) -> None:
    labels, numbers = list(plot.counts), list(plot.counts.values())
    places = range(len(labels))
    bars = axes.barh(places, numbers, color=_BAR, height=0.72)
    axes.set_ylim(max(len(labels), _LEAST_BARS) - 0.5, -0.5)
    axes.set_yticks(list(places), labels, color=_DIM, fontsize=8.5, parse_math=False)
    texts = [_number(number, is_bytes=plot.is_bytes) for number in numbers]
    axes.bar_label(bars, texts, padding=4, color=_INK, fontsize=8.5)
    axes.set_title(
        _plain(plot.title),
        loc="left",
        color=_INK,
        fontsize=10.5,
        fontweight="bold",
        parse_math=False,
    )
    axes.set_xlim(0, max(1, *numbers) * 1.22)
    axes.set_xticks([])
    axes.tick_params(axis="y", length=0)
    for side in ("top", "right", "bottom"):
        axes.spines[side].set_visible(False)
    axes.spines["left"].set_color("#d9dde4")


def _number(number: int, *, is_bytes: bool) -> str:
    if is_bytes:
        return bytes_text(number)
    return f"{number:,}" if number else ""


def _plain(text: str) -> str:
    """Return a text in letters that matplotlib's own font has, at most so many of them."""
    plain = "".join(letter if letter.isascii() and letter.isprintable() else "?" for letter in text)
    if len(plain) <= _LONGEST_NAME:
        return plain
    return f"...{plain[-_LONGEST_NAME + 3 :]}"
