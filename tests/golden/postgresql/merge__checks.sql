-- merge into "mart"."orders", order_date=2026-01-01..2026-01-02

-- claim.hold: hold the claim until the end of this transaction

-- stage.create: make an empty stage with the target's types
CREATE TEMP TABLE "safe_ops_stage_00000000000040008000000000000001" ON COMMIT DROP AS SELECT "order_id", "line_no", "order_date", "amount" FROM "mart"."orders" WITH NO DATA;

-- stage.fill: run the query into the stage
INSERT INTO "safe_ops_stage_00000000000040008000000000000001" ("order_id", "line_no", "order_date", "amount") (
SELECT order_id, line_no, order_date, amount FROM raw
);

-- stage.look: count the staged rows, those outside the partition, and NULLs where they must not be
SELECT count(*) AS rows_staged, count(*) FILTER (WHERE "order_date" IS NULL) AS null_in_partition, count(*) FILTER (WHERE NOT ("order_date" >= :_start AND "order_date" < :_end)) AS rows_outside, count(*) FILTER (WHERE "order_id" IS NULL) AS null_key_0, count(*) FILTER (WHERE "line_no" IS NULL) AS null_key_1 FROM "safe_ops_stage_00000000000040008000000000000001";
-- :_start = datetime.date(2026, 1, 1)
-- :_end = datetime.date(2026, 1, 2)
-- sample:
SELECT CAST("order_date" AS text) AS "order_date", CAST("order_id" AS text) AS "order_id", CAST("line_no" AS text) AS "line_no" FROM "safe_ops_stage_00000000000040008000000000000001" WHERE NOT ("order_date" >= :_start AND "order_date" < :_end) OR "order_date" IS NULL OR "order_id" IS NULL OR "line_no" IS NULL LIMIT 5;
-- :_start = datetime.date(2026, 1, 1)
-- :_end = datetime.date(2026, 1, 2)

-- target.look: look at what the partition holds now
SELECT (SELECT count(*) FROM "mart"."orders" WHERE ("order_date" >= :_start AND "order_date" < :_end)) AS rows_before, EXISTS (SELECT 1 FROM "mart"."orders" WHERE ("order_date" >= :part0_start AND "order_date" < :part0_end)) AS unledgered;
-- :_start = datetime.date(2026, 1, 1)
-- :_end = datetime.date(2026, 1, 2)
-- :part0_start = datetime.date(2026, 1, 1)
-- :part0_end = datetime.date(2026, 1, 2)

-- stage.unique: look for keys that are staged twice
CREATE UNIQUE INDEX ON "safe_ops_stage_00000000000040008000000000000001" ("order_id", "line_no");
-- sample:
SELECT CAST("order_id" AS text) AS "order_id", CAST("line_no" AS text) AS "line_no", count(*) AS rows FROM "safe_ops_stage_00000000000040008000000000000001" GROUP BY "order_id", "line_no" HAVING count(*) > 1 ORDER BY count(*) DESC LIMIT 5;

-- stage.analyze: tell the planner the stage's size
ANALYZE "safe_ops_stage_00000000000040008000000000000001" ("order_id", "line_no");

-- audit.0: ask the checks' values
WITH safe_ops_relation AS (
SELECT * FROM "safe_ops_stage_00000000000040008000000000000001"
)
SELECT count(*) AS rows_checked, count(*) AS audit_0, sum("amount") FILTER (WHERE amount <> 1
) AS audit_1, avg(CASE WHEN "amount" IS NULL THEN 1.0 ELSE 0.0 END) AS audit_2 FROM safe_ops_relation;

-- audit.judge: judge RowCount(), Sum(amount) where amount <> 1, NullShare(amount)

-- target.update: update rows that differ
UPDATE "mart"."orders" AS t SET "order_id" = s."order_id", "line_no" = s."line_no", "order_date" = s."order_date", "amount" = s."amount" FROM "safe_ops_stage_00000000000040008000000000000001" AS s WHERE t."order_id" = s."order_id" AND t."line_no" = s."line_no" AND (t."order_date" >= :_start AND t."order_date" < :_end) AND ROW(t."order_id", t."line_no", t."order_date", t."amount")::record *<> ROW(s."order_id", s."line_no", s."order_date", s."amount")::record;
-- :_start = datetime.date(2026, 1, 1)
-- :_end = datetime.date(2026, 1, 2)

-- target.insert: insert rows whose key is new
INSERT INTO "mart"."orders" ("order_id", "line_no", "order_date", "amount") SELECT "order_id", "line_no", "order_date", "amount" FROM "safe_ops_stage_00000000000040008000000000000001" AS s WHERE NOT EXISTS (SELECT 1 FROM "mart"."orders" AS t WHERE t."order_id" = s."order_id" AND t."line_no" = s."line_no" AND (t."order_date" >= :_start AND t."order_date" < :_end));
-- :_start = datetime.date(2026, 1, 1)
-- :_end = datetime.date(2026, 1, 2)
-- where a unique index refuses it, target.moved: look for staged keys that stand in another partition
SELECT count(*) AS keys_moved FROM "mart"."orders" AS t JOIN "safe_ops_stage_00000000000040008000000000000001" AS s ON t."order_id" = s."order_id" AND t."line_no" = s."line_no" WHERE (t."order_date" >= :_start AND t."order_date" < :_end) IS NOT TRUE;
-- :_start = datetime.date(2026, 1, 1)
-- :_end = datetime.date(2026, 1, 2)
-- sample:
SELECT CAST(CAST(t."order_date" AS date) AS text) AS "order_date", count(*) AS keys FROM "mart"."orders" AS t JOIN "safe_ops_stage_00000000000040008000000000000001" AS s ON t."order_id" = s."order_id" AND t."line_no" = s."line_no" WHERE (t."order_date" >= :_start AND t."order_date" < :_end) IS NOT TRUE GROUP BY 1 ORDER BY 1 LIMIT 1000;
-- :_start = datetime.date(2026, 1, 1)
-- :_end = datetime.date(2026, 1, 2)

-- target.count: count the partition as it stands now, with its checksum
SELECT count(*) AS rows_after, sum(hash_numeric_extended(hash_record_extended(ROW("order_id", "line_no", "order_date", "amount"), 0), 0))::text AS checksum FROM "mart"."orders" WHERE ("order_date" >= :_start AND "order_date" < :_end);
-- :_start = datetime.date(2026, 1, 1)
-- :_end = datetime.date(2026, 1, 2)

-- post_check.0: ask the checks' values
WITH safe_ops_relation AS (
SELECT * FROM "mart"."orders" WHERE ("order_date" >= :_start AND "order_date" < :_end)
)
SELECT count(*) AS rows_checked, (SELECT count(*) FROM (SELECT 1 FROM safe_ops_relation GROUP BY "order_id", "line_no" HAVING count(*) > 1) AS twice) AS post_check_0 FROM safe_ops_relation;
-- :_start = datetime.date(2026, 1, 1)
-- :_end = datetime.date(2026, 1, 2)

-- post_check.1: ask the checks' values
WITH safe_ops_relation AS (
SELECT * FROM "mart"."orders" WHERE ("order_date" >= :_start AND "order_date" < :_end)
)
SELECT (
SELECT count(*) < :most FROM safe_ops_relation WHERE note LIKE '100%'
) AS post_check_1;
-- :_start = datetime.date(2026, 1, 1)
-- :_end = datetime.date(2026, 1, 2)
-- :most = 100

-- post_check.judge: judge NoDuplicates(order_id, line_no), SqlCheck(few notes)

-- ledger.publish: record the load as published, give the claim back

-- commit: commit data and ledger together
