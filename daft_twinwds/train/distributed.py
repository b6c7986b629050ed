"""One rank runs the query, the others get what it kept."""

import copy
import io
import pickle
from collections.abc import Callable
from typing import Any, Final

import numpy as np
import pyarrow as pa
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from typing_extensions import override

__all__ = ["PIECE", "from_first_rank", "read_pieces", "stream_size", "write_pieces"]

PIECE: Final = 64 * 2**20
"""Bytes that are sent at once: what it takes of the first rank's memory, or of each GPU's."""

Exchange = Callable[[NDArray[np.uint8]], None]
"""Sends an array's bytes on one side, and fills an equal array with them on the other."""


def from_first_rank(make: Callable[[], pa.Table], group: Any = None) -> pa.Table:
    """Call a function on the first rank of a group alone; give its table to all of its ranks.

    A rank holds the table once, while it is sent as well: it goes through the group in pieces of
    `PIECE` bytes, through GPUs where the group knows no other way.

    Args:
        make: Returns the table.
        group: A process group; None for all ranks. Without an initialised ``torch.distributed``
            the function is simply called.

    Raises:
        ValueError: This process is not in the group.
        Exception: Whatever ``make`` raises, on all ranks; one that cannot be pickled reaches the
            others as `RuntimeError` with its text.
    """
    if not (dist.is_available() and dist.is_initialized()):
        return make()
    rank = dist.get_rank(group)
    if rank < 0:
        raise ValueError("this process is not in the process group; call it in those that are")
    message: list[Any] = [0, None]
    table: pa.Table | None = None
    failure: Exception | None = None
    if rank == 0:
        try:
            table = make()
            message[0] = stream_size(table)
        except Exception as error:  # noqa: BLE001  # the others wait: they have to hear of it
            failure = error
            message[1] = _portable(error)
    dist.broadcast_object_list(message, group=group, group_src=0)
    size, portable = message
    if failure is not None:
        raise failure
    if portable is not None:
        raise portable
    exchange = _exchange(group)
    if table is None:
        return read_pieces(size, exchange)
    write_pieces(table, exchange)
    return table


def stream_size(table: pa.Table) -> int:
    """Return how many bytes `write_pieces` sends; nothing is copied for that."""
    sink = pa.MockOutputStream()
    _write(table, sink)
    return int(sink.size())


def write_pieces(table: pa.Table, send: Exchange) -> None:
    """Send a table as an Arrow stream, in pieces of `PIECE` bytes and a smaller last one."""
    with _Pieces(send) as pieces:
        _write(table, pieces)


def read_pieces(size: int, receive: Exchange) -> pa.Table:
    """Return what `write_pieces` sent, without a copy of what was received."""
    stream = np.empty(size, np.uint8)
    for first in range(0, size, PIECE):
        receive(stream[first : first + PIECE])
    return pa.ipc.open_stream(pa.py_buffer(stream)).read_all()


def _write(table: pa.Table, sink: Any) -> None:
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)


class _Pieces(io.RawIOBase):
    """A file that passes on what is written, in pieces of one size."""

    def __init__(self, send: Exchange) -> None:
        self._send = send
        self._piece = np.empty(PIECE, np.uint8)
        self._filled = 0

    @override
    def writable(self) -> bool:
        return True

    @override
    def write(self, data: Any) -> int:
        given = np.frombuffer(data, np.uint8)
        left = given
        while len(left):
            some = left[: PIECE - self._filled]
            self._piece[self._filled : self._filled + len(some)] = some
            self._filled += len(some)
            left = left[len(some) :]
            if self._filled == PIECE:
                self._pass_on()
        return len(given)

    @override
    def close(self) -> None:
        if not self.closed and self._filled:
            self._pass_on()
        super().close()

    def _pass_on(self) -> None:
        self._send(self._piece[: self._filled])
        self._filled = 0


def _exchange(group: Any) -> Exchange:
    """Return how the first rank's bytes come to all: by the memory that the group can send from."""
    device = _device_of(dist.get_backend_config(group))

    def exchange(array: NDArray[np.uint8]) -> None:
        ours = torch.from_numpy(array)
        sent = ours.to(device)
        dist.broadcast(sent, group=group, group_src=0)
        if sent is not ours:
            ours.copy_(sent)

    return exchange


def _device_of(config: str) -> torch.device:
    """Return whose memory a group sends from, main memory if it can: of ``"cuda:nccl"`` a GPU's."""
    devices = [pair.partition(":")[0] for pair in config.split(",")]
    return torch.device("cpu" if "cpu" in devices else devices[0])


def _portable(error: Exception) -> Exception:
    """Return the error if it can be made again elsewhere, else one with its text."""
    try:
        pickle.dumps(error)
        twin = copy.copy(error)
    except Exception:  # noqa: BLE001  # whatever it holds, or its constructor makes of arguments
        twin = None
    if type(twin) is type(error) and str(twin) == str(error):
        # Where it was raised stays behind: frames cannot be sent.
        return error
    return RuntimeError(f"{type(error).__name__}: {error}")
