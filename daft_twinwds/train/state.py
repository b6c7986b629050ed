"""A loader's saved position: what it holds, and what it is refused for."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Final, Literal, Self

from daft_twinwds.errors import ResumeError
from daft_twinwds.train.permutation import check_int

__all__ = ["LoaderState", "Resize", "resized_batch"]

Resize = Literal["global_batch", "batch_size"]
"""What stays when a state is loaded by another number of ranks."""

VERSION: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class LoaderState:
    """Where a loader stands: integers, and texts that say in what."""

    fingerprint: str
    """Which samples."""
    plan: str
    """In which order; see `daft_twinwds.train.plan.LoaderPlan.text`."""
    seed: int
    epoch: int
    """The epoch that the next batch is of."""
    step: int
    """Batches of it that the trainer got."""
    first_epoch: int
    """Where the iteration began, which ends ``epochs`` later."""
    global_batch: int
    """Rows per step over all ranks."""
    batch_size: int
    """Rows per step and rank."""
    begun: list[int]
    """Empty, or after a change of the global batch inside an epoch: that epoch, and what had been
    read of it."""
    version: int = VERSION

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON knows it."""
        return asdict(self)

    @classmethod
    def from_dict(cls, saved: Any) -> Self:
        """Check what was saved.

        Raises:
            ResumeError: It is no state of a loader, or of another version.
        """
        names = {field.name for field in fields(cls)}
        if not isinstance(saved, Mapping) or set(saved) != names:
            found = sorted(saved) if isinstance(saved, Mapping) else saved
            raise ResumeError(
                f"state: found {found}; expected what TwinLoader.state_dict returned, with "
                f"{sorted(names)}"
            )
        if saved["version"] != VERSION:
            raise ResumeError(
                f"state: version {saved['version']!r}; expected {VERSION}; resume with the "
                "release that saved it, or start anew"
            )
        try:
            for name in ("seed", "epoch", "step", "first_epoch"):
                check_int(name, saved[name])
            for name in ("global_batch", "batch_size"):
                check_int(name, saved[name], least=1)
            for place, number in enumerate(saved["begun"]):
                check_int(f"begun[{place}]", number)
        except (TypeError, ValueError) as error:
            raise ResumeError(f"state: {error}; it was damaged or changed; start anew") from error
        return cls(**{**saved, "begun": list(saved["begun"])})

    def check(self, *, fingerprint: str, plan: str, seed: int) -> None:
        """Refuse a state of something else.

        Raises:
            ResumeError: The samples, the seed or the order are others; both are named.
        """
        if self.fingerprint != fingerprint:
            raise ResumeError(
                f"state: saved for a selection with fingerprint {self.fingerprint}; this loader's "
                f"has {fingerprint}; expected the same samples in the same order; pass the "
                "selection that it was saved with (Selection.save, Selection.load), or start anew"
            )
        if self.seed != seed:
            raise ResumeError(
                f"state: saved with seed {self.seed}, this loader has seed {seed}; expected the "
                f"same; pass seed={self.seed}, or start anew"
            )
        if self.plan != plan:
            raise ResumeError(
                f"state: saved with the order ({self.plan}), this loader has ({plan}); expected "
                "the same shuffle, remainder, buckets and mix; build the loader as it was, or "
                "start anew"
            )


def resized_batch(
    state: LoaderState, *, batch_size: int, world_size: int, resize: Resize
) -> tuple[int, int]:
    """Return (batch_size, global_batch) to go on with.

    Args:
        state: What was saved.
        batch_size: What this loader was told, per rank.
        world_size: Ranks that there are now.
        resize: What stays.

    Raises:
        ResumeError: The ranks cannot share the saved global batch, or the batch size was changed
            as well.
    """
    saved, wanted = state.global_batch, batch_size * world_size
    if saved == wanted or resize == "batch_size":
        return batch_size, wanted
    if batch_size != state.batch_size:
        fits = f"batch_size={saved // world_size}, or " if saved % world_size == 0 else ""
        raise ResumeError(
            f"state: saved with batch_size={state.batch_size} in global batches of {saved} rows; "
            f"this loader has batch_size={batch_size} on {world_size} rank(s), global batches of "
            f"{wanted}; expected the same global batch; pass {fits}resize='batch_size' to go on "
            f"in batches of {wanted}"
        )
    if saved % world_size:
        sizes = [str(size) for size in range(1, saved + 1) if saved % size == 0]
        shown = ", ".join(sizes if len(sizes) <= 12 else [*sizes[:6], "...", *sizes[-3:]])
        raise ResumeError(
            f"state: saved in global batches of {saved} rows, which {world_size} ranks cannot "
            f"share evenly; expected a world size of {shown}; use one of these, or pass "
            f"resize='batch_size' to go on in global batches of {wanted}"
        )
    return saved // world_size, saved
