"""``wdinfo.json``: one leaf's modalities, tars and sample counts, as its writer saw them.

A manifest of a million tars is tens of megabytes of JSON, so its names and counts leave this
module as Arrow arrays, never as Python objects.
"""

import json
import re
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from daft_twinwds.errors import LayoutError
from daft_twinwds.shards.options import ENVIRONMENT, StorageOptions
from daft_twinwds.shards.storage import open_file

MANIFEST_NAME: Final = "wdinfo.json"
MAX_BYTES: Final = 256 * 2**20
"""Largest manifest that is read: about six million tars."""

# Understood alike by Python's re and by RE2. No part may begin with a dot, which rules out
# "." and ".." as well as the hidden names that listings leave out.
_PART: Final = r"[^./\\\x00][^/\\\x00]*"
_RELATIVE: Final = rf"{_PART}(?:/{_PART})*"
_TAR: Final = rf"(?:{_PART}/)*[^./\\\x00][^/\\\x00]*\.[tT][aA][rR]"

_FOLDER_RULE: Final = (
    "a folder below the dataset's: relative, '/' between its parts, no part that begins with '.', "
    "no backslash or NUL"
)
_TAR_RULE: Final = (
    "a tar below a modality's folder, such as 'part_000000/000000.tar': relative, "
    "'/' between its parts, no part that begins with '.', no backslash or NUL"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """What one ``wdinfo.json`` says. Only its paths have been checked, not the disk."""

    path: str
    """The file itself, as messages show it."""
    root: str | None
    """The folder that the writer wrote to; copied datasets have long left it."""
    modalities: tuple[str, ...]
    """Folders below the leaf's, which may contain ``/``, in the file's order (``data_keys``)."""
    names: pa.StringArray
    """Tar paths relative to a modality's folder, distinct, in the file's order (``data_list``)."""
    counts: pa.Int64Array | None
    """Samples per tar; ``None`` where the file has neither counts nor a chunk size."""
    total: int
    """Samples in all tars; not necessarily the sum of `counts`."""


def is_relative_folder(name: str) -> bool:
    """Return whether ``name`` can be joined to a folder without leaving it or hiding."""
    return re.fullmatch(_RELATIVE, name) is not None


def read_manifest(path: str, options: StorageOptions = ENVIRONMENT) -> Manifest:
    """Read and check one ``wdinfo.json``.

    Keys that are not known are left alone. Counts are checked for being counts, not for being
    true.

    Args:
        path: The file, local or a URL.
        options: How it is accessed.

    Returns:
        Its content. Older files with a ``chunk_size`` in place of ``data_list_key_count`` get
        that many samples per tar until ``total_key_count`` is used up.

    Raises:
        LayoutError: It is not JSON, too large, lacks a key, or holds a value of the wrong type,
            a negative count, lists of different lengths, a path twice, or a path that is no
            plain relative one. The message names the file and the entry.
        StorageError: It cannot be opened or read.

    Source:
        ``wdinfo.json`` as written by PiD's ``scripts/sharding_wds.py``.
    """
    path, content = _load(path, options)
    modalities = _strings(content, "data_keys", path)
    _check_paths(modalities, _RELATIVE, where=f"{path}: data_keys", rule=_FOLDER_RULE)
    names = _strings(content, "data_list", path)
    _check_paths(names, _TAR, where=f"{path}: data_list", rule=_TAR_RULE)
    root = content.get("root")
    if root is not None and not isinstance(root, str):
        raise LayoutError(f"{path}: root is {root!r}; expected a string")
    total = _count(_required(content, "total_key_count", path), f"{path}: total_key_count")
    return Manifest(
        path=path,
        root=root,
        modalities=tuple(modalities.to_pylist()),
        names=names,
        counts=_counts(content, path=path, num_tars=len(names), total=total),
        total=total,
    )


def _load(path: str, options: StorageOptions) -> tuple[str, dict[str, Any]]:
    with open_file(path, options) as file:
        path = file.path
        if len(file) > MAX_BYTES:
            raise LayoutError(
                f"{path}: {len(file):,} bytes, more than {MAX_BYTES:,}; a manifest of this size is "
                "not read, split the dataset into several leaves"
            )
        data = file.read(0, len(file))
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
            "data_keys, data_list and total_key_count"
        )
    return path, content


def _required(content: dict[str, Any], key: str, path: str) -> Any:
    if key not in content:
        raise LayoutError(
            f"{path}: key {key!r} is missing, found {sorted(content)[:10]}; expected a wdinfo.json "
            "with data_keys, data_list and total_key_count"
        )
    return content[key]


def _list(content: dict[str, Any], key: str, path: str) -> list[Any]:
    value = _required(content, key, path)
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


def _check_paths(values: pa.StringArray, pattern: str, *, where: str, rule: str) -> None:
    good = pc.match_substring_regex(values, rf"^(?:{pattern})$")
    bad = np.flatnonzero(~good.to_numpy(zero_copy_only=False))
    if len(bad):
        raise LayoutError(
            f"{where}[{bad[0]}] is {values[bad[0]].as_py()!r}; expected {rule}; "
            f"correct the manifest ({len(bad)} such entries)"
        )
    if pc.count_distinct(values).as_py() < len(values):
        occurrences = pc.value_counts(values)
        twice = occurrences.filter(pc.greater(occurrences.field("counts"), 1))
        raise LayoutError(
            f"{where} holds {twice[0]['values'].as_py()!r} {twice[0]['counts'].as_py()} times; "
            f"expected each once; correct the manifest ({len(twice)} such entries)"
        )


def _is_count(value: Any) -> bool:
    # bool is an int to Python, not to a reader of manifests.
    return type(value) is int and 0 <= value < 2**63


def _count(value: Any, where: str) -> int:
    if not _is_count(value):
        raise LayoutError(f"{where} is {value!r}; expected a whole number of samples, 0 or more")
    return int(value)


def _counts(
    content: dict[str, Any], *, path: str, num_tars: int, total: int
) -> pa.Int64Array | None:
    if content.get("data_list_key_count") is None:
        if content.get("chunk_size") is None:
            return None
        chunk = _count(content["chunk_size"], f"{path}: chunk_size")
        # Python's integers: num_tars * chunk may pass 2**63.
        full, rest = divmod(total, chunk) if chunk else (0, 0)
        counts = np.zeros(num_tars, np.int64)
        counts[:full] = chunk
        counts[full : full + 1] = rest
        return pa.array(counts)
    values = _list(content, "data_list_key_count", path)
    if len(values) != num_tars:
        raise LayoutError(
            f"{path}: {num_tars} tars in data_list and {len(values)} counts in "
            "data_list_key_count; expected as many; correct the manifest"
        )
    for position, value in enumerate(values):
        if not _is_count(value):
            _count(value, f"{path}: data_list_key_count[{position}]")
    return pa.array(values, pa.int64())
