"""What a target may be on PostgreSQL: tables, views, partitioned tables; who points at it, what changes its rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from airflow_safe_ops import ValuePartition, WholeTable
from tests.contract.harness import D0, D1, D2, SALES_SQL, raised, run, sale

if TYPE_CHECKING:
    from tests.contract.postgres import PostgresWarehouse

MERGE: dict[str, Any] = {"strategy": "merge", "unique_key": ["id"]}
BOTH = pytest.mark.parametrize("options", [{}, MERGE], ids=["delete_insert", "merge"])


class TestTargets:
    """One table, whatever it is called; or a refusal."""

    @BOTH
    def test_a_view_on_one_table(self, postgres: PostgresWarehouse, options: dict[str, Any]) -> None:
        postgres.sales([sale(D1, 1, "1")])
        postgres.execute("CREATE VIEW v AS SELECT * FROM sales; CREATE VIEW vv AS SELECT id, amount, day FROM v")
        for table in ("vv", "public.v", "sales"):
            postgres.load_twice(**options, table=table)
        assert postgres.rows("sales") == [sale(D1, 1, "1")]
        assert len(postgres.partitions()) == 1
        assert postgres.ledger("target", "identity") == [('"public"."sales"',)]

    @pytest.mark.parametrize(
        "body",
        [
            "SELECT day, max(id) AS id, sum(amount) AS amount FROM sales GROUP BY day",
            "SELECT DISTINCT day, id, amount FROM sales",
            "SELECT s.day, s.id, s.amount FROM sales AS s JOIN raw_sales USING (id)",
            "SELECT day, id, amount FROM sales UNION ALL SELECT day, id, amount FROM raw_sales",
            "SELECT DATE '2026-01-02' AS day, 1 AS id, 1 AS amount",
        ],
    )
    def test_a_view_that_takes_no_rows(self, postgres: PostgresWarehouse, body: str) -> None:
        postgres.sales([sale(D1, 1, "1")])
        postgres.execute(f"CREATE VIEW v AS {body}")
        postgres.refused("SO-303", table="v")

    @pytest.mark.parametrize(
        "statement",
        [
            "CREATE MATERIALIZED VIEW other AS SELECT * FROM raw_sales",
            "CREATE SEQUENCE other",
            "CREATE TYPE other AS (day date, id int, amount numeric)",
            "CREATE INDEX other ON sales (id)",
        ],
    )
    def test_what_is_no_table(self, postgres: PostgresWarehouse, statement: str) -> None:
        postgres.sales([sale(D1, 1, "1")])
        postgres.execute(statement)
        postgres.refused("SO-303", table="other")

    def test_a_name_on_the_search_path_and_the_full_name_are_one(self, postgres: PostgresWarehouse) -> None:
        postgres.sales([sale(D1, 1, "1")])
        postgres.load(table="sales")
        assert postgres.load(table="public.sales")["changed"] is False
        assert len(postgres.partitions()) == 1

    def test_the_same_name_in_two_schemas_is_two(self, postgres: PostgresWarehouse) -> None:
        postgres.sales([sale(D1, 1, "1")])
        postgres.create(postgres.in_schema("other", "sales"), {"day": "date", "id": "int", "amount": "numeric"})
        postgres.load(table="other.sales")
        assert postgres.rows("sales") == []
        postgres.load()
        assert len(postgres.partitions()) == 2

    # --- physical partitions -------------------------------------------------------------------------------------

    def partitioned(self, postgres: PostgresWarehouse) -> None:
        """Sales by month, with a default partition."""
        postgres.sales([sale(D0, 1, "1"), sale(D1, 2, "2")])
        postgres.execute(
            "DROP TABLE sales; CREATE TABLE sales (day date, id int, amount numeric) PARTITION BY RANGE (day);"
            "CREATE TABLE sales_january PARTITION OF sales FOR VALUES FROM ('2026-01-01') TO ('2026-02-01');"
            "CREATE TABLE sales_rest PARTITION OF sales DEFAULT"
        )

    @BOTH
    def test_a_child_is_refused_and_its_table_named(self, postgres: PostgresWarehouse, options: dict[str, Any]) -> None:
        """What the ledger knew of one child would be taken for known of the others."""
        self.partitioned(postgres)
        postgres.load_twice(**options)
        assert "public.sales" in postgres.refused("SO-303", **options, table="sales_january").fix
        assert postgres.rows("sales") == [sale(D1, 2, "2")]

    @pytest.mark.parametrize(
        "body",
        [
            "SELECT * FROM sales WHERE id < 50",
            "SELECT day AS id, id AS day, amount FROM sales",
            "SELECT day, id, amount, amount * 2 AS twice FROM sales",
            "SELECT day, id, amount FROM (SELECT * FROM sales) AS s",
        ],
    )
    def test_a_view_that_shows_something_else_than_its_table(self, postgres: PostgresWarehouse, body: str) -> None:
        """A filter hides rows that no ledger knows; a renamed column could hide that two loads overlap."""
        postgres.sales([sale(D1, 60, "1")], held=[sale(D1, 99, "9")])
        postgres.execute(f"CREATE VIEW v AS {body}")
        postgres.refused("SO-303", table="v")
        postgres.execute("CREATE VIEW vv AS SELECT * FROM v")
        postgres.refused("SO-303", table="vv")

    def test_an_inheriting_table_is_a_part_of_its_parent(self, postgres: PostgresWarehouse) -> None:
        postgres.sales([sale(D1, 1, "1")])
        postgres.execute("CREATE TABLE sales_2026 () INHERITS (sales)")
        postgres.refused("SO-303", table="sales_2026")
        postgres.load_twice()
        assert postgres.rows("sales") == [sale(D1, 1, "1")]

    def test_a_table_with_two_parents_is_ambiguous(self, postgres: PostgresWarehouse) -> None:
        postgres.sales([sale(D1, 1, "1")])
        postgres.execute("CREATE TABLE both_of () INHERITS (sales, raw_sales)")
        postgres.refused("SO-304", table="both_of")

    def test_a_row_that_moves_to_another_child(self, postgres: PostgresWarehouse) -> None:
        postgres.create("raw_regions", {"region": "text", "id": "int", "v": "int"}, [("EU", 1, 1)])
        postgres.execute(
            "CREATE TABLE regions (region text, id int, v int) PARTITION BY LIST (v);"
            "CREATE TABLE regions_1 PARTITION OF regions FOR VALUES IN (1);"
            "CREATE TABLE regions_2 PARTITION OF regions FOR VALUES IN (2)"
        )
        options = {
            "table": "regions",
            "partition": ValuePartition(region="EU"),
            "sql": "SELECT region, id, v FROM raw_regions WHERE region = :region",
        }
        postgres.load_twice(**options, **MERGE)
        postgres.execute("UPDATE raw_regions SET v = 2")
        summary, _ = postgres.load_twice(**options, **MERGE)
        assert summary["rows_updated"] == 1
        assert postgres.rows("regions_2") == [("EU", 1, 2)]

    # --- unique keys of the table ---------------------------------------------------------------------------------

    def test_a_row_that_hits_two_unique_keys_deletes_none(self, postgres: PostgresWarehouse) -> None:
        """REPLACE deleted one row per unique index (dolthub/go-mysql-server#392)."""
        postgres.create("raw_users", {"id": "int", "email": "text"}, [(1, "a"), (2, "b")])
        postgres.execute("CREATE TABLE users (id int PRIMARY KEY, email text UNIQUE)")
        options = {**MERGE, "table": "users", "partition": WholeTable(), "sql": "SELECT id, email FROM raw_users"}
        postgres.load(**options)
        postgres.execute("DELETE FROM raw_users; INSERT INTO raw_users VALUES (1, 'b')")
        postgres.refused("SO-602", **options)
        assert postgres.rows("users") == [(1, "a"), (2, "b")]

    def test_an_upsert_in_the_server_s_own_words(self, postgres: PostgresWarehouse) -> None:
        """replace=True meant MySQL's syntax on every engine (apache/airflow#8625, #34860, #17938)."""
        postgres.sales([sale(D1, 1, "1")])
        postgres.execute("ALTER TABLE sales ADD PRIMARY KEY (id)")
        postgres.load(**MERGE)
        postgres.source(sale(D1, 1, "2"), sale(D1, 2, "3"))
        postgres.load_twice(**MERGE)
        assert postgres.rows("sales") == [sale(D1, 1, "2"), sale(D1, 2, "3")]


class TestForeignKeys:
    """Rows of other tables never go with the partition's."""

    def family(self, postgres: PostgresWarehouse, action: str, **options: Any) -> dict[str, Any]:
        """Two sales, published; a child that points at the first."""
        postgres.sales([sale(D1, 1, "1"), sale(D1, 2, "2")])
        postgres.execute("ALTER TABLE sales ADD PRIMARY KEY (id)")
        postgres.load(**options)
        postgres.execute(
            f"CREATE TABLE child (sale int DEFAULT 2 REFERENCES sales (id) {action}); INSERT INTO child VALUES (1)"
        )
        return options

    @pytest.mark.parametrize("action", ["CASCADE", "SET NULL", "SET DEFAULT"])
    def test_delete_insert_is_refused(self, postgres: PostgresWarehouse, action: str) -> None:
        self.family(postgres, f"ON DELETE {action}")
        error = postgres.refused("SO-305")
        assert error.facts["child"] == "child"
        postgres.execute("DELETE FROM child")
        postgres.refused("SO-305")

    @pytest.mark.parametrize("action", ["CASCADE", "SET NULL", "SET DEFAULT", "RESTRICT", "NO ACTION"])
    def test_merge_updates_in_place(self, postgres: PostgresWarehouse, action: str) -> None:
        self.family(postgres, f"ON DELETE {action}", **MERGE)
        postgres.source(sale(D1, 1, "5"), sale(D1, 2, "2"))
        postgres.load_twice(**MERGE)
        assert postgres.rows("child") == [(1,)]
        assert postgres.rows("sales") == [sale(D1, 1, "5"), sale(D1, 2, "2")]

    @pytest.mark.parametrize("action", ["CASCADE", "SET NULL", "SET DEFAULT"])
    @pytest.mark.parametrize("extra", [{"not_matched_by_source": "delete"}, {"on_key_moved": "move"}], ids=str)
    def test_a_merge_that_deletes_is_refused(
        self, postgres: PostgresWarehouse, action: str, extra: dict[str, Any]
    ) -> None:
        """A moved key is deleted and inserted again: its children would be gone although the key is not."""
        self.family(postgres, f"ON DELETE {action}", **MERGE)
        postgres.execute("UPDATE raw_sales SET day = DATE '2026-01-03' WHERE id = 1")
        postgres.refused("SO-305", run(D2), **MERGE, **extra)
        assert postgres.rows("child") == [(1,)]

    @pytest.mark.parametrize("action", ["RESTRICT", "NO ACTION"])
    def test_referenced_rows_refuse_delete_insert(self, postgres: PostgresWarehouse, action: str) -> None:
        self.family(postgres, f"ON DELETE {action}")
        error = postgres.refused("SO-306")
        assert error.terminal
        postgres.execute("DELETE FROM child")
        postgres.load_twice()

    def test_rows_referenced_elsewhere_do_no_harm(self, postgres: PostgresWarehouse) -> None:
        self.family(postgres, "")
        postgres.execute("INSERT INTO raw_sales VALUES ('2026-01-01', 7, 7)")
        postgres.load_twice(run(D0))

    @pytest.mark.parametrize("initially", ["INITIALLY DEFERRED", "INITIALLY IMMEDIATE"])
    def test_a_deferrable_key_lets_rows_go_and_come_back(self, postgres: PostgresWarehouse, initially: str) -> None:
        self.family(postgres, f"DEFERRABLE {initially}")
        postgres.source(sale(D1, 1, "9"), sale(D1, 3, "3"))
        postgres.load_twice()
        assert postgres.rows("sales") == [sale(D1, 1, "9"), sale(D1, 3, "3")]

    @pytest.mark.parametrize("options", [{}, {**MERGE, "not_matched_by_source": "delete"}], ids=["replace", "merge"])
    @pytest.mark.parametrize("initially", ["INITIALLY DEFERRED", "INITIALLY IMMEDIATE"])
    def test_a_deferrable_key_that_stays_broken(
        self, postgres: PostgresWarehouse, initially: str, options: dict[str, Any]
    ) -> None:
        self.family(postgres, f"DEFERRABLE {initially}", **options)
        postgres.source(sale(D1, 3, "3"))
        postgres.refused("SO-306", **options)
        assert len(postgres.rows("sales")) == 2

    def test_an_own_deferred_key_is_checked_before_the_load_is_green(self, postgres: PostgresWarehouse) -> None:
        postgres.sales([sale(D1, 1, "1")])
        postgres.execute(
            "CREATE TABLE parent (id int PRIMARY KEY);"
            "ALTER TABLE sales ADD FOREIGN KEY (id) REFERENCES parent DEFERRABLE INITIALLY DEFERRED"
        )
        postgres.refused("SO-602")
        postgres.execute("INSERT INTO parent VALUES (1)")
        postgres.load_twice()

    def test_a_key_on_one_child_of_the_table(self, postgres: PostgresWarehouse) -> None:
        postgres.sales([sale(D1, 1, "1")])
        postgres.execute(
            "DROP TABLE sales; CREATE TABLE sales (day date, id int, amount numeric) PARTITION BY RANGE (day);"
            "CREATE TABLE january PARTITION OF sales FOR VALUES FROM ('2026-01-01') TO ('2026-02-01');"
            "ALTER TABLE january ADD PRIMARY KEY (id);"
            "CREATE TABLE child (sale int REFERENCES january ON DELETE CASCADE)"
        )
        postgres.refused("SO-305")

    def test_a_table_that_points_at_itself(self, postgres: PostgresWarehouse) -> None:
        columns = {"day": "date", "id": "int PRIMARY KEY", "boss": "int REFERENCES people ON DELETE CASCADE"}
        postgres.create("raw_people", {"day": "date", "id": "int", "boss": "int"}, [(D1, 1, None), (D1, 2, 1)])
        postgres.create("people", columns)
        sql = SALES_SQL.replace("amount FROM raw_sales", "boss FROM raw_people")
        postgres.refused("SO-305", table="people", sql=sql)
        postgres.load_twice(table="people", sql=sql, **MERGE)


class TestOtherHands:
    """Triggers, rules and row security: what was written is what stands there, or the load is rolled back."""

    TRIGGER = "CREATE TRIGGER t BEFORE INSERT ON sales FOR EACH ROW EXECUTE FUNCTION f()"

    def function(self, postgres: PostgresWarehouse, body: str) -> None:
        """A trigger function."""
        postgres.execute(f"CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS $f$ BEGIN {body} END $f$")

    @BOTH
    def test_a_trigger_that_fills_a_column(self, postgres: PostgresWarehouse, options: dict[str, Any]) -> None:
        postgres.sales([sale(D1, 1, "1")])
        self.function(postgres, "NEW.amount := NEW.amount * 2; RETURN NEW;")
        postgres.execute(self.TRIGGER)
        postgres.load(**options)
        assert postgres.rows("sales") == [sale(D1, 1, "2")]

    @BOTH
    def test_a_trigger_that_drops_rows(self, postgres: PostgresWarehouse, options: dict[str, Any]) -> None:
        """Fewer rows arrive than the query returned: not published in silence."""
        postgres.sales([sale(D1, 1, "1"), sale(D1, 2, "2")])
        self.function(postgres, "RETURN CASE WHEN NEW.id = 1 THEN NEW END;")
        postgres.execute(self.TRIGGER)
        error = postgres.refused("SO-111", **options)
        assert not error.terminal

    @BOTH
    def test_a_trigger_that_moves_rows_out_of_the_partition(
        self, postgres: PostgresWarehouse, options: dict[str, Any]
    ) -> None:
        postgres.sales([sale(D1, 1, "1")])
        self.function(postgres, "NEW.day := NEW.day + 1; RETURN NEW;")
        postgres.execute(self.TRIGGER)
        postgres.refused("SO-111", **options)

    def test_a_trigger_that_keeps_rows_from_being_deleted(self, postgres: PostgresWarehouse) -> None:
        postgres.sales([sale(D1, 1, "1")])
        postgres.load()
        self.function(postgres, "RETURN NULL;")
        postgres.execute("CREATE TRIGGER t BEFORE DELETE ON sales FOR EACH ROW EXECUTE FUNCTION f()")
        postgres.refused("SO-111")

    @BOTH
    def test_a_rule_that_does_nothing(self, postgres: PostgresWarehouse, options: dict[str, Any]) -> None:
        postgres.sales([sale(D1, 1, "1")])
        postgres.execute("CREATE RULE r AS ON INSERT TO sales DO INSTEAD NOTHING")
        postgres.refused("SO-111", **options)

    def test_what_stands_in_the_way_is_noted_in_the_plan(self, postgres: PostgresWarehouse) -> None:
        postgres.sales([sale(D1, 1, "1")])
        self.function(postgres, "RETURN NEW;")
        postgres.execute(f"{self.TRIGGER}; ALTER TABLE sales ENABLE ROW LEVEL SECURITY")
        postgres.execute("CREATE RULE r AS ON DELETE TO sales DO ALSO NOTHING")
        (plan,) = postgres.operator().plans(run(D1))
        notes = " ".join(plan.notes)
        assert all(word in notes for word in ("trigger t", "rule r", "row security"))

    def test_a_deferred_trigger_that_deletes_rows(self, postgres: PostgresWarehouse) -> None:
        """It fires before the count, so what the ledger says is what stands there."""
        postgres.sales([sale(D1, 1, "1"), sale(D1, 2, "2")])
        self.function(postgres, "DELETE FROM sales WHERE id = NEW.id AND NEW.id = 2; RETURN NULL;")
        postgres.execute(
            "CREATE CONSTRAINT TRIGGER t AFTER INSERT ON sales DEFERRABLE INITIALLY DEFERRED "
            "FOR EACH ROW EXECUTE FUNCTION f()"
        )
        postgres.refused("SO-111")

    def test_a_target_that_is_another_one_after_the_wait(self, postgres: PostgresWarehouse) -> None:
        """The view shows another table since: its rows are not the ones that were claimed."""
        postgres.sales([sale(D1, 1, "1")])
        postgres.execute("CREATE TABLE sales2 (LIKE sales); CREATE VIEW v AS SELECT * FROM sales")
        runner = postgres.runner(D1, table="v")

        def switch(step: str, when: str) -> None:
            if (step, when) == ("prepare", "after"):
                postgres.execute("CREATE OR REPLACE VIEW v AS SELECT * FROM sales2")

        runner.observe = switch
        assert raised(runner.execute).code == "SO-309"
        assert postgres.rows("sales") == postgres.rows("sales2") == []
        postgres.load_twice(table="v")
        assert postgres.rows("sales2") == [sale(D1, 1, "1")]

    def test_a_ledger_that_cannot_be_written_rolls_the_data_back(self, postgres: PostgresWarehouse) -> None:
        """
        The data was written and its record was not (dlt-hub/dlt#4052, dlt-hub/dlt#4023, dlt-hub/dlt#3023): the
        two commit together.
        """
        postgres.sales([sale(D1, 1, "1")])
        postgres.load()
        postgres.source(sale(D1, 1, "2"))
        self.function(postgres, "RAISE EXCEPTION 'disk full' USING ERRCODE = '53100';")
        postgres.execute("CREATE TRIGGER t BEFORE UPDATE ON safe_ops.safe_ops_partition EXECUTE FUNCTION f()")
        try:
            error = raised(postgres.load)
        finally:
            postgres.execute("DROP TRIGGER t ON safe_ops.safe_ops_partition")
        assert (error.code, error.terminal) == ("SO-601", False)
        assert postgres.rows("sales") == [sale(D1, 1, "1")]
        assert postgres.states() == ["published", "failed"]
        assert postgres.claims() == []
        postgres.load_twice()
