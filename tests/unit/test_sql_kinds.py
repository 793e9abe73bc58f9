"""What foreign SQL does, read from its words: any dialect, templates and comments as they stand."""

from __future__ import annotations

from time import process_time

import pytest

from airflow_safe_ops.sql.kinds import sql_effects

WRITES = (
    ("INSERT INTO mart.orders (a) VALUES (1)", "INSERT mart.orders"),
    ("insert into users select * from t", "INSERT users"),
    ("INSERT OVERWRITE TABLE t SELECT 1", "INSERT t"),
    ("INSERT INTO `p-x.d.t` SELECT 1", "INSERT p-x.d.t"),
    ("INSERT INTO p-x.d.t SELECT 1", "INSERT p-x.d.t"),
    ("INSERT INTO [dbo].[t] SELECT 1", "INSERT dbo.t"),
    ('MERGE INTO "A b".t USING s ON true WHEN MATCHED THEN DELETE', "MERGE a b.t"),
    ("MERGE t AS x USING y ON true WHEN MATCHED THEN DELETE", "MERGE t"),
    ("UPDATE t SET a = 1", "UPDATE t"),
    ("DELETE FROM ONLY mart.t WHERE a = 1", "DELETE mart.t"),
    ("TRUNCATE TABLE day", "TRUNCATE day"),
    ("COPY t FROM 's3://bucket/x'", "COPY t"),
    ("COPY INTO mart.t FROM @stage", "COPY mart.t"),
    ("LOAD DATA INFILE 'x' INTO TABLE t", "LOAD data"),
    ("REPLACE INTO t VALUES (1)", "REPLACE t"),
    ("CREATE TABLE t AS SELECT 1", "CREATE t"),
    ("CREATE OR REPLACE TABLE t AS SELECT 1", "CREATE t"),
    ("CREATE VIEW v AS SELECT replace(a, 'x', 'y') FROM t", "CREATE v"),
    ("CREATE TABLE t AS SELECT IF(a, 1, 2) FROM s", "CREATE t"),
    ("ALTER TABLE t ADD COLUMN a int", "ALTER t"),
    ("DROP TABLE t", "DROP t"),
    ("SELECT a INTO t2 FROM t", "SELECT t2"),
    ("WITH a AS (SELECT 1) INSERT INTO t SELECT * FROM a", "INSERT t"),
    ("WITH a AS (DELETE FROM t RETURNING *) SELECT * FROM a", "DELETE t"),
    ("WITH a AS (SELECT 1), b AS (SELECT 2) MERGE INTO t USING b ON true WHEN MATCHED THEN DELETE", "MERGE t"),
    ("EXPLAIN ANALYZE INSERT INTO t SELECT 1", "INSERT t"),
    ("EXPLAIN (ANALYZE, BUFFERS) DELETE FROM t", "DELETE t"),
    ("(INSERT INTO t VALUES (1))", "INSERT t"),
    ("/* a; b */ -- DROP\n INSERT INTO t SELECT 1", "INSERT t"),
    ("SELECT 1; INSERT INTO t SELECT ';'; -- done", "INSERT t"),
    ("{{ config }}; INSERT INTO t SELECT 1", "INSERT t"),
    ("{% if params.full %} SELECT 1 {% else %} DELETE FROM t {% endif %}", "DELETE t"),
    ("{# note #} INSERT INTO t SELECT '{{ macros.ds_add(ds, \"1\") }}'", "INSERT t"),
    ("INSERT INTO t SELECT {% for c in cols %} {{ c }}, {% endfor %} 1 FROM s", "INSERT t"),
    ("EXPLAIN ANALYZE WITH a AS (SELECT 1) INSERT INTO t SELECT * FROM a", "INSERT t"),
    ("EXPLAIN (ANALYZE, COSTS off) WITH a AS (DELETE FROM t RETURNING *) SELECT * FROM a", "DELETE t"),
    ("(WITH a AS MATERIALIZED (DELETE FROM t RETURNING *) SELECT * FROM a)", "DELETE t"),
    ("CREATE TABLE mart.temp (a int)", "CREATE mart.temp"),
    ("CREATE TABLE temp AS SELECT 1", "CREATE temp"),
    ("INSERT INTO temp VALUES (1)", "INSERT temp"),
    ("CREATE OR REPLACE TABLE view AS SELECT 1", "CREATE view"),
    ("SET NOCOUNT ON INSERT INTO t SELECT 1", "INSERT t"),
    ("SET NOCOUNT ON\nDELETE FROM t", "DELETE t"),
    ("IF EXISTS(SELECT 1 FROM t WHERE a = 1) DELETE FROM t WHERE a = 1", "DELETE t"),
    ("USE mart INSERT INTO t SELECT 1", "INSERT t"),
    ("BEGIN TRANSACTION DELETE FROM t", "DELETE t"),
    ("FROM s INSERT INTO t SELECT a", "INSERT t"),
    ("FROM (SELECT replace(a, 'b', 'c') FROM s) x INSERT OVERWRITE TABLE t SELECT a", "INSERT t"),
    ("WITH a AS (SELECT 1) FROM a INSERT INTO t SELECT 1", "INSERT t"),
    ("PREPARE x AS INSERT INTO t SELECT 1", "INSERT t"),
    ("PREPARE x (int) AS DELETE FROM t WHERE a = $1", "DELETE t"),
    ("COPY (DELETE FROM t RETURNING *) TO STDOUT", "DELETE t"),
    ("COPY (WITH a AS (DELETE FROM t RETURNING *) SELECT * FROM a) TO STDOUT", "DELETE t"),
    ("ALTER TABLE t DROP COLUMN IF EXISTS a, ADD COLUMN b numeric(9, 2)", "ALTER t"),
    ("ALTER TABLE IF EXISTS t ADD COLUMN b int", "ALTER t"),
    ("COPY INTO t FROM 's3://bucket/x'", "COPY t"),
)
READS = (
    "",
    "   ;;; ",
    "SELECT 1",
    "SELECT 'INSERT INTO t', update_at, created FROM deletes",
    "-- INSERT INTO t\nSELECT 1",
    "SELECT * FROM t FOR UPDATE",
    "SELECT replace(a, 'x', 'y') FROM t",
    "WITH a AS (SELECT replace(x, 'a', 'b') FROM t) SELECT * FROM a",
    "EXPLAIN INSERT INTO t SELECT 1",
    "COPY (SELECT 1) TO STDOUT",
    "COPY t TO 's3://bucket/x'",
    "COPY INTO @stage FROM t",
    "CREATE TABLE IF NOT EXISTS t (a int)",
    "CREATE TEMP TABLE x AS SELECT 1; INSERT INTO x SELECT 2; DROP TABLE x",
    "INSERT INTO #scratch SELECT 1",
    "CREATE OR REPLACE VIEW v AS SELECT 1",
    "DROP TABLE IF EXISTS t",
    "ALTER TABLE a.b.t ADD COLUMN IF NOT EXISTS a int",
    "CREATE OR REPLACE TEMP TABLE x AS SELECT 1",
    "GRANT INSERT ON t TO somebody",
    "ANALYZE t; SET x = 1; REFRESH MATERIALIZED VIEW v; BEGIN; COMMIT",
    "/* open {{ ' \" (",
    "INSERTED",
    "EXPLAIN (ANALYZE false) INSERT INTO t SELECT 1",
    "EXPLAIN (BUFFERS off, ANALYZE OFF) INSERT INTO t SELECT 1",
    "EXPLAIN WITH a AS (SELECT 1) INSERT INTO t SELECT * FROM a",
    "COPY INTO 's3://bucket/x' FROM t",
    "WITH x AS (SELECT (replace(a, b, c)) FROM t) SELECT * FROM x",
    "WITH x AS (SELECT count(replace) FROM t) SELECT replace FROM x",
    "SET @x = REPLACE(@y, 'a', 'b')",
    "SET search_path = mart; SET NOCOUNT ON",
    "IF EXISTS(SELECT 1 FROM t) SELECT 1",
    "FROM t SELECT a, update, b",
    "PREPARE x AS SELECT replace(a, 'b', 'c') FROM t",
    "COPY (SELECT replace(a, 'b', 'c') FROM t) TO STDOUT",
    "CREATE GLOBAL TEMPORARY TABLE x (a int)",
    "CREATE OR REPLACE SECURE VIEW v AS SELECT 1",
    "ALTER TABLE t ADD COLUMN IF NOT EXISTS a numeric(9, 2), DROP COLUMN IF EXISTS b",
    "BEGIN TRANSACTION; COMMIT",
)


@pytest.mark.parametrize(("sql", "effect"), WRITES)
def test_what_writes(sql: str, effect: str) -> None:
    assert [str(one) for one in sql_effects(sql) if one.writes] == [effect]


@pytest.mark.parametrize("sql", READS)
def test_what_does_not(sql: str) -> None:
    assert [str(one) for one in sql_effects(sql) if one.writes or one.is_unknown] == []


@pytest.mark.parametrize(
    "sql",
    [
        *("CALL load()", "EXEC dbo.load", "DO $$ BEGIN DELETE FROM t; END $$", "{{ params.sql }}", "BEGIN DELETE x"),
        *("EXECUTE IMMEDIATE 'DELETE FROM t'", "SET NOCOUNT ON EXEC dbo.load", "IF EXISTS(SELECT 1) EXEC dbo.load"),
    ],
)
def test_what_stands_elsewhere_is_not_known(sql: str) -> None:
    assert [one.is_unknown for one in sql_effects(sql)][:1] == [True]


def test_several_statements_in_their_order() -> None:
    sql = "BEGIN; DELETE FROM mart.t WHERE d = '{{ ds }}'; INSERT INTO mart.t SELECT 1; COMMIT"
    assert [str(one) for one in sql_effects(sql)] == ["BEGIN", "DELETE mart.t", "INSERT mart.t", "COMMIT"]
    assert [(one.deletes, one.inserts) for one in sql_effects(sql)][1:3] == [(True, False), (False, True)]


def test_a_long_statement_is_read_to_the_next_one() -> None:
    long = "INSERT INTO a (x) VALUES " + ", ".join(f"('{n}; DROP')" for n in range(200))
    assert [str(one) for one in sql_effects(f"{long}; DELETE FROM b;")] == ["INSERT a", "DELETE b"]
    assert [str(one) for one in sql_effects(long)] == ["INSERT a"]


@pytest.mark.parametrize(
    "between",
    [
        "'a'';'",
        "'\\';'",
        "'C:\\\\'",
        '"a;b"',
        "`a;b`",
        "-- ; it's\n",
        "# it's\n",
        "/* ; ' */",
        "$$ ; $$",
        "$a$ ; $$ $a$",
        "a$b$c",
    ],
)
def test_a_semicolon_in_a_text_ends_nothing(between: str) -> None:
    sql = f"INSERT INTO t SELECT {'1, ' * 20}{between} FROM s; DELETE FROM b"
    assert [str(one) for one in sql_effects(sql)] == ["INSERT t", "DELETE b"]


def test_a_script_is_read_as_far_as_people_write_them() -> None:
    rows = ", ".join(f"({n}, 'a')" for n in range(18_000))
    *read, rest = sql_effects(f"DELETE FROM b; INSERT INTO a VALUES {rows}; DROP TABLE c")
    assert [str(one) for one in read] == ["DELETE b", "INSERT a"]
    assert (rest.is_unknown, rest.writes) == (True, False)


# Each took seconds: the cost grew with the square of the length, or every row was read.
@pytest.mark.parametrize(
    "sql",
    [
        "INSERT INTO t VALUES " + "(1)," * 40_000 + "(1); DELETE FROM b",
        "INSERT INTO t SELECT 1 " + "/* " * 40_000 + "$a$ " * 10_000 + ";",
        "INSERT INTO t SELECT 1 " + "{{" * 20_000,
        "INSERT INTO t SELECT 1 " + "{% " * 20_000 + "{# " * 20_000 + ";",
    ],
    ids=["rows", "open comments", "open expressions", "open tags"],
)
def test_a_long_text_costs_no_more_than_its_length(sql: str) -> None:
    begun = process_time()
    assert str(sql_effects(sql)[0]) == "INSERT t"
    assert process_time() - begun < 1


def test_brackets_without_end_are_read() -> None:
    assert [one.verb for one in sql_effects("COPY (" * 5_000 + "DELETE")] == ["COPY"]


def test_one_template_is_one_name() -> None:
    delete, insert = sql_effects("DELETE FROM {{ params.t }}; INSERT INTO {{params.t}} SELECT 1")
    (other,) = sql_effects("INSERT INTO {{ params.other }} SELECT 1")
    assert delete.table == insert.table != other.table
