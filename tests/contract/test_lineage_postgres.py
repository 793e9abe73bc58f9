"""What OpenLineage hears of a load, by its real provider."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from airflow.providers.openlineage.extractors.base import DefaultExtractor
from openlineage.client.serde import Serde

from airflow_safe_ops.definition.checks import NoDuplicates, RowCount, SqlCheck
from tests.contract.harness import D1, SALES_SQL, run, sale

if TYPE_CHECKING:
    from airflow_safe_ops import IdempotentLoadOperator
    from tests.contract.postgres import PostgresWarehouse


def at_start(operator: IdempotentLoadOperator) -> Any:
    return DefaultExtractor(operator).extract()


def at_end(operator: IdempotentLoadOperator) -> Any:
    return DefaultExtractor(operator).extract_on_complete(SimpleNamespace(task_id="load"))


def names(datasets: list[Any]) -> list[str]:
    return sorted(dataset.name.partition(".")[2] for dataset in datasets)


def as_sent(dataset: Any) -> Any:
    return json.loads(Serde.to_json(dataset))


def test_what_is_read_and_what_is_written(postgres: PostgresWarehouse) -> None:
    postgres.sales([sale(D1, 1, "1"), sale(D1, 2, "2")])
    operator = postgres.operator(sql=f"{SALES_SQL} AND id <> :not_this", parameters={"not_this": 7})
    start = at_start(operator)
    assert (names(start.inputs), names(start.outputs)) == (["public.raw_sales"], ["public.sales"])
    assert start.inputs[0].namespace == start.outputs[0].namespace
    assert "outputStatistics" not in as_sent(start.outputs[0])["outputFacets"]

    operator.execute(run(D1))
    end = at_end(operator)
    assert (names(end.inputs), names(end.outputs)) == (["public.raw_sales"], ["public.sales"])
    assert as_sent(end.outputs[0])["outputFacets"]["outputStatistics"]["rowCount"] == 2
    fields = [field["name"] for field in as_sent(end.outputs[0])["facets"]["schema"]["fields"]]
    assert fields == ["day", "id", "amount"]


@pytest.mark.parametrize(
    ("sql", "read"),
    [
        ("SELECT day, id, amount FROM (SELECT * FROM raw_sales) AS q", ["public.raw_sales"]),
        (f"{SALES_SQL} AND id IN (SELECT id FROM s2.more); -- done", ["public.raw_sales", "s2.more"]),
        ("SELECT day, id, amount FROM raw_sales WHERE day >= :partition_start::date", ["public.raw_sales"]),
        ("SELECT :partition_start AS day, 1 AS id, 2 AS amount", []),
    ],
)
def test_the_inputs_are_those_of_the_query(postgres: PostgresWarehouse, sql: str, read: list[str]) -> None:
    postgres.sales()
    postgres.create(postgres.in_schema("s2", "more"), {"id": "int"})
    lineage = at_start(postgres.operator(sql=sql))
    assert (names(lineage.inputs), names(lineage.outputs)) == (read, ["public.sales"])


def test_the_sql_is_sent_without_its_values(postgres: PostgresWarehouse) -> None:
    postgres.sales()
    operator = postgres.operator(sql=f"{SALES_SQL} AND id <> :not_this", parameters={"not_this": "hush"})
    query = at_start(operator).job_facets["sql"].query
    assert ":not_this" in query
    assert "hush" not in query


def test_the_rows_are_those_of_all_partitions(postgres: PostgresWarehouse) -> None:
    from airflow_safe_ops import TimePartition

    postgres.sales([sale(D1, n, "1") for n in range(3)])
    operator = postgres.operator(partition=TimePartition("day", lookback=1))
    operator.execute(run(D1))
    assert at_end(operator).outputs[0].outputFacets["outputStatistics"].rowCount == 3


def test_a_view_is_the_table_behind_it_once_that_is_known(postgres: PostgresWarehouse) -> None:
    postgres.sales([sale(D1, 1, "1")])
    postgres.execute("CREATE VIEW front AS SELECT * FROM sales")
    operator = postgres.operator(table="front")
    operator.execute(run(D1))
    assert names(at_end(operator).outputs) == ["public.sales"]


def test_checks_that_passed_are_assertions(postgres: PostgresWarehouse) -> None:
    postgres.sales([sale(D1, 1, "1")])
    operator = postgres.operator(
        audits=[RowCount(max=5)], post_checks=[NoDuplicates("id"), SqlCheck("SELECT true FROM {relation} LIMIT 1")]
    )
    assert "dataQualityAssertions" not in at_start(operator).outputs[0].facets
    operator.execute(run(D1))
    sent = as_sent(at_end(operator).outputs[0])["facets"]["dataQualityAssertions"]["assertions"]
    assert [(a["assertion"], a["success"], a.get("column")) for a in sent] == [
        ("RowCount(): at most 5", True, None),
        ("NoDuplicates(id): 0 keys that stand more than once", True, "id"),
        ("SqlCheck(SELECT true FROM {relation} LIMIT 1): true", True, None),
    ]


def test_a_load_that_failed_claims_no_rows(postgres: PostgresWarehouse) -> None:
    postgres.sales([sale(D1, 1, "1")])
    operator = postgres.operator(audits=[RowCount(min=5)])
    with pytest.raises(Exception, match="SO-109"):
        operator.execute(run(D1))
    (output,) = at_end(operator).outputs
    assert output.outputFacets == {}
    assert "dataQualityAssertions" not in output.facets


def test_odd_names(postgres: PostgresWarehouse) -> None:
    table = postgres.in_schema("Sch ema", "Täble x")
    postgres.sales([sale(D1, 1, "1")])
    postgres.create(table, {"day": "date", "id": "int", "amount": "numeric"})
    operator = postgres.operator(table=table)
    start = names(at_start(operator).outputs)
    operator.execute(run(D1))
    assert names(at_end(operator).outputs) == start == ["Sch ema.Täble x"]
