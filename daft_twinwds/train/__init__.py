"""Rows to batches: selections, decoding, the loader, the feed into PyTorch."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from daft_twinwds.errors import MissingDependencyError
from daft_twinwds.partition import Partition
from daft_twinwds.train.captions import PickCaption
from daft_twinwds.train.images import DecodeImage
from daft_twinwds.train.parts import Mix
from daft_twinwds.train.selection import Selection
from daft_twinwds.train.source import TwinRandomAccessSource

if TYPE_CHECKING:
    from daft_twinwds.train.loader import TwinLoader
    from daft_twinwds.train.torch import to_torch_iter_dataset

__all__ = [
    "DecodeImage",
    "Mix",
    "Partition",
    "PickCaption",
    "Selection",
    "TwinLoader",
    "TwinRandomAccessSource",
    "to_torch_iter_dataset",
]

_NEED_TORCH = {"TwinLoader": "loader", "to_torch_iter_dataset": "torch"}
"""Name -> the module that has it."""


def __getattr__(name: str) -> Any:
    # Torch is an extra: only what needs it imports it.
    if name not in _NEED_TORCH:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        module = import_module(f"{__name__}.{_NEED_TORCH[name]}")
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "torch":
            raise
        raise MissingDependencyError(
            f"{name} needs torch, which is not installed; pip install 'daft-twinwds[train]'"
        ) from error
    return getattr(module, name)


def __dir__() -> list[str]:
    return __all__
