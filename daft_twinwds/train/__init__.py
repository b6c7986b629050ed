"""Rows to batches: selections, decoding, the feed into PyTorch."""

from typing import TYPE_CHECKING, Any

from daft_twinwds.errors import MissingDependencyError
from daft_twinwds.partition import Partition
from daft_twinwds.train.images import DecodeImage
from daft_twinwds.train.selection import Selection

if TYPE_CHECKING:
    from daft_twinwds.train.torch import to_torch_iter_dataset

__all__ = ["DecodeImage", "Partition", "Selection", "to_torch_iter_dataset"]


def __getattr__(name: str) -> Any:
    # Torch is an extra: only what needs it imports it.
    if name != "to_torch_iter_dataset":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from daft_twinwds.train.torch import to_torch_iter_dataset
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise MissingDependencyError(
            f"{name} needs torch, which is not installed; pip install 'daft-twinwds[train]'"
        ) from error
    return to_torch_iter_dataset


def __dir__() -> list[str]:
    return __all__
