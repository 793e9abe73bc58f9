"""Columns of PostgreSQL's own kinds: filled by the database, without an equality, with a loose one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from airflow_safe_ops import TimePartition, ValuePartition, WholeTable
from tests.contract.harness import D0, D1, D2, SALES_SQL, run

if TYPE_CHECKING:
    from tests.contract.postgres import PostgresWarehouse

WHOLE: dict[str, Any] = {"table": "target", "partition": WholeTable(), "sql": "SELECT id, v FROM source"}
MERGE: dict[str, Any] = {**WHOLE, "strategy": "merge", "unique_key": ["id"]}
BOTH = pytest.mark.parametrize("options", [WHOLE, MERGE], ids=["delete_insert", "merge"])

# A text whose equality ignores case, as citext has it, of parts that every server has.
CITEXT = """
CREATE TYPE citext;
CREATE FUNCTION citextin(cstring) RETURNS citext LANGUAGE internal IMMUTABLE STRICT AS 'textin';
CREATE FUNCTION citextout(citext) RETURNS cstring LANGUAGE internal IMMUTABLE STRICT AS 'textout';
CREATE TYPE citext (INPUT = citextin, OUTPUT = citextout, LIKE = text, CATEGORY = 'S');
CREATE CAST (citext AS text) WITHOUT FUNCTION AS IMPLICIT;
CREATE CAST (text AS citext) WITHOUT FUNCTION AS ASSIGNMENT;
CREATE FUNCTION citext_eq(citext, citext) RETURNS bool LANGUAGE sql IMMUTABLE STRICT AS 'SELECT lower($1::text) = lower($2::text)';
CREATE FUNCTION citext_lt(citext, citext) RETURNS bool LANGUAGE sql IMMUTABLE STRICT AS 'SELECT lower($1::text) < lower($2::text)';
CREATE FUNCTION citext_le(citext, citext) RETURNS bool LANGUAGE sql IMMUTABLE STRICT AS 'SELECT lower($1::text) <= lower($2::text)';
CREATE FUNCTION citext_gt(citext, citext) RETURNS bool LANGUAGE sql IMMUTABLE STRICT AS 'SELECT lower($1::text) > lower($2::text)';
CREATE FUNCTION citext_ge(citext, citext) RETURNS bool LANGUAGE sql IMMUTABLE STRICT AS 'SELECT lower($1::text) >= lower($2::text)';
CREATE FUNCTION citext_cmp(citext, citext) RETURNS int LANGUAGE sql IMMUTABLE STRICT AS 'SELECT bttextcmp(lower($1::text), lower($2::text))';
CREATE FUNCTION citext_hash(citext) RETURNS int LANGUAGE sql IMMUTABLE STRICT AS 'SELECT hashtext(lower($1::text))';
CREATE FUNCTION citext_hash64(citext, int8) RETURNS int8 LANGUAGE sql IMMUTABLE STRICT AS 'SELECT hashtextextended(lower($1::text), $2)';
CREATE OPERATOR = (LEFTARG = citext, RIGHTARG = citext, FUNCTION = citext_eq, COMMUTATOR = =, HASHES, MERGES);
CREATE OPERATOR < (LEFTARG = citext, RIGHTARG = citext, FUNCTION = citext_lt);
CREATE OPERATOR <= (LEFTARG = citext, RIGHTARG = citext, FUNCTION = citext_le);
CREATE OPERATOR > (LEFTARG = citext, RIGHTARG = citext, FUNCTION = citext_gt);
CREATE OPERATOR >= (LEFTARG = citext, RIGHTARG = citext, FUNCTION = citext_ge);
CREATE OPERATOR CLASS citext_ops DEFAULT FOR TYPE citext USING btree AS OPERATOR 1 <, OPERATOR 2 <=, OPERATOR 3 =,
  OPERATOR 4 >=, OPERATOR 5 >, FUNCTION 1 citext_cmp(citext, citext);
CREATE OPERATOR CLASS citext_ops DEFAULT FOR TYPE citext USING hash AS OPERATOR 1 =, FUNCTION 1 citext_hash(citext),
  FUNCTION 2 citext_hash64(citext, int8);
"""  # noqa: E501 - one function a line


class TestTypes:
    """Every type can be loaded again; "unchanged" is never said of what changed."""

    @BOTH
    @pytest.mark.parametrize(
        ("kind", "one", "other"),
        [
            ("json", '{"a": 1}', '{"a":  1}'),
            ("jsonb", '{"a": 1}', '{"a": 2}'),
            ("json[]", '{"{\\"a\\": 1}"}', '{"{\\"a\\":  1}"}'),
            ("int[]", "{1,2,NULL}", "{1,2}"),
            ("text[]", "{a,b}", "{a,B}"),
            ("point", "(1,2)", "(1,3)"),
            ("point[]", '{"(1,2)"}', '{"(1,3)"}'),
            ("bytea", "\\x00ff", "\\x00fe"),
            ("uuid", "00000000-0000-0000-0000-000000000001", "00000000-0000-0000-0000-000000000002"),
            ("inet", "10.0.0.1", "10.0.0.2"),
            ("interval", "1 month", "30 days"),
            ("bit(3)", "101", "100"),
            ("varbit", "101", "1010"),
            ("money", "1.00", "2.00"),
            ("tsvector", "a b", "a c"),
            ("numrange", "[1,2)", "[1,3)"),
            ("int4multirange", "{[1,2)}", "{[1,3)}"),
            ("numeric", "1.0", "1.00"),
            ("float8", "0", "-0"),
            ("float8", "NaN", "Infinity"),
            ("char(5)", "ab", "abc"),
            ("varchar(5)", "ab", "ab "),
            ("mood", "ok", "sad"),
            ("pair", "(1,a)", "(1,b)"),
            ("positive", "1", "2"),
            ("positive[]", "{1}", "{2}"),
            ("timetz", "10:00+01", "09:00+00"),
        ],
    )
    def test_a_type(
        self, postgres: PostgresWarehouse, options: dict[str, Any], kind: str, one: str, other: str
    ) -> None:
        """
        Loaded twice, changed and loaded again: the target holds the source's bytes each time, and a change is not
        called unchanged, unless the type itself calls both equal. A type without an equality (json, point) is
        loaded like any other.
        """
        postgres.execute(
            "CREATE TYPE mood AS ENUM ('ok', 'sad'); CREATE TYPE pair AS (n int, t text);"
            "CREATE DOMAIN positive AS int CHECK (VALUE > 0)"
        )
        for table in ("source", "target"):
            postgres.create(table, {"id": "int", "v": kind})
        postgres.execute(f"INSERT INTO source VALUES (1, $v${one}$v$), (2, NULL)")
        first, second = postgres.load_twice(**options)
        assert first["changed"] is True
        if options is MERGE:
            assert (second["rows_unchanged"], second["changed"]) == (2, False)
        postgres.execute(f"UPDATE source SET v = $v${other}$v$ WHERE id = 1")
        third = postgres.load(**options)
        text = "SELECT id, v::text FROM {} ORDER BY id"
        assert postgres.execute(text.format("target")) == postgres.execute(text.format("source"))
        equal = postgres.types_call_equal(kind, one, other)
        assert third["changed"] is (not equal or options is MERGE)

    @BOTH
    def test_generated_and_identity_columns_are_left_alone(
        self, postgres: PostgresWarehouse, options: dict[str, Any]
    ) -> None:
        postgres.create("source", {"id": "int", "v": "int"}, [(1, 10), (2, 20)])
        postgres.create(
            "target",
            {
                "id": "int",
                "v": "int",
                "twice": "int GENERATED ALWAYS AS (v * 2) STORED",
                "n": "int GENERATED ALWAYS AS IDENTITY",
                "m": "int GENERATED BY DEFAULT AS IDENTITY (START 100)",
                "s": "serial",
            },
        )
        with_serial = {**options, "columns": ["id", "v"]}
        postgres.load(**with_serial)
        second = postgres.load(**with_serial)
        assert second["changed"] is False
        assert postgres.rows("target", "id, v, twice") == [(1, 10, 20), (2, 20, 40)]

    @BOTH
    def test_a_value_for_a_generated_column_is_refused(
        self, postgres: PostgresWarehouse, options: dict[str, Any]
    ) -> None:
        postgres.create("source", {"id": "int", "v": "int"}, [(1, 10)])
        postgres.create("target", {"id": "int", "v": "int GENERATED ALWAYS AS (id * 2) STORED"})
        postgres.refused("SO-108", **options)

    @BOTH
    def test_a_value_for_an_identity_by_default_is_taken(
        self, postgres: PostgresWarehouse, options: dict[str, Any]
    ) -> None:
        postgres.create("source", {"id": "int", "v": "int"}, [(7, 10)])
        postgres.create("target", {"id": "int GENERATED BY DEFAULT AS IDENTITY", "v": "int"})
        postgres.load_twice(**options)
        assert postgres.rows("target") == [(7, 10)]

    # --- loose equality --------------------------------------------------------------------------------------------

    def citext(self, postgres: PostgresWarehouse, *rows: tuple[Any, ...]) -> None:
        """A source in text and a target in citext."""
        postgres.execute(CITEXT)
        postgres.create("source", {"id": "int", "v": "text"}, rows)
        postgres.create("target", {"id": "int", "v": "citext"})

    @BOTH
    def test_a_change_of_case_is_a_change(self, postgres: PostgresWarehouse, options: dict[str, Any]) -> None:
        self.citext(postgres, (1, "a"), (2, "B"))
        postgres.load_twice(**options)
        postgres.execute("UPDATE source SET v = upper(v)")
        assert postgres.load(**options)["changed"] is True
        assert postgres.rows("target", "id, v::text") == [(1, "A"), (2, "B")]
        assert postgres.load(**options)["changed"] is False

    @pytest.mark.parametrize("strategy", ["delete_insert", "merge"])
    def test_keys_that_differ_in_case_alone_are_one_key(self, postgres: PostgresWarehouse, strategy: str) -> None:
        self.citext(postgres, (1, "a"), (1, "A"))
        postgres.refused("SO-106", **{**WHOLE, "strategy": strategy, "unique_key": ["v"]})

    @pytest.mark.parametrize("strategy", ["delete_insert", "merge"])
    def test_values_that_differ_in_case_alone_are_one_partition(
        self, postgres: PostgresWarehouse, strategy: str
    ) -> None:
        self.citext(postgres, (1, "eu"), (2, "EU"), (3, "us"))
        options = {"table": "target", "strategy": strategy, "unique_key": ["id"], "not_matched_by_source": "delete"}
        sql = "SELECT id, v FROM source WHERE lower(v) = lower(:v)"
        postgres.load_twice(**options, sql=sql, partition=ValuePartition(v="EU"))
        postgres.execute("DELETE FROM source WHERE id = 1")
        postgres.load(**options, sql=sql, partition=ValuePartition(v="eu"), on_unledgered="replace")
        assert postgres.rows("target", "id") == [(2,)]

    def test_a_key_without_an_equality_is_refused(self, postgres: PostgresWarehouse) -> None:
        postgres.create("source", {"id": "json", "v": "int"})
        postgres.create("target", {"id": "json", "v": "int"})
        postgres.execute("INSERT INTO source VALUES ('{}', 1)")
        error = postgres.refused("SO-602", **MERGE)
        assert error.terminal

    def test_a_key_longer_than_an_index_takes(self, postgres: PostgresWarehouse) -> None:
        postgres.create("source", {"id": "text", "v": "int"})
        postgres.create("target", {"id": "text", "v": "int"})
        long = "(SELECT string_agg(md5(n::text), '') FROM generate_series(1, 500) AS n)"
        postgres.execute(f"INSERT INTO source VALUES ({long}, 1), ({long} || 'x', 2)")
        postgres.load_twice(**MERGE)
        postgres.execute(f"INSERT INTO source VALUES ({long}, 3)")
        postgres.refused("SO-106", **MERGE)

    # --- partition columns --------------------------------------------------------------------------------------------

    @pytest.mark.parametrize(
        ("kind", "given"),
        [
            ("varchar(2)", "EUROPE"),
            ("char(2)", "EUROPE"),
            ("numeric(5, 2)", "1.234"),
            ("timestamp(0)", "2026-01-02 00:00:00.6"),
            ("date", "2026-01-02 12:00"),
            ("short", "EUROPE"),
        ],
    )
    def test_a_value_that_does_not_fit_its_column_names_no_other(
        self, postgres: PostgresWarehouse, kind: str, given: str
    ) -> None:
        """A cast cuts 'EUROPE' to 'EU' in varchar(2): the load would own, and replace, another partition's rows."""
        postgres.execute("CREATE DOMAIN short AS varchar(2)")
        postgres.create("target", {"id": "int", "v": kind})
        postgres.execute(f"INSERT INTO target SELECT 1, CAST('{given}' AS {kind})")
        postgres.refused(
            "SO-602" if kind == "short" else "SO-202",
            table="target",
            partition=ValuePartition(v=given),
            sql="SELECT 2 AS id, v FROM target",
            on_unledgered="replace",
        )

    @pytest.mark.parametrize("kind", ["day_of", "timestamp(0)", "timestamptz(3)"])
    def test_a_time_partition_on_a_type_of_that_kind(self, postgres: PostgresWarehouse, kind: str) -> None:
        postgres.execute("CREATE DOMAIN day_of AS date")
        for table in ("source", "target"):
            postgres.create(table, {"day": kind, "id": "int"}, [(D0, 1), (D1, 2), (D2, 3)] if table == "source" else [])
        postgres.load_twice(
            run(D1),
            table="target",
            sql="SELECT day, id FROM source WHERE day >= :partition_start AND day < :partition_end",
        )
        assert postgres.rows("target", "id") == [(2,)]

    @pytest.mark.parametrize("kind", ["text", "date[]", "tstzrange", "time", "int"])
    def test_a_time_partition_on_any_other_type(self, postgres: PostgresWarehouse, kind: str) -> None:
        postgres.create("target", {"day": kind, "id": "int"})
        postgres.refused("SO-208", table="target", sql="SELECT day, id FROM target", partition=TimePartition("day"))

    @pytest.mark.parametrize(
        ("kind", "mine", "other"),
        [
            ("uuid", "00000000-0000-0000-0000-00000000000A", "00000000-0000-0000-0000-00000000000b"),
            ("mood", "ok", "sad"),
            ("timestamptz", "2026-01-02T00:00:00+00:00", "2026-01-02T00:00:00-06:00"),
            ("char(4)", "EU", "US"),
        ],
    )
    def test_a_value_partition_on_a_type(self, postgres: PostgresWarehouse, kind: str, mine: str, other: str) -> None:
        postgres.execute("CREATE TYPE mood AS ENUM ('ok', 'sad')")
        for table in ("source", "target"):
            postgres.create(table, {"p": kind, "id": "int"})
        postgres.execute(f"INSERT INTO source VALUES ($v${mine}$v$, 1), ($v${other}$v$, 2)")
        options: dict[str, Any] = {"table": "target", "sql": "SELECT p, id FROM source WHERE p = :p"}
        postgres.load_twice(**options, partition=ValuePartition(p=mine))
        assert postgres.rows("target", "id") == [(1,)]
        postgres.load_twice(**options, partition=ValuePartition(p=other))
        assert postgres.rows("target", "id") == [(1,), (2,)]

    @pytest.mark.parametrize(
        ("kind", "value"),
        [("jsonb", '{"a": 1.0}'), ("interval", "1 month"), ("inet", "10.0.0.1"), ("int[]", "{1,2}"), ("bytea", "a")],
    )
    def test_a_value_that_can_be_written_in_two_ways(self, postgres: PostgresWarehouse, kind: str, value: str) -> None:
        """30 days are a month: two loads of one value could not see that they overlap."""
        postgres.create("target", {"p": kind, "id": "int"})
        options: dict[str, Any] = {"table": "target", "sql": "SELECT p, id FROM target"}
        postgres.refused("SO-208", **options, partition=ValuePartition(p=value))

    # --- the query ---------------------------------------------------------------------------------------------------

    @pytest.mark.parametrize(
        "expression",
        [
            "(ARRAY['a', 'b', 'c'])[1:2]::text",
            "'{a,b}'::text[]::text",
            "(ARRAY['x', '{a,b}'])[n.n]",
            "(ARRAY[:first, 'y'])[1]",
            "$$ {a,b} :x % $$::varchar(7)::text -- :y",
            "E'\\'{a,b} :x'",
            "'{\"a\": \":x\"}'::jsonb ->> 'a' || '{a,b}'",
            "CASE WHEN '{\"a\": 1}'::jsonb ? 'a' THEN '{a,b}' END",
        ],
    )
    def test_casts_slices_and_operators(self, postgres: PostgresWarehouse, driver: str, expression: str) -> None:
        """`::` and `[1:2]` are no names; neither are `?` and `%` placeholders."""
        postgres.create("target", {"id": "int", "v": "text"})
        sql = f"SELECT n.n AS id, {expression}\n AS v FROM (SELECT 2::int AS n) AS n WHERE :first::text <> '%'"
        postgres.load_twice(**{**WHOLE, "sql": sql}, parameters={"first": "{a,b}"})
        expected = postgres.execute(
            f"SELECT {expression.replace(':first', chr(39) + '{a,b}' + chr(39))}\n FROM (SELECT 2::int AS n) AS n"
        )
        assert postgres.rows("target", "v") == expected

    @pytest.mark.parametrize("given", [[1, 3], ["1", "3"]])
    def test_a_list_as_a_parameter(self, postgres: PostgresWarehouse, driver: str, given: list[Any]) -> None:
        postgres.create("source", {"id": "int", "v": "int"}, [(1, 1), (2, 2), (3, 3)])
        postgres.create("target", {"id": "int", "v": "int"})
        sql = "SELECT id, v FROM source WHERE id = ANY (CAST(:ids AS int[]))"
        postgres.load_twice(**{**WHOLE, "sql": sql}, parameters={"ids": given})
        assert postgres.rows("target", "id") == [(1,), (3,)]

    @pytest.mark.parametrize(
        "sql",
        [
            "SELECT day, id, amount INTO other FROM raw_sales",
            "WITH gone AS (DELETE FROM raw_sales RETURNING day, id, amount) SELECT * FROM gone",
            "SELECT day, id, amount FROM raw_sales WHERE writes(id) > 0",
            "SELECT day, id, amount FROM raw_sales WHERE writes_secretly(id) > 0",
            "SELECT day, nextval('counter')::int AS id, amount FROM raw_sales",
            "SELECT day, id, amount FROM raw_sales FOR UPDATE",
            "CALL nothing()",
            "DO $$ BEGIN DELETE FROM sales; END $$",
            "COPY raw_sales TO STDOUT",
            "VACUUM sales",
            "LOCK TABLE sales",
            "EXECUTE prepared",
        ],
    )
    def test_a_query_that_writes_is_refused(self, postgres: PostgresWarehouse, driver: str, sql: str) -> None:
        """The server has the last word: the query runs where nothing may be written."""
        postgres.sales([(D1, 1, 1)], held=[(D2, 9, 9)])
        insert = "INSERT INTO log VALUES (n); SELECT n"
        postgres.execute(
            "CREATE TABLE log (n int); CREATE SEQUENCE counter;"
            f"CREATE FUNCTION writes(n int) RETURNS int LANGUAGE sql VOLATILE AS $f$ {insert} $f$;"
            "CREATE FUNCTION writes_secretly(n int) RETURNS int LANGUAGE plpgsql SECURITY DEFINER AS $f$ "
            "BEGIN PERFORM set_config('transaction_read_only', 'off', true); INSERT INTO log VALUES (n); RETURN n; "
            "END $f$"
        )
        postgres.refused("SO-209", sql=sql)

    def test_any_reading_query_is_taken(self, postgres: PostgresWarehouse, driver: str) -> None:
        postgres.sales([(D1, 1, 1)])
        for sql in (
            "TABLE raw_sales",
            "VALUES (DATE '2026-01-02', 1, 1)",
            f"({SALES_SQL}) ORDER BY id LIMIT 5",
            f"WITH RECURSIVE r AS ({SALES_SQL}) SELECT * FROM r",
        ):
            named = f"SELECT q.day, q.id, q.amount FROM ({sql}) AS q (day, id, amount)"
            postgres.load_twice(sql=named)
        postgres.load_twice(sql="TABLE raw_sales")
