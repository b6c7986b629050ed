"""What options and arguments may be, beyond click's own types."""

import os
from pathlib import Path
from typing import Any, Final

import click
from typing_extensions import override

__all__ = ["FILE", "PLACE"]


class _Place(click.ParamType[str]):
    """A path or URL of something to read or to write into."""

    name = "path"

    @override
    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if not value:
            self.fail("an empty path; expected the path or URL of a folder", param, ctx)
        return str(value)


class _File(click.Path):
    """A file to write."""

    @override
    def convert(
        self,
        value: str | os.PathLike[str],
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> Any:
        if Path(value).name in ("", ".."):
            self.fail(f"{str(value)!r} names no file; expected one to write", param, ctx)
        return super().convert(value, param, ctx)


PLACE: Final = _Place()
FILE: Final = _File(dir_okay=False, path_type=Path)
