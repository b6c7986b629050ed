"""One rank runs the query, the others get what it kept."""

import copy
from collections.abc import Callable
from typing import Any, TypeVar

import torch.distributed as dist

__all__ = ["from_first_rank"]

Value = TypeVar("Value")


def from_first_rank(make: Callable[[], Value], group: Any = None) -> Value:
    """Call a function on the first rank of a group alone; give its result to all of its ranks.

    Args:
        make: Its result has to be picklable.
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
    message: list[Any] = [None, None]
    failure: Exception | None = None
    if rank == 0:
        try:
            message[0] = make()
        except Exception as error:  # noqa: BLE001  # the others wait: they have to hear of it
            failure = error
            message[1] = _portable(error)
    dist.broadcast_object_list(message, group=group, group_src=0)
    if failure is not None:
        raise failure
    if message[1] is not None:
        raise message[1]
    result: Value = message[0]
    return result


def _portable(error: Exception) -> Exception:
    """Return the error if it can be made again elsewhere, else one with its text."""
    try:
        twin = copy.copy(error)
    except Exception:  # noqa: BLE001  # whatever its constructor thinks of its arguments
        twin = None
    if type(twin) is type(error) and str(twin) == str(error):
        # Where it was raised stays behind: frames cannot be sent.
        return error
    return RuntimeError(f"{type(error).__name__}: {error}")
