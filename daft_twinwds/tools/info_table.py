"""What a data set holds, as tables for a terminal."""

from collections.abc import Mapping, Sequence

from rich import box
from rich.bar import Bar
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from daft_twinwds.tools.info_report import DatasetInfo, PictureInfo, TextInfo
from daft_twinwds.tools.info_units import bytes_text

__all__ = ["info_table"]

_BAR_WIDTH = 32
_MOST_LEAVES = 12
_MOST_FAULTS = 5


def info_table(info: DatasetInfo) -> RenderableType:
    """Return everything that is known of a data set, to be printed by rich."""
    parts: list[RenderableType] = [Text(_printable(info.root), style="bold"), "", _facts(info)]
    parts += ["", _modalities(info), "", _columns(info)]
    for name, pictures in info.pictures.items():
        parts += ["", *_pictures(name, pictures)]
    for name, texts in info.texts.items():
        parts += ["", *_text(name, texts)]
    if info.oddities or info.faults:
        parts += ["", *_oddities(info)]
    return Group(*parts)


def _facts(info: DatasetInfo) -> Table:
    num_incomplete = info.num_samples - info.num_complete
    samples = f"{info.num_samples:,}"
    if num_incomplete:
        samples += f", {num_incomplete:,} of them without all twins"
    index = {
        "none": "none",
        "fresh": "there, and fresh",
        "out of date": f"holds for {info.num_indexed:,} of {info.num_shards:,} shards",
    }[info.index_state]
    grid = Table.grid(padding=(0, 3, 0, 0))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_row("samples", samples)
    grid.add_row("shards", f"{info.num_shards:,}")
    grid.add_row("leaves", f"{len(info.leaves):,}")
    if len(info.leaves) > 1:
        for leaf in info.leaves[:_MOST_LEAVES]:
            shards = f"{leaf.num_shards:,} shard{'' if leaf.num_shards == 1 else 's'}"
            what = f"{leaf.num_samples:,} samples in {shards}"
            grid.add_row("", Text(f"{_printable(_below(leaf.root, info))}: {what}"))
        if len(info.leaves) > _MOST_LEAVES:
            grid.add_row("", f"and {len(info.leaves) - _MOST_LEAVES:,} more")
    grid.add_row("index", index)
    return grid


def _below(leaf: str, info: DatasetInfo) -> str:
    """Return a leaf's path without what all leaves have in common."""
    roots = [one.root.split("/") for one in info.leaves]
    same = 0
    while len({tuple(root[: same + 1]) for root in roots}) == 1:
        same += 1
    return "/".join(leaf.split("/")[same:]) or leaf


def _modalities(info: DatasetInfo) -> Table:
    table = _table("modality", "members", "missing", "bytes", "in tars", "suffixes")
    for name, modality in info.modalities.items():
        suffixes = ", ".join(
            f"{_printable(suffix)} {number:,}" for suffix, number in modality.suffixes.items()
        )
        table.add_row(
            Text(_printable(name)),
            f"{modality.num_members:,}",
            Text(f"{modality.num_missing:,}", style="bold red" if modality.num_missing else ""),
            bytes_text(modality.num_bytes),
            bytes_text(modality.tar_bytes),
            Text(suffixes),
        )
    return table


def _columns(info: DatasetInfo) -> Table:
    table = _table("column", "type", right=())
    for name, dtype in info.columns.items():
        table.add_row(Text(_printable(name)), Text(_printable(dtype)))
    return table


def _pictures(name: str, pictures: PictureInfo) -> list[RenderableType]:
    facts = [f"{pictures.num_pictures:,} pictures"]
    facts += [f"{format_} {number:,}" for format_, number in pictures.formats.items()]
    if pictures.smallest is not None and pictures.largest is not None:
        sides = [f"{width} x {height}" for width, height in (pictures.smallest, pictures.largest)]
        facts.append(sides[0] if sides[0] == sides[1] else " to ".join(sides))
    if pictures.num_unreadable:
        facts.append(f"headers that cannot be read: {pictures.num_unreadable:,}")
    parts: list[RenderableType] = [_heading(name, facts)]
    if pictures.num_pictures:
        for title, counts in (
            ("resolution", pictures.megapixels),
            ("covers preset", pictures.presets),
            ("aspect ratio", pictures.aspect_ratios),
        ):
            parts.append(Padding(_bars(title, counts), (0, 0, 0, 2), expand=False))
    return parts


def _text(name: str, texts: TextInfo) -> list[RenderableType]:
    facts = [
        f"{texts.num_texts:,} texts",
        f"{texts.shortest:,} to {texts.longest:,} characters, half of them up to {texts.median:,}",
    ]
    if texts.num_absent:
        facts.insert(1, f"absent from {texts.num_absent:,}")
    bars = Padding(_bars("characters", texts.lengths), (0, 0, 0, 2), expand=False)
    return [_heading(name, facts), bars]


def _heading(name: str, facts: Sequence[str]) -> Text:
    return Text.assemble((_printable(name), "bold"), f"   {'; '.join(facts)}")


def _bars(title: str, counts: Mapping[str, int]) -> Table:
    """Draw a bar per class, from the first to the last one that occurs."""
    most = max(counts.values())
    occurring = [place for place, number in enumerate(counts.values()) if number]
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(style="dim", no_wrap=True, width=14)
    table.add_column(justify="right", no_wrap=True, width=11)
    table.add_column(width=_BAR_WIDTH)
    table.add_column(justify="right", no_wrap=True)
    for label, number in list(counts.items())[occurring[0] : occurring[-1] + 1]:
        bar = Bar(most, 0, number, width=_BAR_WIDTH, color="blue")
        table.add_row(title, label, bar, f"{number:,}")
        title = ""
    return table


def _oddities(info: DatasetInfo) -> list[RenderableType]:
    parts: list[RenderableType] = [
        Text(f"{_printable(reason)}: {number:,}", style="yellow")
        for reason, number in info.oddities.items()
    ]
    # Each tells of its shard itself.
    faults = list(info.faults.values())
    parts += [Text(_printable(fault), style="red") for fault in faults[:_MOST_FAULTS]]
    if len(faults) > _MOST_FAULTS:
        parts.append(Text(f"and {len(faults) - _MOST_FAULTS:,} more; --json has all", style="red"))
    return parts


def _table(*names: str, right: Sequence[str] = ("members", "missing", "bytes", "in tars")) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for name in names:
        table.add_column(name, justify="right" if name in right else "left", no_wrap=name in right)
    return table


def _printable(text: str) -> str:
    """Return a text without what would move a terminal's cursor or change its colours."""
    return "".join(
        letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in text
    )
