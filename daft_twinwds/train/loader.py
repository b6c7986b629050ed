"""`TwinLoader`: batches in an exact order, which any number of ranks can go on with."""

import logging
import weakref
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any, Literal, NoReturn

import torch
from typing_extensions import override

from daft_twinwds.partition import Partition
from daft_twinwds.query.io_options import AnyConfig, storage_options
from daft_twinwds.shards.storage import storage_stats
from daft_twinwds.train.batch_memory import plain_memory
from daft_twinwds.train.batches import Feed, FeedReport, Work, available_cpus
from daft_twinwds.train.decoders import (
    Decoder,
    SampleReader,
    Transform,
    check_transforms,
    decoders_of,
)
from daft_twinwds.train.images import DecodeImage
from daft_twinwds.train.labels import Labeller
from daft_twinwds.train.order import EpochOrder, Remainder
from daft_twinwds.train.parts import Mix, Parts
from daft_twinwds.train.permutation import check_choice, check_int
from daft_twinwds.train.plan import LoaderPlan, RankBatches
from daft_twinwds.train.selection import Selection
from daft_twinwds.train.state import LoaderState, Resize, resized_batch
from daft_twinwds.train.tensors import Normalize, ToTensors, number_types, pinned_memory

__all__ = ["TwinLoader"]

logger = logging.getLogger("daft_twinwds")


class TwinLoader:
    """Batches for training: shuffled, decoded, the same number for every rank, resumable exactly.

    ``iter(loader)`` begins the current epoch, or goes on where a loaded state was (once). After
    its natural end the next one begins the next epoch, shuffled anew. Leaving early keeps the
    epoch: iterating again begins it again. There is one iteration at a time; a new one ends the
    one before.

    A batch is a dictionary: ``__key__`` (list of str), pictures (uint8 tensors
    (batch, 3, height, width), channels last in memory), numbers of columns without nulls (tensors
    (batch,)), with ``remainder="pad"`` also ``__pad__`` (bool tensor (batch,), True where a row
    only fills up), anything else (lists).

    Laws: over all ranks an epoch reads each row once, but for what ``remainder`` says. All ranks
    make the same number of steps. The order depends on the selection, the seed and the global
    batch alone, not on ranks, threads or prefetching, so that a state is good for another number
    of ranks. Memory: beside the batches that you keep, never more than ``prefetch_batches + 2``,
    counting the one that you work on.

    Example:
        >>> loader = TwinLoader(selection, batch_size=4)  # doctest: +SKIP
        >>> for batch in loader:  # doctest: +SKIP
        ...     train(batch)
        ...     save(loader.state_dict())
    """

    def __init__(  # noqa: PLR0913  # the public function holds all defaults
        self,
        data: Selection | Mix | Sequence[Selection],
        *,
        batch_size: int,
        decode: Mapping[str, Decoder] | None = None,
        transform: Mapping[str, Transform] | None = None,
        normalize: tuple[Sequence[float], Sequence[float]] | None = None,
        dtype: Literal["float32", "bfloat16"] = "float32",
        shuffle: bool = True,
        seed: int = 0,
        epochs: int | None = 1,
        bucket_by: str | None = None,
        remainder: Remainder = "drop",
        partition: Partition | None = None,
        num_threads: int | None = None,
        prefetch_batches: int = 2,
        on_error: Literal["raise", "skip"] = "raise",
        resize: Resize = "global_batch",
        pin_memory: bool | None = None,
        io_config: AnyConfig | Mapping[str, AnyConfig] | None = None,
    ) -> None:
        """Plan all epochs; nothing but, if need be, picture headers is read.

        Args:
            data: The rows; a list of selections is read as one, each as often as it is listed.
            batch_size: Samples per rank and step.
            decode: Column -> `DecodeImage` or a callable of bytes for files, `PickCaption` for
                captions. Files that are not named are not read. None decodes pictures and gives
                other files as bytes.
            transform: Column -> callable of its decoded value (pictures: uint8 (height, width,
                channels)) and a ``numpy.random.Generator`` that depends on seed, epoch and row
                alone; it is the same for all columns of a row, so that twins can be cropped alike.
                Arrays of equal shape are stacked; of pictures the channels then come first.
            normalize: (mean, std) per channel, for pixels in [0, 1]: pictures that `DecodeImage`
                made become ``dtype``.
            dtype: ``"float32"`` or ``"bfloat16"``; without ``normalize`` it has no meaning.
            shuffle: Another order in every epoch; False keeps the selection's.
            seed: Decides the order, captions and transforms; in ``[0, 2**64)``.
            epochs: Epochs that one iteration runs; None never ends. An iteration that goes on
                from a saved state ends where that one would have ended.
            bucket_by: ``"aspect_ratio"``, or a column of texts or integers: a global batch has
                rows of one bucket alone. The aspect ratio is PiD's class: of ``<image>_width`` and
                ``<image>_height``, else of the folder in ``__url__``, else of the caption's width
                and height, else of the picture's header; `DecodeImage` with ``size="1024"`` takes
                it for its target.
            remainder: Rows that fill no global batch (of their bucket): ``"drop"`` leaves them
                out, other ones in each epoch; ``"wrap"`` fills up with rows read before; ``"pad"``
                does the same and marks them in ``__pad__``.
            partition: This rank; `Partition.detect` by default. Tensor-, context- and
                pipeline-parallel peers have to share one: `Partition.from_device_mesh`.
            num_threads: Decoding threads; None for as many as this process may use CPUs.
            prefetch_batches: Batches made ahead.
            on_error: A sample that cannot be read or decoded: ``"raise"``, or ``"skip"``: another
                row of its global batch takes its place, so that steps stay equal; `report` counts
                it.
            resize: What stays when a state is loaded by another number of ranks:
                ``"global_batch"``, each rank gets more or fewer samples a step; or
                ``"batch_size"``, the global batch grows or shrinks.
            pin_memory: Put pictures into page-locked memory; None where CUDA is there.
            io_config: Credentials and endpoints, as in `read_twin_webdataset`.

        Raises:
            ValueError: An argument cannot be; the rows do not fill a single global batch.
            TypeError: ``data`` is no selection, or bucket labels are of different types.
            DecodeError: ``bucket_by="aspect_ratio"``, and a picture's header cannot be read.
        """
        self._batch_size = check_int("batch_size", batch_size, least=1)
        self._epochs = None if epochs is None else check_int("epochs", epochs, least=1)
        threads = available_cpus() if num_threads is None else num_threads
        check_int("num_threads", threads, least=1)
        check_int("prefetch_batches", prefetch_batches)
        check_int("seed", seed)
        check_choice("on_error", on_error, ("raise", "skip"))
        check_choice("resize", resize, ("global_batch", "batch_size"))
        self.partition = _one_process(partition or Partition.detect())
        """Who reads."""
        self._resize = resize
        self._parts = Parts.of(_selections_of(data))
        media, columns = self._parts.media, self._parts.columns
        decoders = decoders_of(media, columns, decode)
        pictures = [name for name in decoders if isinstance(decoders[name], DecodeImage)]
        storage = storage_options(io_config)
        skip_bad = on_error == "skip"
        self._feed = Feed(
            selection=self._parts,
            reader=SampleReader(
                decoders=decoders,
                transforms=check_transforms(transform, media, columns, decoders),
                storage=storage,
                seed=seed,
            ),
            batch_size=batch_size,
            num_threads=threads,
            prefetch_batches=prefetch_batches,
            skip_bad=skip_bad,
            allocate=pinned_memory if _pins(pin_memory) else plain_memory,
        )
        self._to_tensors = ToTensors(
            numbers=number_types(self._parts.selections),
            pictures=pictures,
            transformed=self._feed.reader.transforms.keys(),
            normalize=None if normalize is None else Normalize.of(normalize, dtype),
        )
        images = [*pictures, *(name for name, medium in media.items() if medium == "image")]
        labeller = Labeller(
            bucket_by=bucket_by,
            picture=images[0] if images else None,
            storage=storage,
            num_threads=threads,
            skip_bad=skip_bad,
        )
        self._plan = LoaderPlan.of(
            data, labeller, parts=self._parts, seed=seed, shuffle=shuffle, remainder=remainder
        )
        self._order = self._plan.order(batch_size * self.partition.world_size)
        self._begun: list[int] = []
        self._position = self._order.first
        self._first_epoch = 0
        self._is_loaded = False
        self._run = 0
        self._work: weakref.ref[Work] | None = None
        self._report = FeedReport()
        self._stats_before = storage_stats()
        self._warn_of_idle_buckets()

    @override
    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a TwinLoader holds the rank and the threads of the process that it was made in; "
            "expected one to be made where it is used; send its selection there, or use "
            "to_torch_iter_dataset for DataLoader's workers"
        )

    def __len__(self) -> int:
        """Batches that a rank gets in a whole iteration.

        Raises:
            TypeError: It never ends.
        """
        steps = self._order.num_steps
        if steps is None or self._epochs is None:
            raise TypeError("this loader never ends (epochs=None, or a mix until 'endless')")
        return steps * self._epochs

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Yield this rank's batches; leaving, dropping or closing it stops its threads.

        Raises:
            DecodeError: A picture cannot be decoded or differs in shape from its batch; with
                ``on_error="skip"``, not one row of a global batch can be read.
            StorageError: A byte range cannot be read.
            SchemaError: A caption has no text to draw.
            RuntimeError: Another iteration of this loader began since.
        """
        run, work = self._begin()
        try:
            # The consumer decides how long a batch lives: no variable of this frame holds on to it.
            yield from iter(partial(self._next_batch, run, work), None)
        finally:
            work.stop()

    @property
    def epoch(self) -> int:
        """The epoch that the next batch is of."""
        return self._position[0]

    @property
    def step(self) -> int:
        """Batches of that epoch that were handed out."""
        return self._position[1]

    @property
    def batch_size(self) -> int:
        """Samples per rank and step; another one than was asked for after some states."""
        return self.global_batch // self.partition.world_size

    @property
    def global_batch(self) -> int:
        """Samples per step over all ranks."""
        return self._order.global_batch

    def set_epoch(self, epoch: int) -> None:
        """Let the next iteration begin at an epoch; a loaded position is forgotten.

        An iteration that goes on meanwhile is ended.
        """
        check_int("epoch", epoch)
        self.close()
        self._begin_epoch(epoch)
        self._first_epoch = epoch
        self._is_loaded = False

    def state_dict(self) -> dict[str, Any]:
        """Return the position behind the last batch that was handed out, whoever it was for.

        It is the same on all ranks, of constant size, and JSON can hold it. Batches that were made
        ahead do not count.
        """
        epoch, step = self._position
        return LoaderState(
            fingerprint=self._parts.fingerprint,
            plan=self._plan.text,
            seed=self._plan.seed,
            epoch=epoch,
            step=step,
            first_epoch=self._first_epoch,
            global_batch=self.global_batch,
            batch_size=self.batch_size,
            begun=list(self._begun),
        ).to_dict()

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Let the next iteration go on at a saved position; nothing before it is read.

        The number of ranks, threads and batches made ahead may be others. With another number of
        ranks the global batch stays what it was (see ``resize``). A state saved behind the last
        batch of an iteration goes on with the epochs after it: a run that may be over compares
        `epoch` with the epochs that it is to have.

        Raises:
            ResumeError: It was saved for another selection, seed, order or size of batches.
        """
        state = LoaderState.from_dict(state_dict)
        state.check(fingerprint=self._parts.fingerprint, plan=self._plan.text, seed=self._plan.seed)
        batch_size, global_batch = resized_batch(
            state,
            batch_size=self._batch_size,
            world_size=self.partition.world_size,
            resize=self._resize,
        )
        begun = state.begun
        order = self._plan.order(state.global_batch, begun)
        position = order.resume(state.epoch, state.step)
        if global_batch != state.global_batch:
            order = order.rest(*position, global_batch=global_batch)
            done = order.done if isinstance(order, EpochOrder) else (order.done,)
            position, begun = order.first, [order.first_epoch, *done]
        if (batch_size, global_batch) != (state.batch_size, state.global_batch):
            logger.warning(
                "resumed with batches of %d samples on each of %d ranks, %d together; saved with "
                "%d on each, %d together",
                batch_size,
                self.partition.world_size,
                global_batch,
                state.batch_size,
                state.global_batch,
            )
        self.close()
        self._order, self._begun, self._position = order, begun, position
        self._first_epoch = state.first_epoch
        self._is_loaded = True

    def close(self) -> None:
        """End the iteration that goes on, if any, and wait for its threads."""
        self._run += 1
        work = self._work() if self._work is not None else None
        if work is not None:
            work.stop(wait=True)

    def report(self) -> dict[str, Any]:
        """Return what this rank has read so far, and what an epoch leaves out.

        Returns:
            ``rows`` handed out, ``bytes`` of media read, ``skipped`` rows by reason, ``repeated``
            rows that took their places; per epoch ``dropped`` and ``filled`` rows over all ranks
            (by sample mixed: 0, nothing is lost), ``idle_buckets`` that fill no batch; and
            ``storage``: requests, bytes, retries and seconds of all that the process has read
            since the loader was made.
        """
        report, orders = self._report, self._epoch_orders()
        return {
            "rows": report.rows,
            "bytes": report.bytes,
            "skipped": dict(report.skipped),
            "repeated": report.repeated,
            "dropped": sum(order.num_dropped for order in orders),
            "filled": sum(order.num_repeated for order in orders),
            "idle_buckets": [label for order in orders for label in order.idle_buckets],
            "storage": asdict(storage_stats() - self._stats_before),
        }

    def _begin(self) -> tuple[int, Work]:
        self.close()
        if self._is_loaded:
            self._is_loaded = False
        else:
            self._begin_epoch(self.epoch)
        end = None if self._epochs is None else self._first_epoch + self._epochs
        if end is not None and self.epoch >= end:
            self._first_epoch, end = self.epoch, self.epoch + (self._epochs or 0)
        batches = RankBatches(
            self._plan, self._order, self.partition, start=self._position, end=end
        )
        work = Work(self._feed, batches, self._report)
        self._work = weakref.ref(work)
        return self._run, work

    def _begin_epoch(self, epoch: int) -> None:
        if self._begun:
            self._order, self._begun = self._plan.order(self.global_batch), []
        self._position = (epoch, 0)

    def _next_batch(self, run: int, work: Work) -> dict[str, Any] | None:
        if run != self._run:
            raise RuntimeError(
                "this iteration was ended: another one of the loader began, or its epoch, state "
                "or end was set; go on with the new one"
            )
        batch = work.next_batch()
        if batch is None:
            return None
        tensors = self._to_tensors(batch)
        self._position = self._order.advance(*self._position)
        return tensors

    def _epoch_orders(self) -> tuple[EpochOrder, ...]:
        if isinstance(self._order, EpochOrder):
            return (self._order,)
        return self._order.orders if self._order.level == "batch" else ()

    def _warn_of_idle_buckets(self) -> None:
        for order in self._epoch_orders():
            if order.idle_buckets:
                logger.warning(
                    "buckets %s have too few rows for a global batch of %d; no epoch reads them; "
                    "pass remainder='wrap' or 'pad' to fill them up",
                    list(order.idle_buckets),
                    order.global_batch,
                )


def _selections_of(data: Selection | Mix | Sequence[Selection]) -> Sequence[Selection]:
    if isinstance(data, Selection):
        return [data]
    if isinstance(data, Mix):
        return data.selections
    if isinstance(data, Sequence):
        return data
    raise TypeError(
        f"data must be a Selection, a Mix or a list of selections, got {data!r}; make one by "
        "Selection.from_dataframe(df)"
    )


def _one_process(partition: Partition) -> Partition:
    if partition.num_workers != 1:
        raise ValueError(
            f"partition has {partition.num_workers} workers; expected one: a TwinLoader decodes in "
            "threads and stands in for torch's DataLoader; iterate it in the training process"
        )
    return partition


def _pins(pin_memory: bool | None) -> bool:
    return torch.cuda.is_available() if pin_memory is None else pin_memory
