"""What a DataFrame's columns become in tars: folder, form and suffix of each."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Final, Literal

import daft
from daft.datatype import MediaType
from daft.schema import Schema

from daft_twinwds.query.json_types import MAX_DEPTH
from daft_twinwds.query.schema import CAPTION, KEY, URL, kind_of, media_of, suffixes_of
from daft_twinwds.shards.manifest import MANIFEST_NAME
from daft_twinwds.shards.modalities import requested_columns

__all__ = ["SUFFIX", "Form", "OutColumn", "chosen_modalities", "out_columns"]

Form = Literal["file", "bytes", "text", "integer", "json", "picture", "array"]
"""How a value becomes a member: copied by range, as it is, in UTF-8, in digits, encoded."""

SUFFIX: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,31}")

PICTURE_SUFFIXES: Final = ("png", "jpg", "jpeg")
_DEFAULT: Final[Mapping[Form, str | None]] = {
    "file": None,
    "bytes": None,
    "text": "txt",
    "integer": "cls",
    "json": "json",
    "picture": "png",
    "array": "npy",
}
_INFO: Final = ("width", "height", "format")


@dataclass(frozen=True, slots=True, kw_only=True)
class OutColumn:
    """One column and the modality that it becomes."""

    name: str
    folder: str
    form: Form
    suffix: str | None
    """Of all members; None where each one's bytes or name tell."""


def chosen_modalities(
    modalities: Sequence[str] | Mapping[str, str] | None, schema: Schema, *, key: str
) -> dict[str, str]:
    """Return column -> folder.

    Args:
        modalities: What the caller gave, see `write_twin_webdataset`.
        schema: Of the DataFrame.
        key: Column of the keys.

    Raises:
        LayoutError: Two folders would be one column, or a reserved one, to readers.
        TypeError, ValueError: A column is not there, or a folder's name is none.
    """
    dtypes = {field.name: field.dtype for field in schema}
    if key not in dtypes:
        raise ValueError(f"key: no column {key!r}; the columns are {list(dtypes)}")
    if not dtypes[key].is_string():
        raise ValueError(f"key: column {key!r} holds {dtypes[key]}; cast it to a string")
    if modalities is None:
        left_out = {key, KEY, URL} | _info_columns(dtypes)
        modalities = [name for name in dtypes if name not in left_out]
        if not modalities:
            raise ValueError(f"no column beside {sorted(left_out)} is there to be written")
    elif isinstance(modalities, str):
        raise TypeError(f"modalities must be a list or a mapping, got the string {modalities!r}")
    elif not isinstance(modalities, Sequence | Mapping):
        raise TypeError(f"modalities must be a list or a mapping, got {modalities!r}")
    chosen = (
        dict(modalities) if isinstance(modalities, Mapping) else {name: name for name in modalities}
    )
    for name in chosen:
        if name not in dtypes:
            raise ValueError(f"modalities: no column {name!r}; the columns are {list(dtypes)}")
    folders = list(chosen.values())
    requested_columns(folders)
    for name, folder in chosen.items():
        _check_folder(name, folder)
    _check_apart(folders)
    return chosen


def out_columns(
    chosen: Mapping[str, str], suffixes: Mapping[str, object], schema: Schema
) -> tuple[OutColumn, ...]:
    """Return how columns are written.

    Args:
        chosen: Column -> folder.
        suffixes: Column -> suffix, for those where the caller gave it.
        schema: Of the DataFrame.

    Raises:
        TypeError: ``suffixes`` is no mapping.
        ValueError: A type cannot be written, or not with that suffix.
    """
    if not isinstance(suffixes, Mapping):
        raise TypeError(f"suffixes must be a mapping of column to suffix, got {suffixes!r}")
    given: dict[str, str] = {}
    for name, suffix in suffixes.items():
        if name not in chosen:
            raise ValueError(f"suffixes: {name!r} is none of the columns {list(chosen)}")
        if not isinstance(suffix, str) or not SUFFIX.fullmatch(suffix):
            raise ValueError(
                f"suffixes[{name!r}] must be lower-case letters and digits such as 'jpg', without "
                f"a dot, got {suffix!r}"
            )
        given[name] = suffix
    return tuple(
        _out_column(name, folder, schema[name].dtype, given.get(name))
        for name, folder in chosen.items()
    )


def _out_column(name: str, folder: str, dtype: daft.DataType, suffix: str | None) -> OutColumn:
    form = _form_of(name, dtype)
    if form == "array" and suffix in PICTURE_SUFFIXES:
        form = "picture"
    fitting = _fitting(form)
    if suffix is not None and fitting is not None and suffix not in fitting:
        raise ValueError(
            f"suffixes[{name!r}]: a column of {dtype} is written as .{', .'.join(fitting)}, so that "
            f"reading gives it back; got {suffix!r}; convert the column for another kind of file"
        )
    suffix = suffix or _DEFAULT[form]
    if (
        form == "text"
        and suffix
        and (kind_of(suffix) == "integer" or media_of(suffix) != "unknown")
    ):
        raise ValueError(
            f"suffixes[{name!r}]: a column of {dtype} cannot be written as .{suffix}, which no "
            "reader would take for text; use 'txt', 'json' or a suffix of your own"
        )
    is_parsed = form in ("json", "integer") and suffix == "json"
    if folder == CAPTION and is_parsed and not dtype.is_struct():
        raise ValueError(
            f"{name}: {dtype} cannot be written into the folder {CAPTION!r}, whose JSON documents "
            "have the fields prompt, prompt_medium and prompt_short; write a struct or a string, "
            f"or another folder by modalities={{{name!r}: ...}}"
        )
    return OutColumn(name=name, folder=folder, form=form, suffix=suffix)


def _form_of(name: str, dtype: daft.DataType) -> Form:
    if dtype.is_file():
        return "file"
    if dtype.is_binary() or dtype.is_fixed_size_binary():
        return "bytes"
    if dtype.is_string():
        return "text"
    if dtype.is_integer():
        return "integer"
    if dtype.is_image() or dtype.is_fixed_shape_image():
        return "picture"
    if dtype.is_tensor() or dtype.is_fixed_shape_tensor():
        return "array"
    if _is_json(dtype, MAX_DEPTH) and not dtype.is_null():
        return "json"
    raise ValueError(
        f"{name}: a column of {dtype} cannot be written so that reading gives it back; expected "
        "files, bytes, strings, numbers, booleans, pictures, tensors, and lists and structs (with "
        "fields) of strings, numbers and booleans; cast it, or leave it out by modalities="
    )


def _fitting(form: Form) -> tuple[str, ...] | None:
    """Suffixes that a form can have; None for any."""
    if form == "integer":
        return tuple(sorted({*suffixes_of("integer"), "json"}))
    if form == "json":
        return ("json",)
    if form == "picture":
        return PICTURE_SUFFIXES
    return ("npy", *PICTURE_SUFFIXES) if form == "array" else None


def _is_json(dtype: daft.DataType, levels: int) -> bool:
    if not levels:
        return False
    if dtype.is_struct():
        fields = dtype.fields.values()
        return bool(fields) and all(_is_json(field, levels - 1) for field in fields)
    if dtype.is_list() or dtype.is_fixed_size_list() or dtype.is_embedding():
        return _is_json(dtype.dtype, levels - 1)
    is_float = dtype.is_float16() or dtype.is_float32() or dtype.is_float64()
    return is_float or any(
        (dtype.is_string(), dtype.is_integer(), dtype.is_boolean(), dtype.is_null())
    )


def _info_columns(dtypes: Mapping[str, daft.DataType]) -> set[str]:
    """Columns that ``picture_info=True`` has added: all three of a column of pictures, or none."""
    picture = daft.DataType.file(MediaType.image())
    found: set[str] = set()
    for name, dtype in dtypes.items():
        infos = {f"{name}_{what}" for what in _INFO}
        if dtype == picture and infos <= dtypes.keys():
            found |= infos
    return found


def _check_folder(name: str, folder: str) -> None:
    if folder.partition("/")[0].casefold() == MANIFEST_NAME:
        raise ValueError(
            f"{name}: cannot be written into the folder {folder!r}, as {MANIFEST_NAME} is the "
            f"manifest; expected another folder; give one by modalities={{{name!r}: ...}}"
        )


def _check_apart(folders: Iterable[str]) -> None:
    for one, other in combinations(sorted(folders), 2):
        first, second = one.casefold(), other.casefold()
        if first == second or second.startswith(f"{first}/"):
            raise ValueError(
                f"modalities: the folders {one!r} and {other!r} are one on some disks, or one lies "
                "in the other; expected folders side by side; give others as {column: folder}"
            )
