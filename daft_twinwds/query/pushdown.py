"""Daft's pushdowns -> what is asked of each shard."""

from collections.abc import Mapping

import daft
from daft.expressions import Expression
from daft.io.pushdowns import Pushdowns

from daft_twinwds.query._daft import required_columns
from daft_twinwds.query.scan import Policy, Scan
from daft_twinwds.query.schema import Column

__all__ = ["plan_scan"]


def plan_scan(
    pushdowns: Pushdowns,
    *,
    columns: tuple[Column, ...],
    dtypes: Mapping[str, daft.DataType],
    where: Expression | None,
    policy: Policy,
    batch_size: int,
) -> Scan:
    """Return what a query needs of each shard.

    Daft applies a pushed filter again to what a task returns, so the filter's columns have to be
    in it although the query may not select them. A limit counts rows after the filter, so it may
    be applied because the filter is.

    Args:
        pushdowns: What Daft asks for.
        columns: All modalities.
        dtypes: All columns of the source.
        where: The source's own filter, which Daft knows nothing of.
        policy: Which members make a row.
        batch_size: Rows per record batch.
    """
    pushed = pushdowns.filters
    needed_above = frozenset(dtypes if pushdowns.columns is None else pushdowns.columns)
    if pushed is not None:
        needed_above |= required_columns(pushed, dtypes)
    predicate = pushed if where is None else where if pushed is None else where & pushed
    filter_columns: frozenset[str] = frozenset()
    if predicate is not None:
        filter_columns = required_columns(predicate, dtypes)
    return Scan(
        columns=columns,
        wanted=needed_above,
        predicate=predicate,
        filter_columns=filter_columns,
        limit=pushdowns.limit,
        policy=policy,
        batch_size=batch_size,
    )
