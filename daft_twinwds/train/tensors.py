"""Columns of a batch to tensors."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray

from daft_twinwds.train.batches import PAD
from daft_twinwds.train.selection import Selection

__all__ = ["Normalize", "ToTensors", "number_types", "pinned_memory"]

NUMPY_TYPES: Mapping[pa.DataType, type[np.generic]] = {
    pa.bool_(): np.bool_,
    pa.uint8(): np.uint8,
    pa.uint16(): np.uint16,
    pa.uint32(): np.uint32,
    pa.uint64(): np.uint64,
    pa.int8(): np.int8,
    pa.int16(): np.int16,
    pa.int32(): np.int32,
    pa.int64(): np.int64,
    pa.float32(): np.float32,
    pa.float64(): np.float64,
}
"""Arrow types whose columns become tensors."""


def number_types(selections: Iterable[Selection]) -> dict[str, np.dtype[Any]]:
    """Return the columns that are numbers without nulls in all selections, and their types."""
    types: list[dict[str, np.dtype[Any]]] = [
        {
            field.name: np.dtype(NUMPY_TYPES[field.type])
            for field in selection.table.schema
            if field.type in NUMPY_TYPES and not selection.table.column(field.name).null_count
        }
        for selection in selections
    ]
    names = [name for name in types[0] if all(name in others for others in types)]
    return {name: np.result_type(*(others[name] for others in types)) for name in names}


def pinned_memory(size: int) -> NDArray[np.uint8]:
    """Make page-locked memory, from which a GPU copies while the program goes on."""
    memory: NDArray[np.uint8] = torch.empty(size, dtype=torch.uint8, pin_memory=True).numpy()
    return memory


@dataclass(frozen=True, slots=True, kw_only=True)
class Normalize:
    """Pictures to floating point: ``(pixel / 255 - mean) / std`` for each channel."""

    mean: tuple[float, ...]
    std: tuple[float, ...]
    dtype: Literal["float32", "bfloat16"]

    @classmethod
    def of(cls, normalize: tuple[Sequence[float], Sequence[float]], dtype: str) -> "Normalize":
        """Check what a caller gives.

        Raises:
            ValueError: It is no pair of numbers per channel, or the dtype is another.
        """
        if dtype not in ("float32", "bfloat16"):
            raise ValueError(f"dtype must be 'float32' or 'bfloat16', got {dtype!r}")
        try:
            mean, std = (tuple(map(float, values)) for values in normalize)
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"normalize must be (mean, std), each with a number per channel; got {normalize!r}"
            ) from error
        if len(mean) != len(std) or not mean or not all(value > 0 for value in std):
            raise ValueError(
                "normalize must be (mean, std) of as many channels, each std above 0; got "
                f"{normalize!r}"
            )
        return cls(mean=mean, std=std, dtype="float32" if dtype == "float32" else "bfloat16")

    def __call__(self, pixels: torch.Tensor) -> torch.Tensor:
        """Return new pictures, (batch, channels, height, width), in the same memory format.

        Raises:
            ValueError: They have another number of channels.
        """
        channels = pixels.shape[1]
        if channels != len(self.mean):
            raise ValueError(
                f"normalize has {len(self.mean)} channels, the pictures {channels}; expected as many"
            )
        mean, std = (
            torch.tensor(values, dtype=torch.float32).mul_(255).view(1, -1, 1, 1)
            for values in (self.mean, self.std)
        )
        out = pixels.to(torch.float32).sub_(mean).div_(std)
        return out if self.dtype == "float32" else out.to(torch.bfloat16)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToTensors:
    """Makes tensors of what a tensor can be made of."""

    numbers: Mapping[str, np.dtype[Any]]
    """Columns of numbers -> their type."""
    pictures: Collection[str]
    """Columns of pictures."""
    transformed: Collection[str] = ()
    """Columns whose values some other function made."""
    normalize: Normalize | None = None

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        """Return the batch: pictures as (batch, channels, height, width), without a copy."""
        return {name: self._column(name, values) for name, values in batch.items()}

    def _column(self, name: str, values: Any) -> Any:
        if name == PAD:
            return torch.tensor(values, dtype=torch.bool)
        if name in self.transformed:
            values = _stacked(values)
        if isinstance(values, np.ndarray):
            return self._tensor(name, values)
        if name in self.numbers and name not in self.transformed:
            return torch.from_numpy(np.array(values, self.numbers[name]))
        return values

    def _tensor(self, name: str, values: NDArray[Any]) -> torch.Tensor:
        tensor = torch.from_numpy(values)
        if name not in self.pictures or tensor.ndim != 4:
            return tensor
        # (batch, height, width, channels) seen as (batch, channels, height, width): a view, which
        # torch knows as channels_last.
        tensor = tensor.permute(0, 3, 1, 2)
        return self.normalize(tensor) if self.normalize else tensor


def _stacked(values: list[Any]) -> Any:
    """Stack arrays of one shape and type; leave anything else as it is."""
    if not all(isinstance(value, np.ndarray) for value in values):
        return values
    if len({(value.shape, value.dtype) for value in values}) > 1:
        return values
    # A copy even of a single one, which may be read-only.
    return np.stack(values)
