-- delete_insert into "mart"."orders", region=EU

-- claim.hold: hold the claim until the end of this transaction

-- stage.create: make an empty stage with the target's types
CREATE TEMP TABLE "safe_ops_stage_00000000000040008000000000000001" ON COMMIT DROP AS SELECT "order_id", "line_no", "order_date", "amount", "region" FROM "mart"."orders" WITH NO DATA;

-- stage.fill: run the query into the stage
INSERT INTO "safe_ops_stage_00000000000040008000000000000001" ("order_id", "line_no", "order_date", "amount", "region") (
SELECT order_id, line_no, order_date, amount, region FROM raw
);

-- stage.look: count the staged rows, those outside the partition, and NULLs where they must not be
SELECT count(*) AS rows_staged, count(*) FILTER (WHERE "region" IS NULL) AS null_in_partition, count(*) FILTER (WHERE NOT ("region" = CAST(:_value_0 AS character varying(5)))) AS rows_outside FROM "safe_ops_stage_00000000000040008000000000000001";
-- :_value_0 = 'EU'
-- sample:
SELECT CAST("region" AS text) AS "region" FROM "safe_ops_stage_00000000000040008000000000000001" WHERE NOT ("region" = CAST(:_value_0 AS character varying(5))) OR "region" IS NULL LIMIT 5;
-- :_value_0 = 'EU'

-- target.look: look at what the partition holds now
SELECT (SELECT (NOT EXISTS (SELECT 1 FROM "safe_ops_stage_00000000000040008000000000000001") AND EXISTS (SELECT 1 FROM "mart"."orders" WHERE ("region" = CAST(:_value_0 AS character varying(5)))))::int) AS rows_before, EXISTS (SELECT 1 FROM "mart"."orders" WHERE ("region" = CAST(:part0_value_0 AS character varying(5)))) AS unledgered;
-- :_value_0 = 'EU'
-- :part0_value_0 = 'EU'

-- audit.0: ask the checks' values
WITH safe_ops_relation AS (
SELECT * FROM "safe_ops_stage_00000000000040008000000000000001"
)
SELECT count(*) AS rows_checked, count(*) AS audit_0, sum("amount") FILTER (WHERE amount <> 1
) AS audit_1, avg(CASE WHEN "amount" IS NULL THEN 1.0 ELSE 0.0 END) AS audit_2 FROM safe_ops_relation;

-- audit.judge: judge RowCount(), Sum(amount) where amount <> 1, NullShare(amount)

-- target.delete: delete the partition's rows
DELETE FROM "mart"."orders" WHERE ("region" = CAST(:_value_0 AS character varying(5)));
-- :_value_0 = 'EU'

-- target.insert: insert the staged rows
INSERT INTO "mart"."orders" ("order_id", "line_no", "order_date", "amount", "region") SELECT "order_id", "line_no", "order_date", "amount", "region" FROM "safe_ops_stage_00000000000040008000000000000001";

-- target.count: count the partition as it stands now, with its checksum
SELECT count(*) AS rows_after, sum(hash_numeric_extended(hash_record_extended(ROW("order_id", "line_no", "order_date", "region", "amount"), 0), 0))::text AS checksum FROM "mart"."orders" WHERE ("region" = CAST(:_value_0 AS character varying(5)));
-- :_value_0 = 'EU'

-- post_check.0: ask the checks' values
WITH safe_ops_relation AS (
SELECT * FROM "mart"."orders" WHERE ("region" = CAST(:_value_0 AS character varying(5)))
)
SELECT count(*) AS rows_checked, (SELECT count(*) FROM (SELECT 1 FROM safe_ops_relation GROUP BY "order_id", "line_no" HAVING count(*) > 1) AS twice) AS post_check_0 FROM safe_ops_relation;
-- :_value_0 = 'EU'

-- post_check.1: ask the checks' values
WITH safe_ops_relation AS (
SELECT * FROM "mart"."orders" WHERE ("region" = CAST(:_value_0 AS character varying(5)))
)
SELECT (
SELECT count(*) < :most FROM safe_ops_relation WHERE note LIKE '100%'
) AS post_check_1;
-- :_value_0 = 'EU'
-- :most = 100

-- post_check.judge: judge NoDuplicates(order_id, line_no), SqlCheck(few notes)

-- ledger.publish: record the load as published, give the claim back

-- commit: commit data and ledger together
