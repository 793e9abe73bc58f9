-- delete_insert into "mart"."orders", region=EU,source=NULL

-- claim.hold: hold the claim until the end of this transaction

-- stage.create: make an empty stage with the target's types
CREATE TEMP TABLE "safe_ops_stage_00000000000040008000000000000001" ON COMMIT DROP AS SELECT "order_id", "line_no", "order_date", "amount", "region", "source" FROM "mart"."orders" WITH NO DATA;

-- stage.fill: run the query into the stage
INSERT INTO "safe_ops_stage_00000000000040008000000000000001" ("order_id", "line_no", "order_date", "amount", "region", "source") (
SELECT order_id, line_no, order_date, amount, region, source FROM raw
);

-- stage.look: count the staged rows, those outside the partition, and NULLs where they must not be
SELECT count(*) AS rows_staged, count(*) FILTER (WHERE "region" IS NULL) AS null_in_partition, count(*) FILTER (WHERE NOT ("region" = CAST(:_value_0 AS character varying(5)) AND "source" IS NULL)) AS rows_outside FROM "safe_ops_stage_00000000000040008000000000000001";
-- :_value_0 = 'EU'
-- sample:
SELECT CAST("region" AS text) AS "region", CAST("source" AS text) AS "source" FROM "safe_ops_stage_00000000000040008000000000000001" WHERE NOT ("region" = CAST(:_value_0 AS character varying(5)) AND "source" IS NULL) OR "region" IS NULL LIMIT 5;
-- :_value_0 = 'EU'

-- target.look: look at what the partition holds now
SELECT (SELECT (NOT EXISTS (SELECT 1 FROM "safe_ops_stage_00000000000040008000000000000001") AND EXISTS (SELECT 1 FROM "mart"."orders" WHERE ("region" = CAST(:_value_0 AS character varying(5)) AND "source" IS NULL)))::int) AS rows_before, EXISTS (SELECT 1 FROM "mart"."orders" WHERE ("region" = CAST(:part0_value_0 AS character varying(5)) AND "source" IS NULL)) AS unledgered;
-- :_value_0 = 'EU'
-- :part0_value_0 = 'EU'

-- target.delete: delete the partition's rows
DELETE FROM "mart"."orders" WHERE ("region" = CAST(:_value_0 AS character varying(5)) AND "source" IS NULL);
-- :_value_0 = 'EU'

-- target.insert: insert the staged rows
INSERT INTO "mart"."orders" ("order_id", "line_no", "order_date", "amount", "region", "source") SELECT "order_id", "line_no", "order_date", "amount", "region", "source" FROM "safe_ops_stage_00000000000040008000000000000001";

-- target.count: count the partition as it stands now, with its checksum
SELECT count(*) AS rows_after, sum(hash_numeric_extended(hash_record_extended(ROW("order_id", "line_no", "order_date", "region", "source", "amount"), 0), 0))::text AS checksum FROM "mart"."orders" WHERE ("region" = CAST(:_value_0 AS character varying(5)) AND "source" IS NULL);
-- :_value_0 = 'EU'

-- ledger.publish: record the load as published, give the claim back

-- commit: commit data and ledger together
