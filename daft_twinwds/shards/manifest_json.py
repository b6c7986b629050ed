"""The JSON of a ``wdinfo.json`` -> Arrow arrays of the right types.

Arrow's parser builds the arrays straight from the text: a million tars take a quarter of a second
and no Python object each. It only says that something is wrong, so what it does not take is
parsed again by Python's, for a message that names the entry.
"""

import json
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from daft_twinwds.errors import LayoutError

__all__ = ["ManifestContent", "parse_manifest", "parse_object"]

_STRINGS: Final = pa.list_(pa.string())
_TYPES: Final = pa.schema(
    {
        "data_keys": _STRINGS,
        "data_list": _STRINGS,
        "root": pa.string(),
        "total_key_count": pa.int64(),
    }
)
_COUNTS: Final = pa.field("data_list_key_count", pa.list_(pa.int64()))
_LARGE: Final = 1 << 20
_REQUIRED: Final = ("data_keys", "data_list", "total_key_count")


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestContent:
    """What a manifest says, of the right types; nothing is compared or looked up yet."""

    root: str | None
    modalities: pa.StringArray
    names: pa.StringArray
    counts: pa.Int64Array | None
    """Not negative; not necessarily as many as `names`. None where there are none, or unasked for."""
    total: int


def parse_manifest(data: bytes, path: str, *, with_counts: bool) -> ManifestContent:
    """Parse a manifest.

    Args:
        data: The file's bytes: JSON in UTF-8, a byte order mark may come first. Keys that are
            not known are left alone.
        path: Named in messages.
        with_counts: Whether to look at the counts, which take a third of the time.

    Raises:
        LayoutError: It is not JSON, lacks a key, or holds a value of the wrong type or a
            negative count.
    """
    return _parse_at_once(data, with_counts=with_counts) or _parse_with_reasons(
        data, path, with_counts=with_counts
    )


def _parse_at_once(data: bytes, *, with_counts: bool) -> ManifestContent | None:
    """Return the content, or None if anything is odd about it."""
    # Arrow's parser crashes on some documents that do not begin with an object.
    if not data.startswith(b"{"):
        return None
    try:
        table = pj.read_json(
            pa.BufferReader(data),
            read_options=pj.ReadOptions(block_size=len(data) + 1, use_threads=False),
            parse_options=pj.ParseOptions(
                explicit_schema=_TYPES.append(_COUNTS) if with_counts else _TYPES,
                newlines_in_values=True,
                unexpected_field_behavior="ignore",
            ),
        )
        if table.num_rows != 1:
            return None
        for column in table.columns:
            column.validate(full=True)  # parsing checks no text for being UTF-8
    except (pa.ArrowException, UnicodeDecodeError):
        return None
    if len(data) > _LARGE:
        # Arrow would keep what parsing took, several times the size of the arrays.
        pa.default_memory_pool().release_unused()
    row = {name: table.column(name).chunk(0) for name in table.column_names}
    counts = row[_COUNTS.name] if with_counts else pa.nulls(1, _COUNTS.type)
    if (
        any(row[name].null_count for name in _REQUIRED)
        or any(row[name].values.null_count for name in ("data_keys", "data_list"))
        or counts.values.null_count
        or any((pc.min(v).as_py() or 0) < 0 for v in (row["total_key_count"], counts.values))
    ):
        return None
    return ManifestContent(
        root=row["root"][0].as_py(),
        modalities=row["data_keys"].values,
        names=row["data_list"].values,
        counts=None if counts.null_count else counts.values,
        total=row["total_key_count"][0].as_py(),
    )


def parse_object(data: bytes, path: str) -> dict[str, Any]:
    """Return a manifest's keys and values as they are, unchecked.

    Raises:
        LayoutError: It is no JSON object.
    """
    try:
        content = json.loads(data.decode("utf-8-sig"))
    # A number of too many digits is a bare ValueError, as are bad UTF-8 and bad JSON.
    except (ValueError, RecursionError) as error:
        raise LayoutError(
            f"{path}: not valid JSON in UTF-8 ({error}); write or copy the manifest again"
        ) from error
    if not isinstance(content, dict):
        raise LayoutError(
            f"{path}: a JSON {type(content).__name__} was found; expected an object with the keys "
            f"{', '.join(_REQUIRED)}"
        )
    return content


def _parse_with_reasons(data: bytes, path: str, *, with_counts: bool) -> ManifestContent:
    content = parse_object(data, path)
    for key in _REQUIRED:
        if key not in content:
            raise LayoutError(
                f"{path}: key {key!r} is missing, found {sorted(content)[:10]}; expected a "
                f"wdinfo.json with {', '.join(_REQUIRED)}"
            )
    root = content.get("root")
    if root is not None and not isinstance(root, str):
        raise LayoutError(f"{path}: root is {root!r}; expected a string")
    has_counts = with_counts and content.get(_COUNTS.name) is not None
    return ManifestContent(
        root=root,
        modalities=_strings(content, "data_keys", path),
        names=_strings(content, "data_list", path),
        counts=_counts(content, _COUNTS.name, path) if has_counts else None,
        total=_count(content["total_key_count"], f"{path}: total_key_count"),
    )


def _list(content: dict[str, Any], key: str, path: str) -> list[Any]:
    value = content[key]
    if not isinstance(value, list):
        raise LayoutError(f"{path}: {key} is of type {type(value).__name__}; expected a list")
    return value


def _strings(content: dict[str, Any], key: str, path: str) -> pa.StringArray:
    values = _list(content, key, path)
    for position, value in enumerate(values):
        if not isinstance(value, str):
            raise LayoutError(f"{path}: {key}[{position}] is {value!r}; expected a string")
    try:
        return pa.array(values, pa.string())
    except UnicodeEncodeError as error:
        raise LayoutError(
            f"{path}: {key} holds {error.object!r}, which has half of a surrogate pair; "
            "expected Unicode text"
        ) from error


def _counts(content: dict[str, Any], key: str, path: str) -> pa.Int64Array:
    values = _list(content, key, path)
    checked = (_count(value, f"{path}: {key}[{at}]") for at, value in enumerate(values))
    return pa.array(checked, pa.int64(), size=len(values))


def _count(value: Any, where: str) -> int:
    # bool is an int to Python, not to a reader of manifests.
    if type(value) is not int or not 0 <= value < 2**63:
        raise LayoutError(f"{where} is {value!r}; expected a whole number of samples, 0 or more")
    return value
