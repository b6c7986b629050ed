"""What is done with each column of a sample: decoders, captions to draw, transforms."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from daft_twinwds.errors import (
    DecodeError,
    MissingDependencyError,
    SchemaError,
    StorageError,
    TwinWebDatasetError,
)
from daft_twinwds.query.schema import KEY
from daft_twinwds.shards.options import StorageOptions, options_of
from daft_twinwds.shards.storage import read_range, shown
from daft_twinwds.train.batch_memory import Pixels, ShapeMismatchError
from daft_twinwds.train.captions import PickCaption
from daft_twinwds.train.images import DecodeImage
from daft_twinwds.train.permutation import derive_key
from daft_twinwds.train.supply import Row

__all__ = ["Decoder", "SampleReader", "Transform", "check_transforms", "decoders_of"]

Decoder = DecodeImage | PickCaption | Callable[[bytes], Any]
Transform = Callable[[Any, np.random.Generator], Any]

# What a key draws, other than an order's or a caption; never to be changed.
_TRANSFORM: Final = 4


def decoders_of(
    media: Mapping[str, str], columns: list[str], decode: Mapping[str, Decoder] | None
) -> dict[str, Decoder]:
    """Return which media are read, and how, and which texts are drawn.

    Args:
        media: File column -> medium.
        columns: All columns.
        decode: Column -> decoder; media that are not named are not read. None decodes pictures
            by `DecodeImage` and gives other media as bytes.

    Raises:
        ValueError: A column that is named holds no media, or no text to draw.
        TypeError: A decoder cannot be called.
    """
    if decode is None:
        return {
            name: DecodeImage() if medium == "image" else bytes for name, medium in media.items()
        }
    for name, decoder in decode.items():
        if isinstance(decoder, PickCaption):
            if name in media or name not in columns:
                texts = sorted(set(columns) - set(media))
                raise ValueError(
                    f"decode: {name!r} is no column of captions; there are the columns {texts}"
                )
        elif name not in media:
            raise ValueError(f"decode: {name!r} is no File column; there are {sorted(media)}")
        elif not callable(decoder):
            raise TypeError(f"decode[{name!r}] must be callable, got {decoder!r}")
    return dict(decode)


def check_transforms(
    transform: Mapping[str, Transform] | None,
    media: Mapping[str, str],
    columns: list[str],
    decoders: Mapping[str, Decoder],
) -> dict[str, Transform]:
    """Return the transforms, each of a column that batches have.

    Raises:
        ValueError: A column is not there, or not read.
        TypeError: A transform cannot be called.
    """
    for name, function in (transform or {}).items():
        if name not in columns or (name in media and name not in decoders):
            there = [column for column in columns if column not in media or column in decoders]
            raise ValueError(f"transform: {name!r} is no column of the batches; there are {there}")
        if not callable(function):
            raise TypeError(f"transform[{name!r}] must be callable, got {function!r}")
    return dict(transform or {})


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleReader:
    """How one sample is read; any thread may use it."""

    decoders: Mapping[str, Decoder]
    transforms: Mapping[str, Transform] = field(default_factory=dict)
    """Column -> what becomes of its value."""
    storage: StorageOptions | Mapping[str, StorageOptions] = field(default_factory=StorageOptions)
    """How files are accessed, or column -> how its files are."""
    seed: int = 0
    """What is drawn by chance depends on this, the epoch and the row."""

    @property
    def in_place(self) -> list[str]:
        """Columns whose pictures are decoded into the batch's memory."""
        return [
            name
            for name, decoder in self.decoders.items()
            if isinstance(decoder, DecodeImage) and name not in self.transforms
        ]

    def read(
        self,
        row: Row,
        pixels: Mapping[str, Pixels],
        slot: int = 0,
        decoders: Mapping[str, Decoder] | None = None,
    ) -> int:
        """Read and decode one sample's media, and draw its texts.

        Args:
            row: The values are put in here.
            pixels: Column -> memory of pictures that are not put there.
            slot: The place in that memory.
            decoders: Take these instead.

        Returns:
            The bytes read.

        Raises:
            DecodeError: A file is null or cannot be decoded, or a transform failed.
            StorageError: A byte range cannot be read.
            SchemaError: A caption has no text.
        """
        size = 0
        for name, decoder in (decoders or self.decoders).items():
            if isinstance(decoder, PickCaption):
                self._draw(row, name, decoder)
            else:
                size += self._decode(row, name, decoder, pixels.get(name), slot)
        for name, transform in self.transforms.items():
            self._transform(row, name, transform)
        return size

    def _draw(self, row: Row, name: str, pick: PickCaption) -> None:
        values = row.values
        try:
            values[name], _ = pick(values[name], seed=self.seed, epoch=row.epoch, row=row.number)
        except SchemaError as error:
            raise SchemaError(f"{values[KEY]!r} ({name}): {error}") from error

    def _decode(self, row: Row, name: str, decoder: Any, pixels: Pixels | None, slot: int) -> int:
        values = row.values
        ref = values[name]
        if ref is None:
            raise DecodeError(
                f"{values[KEY]!r}: {name} is null; expected a file; drop such rows by "
                f"where(col({name!r}).not_null())"
            )
        # Daft takes what follows literally, without percent-decoding.
        path = ref.path.removeprefix("file://")
        try:
            data = read_range(path, ref.position, ref.size, options_of(self.storage, name))
            if pixels is None:
                values[name] = decoder(data)
            else:
                decoder.into(data, pixels.slot(slot, decoder.shape(data)))
        except (MemoryError, MissingDependencyError):
            raise
        except Exception as error:
            # Decoders are the caller's too: whatever they raise is told with its place.
            known = (StorageError, ShapeMismatchError)
            kind = next((kind for kind in known if isinstance(error, kind)), DecodeError)
            reason = str(error).removeprefix(f"{shown(path)}: ")
            if not isinstance(error, TwinWebDatasetError):
                reason = f"{type(error).__name__}: {reason}"
            raise kind(
                f"{shown(path)}: {values[KEY]!r} ({name}, byte {ref.position}): {reason}"
            ) from error
        return len(data)

    def _transform(self, row: Row, name: str, transform: Transform) -> None:
        # Made anew for each column: twins that are cropped alike draw the same crop.
        key = derive_key(self.seed, row.epoch, _TRANSFORM, row.number)
        try:
            row.values[name] = transform(
                row.values[name], np.random.Generator(np.random.PCG64(key))
            )
        except (MemoryError, MissingDependencyError):
            raise
        except Exception as error:
            raise DecodeError(
                f"{row.values[KEY]!r} ({name}): transform failed: {type(error).__name__}: {error}"
            ) from error
