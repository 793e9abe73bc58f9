"""What foreign SQL does, read from its words: any dialect, templates and comments as they stand."""

from __future__ import annotations

import pytest

from airflow_safe_ops.sql.kinds import same_table, sql_effects

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
)


@pytest.mark.parametrize(("sql", "effect"), WRITES)
def test_what_writes(sql: str, effect: str) -> None:
    assert [str(one) for one in sql_effects(sql) if one.writes] == [effect]


@pytest.mark.parametrize("sql", READS)
def test_what_does_not(sql: str) -> None:
    assert [str(one) for one in sql_effects(sql) if one.writes or one.is_unknown] == []


@pytest.mark.parametrize(
    "sql", ["CALL load()", "EXEC dbo.load", "DO $$ BEGIN DELETE FROM t; END $$", "{{ params.sql }}", "BEGIN DELETE x"]
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


def test_one_template_is_one_name() -> None:
    delete, insert = sql_effects("DELETE FROM {{ params.t }}; INSERT INTO {{params.t}} SELECT 1")
    (other,) = sql_effects("INSERT INTO {{ params.other }} SELECT 1")
    assert delete.table == insert.table != other.table


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("t", "t", True),
        ("t", "mart.t", True),
        ("db.mart.t", "mart.t", True),
        ("mart.t", "raw.t", False),
        ("t", "at", False),
        ("", "t", False),
        ("", "", False),
    ],
)
def test_names_of_one_table(one: str, other: str, same: bool) -> None:
    assert same_table(one, other) is same
    assert same_table(other, one) is same
