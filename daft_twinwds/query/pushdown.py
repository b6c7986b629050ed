"""Daft's pushdowns -> what is asked of each shard."""

from collections.abc import Mapping

import daft
from daft.expressions import Expression
from daft.io.pushdowns import Pushdowns

from daft_twinwds.query.predicates import needed_fields
from daft_twinwds.query.scan import IndexUse, Policy, Scan
from daft_twinwds.query.schema import Column, InfoColumn

__all__ = ["plan_scan"]


def plan_scan(  # noqa: PLR0913  # it is where everything that makes a scan comes together
    pushdowns: Pushdowns,
    *,
    columns: tuple[Column, ...],
    infos: tuple[InfoColumn, ...],
    dtypes: Mapping[str, daft.DataType],
    where: Expression | None,
    policy: Policy,
    batch_size: int,
    index: IndexUse,
) -> Scan:
    """Return what a query needs of each shard.

    Daft applies a pushed filter again to what a task returns, so the filter's columns have to be
    in it although the query may not select them. A limit counts rows after the filter, so it may
    be applied because the filter is.

    Args:
        pushdowns: What Daft asks for.
        columns: All modalities.
        infos: What can be told of their pictures.
        dtypes: All columns of the source.
        where: The source's own filter, which Daft knows nothing of.
        policy: Which members make a row.
        batch_size: Rows per record batch.
        index: What to do with an index.
    """
    pushed = pushdowns.filters
    whole = frozenset(dtypes if pushdowns.columns is None else pushdowns.columns)
    predicate = pushed if where is None else where if pushed is None else where & pushed
    return Scan(
        columns=columns,
        infos=infos,
        wanted=whole if pushed is None else whole | needed_fields(pushed, dtypes).keys(),
        whole=whole,
        predicate=predicate,
        filter_fields={} if predicate is None else needed_fields(predicate, dtypes),
        limit=pushdowns.limit,
        policy=policy,
        batch_size=batch_size,
        index=index,
    )
