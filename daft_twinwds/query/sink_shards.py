"""Rows -> staged twin tars, one shard after another."""

import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Final

from daft.recordbatch import RecordBatch

from daft_twinwds.errors import AlignmentError, StorageError, TwinWebDatasetError
from daft_twinwds.query._daft import column_of
from daft_twinwds.query.sink_columns import OutColumn
from daft_twinwds.query.sink_encode import Payload, Payloads, ValuePayloads
from daft_twinwds.query.sink_files import FilePayloads
from daft_twinwds.shards.options import StorageOptions
from daft_twinwds.shards.samples import split_name
from daft_twinwds.shards.tar_write import TarWriter, name_fault
from daft_twinwds.shards.write_target import WriteTarget

__all__ = [
    "DIGEST",
    "OutPolicy",
    "StagedShard",
    "digest_of",
    "double_key_error",
    "write_shards",
]

DIGEST: Final = 16
"""Bytes that stand for a key where all keys are compared; no two keys share theirs by chance."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutPolicy:
    """How shards are made."""

    max_shard_bytes: int
    """Bytes of a tar at most, if it has more than one sample."""
    max_shard_samples: int | None
    allow_missing: bool
    """Whether a null leaves its modality out of a sample."""
    jpeg_quality: int
    forbidden: str | None
    """Folder that files must not come from, as it is to be replaced."""
    options: StorageOptions | Mapping[str, StorageOptions] = field(repr=False)
    """How files are accessed that come without an ``io_config`` of their own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedShard:
    """Twin tars that are written and have no name yet."""

    name: str
    """Of each staged tar, below its modality's folder."""
    count: int
    """Samples."""
    digests: bytes
    """`digest_of` each key, in order."""
    sizes: tuple[int, ...]
    """Bytes of each tar, by modality."""
    suffixes: tuple[frozenset[str], ...]
    """Suffixes in each tar, by modality."""


def double_key_error(key: str | None) -> AlignmentError:
    """Return the error for two rows of one key."""
    return AlignmentError(
        f"sample {key!r}: two rows have this key; expected each once; put what tells them apart "
        "into __key__, as their shard's name, or leave copies out by df.drop_duplicates"
    )


def digest_of(key: str) -> bytes:
    """Return the `DIGEST` bytes that stand for a key."""
    return blake2b(key.encode("utf-8", "surrogateescape"), digest_size=DIGEST).digest()


def write_shards(
    batch: RecordBatch,
    columns: Sequence[OutColumn],
    target: WriteTarget,
    policy: OutPolicy,
    *,
    key: str,
) -> Iterator[StagedShard]:
    """Write rows, in order, as shards that only these rows are in.

    Memory is bounded by one piece of a file (of eight, where they are a server's), or one value,
    per column, besides the rows.

    Args:
        batch: The rows.
        columns: What of them is written.
        target: Where to.
        policy: How.
        key: Column of the keys.

    Yields:
        Each shard when it is staged.

    Raises:
        AlignmentError: A key could not be read back, or a row lacks a modality.
        LayoutError: The writing has failed elsewhere.
        SchemaError: A value cannot be written.
        StorageError: A file cannot be read, or a tar not be written.
    """
    keys = column_of(batch, key).to_pylist()
    with ExitStack() as stack:
        sources = [
            stack.enter_context(closing(_payloads(batch, column, policy))) for column in columns
        ]
        open_shard: _OpenShard | None = None
        try:
            for row, value in enumerate(keys):
                sample = _sample(value, row, columns, sources, policy)
                if open_shard is not None and not open_shard.takes(value, sample):
                    yield open_shard.close()
                    open_shard = None
                if open_shard is None:
                    open_shard = _OpenShard(columns, target, policy)
                open_shard.add(value, sample)
            if open_shard is not None:
                yield open_shard.close()
                open_shard = None
        finally:
            if open_shard is not None:
                open_shard.give_up()


def _payloads(batch: RecordBatch, column: OutColumn, policy: OutPolicy) -> Payloads:
    values = column_of(batch, column.name)
    if column.form == "file":
        return FilePayloads(column, values, options=policy.options, forbidden=policy.forbidden)
    return ValuePayloads(column, values, jpeg_quality=policy.jpeg_quality)


def _sample(
    key: str | None,
    row: int,
    columns: Sequence[OutColumn],
    sources: Sequence[Payloads],
    policy: OutPolicy,
) -> list[Payload | None]:
    if key is None:
        raise AlignmentError(
            f"row {row} of its batch: the key is null; expected a key in each row; fill it, or "
            "leave such rows out by df.where(...not_null())"
        )
    sample: list[Payload | None] = []
    for column, source in zip(columns, sources, strict=True):
        try:
            payload = source.payload(row)
        except TwinWebDatasetError as error:
            # Other classes of the tree have none below them.
            kind = StorageError if isinstance(error, StorageError) else type(error)
            raise kind(f"sample {key!r}, column {column.name!r}: {error}") from error
        if payload is None and not policy.allow_missing:
            raise AlignmentError(
                f"sample {key!r}, column {column.name!r}: null; expected a value, as twins have the "
                "same keys; leave such rows out by df.where(...not_null()), or pass "
                "allow_missing=True and read with on_missing='null'"
            )
        if payload is not None:
            _check_name(key, payload.suffix)
        sample.append(payload)
    if all(payload is None for payload in sample):
        raise AlignmentError(
            f"sample {key!r}: null in all of {[column.name for column in columns]}; expected a "
            "value in one of them, as its key stands nowhere else; leave such rows out by "
            "df.where(...not_null())"
        )
    return sample


def _check_name(key: str, suffix: str) -> None:
    """Refuse a key that a reader would not find again, or not find as it is."""
    name = f"{key}.{suffix}"
    fault = name_fault(name)
    if fault is None and split_name(name, "last") != (key, suffix):
        fault = "nothing but dots before its suffix" if key else "it is empty"
    if fault is not None:
        raise AlignmentError(
            f"sample {key!r}: no key that could be read back from the member {name!r} ({fault}); "
            "expected a relative path such as 'id_0' or 'cats/id_0'; make other keys in Daft"
        )


class _OpenShard:
    """The twin tars that are being written."""

    def __init__(
        self, columns: Sequence[OutColumn], target: WriteTarget, policy: OutPolicy
    ) -> None:
        self._policy = policy
        self._name = f"{uuid.uuid4().hex}.tar"
        self._digests: dict[bytes, None] = {}
        self._suffixes: list[set[str]] = [set() for _ in columns]
        self._stack = ExitStack()
        target.require_wanted()
        with self._stack:
            self._tars = []
            for column in columns:
                file = self._stack.enter_context(
                    target.folder.create(target.staged(column.folder, self._name))
                )
                self._tars.append(self._stack.enter_context(TarWriter(file)))
            # All are open: they stay so until `close` or `give_up`.
            self._stack = self._stack.pop_all()

    def takes(self, key: str, sample: Sequence[Payload | None]) -> bool:
        """Whether one more sample keeps all tars within their bounds."""
        if len(self._digests) == self._policy.max_shard_samples:
            return False
        return all(
            payload is None
            or tar.size_with(f"{key}.{payload.suffix}", payload.size)
            <= self._policy.max_shard_bytes
            for tar, payload in zip(self._tars, sample, strict=True)
        )

    def add(self, key: str, sample: Sequence[Payload | None]) -> None:
        """Write a sample's members."""
        digest = digest_of(key)
        if digest in self._digests:
            raise double_key_error(key)
        self._digests[digest] = None
        for tar, payload, suffixes in zip(self._tars, sample, self._suffixes, strict=True):
            if payload is not None:
                name = f"{key}.{payload.suffix}"
                tar.add_pieces(name, payload.pieces, size=payload.size)
                suffixes.add(payload.suffix)

    def close(self) -> StagedShard:
        """End the tars, which are whole then."""
        self._stack.close()
        return StagedShard(
            name=self._name,
            count=len(self._digests),
            digests=b"".join(self._digests),
            sizes=tuple(tar.size for tar in self._tars),
            suffixes=tuple(frozenset(suffixes) for suffixes in self._suffixes),
        )

    def give_up(self) -> None:
        """Leave nothing of the tars behind."""
        error = StorageError("the shard was given up")
        self._stack.__exit__(StorageError, error, None)
