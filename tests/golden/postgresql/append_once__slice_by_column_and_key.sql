-- append_once into "mart"."orders", *

-- claim.hold: hold the claim until the end of this transaction

-- stage.create: make an empty stage with the target's types
CREATE TEMP TABLE "safe_ops_stage_00000000000040008000000000000001" ON COMMIT DROP AS SELECT "order_id", "line_no", "order_date", "amount" FROM "mart"."orders" WITH NO DATA;

-- stage.fill: run the query into the stage
INSERT INTO "safe_ops_stage_00000000000040008000000000000001" ("order_id", "line_no", "order_date", "amount") (
SELECT order_id, line_no, order_date, amount FROM raw
);

-- stage.look: count the staged rows, those outside the partition, and NULLs where they must not be
SELECT count(*) AS rows_staged, count(*) FILTER (WHERE FALSE) AS null_in_partition, count(*) FILTER (WHERE NOT TRUE) AS rows_outside, count(*) FILTER (WHERE "order_id" IS NULL) AS null_key_0, count(*) FILTER (WHERE "line_no" IS NULL) AS null_key_1 FROM "safe_ops_stage_00000000000040008000000000000001";
-- sample:
SELECT CAST("order_id" AS text) AS "order_id", CAST("line_no" AS text) AS "line_no" FROM "safe_ops_stage_00000000000040008000000000000001" WHERE NOT TRUE OR "order_id" IS NULL OR "line_no" IS NULL LIMIT 5;

-- stage.unique: look for keys that are staged twice
CREATE UNIQUE INDEX ON "safe_ops_stage_00000000000040008000000000000001" ("order_id", "line_no");
-- sample:
SELECT CAST("order_id" AS text) AS "order_id", CAST("line_no" AS text) AS "line_no", count(*) AS rows FROM "safe_ops_stage_00000000000040008000000000000001" GROUP BY "order_id", "line_no" HAVING count(*) > 1 ORDER BY count(*) DESC LIMIT 5;

-- stage.analyze: tell the planner the stage's size
ANALYZE "safe_ops_stage_00000000000040008000000000000001" ("order_id", "line_no");

-- target.moved: look for staged keys that stand in another partition
SELECT count(*) AS keys_moved FROM "mart"."orders" AS t JOIN "safe_ops_stage_00000000000040008000000000000001" AS s ON t."order_id" = s."order_id" AND t."line_no" = s."line_no" WHERE (TRUE AND t."source" = CAST(:_slice AS text)) IS NOT TRUE;
-- :_slice = 'eu/0001.csv'
-- sample:
SELECT CAST(t."source" AS text) AS "source", count(*) AS keys FROM "mart"."orders" AS t JOIN "safe_ops_stage_00000000000040008000000000000001" AS s ON t."order_id" = s."order_id" AND t."line_no" = s."line_no" WHERE (TRUE AND t."source" = CAST(:_slice AS text)) IS NOT TRUE GROUP BY 1 ORDER BY 1 LIMIT 1000;
-- :_slice = 'eu/0001.csv'

-- target.look: look whether the rows are there already, and the same
SELECT there.rows_before, there.content AS content_there, CASE WHEN there.rows_before > 0 THEN (SELECT sum(hash_numeric_extended(hash_record_extended(ROW("order_id", "line_no", "order_date", "amount"), 0), 0))::text FROM "safe_ops_stage_00000000000040008000000000000001") END AS content_staged FROM (SELECT count(*) AS rows_before, sum(hash_numeric_extended(hash_record_extended(ROW("order_id", "line_no", "order_date", "amount"), 0), 0))::text AS content FROM "mart"."orders" WHERE (TRUE AND "source" = CAST(:_slice AS text))) AS there;
-- :_slice = 'eu/0001.csv'

-- audit.0: ask the checks' values
WITH safe_ops_relation AS (
SELECT * FROM "safe_ops_stage_00000000000040008000000000000001"
)
SELECT count(*) AS rows_checked, count(*) AS audit_0, sum("amount") FILTER (WHERE amount <> 1
) AS audit_1, avg(CASE WHEN "amount" IS NULL THEN 1.0 ELSE 0.0 END) AS audit_2 FROM safe_ops_relation;

-- audit.judge: judge RowCount(), Sum(amount) where amount <> 1, NullShare(amount)

-- target.insert: insert the staged rows, if none of them is there
INSERT INTO "mart"."orders" ("order_id", "line_no", "order_date", "amount", "source") SELECT "order_id", "line_no", "order_date", "amount", CAST(:_slice AS text) FROM "safe_ops_stage_00000000000040008000000000000001" WHERE NOT EXISTS (SELECT 1 FROM "mart"."orders" WHERE (TRUE AND "source" = CAST(:_slice AS text)));
-- :_slice = 'eu/0001.csv'

-- target.count: count the partition as it stands now, with its checksum
SELECT count(*) AS rows_after, sum(hash_numeric_extended(hash_record_extended(ROW("order_id", "line_no", "order_date", "amount"), 0), 0))::text AS checksum FROM "mart"."orders" WHERE (TRUE AND "source" = CAST(:_slice AS text));
-- :_slice = 'eu/0001.csv'

-- post_check.0: ask the checks' values
WITH safe_ops_relation AS (
SELECT * FROM "mart"."orders" WHERE (TRUE AND "source" = CAST(:_slice AS text))
)
SELECT count(*) AS rows_checked, (SELECT count(*) FROM (SELECT 1 FROM safe_ops_relation GROUP BY "order_id", "line_no" HAVING count(*) > 1) AS twice) AS post_check_0 FROM safe_ops_relation;
-- :_slice = 'eu/0001.csv'

-- post_check.1: ask the checks' values
WITH safe_ops_relation AS (
SELECT * FROM "mart"."orders" WHERE (TRUE AND "source" = CAST(:_slice AS text))
)
SELECT (
SELECT count(*) < :most FROM safe_ops_relation WHERE note LIKE '100%'
) AS post_check_1;
-- :_slice = 'eu/0001.csv'
-- :most = 100

-- post_check.judge: judge NoDuplicates(order_id, line_no), SqlCheck(few notes)

-- ledger.publish: record the load as published, give the claim back

-- commit: commit data and ledger together
