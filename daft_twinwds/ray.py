"""Ray Data: what a selection's references become, batch by batch, in Ray's tasks.

`Selection.to_ray_dataset` gives the references, `DecodeBatch` reads and decodes them, `CollateBatch`
makes tensors of what can be one. Ray Train needs nothing from here: in a function that a trainer
runs, `Partition.detect` finds the worker's rank, and so do a `TwinLoader` and all else.
"""

import logging
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from typing_extensions import override

from daft_twinwds.errors import MissingDependencyError, TwinWebDatasetError
from daft_twinwds.query.io_options import AnyConfig, storage_options
from daft_twinwds.query.schema import KEY
from daft_twinwds.train.batch_memory import BatchMemory, Pixels
from daft_twinwds.train.decoders import (
    Decoder,
    SampleReader,
    Transform,
    check_transforms,
    decoders_of,
)
from daft_twinwds.train.images import DecodeImage
from daft_twinwds.train.permutation import check_choice, check_int
from daft_twinwds.train.refs import FIELDS, FileRef
from daft_twinwds.train.supply import Row

try:
    from ray.data.collate_fn import NumpyBatchCollateFn
    from ray.data.extensions import ArrowTensorArray, ArrowVariableShapedTensorArray

    from daft_twinwds.train.blocks import ROW
except ImportError as error:
    raise MissingDependencyError(
        f"daft_twinwds.ray needs Ray Data, which cannot be imported ({error}); "
        "pip install 'daft-twinwds[ray]'"
    ) from error

__all__ = ["CollateBatch", "DecodeBatch"]

logger = logging.getLogger("daft_twinwds")


class DecodeBatch:
    """Reads and decodes a batch of references: a function for ``map_batches`` of Ray Data.

    Law: a row becomes what `TwinRandomAccessSource` gives for it with the same arguments, wherever
    and in whichever batch it is decoded. Columns that are not named stay as they are, so that
    other files can be decoded in another step.

    It can be pickled, with the credentials of ``io_config``: they travel with the task, not with
    the data. The same package has to be installed where the tasks run.

    Example:
        >>> decode = DecodeBatch({"image": DecodeImage(size=(512, 512))})
        >>> dataset = selection.to_ray_dataset()  # doctest: +SKIP
        >>> dataset = dataset.map_batches(
        ...     decode, batch_format="pyarrow", batch_size=64
        ... )  # doctest: +SKIP
        >>> for batch in dataset.iter_torch_batches(collate_fn=CollateBatch()):  # doctest: +SKIP
        ...     batch["image"].shape
        torch.Size([256, 512, 512, 3])
    """

    def __init__(
        self,
        decode: Mapping[str, Decoder],
        *,
        transform: Mapping[str, Transform] | None = None,
        seed: int = 0,
        epoch: int = 0,
        num_threads: int = 1,
        on_error: Literal["raise", "skip"] = "raise",
        io_config: AnyConfig | Mapping[str, AnyConfig] | None = None,
    ) -> None:
        """See `TwinLoader` for the arguments that are not told here.

        Args:
            decode: Column -> `DecodeImage` or a callable of bytes for files, `PickCaption` for
                captions. Pictures become tensors (height, width, channels): of one shape where
                `DecodeImage` has a size of its own, else ragged where they differ, which
                ``iter_torch_batches`` refuses without a ``collate_fn``.
            transform: As for `TwinLoader`. Arrays become tensors; other values have to be such
                as Arrow can hold.
            seed: What captions and transforms draw depends on it,
            epoch: on this, and on the row's number.
            num_threads: Threads of one task: as many as the ``num_cpus`` that ``map_batches`` is
                given; more where storage is far away.
            on_error: A sample that cannot be read or decoded: ``"raise"``, or ``"skip"``: it is
                left out, and logged with the reason.
            io_config: Credentials and endpoints, as in `read_twin_webdataset`; the rows hold none.

        Raises:
            ValueError: An argument cannot be.
        """
        self._decode = dict(decode)
        self._transform = dict(transform or {})
        self._epoch = check_int("epoch", epoch)
        self._num_threads = check_int("num_threads", num_threads, least=1)
        check_choice("on_error", on_error, ("raise", "skip"))
        self._skip_bad = on_error == "skip"
        self._seed = check_int("seed", seed)
        self._storage = storage_options(io_config)

    def __call__(self, batch: pa.Table) -> pa.Table:
        """Decode one batch.

        Args:
            batch: Rows of `Selection.to_ray_dataset`, as Arrow.

        Returns:
            The same rows and columns; without the rows that are skipped.

        Raises:
            TypeError: The batch is no Arrow table, or Arrow cannot hold what a decoder returned.
            ValueError: A column is not there, or holds something else.
            DecodeError: A file cannot be decoded.
            StorageError: A byte range cannot be read.
            SchemaError: A caption has no text to draw.
        """
        if not isinstance(batch, pa.Table):
            raise TypeError(
                f"got a batch as {type(batch).__name__}; expected a pyarrow.Table; pass "
                'batch_format="pyarrow" to map_batches'
            )
        reader = self._reader(batch)
        made = sorted({*reader.decoders, *reader.transforms}, key=batch.column_names.index)
        rows = _rows_of(batch, made, self._epoch)
        pixels = {
            name: Pixels(BatchMemory(limit=0), len(rows))
            for name in reader.in_place
            if _is_fixed(reader.decoders[name])
        }
        slots = self._read(reader, rows, pixels)
        if len(slots) < len(rows):
            batch = batch.take(pa.array(slots, pa.int64()))
        if not slots:
            return batch
        for name in made:
            values = (
                pixels[name].of(slots)
                if name in pixels
                else [rows[slot].values[name] for slot in slots]
            )
            place = batch.column_names.index(name)
            batch = batch.set_column(place, name, _to_arrow(name, values))
        return batch

    def _reader(self, batch: pa.Table) -> SampleReader:
        media = {field.name: "unknown" for field in batch.schema if _holds_refs(field.type)}
        decoders = decoders_of(media, batch.column_names, self._decode)
        return SampleReader(
            decoders=decoders,
            transforms=check_transforms(self._transform, media, batch.column_names, decoders),
            storage=self._storage,
            seed=self._seed,
        )

    def _read(
        self, reader: SampleReader, rows: list[Row], pixels: Mapping[str, Pixels]
    ) -> list[int]:
        """Read the rows' values in place; return which of them could be read."""

        def read(slot: int) -> TwinWebDatasetError | None:
            try:
                reader.read(rows[slot], pixels, slot)
            except MissingDependencyError:
                raise
            except TwinWebDatasetError as error:
                if not self._skip_bad:
                    raise
                return error
            return None

        with ThreadPoolExecutor(self._num_threads, "daft-twinwds-decode") as pool:
            jobs = [pool.submit(read, slot) for slot in range(len(rows))]
            try:
                errors = [job.result() for job in jobs]
            finally:
                pool.shutdown(cancel_futures=True)
        for error in filter(None, errors):
            logger.warning("skipped: %s: %s", type(error).__name__, error)
        return [slot for slot, error in enumerate(errors) if error is None]


class CollateBatch(NumpyBatchCollateFn):
    """Makes tensors of numbers and lists of all else: a ``collate_fn`` for ``iter_torch_batches``.

    Without it, Ray Data refuses batches that hold texts, captions or pictures of several shapes.
    """

    @override
    def __call__(self, batch: Mapping[str, np.ndarray[Any, Any]]) -> Any:
        """Collate one batch.

        Args:
            batch: Column -> (batch, ...), as Ray Data gives it.

        Returns:
            A dictionary: column -> tensor of its own memory (pictures are uint8 (batch, height,
            width, channels)), or a list. As with `TwinLoader`, tensors are yours to move to a GPU:
            beside lists Ray leaves them where they are.

        Raises:
            MissingDependencyError: torch is not installed.
        """
        try:
            import torch
        except ModuleNotFoundError as error:
            raise MissingDependencyError(
                "CollateBatch needs torch, which is not installed; "
                "pip install 'daft-twinwds[train,ray]'"
            ) from error
        # What comes out of Ray's object store is read-only, which a tensor cannot be.
        return {
            name: torch.from_numpy(values.copy()) if values.dtype.kind in "biuf" else list(values)
            for name, values in batch.items()
        }


def _holds_refs(type_: pa.DataType) -> bool:
    return pa.types.is_struct(type_) and [field.name for field in type_] == list(FIELDS)


def _is_fixed(decoder: Decoder) -> bool:
    return isinstance(decoder, DecodeImage) and isinstance(decoder.size, tuple)


def _rows_of(batch: pa.Table, names: list[str], epoch: int) -> list[Row]:
    """Return what is read of the batch's rows, and their numbers."""
    if missing := sorted({KEY, ROW} - set(batch.column_names)):
        raise ValueError(
            f"the batch has the columns {batch.column_names} but not {missing}; expected rows of "
            "Selection.to_ray_dataset; drop columns after the files are decoded"
        )
    numbers = batch.column(ROW).to_pylist()
    columns = list(dict.fromkeys([KEY, *names]))
    values = batch.select(columns).to_pylist()
    for name in names:
        if _holds_refs(batch.schema.field(name).type):
            for row in values:
                row[name] = None if row[name] is None else FileRef(**row[name])
    return [Row(row, number, epoch) for row, number in zip(values, numbers, strict=True)]


def _to_arrow(name: str, values: Any) -> pa.Array:
    if isinstance(values, np.ndarray):
        return ArrowTensorArray.from_numpy(values)
    if all(isinstance(value, np.ndarray) for value in values):
        if len({(value.shape, value.dtype) for value in values}) == 1:
            return ArrowTensorArray.from_numpy(np.stack(values))
        return ArrowVariableShapedTensorArray.from_numpy(values)
    try:
        return pa.array(values)
    except pa.ArrowException as error:
        raise TypeError(
            f"column {name!r}: Arrow cannot hold what its decoder or transform returned "
            f"({error}); expected NumPy arrays, bytes, texts, numbers, lists or dictionaries of such"
        ) from error
