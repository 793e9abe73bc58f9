"""The contract of the author's SQL: one SELECT, whatever stands in it, with names bound and never pasted."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from airflow_safe_ops import SqlCheck, WholeTable
from tests.contract.harness import D1, D2, SALES_SQL, sale

if TYPE_CHECKING:
    from tests.contract.harness import Warehouse

PAIR = {"n": "int", "v": "text"}


class QueryContract:
    """What the query says is what arrives."""

    def whole(self, warehouse: Warehouse, sql: str, **options: Any) -> list[tuple[Any, ...]]:
        """The rows of a whole-table load of (n, v), run twice."""
        warehouse.create("raw_pairs", PAIR, [(1, "100%"), (2, "a_b"), (3, "a:b"), (4, None)])
        warehouse.create("pairs", PAIR)
        warehouse.load_twice(table="pairs", partition=WholeTable(), sql=sql, **options)
        return warehouse.rows("pairs")

    @pytest.mark.parametrize("parameters", [None, {"least": 0}])
    def test_a_percent_sign(self, warehouse: Warehouse, parameters: dict[str, Any] | None) -> None:
        sql = "SELECT n, v FROM raw_pairs WHERE v LIKE '%\\%' ESCAPE '\\' AND n % 2 = 1 AND v <> '%s %(x)s %%'"
        sql += " AND n > :least" if parameters else ""
        assert self.whole(warehouse, sql, parameters=parameters) == [(1, "100%")]

    def test_a_percent_sign_beside_bounds(self, warehouse: Warehouse) -> None:
        warehouse.sales([sale(D1, 1, "1"), sale(D1, 2, "2")])
        warehouse.load_twice(sql=f"{SALES_SQL} AND CAST(id AS text) LIKE '%1%' AND id % 2 = 1")
        assert warehouse.rows("sales") == [sale(D1, 1, "1")]

    @pytest.mark.parametrize(
        "tail", [";", " ;\n", " -- all of it", " -- it's :all; of it\n;", " /* :x */ ;; ", "\n\n", " -- 100%"]
    )
    def test_a_tail_does_no_harm(self, warehouse: Warehouse, tail: str) -> None:
        """
        Splitters dropped the last statement, kept its semicolon or broke at one in a literal
        (apache/airflow#25713, apache/airflow#34828, apache/airflow#17329).
        """
        assert self.whole(warehouse, f"SELECT n, v FROM raw_pairs WHERE v <> ';' AND n = 1{tail}") == [(1, "100%")]

    @pytest.mark.parametrize(
        "sql",
        [
            "SELECT 1 AS n, ':x; ''%' AS v",
            "SELECT 1 AS n, ':x' || '; ''%' AS v -- :nobody",
            "/* :nobody */ WITH one AS (SELECT 1 AS n) SELECT n, ':x; ''%' AS v FROM one",
            "(SELECT 1 AS n, ':x; ''%' AS v)",
            "SELECT 1 AS n, 'no' AS v WHERE 1 = 2 UNION ALL SELECT 1, ':x; ''%'",
        ],
    )
    def test_what_looks_like_a_name_in_literals_and_comments(self, warehouse: Warehouse, sql: str) -> None:
        assert self.whole(warehouse, sql) == [(1, ":x; '%")]

    @pytest.mark.parametrize(
        ("given", "column"),
        [
            (7, "int"),
            (2**40, "bigint"),
            (Decimal("1.50"), "numeric"),
            (0.1, "float"),
            (True, "bool"),
            (D1, "date"),
            ("O'Hara \\ %s :x \"", "text"),
            ("", "text"),
            (None, "text"),
        ],
    )
    def test_a_parameter_arrives_as_it_is(self, warehouse: Warehouse, given: Any, column: str) -> None:
        """A parameter never becomes text of the statement (apache/airflow#17695: the wrong placeholder style)."""
        warehouse.create("values_of", {"id": "int", "v": column})
        sql_type = warehouse.types.get(column, column)
        warehouse.load_twice(
            table="values_of",
            partition=WholeTable(),
            sql=f"SELECT 1 AS id, CAST(:given AS {sql_type}) AS v",
            parameters={"given": given},
        )
        assert warehouse.rows("values_of", "v") == [(given,)]

    def test_a_name_used_twice_and_one_not_used(self, warehouse: Warehouse) -> None:
        sql = "SELECT n, v FROM raw_pairs WHERE n = :n AND n = :n"
        assert self.whole(warehouse, sql, parameters={"n": 1, "spare": "x"}) == [(1, "100%")]

    def test_the_bounds_are_typed(self, warehouse: Warehouse) -> None:
        warehouse.sales([sale(D1, 1, "1")])
        sql = SALES_SQL.replace("raw_sales WHERE", "raw_sales WHERE :partition_end - :partition_start = 1 AND")
        warehouse.load_twice(sql=sql)
        assert warehouse.rows("sales") == [sale(D1, 1, "1")]

    def test_checks_may_use_the_names(self, warehouse: Warehouse) -> None:
        warehouse.sales([sale(D1, 1, "1")])
        check = SqlCheck("SELECT min(day) = :partition_start AND max(id) < :most FROM {relation} WHERE '%' <> ':x'")
        warehouse.load_twice(audits=[check], post_checks=[check], parameters={"most": 5})

    def test_values_are_cast_once_as_an_insert_casts_them(self, warehouse: Warehouse) -> None:
        """What the key and the guard saw is what is stored: a value is not rounded after it was checked."""
        warehouse.create("amounts", {"day": "date", "id": "int", "amount": "numeric(10, 2)"})
        sql = "SELECT :partition_start AS day, 1 AS id, 0.125 AS amount"
        first, second = warehouse.load_twice(table="amounts", sql=sql)
        assert warehouse.rows("amounts") == [(D1, 1, Decimal("0.13"))]
        merged = warehouse.load(table="amounts", sql=sql, strategy="merge", unique_key=["id"])
        assert (second["changed"], merged["rows_updated"], first["rows_after"]) == (False, 0, 1)

    def test_a_query_that_reads_its_target(self, warehouse: Warehouse) -> None:
        """It reads the target as it was before the load."""
        warehouse.sales([sale(D1, 1, "1")], held=[sale(D2, 5, "5")])
        sql = SALES_SQL.replace("amount FROM", "(SELECT count(*) FROM sales) AS amount FROM")
        warehouse.load(sql=sql)
        assert warehouse.rows("sales", "amount", "WHERE id = 1") == [(1,)]

    # --- what is not one SELECT ------------------------------------------------------------------------------

    @pytest.mark.parametrize(
        "sql",
        [
            "",
            "-- nothing",
            ";",
            "INSERT INTO sales SELECT * FROM raw_sales",
            "UPDATE sales SET amount = 0",
            "DELETE FROM sales",
            "TRUNCATE TABLE sales",
            "DROP TABLE sales",
            "CREATE TABLE other AS SELECT 1 AS x",
            "MERGE INTO sales USING raw_sales ON false WHEN NOT MATCHED THEN INSERT VALUES (NULL, 1, 1)",
            "BEGIN; INSERT INTO sales SELECT * FROM raw_sales; COMMIT",
            "SELECT day, id, amount FROM raw_sales; DELETE FROM sales",
            "DELETE FROM sales; SELECT day, id, amount FROM raw_sales",
            "SELECT day, id, amount FROM raw_sales; SELECT 1",
            "COMMIT",
            "EXPLAIN SELECT 1",
            "SET x = 1",
            "GRANT SELECT ON sales TO PUBLIC",
        ],
    )
    def test_what_is_not_one_select_is_refused(self, warehouse: Warehouse, sql: str) -> None:
        """
        Users' own BEGIN and COMMIT, or several statements, were sent as they came (apache/airflow#65040,
        apache/airflow#48233, apache/airflow#30236): the operator owns the transaction.
        """
        warehouse.sales([sale(D1, 1, "1")], held=[sale(D2, 2, "2")])
        warehouse.refused("SO-209", sql=sql)

    @pytest.mark.parametrize("name", ["nobody", "partition_begin", "region"])
    def test_an_unknown_name_is_refused(self, warehouse: Warehouse, name: str) -> None:
        warehouse.sales([sale(D1, 1, "1")])
        error = warehouse.refused("SO-210", sql=f"{SALES_SQL} AND id = :{name}")
        assert error.facts["name"] == name

    def test_a_parameter_with_the_name_of_a_bound_is_refused(self, warehouse: Warehouse) -> None:
        warehouse.sales([sale(D1, 1, "1")])
        warehouse.refused("SO-201", parameters={"partition_start": date(2020, 1, 1)})

    def test_sql_that_the_database_does_not_know_is_refused(self, warehouse: Warehouse) -> None:
        warehouse.sales([sale(D1, 1, "1")])
        warehouse.refused("SO-212", sql=SALES_SQL.replace("raw_sales", "no_such_table"))
