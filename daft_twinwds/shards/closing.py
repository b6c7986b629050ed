"""What has a ``close`` can be used by ``with``."""

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self

__all__ = ["Closing"]


class Closing(ABC):
    """Something that is closed where a ``with`` block ends."""

    @abstractmethod
    def close(self) -> None:
        """Release what is held; closing twice does nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
