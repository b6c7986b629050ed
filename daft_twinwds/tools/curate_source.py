"""What is curated: the shards of a data set, how their rows are scanned, what makes runs alike."""

import hashlib
import json
import os
import pickle
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, TypeAlias

import daft
from daft.expressions import Expression

from daft_twinwds.query._daft import check_predicate
from daft_twinwds.query.index_use import settled_use
from daft_twinwds.query.infer import infer_columns
from daft_twinwds.query.io_options import AnyConfig, storage_options
from daft_twinwds.query.predicates import needed_fields
from daft_twinwds.query.scan import IndexUse, Policy, Scan
from daft_twinwds.query.schema import KEY, Column, InfoColumn, info_columns
from daft_twinwds.query.source import TwinWebDatasetSource
from daft_twinwds.query.sql_text import predicate_of
from daft_twinwds.shards.dataset import Dataset, Leaf
from daft_twinwds.shards.layout import find_dataset
from daft_twinwds.shards.manifest import is_relative_folder
from daft_twinwds.shards.modalities import has_own_root

__all__ = ["CurationSource", "find_source"]

_BATCH: int = 8192

PathLike: TypeAlias = str | os.PathLike[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class CurationSource:
    """A data set that is to be curated."""

    dataset: Dataset
    columns: tuple[Column, ...]
    infos: tuple[InfoColumn, ...]
    policy: Policy
    index: IndexUse
    where: Expression | None

    def picture(self, name: str | None) -> str:
        """Return the column of the pictures that are measured and compared.

        Args:
            name: What the caller gave.

        Raises:
            ValueError: There is no such column, or no telling which.
        """
        names = list(dict.fromkeys(info.column for info in self.infos))
        if not names:
            found = ", ".join(column.name for column in self.columns)
            raise ValueError(
                f"min_width, min_height, duplicates and picture need a column of pictures, and "
                f"there is none among {found}; expected one to measure and compare; add its folder "
                "to modalities, or leave these arguments out"
            )
        if name is None and len(names) == 1:
            return names[0]
        if name is None or name not in names:
            raise ValueError(
                f"picture must be one of the columns of pictures, {names}, got {name!r}"
            )
        return name

    def scan(self, infos: Sequence[str]) -> Scan:
        """Return what is asked of each shard: keys, and what is told of pictures."""
        wanted = frozenset({KEY, *infos})
        dtypes = self._dtypes()
        return Scan(
            columns=self.columns,
            infos=self.infos,
            wanted=wanted,
            whole=wanted,
            predicate=self.where,
            filter_fields={} if self.where is None else needed_fields(self.where, dtypes),
            limit=None,
            policy=self.policy,
            batch_size=_BATCH,
            index=self.index,
        )

    def folders(self) -> dict[str, str]:
        """Return column -> folder in the new data set.

        Raises:
            ValueError: Two columns would be one folder, or one's name can be no folder.
        """
        leaf = self.dataset.leaves[0]
        folders = {
            column: column if has_own_root(folder) else folder
            for column, folder in leaf.folders.items()
        }
        columns: dict[str, str] = {}
        for column, folder in folders.items():
            if not is_relative_folder(folder):
                raise ValueError(
                    f"modalities: column {column!r} has a root of its own, so that its name is its "
                    "folder in the new data set; expected a relative path, no part of which begins "
                    "with '.'; give it another name"
                )
            other = columns.setdefault(folder, column)
            if other != column:
                raise ValueError(
                    f"modalities: columns {other!r} and {column!r} would both be the folder "
                    f"{folder!r} of the new data set; expected a folder each; leave one out, or "
                    "give one that has a root of its own another name"
                )
        return folders

    def prefixes(self) -> list[str]:
        """Return where each leaf is in the new data set: empty, or ending with a slash.

        Raises:
            ValueError: The leaves have no folder in common.
        """
        parts = [leaf.root.split("/") for leaf in self.dataset.leaves]
        if len(parts) == 1:
            return [""]
        same = takewhile(lambda names: len(set(names)) == 1, zip(*parts, strict=False))
        num_common = len(list(same))
        below = ["/".join(part[num_common:]) for part in parts]
        if not num_common or not all(is_relative_folder(name) for name in below if name):
            roots = [leaf.root for leaf in self.dataset.leaves]
            raise ValueError(
                f"the leaves {roots[0]} and {roots[1]} have no folder in common that they could "
                "be placed below; curate them one by one"
            )
        return [f"{name}/" if name else "" for name in below]

    def facts(self) -> dict[str, Any]:
        """Return what must be equal for a run to go on with another's work."""
        return {
            "shards": _digest(part for leaf in self.dataset.leaves for part in _facts(leaf)),
            # Its text leaves out which field of a struct is meant.
            "where": None if self.where is None else _digest([pickle.dumps(self.where)]),
            "columns": {column.name: _nested(column.dtype) for column in self.columns},
            "schema": {c.name: str(c.dtype) for c in self.columns if c.declared},
            "on_missing": self.policy.on_missing,
            "on_error": self.policy.on_error,
            "extra_fields": self.policy.extra_fields,
            "key_split": self.policy.key_split,
        }

    def check(self) -> None:
        """Raise `SchemaError` unless the filter is a condition over the columns."""
        if self.where is not None:
            check_predicate(self.where, self._dtypes())

    def _dtypes(self) -> dict[str, daft.DataType]:
        source = TwinWebDatasetSource(
            dataset=self.dataset,
            columns=self.columns,
            infos=self.infos,
            where=None,
            policy=self.policy,
            shards=range(0),
            batch_size=_BATCH,
            index=self.index,
        )
        return source.dtypes()


def find_source(  # noqa: PLR0913  # what the public function was given
    path: PathLike | Sequence[PathLike],
    *,
    modalities: Sequence[str] | Mapping[str, str] | None,
    where: Expression | str | None,
    schema: Mapping[str, daft.DataType] | None,
    policy: Policy,
    index: IndexUse,
    include: str | Sequence[str] | None,
    exclude: str | Sequence[str] | None,
    aspect_ratios: Sequence[str] | None,
    io_config: AnyConfig | Mapping[str, AnyConfig] | None,
) -> CurationSource:
    """Find the data set and its columns; for the arguments see `curate`."""
    if isinstance(where, str):
        where = predicate_of(where)
    elif where is not None and not isinstance(where, Expression):
        raise TypeError(f"where must be SQL or a Daft expression as col('x') > 1, got {where!r}")
    dataset = find_dataset(
        path,
        modalities=modalities,
        include=include,
        exclude=exclude,
        aspect_ratios=aspect_ratios,
        on_missing=policy.on_missing,
        options=storage_options(io_config),
    )
    index = settled_use(dataset, index)
    columns = infer_columns(
        dataset,
        schema or {},
        key_split=policy.key_split,
        strict=policy.on_error == "raise",
        index=index,
    )
    source = CurationSource(
        dataset=dataset,
        columns=columns,
        infos=info_columns(columns),
        policy=policy,
        index=index,
        where=where,
    )
    source.check()
    return source


def _nested(dtype: daft.DataType) -> Any:
    """Return a type as text, of a struct as a mapping of its fields, for JSON."""
    if dtype.is_struct():
        return {name: _nested(inner) for name, inner in dtype.fields.items()}
    return str(dtype)


def _facts(leaf: Leaf) -> Iterator[bytes]:
    yield json.dumps([leaf.root, dict(leaf.folders)]).encode()
    yield "\n".join(leaf.names.to_pylist()).encode("utf-8", "surrogateescape")


def _digest(parts: Iterator[bytes] | Sequence[bytes]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "big"))
        digest.update(part)
    return digest.hexdigest()
