"""The only module that touches parts of Daft that are private or declared unstable."""

import re
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import daft
import numpy as np
import pyarrow as pa
from daft.exceptions import DaftCoreException
from daft.expressions import Expression, ExpressionsProjection
from daft.io import HTTPConfig, IOConfig
from daft.recordbatch import RecordBatch
from daft.runners import get_or_infer_runner_type
from daft.schema import Schema
from daft.series import Series
from numpy.typing import NDArray

from daft_twinwds.errors import SchemaError

__all__ = [
    "bearer_token",
    "check_predicate",
    "column_of",
    "count_column",
    "default_io_config",
    "engine_is_running",
    "evaluate",
    "file_storage",
    "filter_batch",
    "io_config_of",
    "make_batch",
    "make_file_series",
    "make_schema",
    "predicate_fault",
    "required_columns",
    "runs_on_ray",
]


def make_schema(dtypes: Mapping[str, daft.DataType]) -> Schema:
    """Return a Daft schema with these columns, in this order."""
    return Schema.from_pydict(dict(dtypes))


def make_batch(columns: Mapping[str, Series]) -> RecordBatch:
    """Return a record batch of equally long columns; at least one is needed.

    A batch without columns has no length in Daft: its rows would vanish silently.
    """
    if not columns:
        raise ValueError("a record batch needs at least one column, got none")
    return RecordBatch.from_pydict(dict(columns))


def make_file_series(
    name: str,
    dtype: daft.DataType,
    path: str,
    positions: NDArray[np.int64],
    sizes: NDArray[np.int64],
    valid: NDArray[np.bool_] | None,
) -> Series:
    """Return lazy references to byte ranges of one file.

    Built from Arrow as the struct that a File column is inside Daft: 850 times as fast as one
    ``daft.File`` object per row. Its ``io_config`` stays null, so that no credentials travel
    with the references into files that are written from them.

    Args:
        name: Column name.
        dtype: A ``DataType.file(...)``.
        path: Absolute path of the file; Daft takes it literally, special characters included.
        positions: First byte of each range, (rows,).
        sizes: Bytes of each range, (rows,).
        valid: False where the row is null, (rows,); None if no row is.
    """
    rows = len(positions)
    mask = None if valid is None else pa.array(~valid)
    storage = pa.StructArray.from_arrays(
        [
            pa.repeat(pa.scalar(path, pa.large_string()), rows),
            pa.nulls(rows, pa.large_binary()),
            pa.array(positions, pa.int64()),
            pa.array(sizes, pa.int64()),
        ],
        names=["url", "io_config", "position", "size"],
        mask=mask,
    )
    return Series.from_arrow(storage, name).cast(dtype)


def file_storage(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return the struct ``{url, io_config, position, size}`` behind a File column in Arrow."""
    chunks = [chunk.storage for chunk in column.chunks]
    storage_type = chunks[0].type if chunks else column.type.storage_type
    return pa.chunked_array(chunks, type=storage_type)


def filter_batch(batch: RecordBatch, predicate: Expression) -> RecordBatch:
    """Return the rows for which the predicate is true; null counts as false."""
    return batch.filter(ExpressionsProjection([predicate]))


def column_of(batch: RecordBatch, name: str) -> Series:
    """Return a batch's column by its name; Daft's own method takes a number."""
    return batch.get_column(batch.schema().column_names().index(name))


def required_columns(expression: Expression, dtypes: Mapping[str, daft.DataType]) -> frozenset[str]:
    """Return the columns that an expression needs, by Daft's own binder.

    Daft's visitor does not know functions, struct access among them, so each column is left out
    in turn: those without which the expression does not bind are needed. An expression that fails
    for another reason needs all columns, which is always right.
    """
    needed = set()
    for name in dtypes:
        rest = {other: dtype for other, dtype in dtypes.items() if other != name}
        try:
            evaluate(RecordBatch.empty(make_schema(rest)), expression)
        except Exception:  # noqa: BLE001  # whatever the binder raises, the column is read
            needed.add(name)
    return frozenset(needed)


def evaluate(batch: RecordBatch, expression: Expression) -> Series:
    """Return an expression's value for each row."""
    return batch.eval_expression_list(ExpressionsProjection([expression])).get_column(0)


def check_predicate(predicate: Expression, dtypes: Mapping[str, daft.DataType]) -> None:
    """Raise `SchemaError` unless a predicate is a truth value over these columns."""
    fault = predicate_fault(predicate, dtypes)
    if fault is not None:
        raise SchemaError(
            f"where: {predicate} cannot be applied ({fault}); expected a condition on the columns "
            f"{list(dtypes)}"
        )


def predicate_fault(predicate: Expression, dtypes: Mapping[str, daft.DataType]) -> str | None:
    """Return why a predicate is no truth value over these columns, None if it is one."""
    try:
        filter_batch(RecordBatch.empty(make_schema(dtypes)), predicate)
    except DaftCoreException as error:
        return _reason_of(str(error))
    return None


def _reason_of(text: str) -> str:
    """Return why Daft refuses an expression, in a line and without its dump of the schema."""
    missing = re.search(r'Column "(.+?)" not found', text)
    if missing is not None:
        return f"there is no column {missing[1]!r}"
    field = re.search(r"Field (.+?) not found in schema: (\[.*\])", text)
    if field is not None:
        return f"there is no field {field[1]!r}, only {field[2]}"
    kind = re.search(r"downcast (\S+) to .*BooleanType", text)
    if kind is not None:
        return f"its value is {kind[1]}, not true or false"
    last = text.strip().splitlines()[-1].strip().removeprefix("REASON: ")
    return last.partition("DaftError::")[2] or last


def count_column(aggregation: Expression) -> str:
    """Return the name under which Daft wants a pushed-down count: the counted column's own."""
    return aggregation.name()


def engine_is_running() -> bool:
    """Whether Daft has begun threads in this process, which a forked child would wait for."""
    tasks = Path("/proc/self/task")
    if not tasks.is_dir():
        return daft.event_loop.LOOP is not None
    return any(_thread_name(task).startswith("DAFT") for task in tasks.iterdir())


def _thread_name(task: Path) -> str:
    try:
        return (task / "comm").read_text()
    except OSError:  # the thread has ended meanwhile
        return ""


def default_io_config() -> IOConfig:
    """Return the configuration that ``daft.set_planning_config`` has set, or an empty one."""
    config: IOConfig = daft.context.get_context().daft_planning_config.default_io_config
    return config


def bearer_token(config: HTTPConfig) -> str | None:
    """Return the token of a configuration that has no attribute for it, from its pickled form.

    Raises:
        TypeError: This Daft pickles it in another way.
    """
    pickled = _pickled(config)
    try:
        _, rest = _take_text(pickled)
        has_token, rest = rest[0], rest[1:]
        token, rest = _take_text(rest) if has_token else (None, rest)
        backoff, connect, read, tries = struct.unpack("<QQQI", rest)
        again = HTTPConfig(
            bearer_token=token,
            retry_initial_backoff_ms=backoff,
            connect_timeout_ms=connect,
            read_timeout_ms=read,
            num_tries=tries,
        )
        is_understood = _pickled(again) == pickled
    except (struct.error, UnicodeDecodeError, IndexError, OverflowError):
        is_understood, token = False, None
    if not is_understood:
        raise TypeError(
            "the HTTPConfig of this Daft cannot be read; expected that of Daft 0.7.22 to 0.7.26; "
            "pass io_config=StorageOptions(http=HttpOptions(bearer_token=...)), both from "
            "daft_twinwds.shards.options"
        )
    return token


def runs_on_ray() -> bool:
    """Return whether queries run on a Ray cluster; starts none."""
    return get_or_infer_runner_type() == "ray"


def io_config_of(data: bytes) -> IOConfig:
    """Return the configuration that a File column holds beside a URL, in its pickled form."""
    make: Any = IOConfig().__reduce__()[0]
    config: IOConfig = make(data)
    return config


def _pickled(config: HTTPConfig) -> bytes:
    arguments: Any = config.__reduce__()[1]
    return bytes(arguments[0])


def _take_text(data: bytes) -> tuple[str, bytes]:
    (size,) = struct.unpack_from("<Q", data)
    if size > len(data):
        raise struct.error("longer than the data")
    return data[8 : 8 + size].decode(), data[8 + size :]
