"""A file that names sources and the data sets made of them -> plain values; TOML or YAML."""

import io
import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from daft_twinwds.errors import LayoutError, MissingDependencyError, StorageError
from daft_twinwds.query import catalog_values as values
from daft_twinwds.query.catalog_values import Check, Place, choice, fields, name_of
from daft_twinwds.query.scan import IndexUse
from daft_twinwds.query.text import ExtraFields, OnError
from daft_twinwds.shards.align import OnMissing
from daft_twinwds.shards.samples import KeySplit
from daft_twinwds.shards.urls import is_url, scheme_of

__all__ = ["CatalogFile", "DatasetEntry", "PartEntry", "SourceEntry", "load_catalog_file"]

_SOURCE: Final[Mapping[str, Check]] = {
    "root": values.locations,
    "modalities": values.modalities,
    "where": values.where,
    "weight": values.weight,
    "on_missing": choice(OnMissing),
    "on_error": choice(OnError),
    "sample_keys": values.location,
    "key_split": choice(KeySplit),
    "schema": values.schema,
    "extra_fields": choice(ExtraFields),
    "include": values.texts,
    "exclude": values.texts,
    "aspect_ratios": values.text_list,
    "index": choice(IndexUse),
    "picture_info": values.flag,
    "batch_size": values.count,
}
_PART: Final[Mapping[str, Check]] = {
    "source": values.text,
    "where": values.where,
    "columns": values.text_list,
    "weight": values.weight,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceEntry:
    """One twin dataset."""

    name: str
    root: tuple[str, ...]
    """Absolute paths, patterns of such, or URLs."""
    modalities: tuple[str, ...] | Mapping[str, str] | None
    where: str | None
    """A condition in SQL."""
    options: Mapping[str, Any]
    """Other keywords of `read_twin_webdataset`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartEntry:
    """What a data set takes of a source."""

    source: str
    """Name of a source of the same file."""
    where: str | None
    """A condition in SQL, besides the source's own."""
    columns: tuple[str, ...] | None
    weight: float
    """Relative share of a mix: the part's, else its source's, else 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetEntry:
    """Several sources under one name."""

    name: str
    parts: tuple[PartEntry, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogFile:
    """What a file names, in its order; no name is there twice."""

    sources: tuple[SourceEntry, ...]
    datasets: tuple[DatasetEntry, ...]


def load_catalog_file(path: str | os.PathLike[str]) -> CatalogFile:
    """Read a catalog file; nothing that it names is looked at.

    ::

        [sources.photos]
        root = "data/photos"                  # relative to the file
        modalities = ["image", "caption"]
        where = "caption.score > 5"
        weight = 3

        [sources.paintings]
        root = "s3://bucket/paintings"

        [datasets.art]
        sources = ["photos", {source = "paintings", where = "caption.prompt LIKE '%lake%'"}]

    A source has ``root`` (one or a list), ``modalities`` (a list, or column = folder), ``where``
    (SQL), ``weight``, ``schema`` (column = SQL type) and, as keywords of `read_twin_webdataset`,
    ``on_missing``, ``on_error``, ``sample_keys``, ``key_split``, ``extra_fields``, ``include``,
    ``exclude``, ``aspect_ratios``, ``index``, ``picture_info`` and ``batch_size``. A data set has
    ``sources``: names, or tables of ``source``, ``where``, ``columns`` and ``weight``.

    Args:
        path: A local ``.toml``, ``.yaml`` or ``.yml``; YAML needs the extra ``yaml``.

    Raises:
        LayoutError: It is no such file; names the file and the key, and never a value that could
            be a secret.
        MissingDependencyError: It is YAML, and PyYAML is not installed.
        StorageError: It cannot be read.
    """
    shown = os.fspath(path)
    if is_url(shown):
        raise LayoutError(
            f"{scheme_of(shown)}://...: a catalog on a server; expected a local file; copy it here"
        )
    file = Path(path).expanduser().absolute()
    place = Place(file=str(file))
    tables = fields(place, _parsed_file(file), {"sources": _as_is, "datasets": _as_is})
    sources = _named(place.at("sources"), tables.get("sources"))
    datasets = _named(place.at("datasets"), tables.get("datasets", {}))
    for name in datasets:
        if name in sources:
            raise (
                place.at("datasets")
                .at(name)
                .error("a source has this name as well; expected different names; rename one")
            )
    checked = {
        name: fields(place.at("sources").at(name), value, _SOURCE, required=["root"])
        for name, value in sources.items()
    }
    return CatalogFile(
        sources=tuple(_source(name, entry, file.parent) for name, entry in checked.items()),
        datasets=tuple(
            _dataset(place.at("datasets").at(name), name, value, checked, datasets)
            for name, value in datasets.items()
        ),
    )


def _as_is(_place: Place, value: object) -> object:
    return value


def _named(place: Place, value: object) -> dict[str, object]:
    """Return tables by name."""
    if not isinstance(value, dict) or (not value and place.key == "sources"):
        raise place.error("found no named tables; expected some, as [sources.NAME] with a root")
    return {name_of(place, name): entry for name, entry in value.items()}


def _source(name: str, entry: Mapping[str, Any], folder: Path) -> SourceEntry:
    options = {
        key: value
        for key, value in entry.items()
        if key not in ("root", "modalities", "where", "weight")
    }
    if "sample_keys" in options:
        options["sample_keys"] = _from(folder, options["sample_keys"])
    return SourceEntry(
        name=name,
        root=tuple(_from(folder, root) for root in entry["root"]),
        modalities=entry.get("modalities"),
        where=entry.get("where"),
        options=options,
    )


def _from(folder: Path, path: str) -> str:
    """Return a path relative to the file's folder as an absolute one."""
    if scheme_of(path) is not None:
        return path
    return str(folder / Path(path).expanduser())


def _dataset(
    place: Place,
    name: str,
    value: object,
    sources: Mapping[str, Mapping[str, Any]],
    datasets: Mapping[str, object],
) -> DatasetEntry:
    place_of_parts = place.at("sources")
    items = fields(place, value, {"sources": _as_is}, required=["sources"])["sources"]
    if not isinstance(items, list) or not items:
        raise place_of_parts.error("expected a list of the names of sources, or of tables of these")
    parts: dict[str, PartEntry] = {}
    for number, item in enumerate(items):
        where = place_of_parts.item(number)
        entry = {"source": item} if isinstance(item, str) else item
        part = _part(where, fields(where, entry, _PART, required=["source"]), sources, datasets)
        if part.source in parts:
            raise where.error(
                f"source {part.source!r} is in the list twice; expected each once; give the second "
                "a name of its own under [sources]"
            )
        parts[part.source] = part
    return DatasetEntry(name=name, parts=tuple(parts.values()))


def _part(
    place: Place,
    entry: Mapping[str, Any],
    sources: Mapping[str, Mapping[str, Any]],
    datasets: Mapping[str, object],
) -> PartEntry:
    source = entry["source"]
    if source in datasets:
        raise place.error(
            f"{source!r} is a data set; expected sources, as data sets are not made of data sets; "
            "list its sources"
        )
    if source not in sources:
        raise place.error(f"no source {source!r}; expected one of {[*sources]}")
    return PartEntry(
        source=source,
        where=entry.get("where"),
        columns=entry.get("columns"),
        weight=entry.get("weight", sources[source].get("weight", 1)),
    )


def _parsed_file(file: Path) -> object:
    parsers = {".toml": _parsed_toml, ".yaml": _parsed_yaml, ".yml": _parsed_yaml}
    parse = parsers.get(file.suffix.lower())
    if parse is None:
        raise LayoutError(f"{file}: no catalog by its name; expected .toml, .yaml or .yml")
    try:
        content = file.read_bytes().decode()
    except OSError as error:
        raise StorageError(f"{file}: cannot be read ({error.strerror})") from error
    except UnicodeDecodeError as error:
        raise LayoutError(f"{file}: byte {error.start} is no UTF-8; expected text") from error
    return parse(file, content)


def _parsed_toml(file: Path, content: str) -> object:
    try:
        return tomllib.loads(content)
    except RecursionError as error:
        raise LayoutError(f"{file}: no TOML (nested too deeply); mend the file") from error
    except ValueError as error:
        raise LayoutError(f"{file}: no TOML ({error}); mend the file") from error


def _parsed_yaml(file: Path, content: str) -> object:
    try:
        yaml: Any = import_module("yaml")
    except ModuleNotFoundError as error:
        raise MissingDependencyError(
            f"{file}: reading YAML needs PyYAML; pip install 'daft-twinwds[yaml]', or write TOML"
        ) from error

    class Loader(yaml.SafeLoader):  # type: ignore[misc]  # PyYAML brings no types
        """Refuses what YAML lets pass: of a key that is there twice, only the last would count."""

        def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
            # What only claims to be a mapping is refused by PyYAML itself, below.
            pairs = node.value if isinstance(node, yaml.MappingNode) else ()
            names = [key.value for key, _ in pairs if isinstance(key, yaml.ScalarNode)]
            if len(set(names)) < len(names):
                raise yaml.constructor.ConstructorError(
                    None, None, "a key is there twice", node.start_mark
                )
            found: dict[Any, Any] = super().construct_mapping(node, deep=deep)
            return found

    try:
        # From a stream: of a text PyYAML would quote the line that is wrong, secrets included.
        return yaml.load(io.StringIO(content), Loader)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        line = "" if mark is None else f" at line {mark.line + 1}"
        reason = getattr(error, "problem", None) or "something that YAML cannot hold"
        raise LayoutError(f"{file}: no YAML ({reason}{line}); mend the file") from error
