"""What options and arguments may be, beyond click's own types."""

import math
import os
from pathlib import Path
from typing import Any, Final

import click
from typing_extensions import override

from daft_twinwds.shards.urls import required_local

__all__ = ["FILE", "MEBIBYTES", "PLACE"]


class _Place(click.ParamType[str]):
    """A path or URL of something to read or to write into."""

    name = "path"

    @override
    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if not value:
            self.fail("an empty path; expected the path or URL of a folder", param, ctx)
        return str(value)


class _Mebibytes(click.ParamType[int]):
    """A size, as bytes."""

    name = "MiB"

    @override
    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        try:
            size = float(value) * 2**20
        except ValueError:
            size = math.nan
        if not 1 <= size < math.inf:
            self.fail(f"{value!r}: expected a size in MiB, more than 0", param, ctx)
        return int(size)


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
        try:
            path = required_local("path", str(value), cure="copy the file to the store")
        except ValueError as error:
            self.fail(str(error), param, ctx)
        return super().convert(path, param, ctx)


PLACE: Final = _Place()
FILE: Final = _File(dir_okay=False, path_type=Path)
MEBIBYTES: Final = _Mebibytes()
