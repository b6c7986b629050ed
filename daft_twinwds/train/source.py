"""A selection as random-access source: for Grain's pipelines, and for TorchTitan's."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, SupportsIndex

from daft_twinwds.query.io_options import AnyConfig, storage_options
from daft_twinwds.train.decoders import (
    Decoder,
    SampleReader,
    Transform,
    check_transforms,
    decoders_of,
)
from daft_twinwds.train.permutation import check_int
from daft_twinwds.train.selection import Selection
from daft_twinwds.train.supply import Row

__all__ = ["TwinRandomAccessSource"]


class TwinRandomAccessSource:
    """Sample i of a selection, read and decoded when it is asked for.

    It is what Grain calls a ``RandomAccessDataSource`` and TorchTitan builds from a ``SourceConfig``
    (`Config`). It can be pickled, and any number of threads and processes may use it; it imports
    neither of the two.

    Example:
        >>> source = TwinRandomAccessSource(selection)  # doctest: +SKIP
        >>> grain.MapDataset.source(source).shuffle(seed=0).batch(4)  # doctest: +SKIP
    """

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Config:
        """Builds the source late, as TorchTitan's configurations do."""

        path: str
        """A file that `Selection.save` wrote."""
        decode: Mapping[str, Decoder] | None = None
        """As for the source itself."""

        def build(self, *, dataset_iteration_policy: Any) -> "TwinRandomAccessSource":
            """Return the source of all rows; the caller shuffles them and splits them over ranks.

            Args:
                dataset_iteration_policy: TorchTitan's. Its seed decides which captions are drawn.
            """
            return TwinRandomAccessSource(
                Selection.load(self.path), decode=self.decode, seed=dataset_iteration_policy.seed
            )

    def __init__(
        self,
        selection: Selection,
        *,
        decode: Mapping[str, Decoder] | None = None,
        transform: Mapping[str, Transform] | None = None,
        seed: int = 0,
        io_config: AnyConfig | Mapping[str, AnyConfig] | None = None,
    ) -> None:
        """See `TwinLoader` for the arguments; what is drawn by chance is the same in all epochs.

        Raises:
            ValueError: A column is not there, or holds something else.
            TypeError: A decoder or transform cannot be called.
        """
        columns = selection.table.column_names
        decoders = decoders_of(selection.media, columns, decode)
        self._selection = selection
        self._names = [name for name in columns if name not in selection.media or name in decoders]
        self._reader = SampleReader(
            decoders=decoders,
            transforms=check_transforms(transform, selection.media, columns, decoders),
            storage=storage_options(io_config),
            seed=check_int("seed", seed),
        )

    def __len__(self) -> int:
        """Number of samples."""
        return len(self._selection)

    def __getitem__(self, index: SupportsIndex) -> dict[str, Any]:
        """Return one sample: pictures as uint8 (height, width, channels), all else by value.

        Raises:
            IndexError: There is no such sample.
            TypeError: The index is no integer.
            DecodeError: A file cannot be decoded.
            StorageError: A byte range cannot be read.
        """
        number = check_int("index", index, least=-(2**63), limit=2**63)
        number += len(self) if number < 0 else 0
        if not 0 <= number < len(self):
            raise IndexError(f"index {index} of a selection of {len(self)} samples")
        (values,) = self._selection.rows([number])
        self._reader.read(Row(values, number), {})
        return {name: values[name] for name in self._names}
