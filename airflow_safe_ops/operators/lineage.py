"""OpenLineage: what a load reads, as its SQL says; what it leaves in its target, as the load counted."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from airflow_safe_ops.definition.checks import Aggregate, Check
from airflow_safe_ops.errors import SafeOpsError
from airflow_safe_ops.execution.result import LoadResult
from airflow_safe_ops.sql.postgres_catalog import split_name
from airflow_safe_ops.sql.text import quoted


def with_target(lineage: Any, hook: Any, written: str, result: LoadResult | None, checks: Iterable[Check]) -> Any:
    """
    The lineage of the author's SQL, with the load's target as its one output.

    :param lineage: what the SQL alone gives; None without the OpenLineage provider, and then nothing is added.
    :param hook: the target's hook.
    :param written: the target as the author writes it; used until ``result`` knows which table it is.
    :param result: what the load did, if it did it: rows left in its partitions, and checks that passed.
    """
    if lineage is None:
        return None
    target = _target(hook, result.target if result else _as_sql(written))
    if target is not None:
        lineage.outputs = [_described(target, result, list(checks))]
    return lineage


def _as_sql(written: str) -> str:
    try:
        return ".".join(quoted(part) for part in split_name(written))
    except SafeOpsError:
        return written


def _target(hook: Any, name: str) -> Any:
    """The target as a dataset, named and described as OpenLineage's own parser does it for every other operator."""
    from airflow.providers.openlineage.sqlparser import SQLParser
    from airflow.providers.openlineage.utils.utils import should_use_external_connection

    connection = hook.get_connection(getattr(hook, hook.conn_name_attr))
    database = hook.get_openlineage_database_info(connection)
    if database is None:
        return None
    parser = SQLParser(
        dialect=hook.get_openlineage_database_dialect(connection),
        default_schema=hook.get_openlineage_default_schema(),
    )
    found = parser.generate_openlineage_metadata_from_sql(
        sql=f"INSERT INTO {name} SELECT 1",
        hook=hook,
        database_info=database,
        sqlalchemy_engine=hook.get_sqlalchemy_engine(),
        use_connection=should_use_external_connection(hook),
    )
    return found.outputs[0] if found.outputs else None


def _described(target: Any, result: LoadResult | None, checks: Sequence[Check]) -> Any:
    from airflow.providers.common.compat.openlineage.facet import OutputDataset, OutputStatisticsOutputDatasetFacet

    facets: dict[str, Any] = dict(target.facets or {})
    statistics: dict[str, Any] = {}
    if result is not None:
        rows = sum(partition.rows_after for partition in result.partitions)
        statistics["outputStatistics"] = OutputStatisticsOutputDatasetFacet(rowCount=rows)
        if checks:
            facets["dataQualityAssertions"] = _passed(checks)
    return OutputDataset(namespace=target.namespace, name=target.name, facets=facets, outputFacets=statistics)


def _passed(checks: Sequence[Check]) -> Any:
    """A load that was published passed all of its checks."""
    from openlineage.client.facet_v2 import data_quality_assertions_dataset as quality

    return quality.DataQualityAssertionsDatasetFacet(
        assertions=[
            quality.Assertion(assertion=f"{check.name}: {check.required}", success=True, column=_column(check))
            for check in checks
        ]
    )


def _column(check: Check) -> str | None:
    columns = check.columns if isinstance(check, Aggregate) else ()
    return columns[0] if len(columns) == 1 else None
