-- merge into "mart"."orders", order_date=2026-01-01..2026-01-02

-- claim.hold: hold the claim until the end of this transaction

-- stage.create: make an empty stage with the target's types
CREATE TEMP TABLE "safe_ops_stage_00000000000040008000000000000001" ON COMMIT DROP AS SELECT "order_id", "order_date" FROM "mart"."orders" WITH NO DATA;

-- stage.fill: run the query into the stage
INSERT INTO "safe_ops_stage_00000000000040008000000000000001" ("order_id", "order_date") (
SELECT order_id, order_date FROM raw
);

-- stage.look: count the staged rows, those outside the partition, and NULLs where they must not be
SELECT count(*) AS rows_staged, count(*) FILTER (WHERE "order_date" IS NULL) AS null_in_partition, count(*) FILTER (WHERE NOT ("order_date" >= :_start AND "order_date" < :_end)) AS rows_outside, count(*) FILTER (WHERE "order_id" IS NULL) AS null_key_0, count(*) FILTER (WHERE "order_date" IS NULL) AS null_key_1 FROM "safe_ops_stage_00000000000040008000000000000001";
-- :_start = datetime.date(2026, 1, 1)
-- :_end = datetime.date(2026, 1, 2)
-- sample:
SELECT CAST("order_date" AS text) AS "order_date", CAST("order_id" AS text) AS "order_id" FROM "safe_ops_stage_00000000000040008000000000000001" WHERE NOT ("order_date" >= :_start AND "order_date" < :_end) OR "order_date" IS NULL OR "order_id" IS NULL OR "order_date" IS NULL LIMIT 5;
-- :_start = datetime.date(2026, 1, 1)
-- :_end = datetime.date(2026, 1, 2)

-- target.look: look at what the partition holds now
SELECT (SELECT count(*) FROM "mart"."orders" WHERE ("order_date" >= :_start AND "order_date" < :_end)) AS rows_before, EXISTS (SELECT 1 FROM "mart"."orders" WHERE ("order_date" >= :part0_start AND "order_date" < :part0_end)) AS unledgered;
-- :_start = datetime.date(2026, 1, 1)
-- :_end = datetime.date(2026, 1, 2)
-- :part0_start = datetime.date(2026, 1, 1)
-- :part0_end = datetime.date(2026, 1, 2)

-- stage.unique: look for keys that are staged twice
CREATE UNIQUE INDEX ON "safe_ops_stage_00000000000040008000000000000001" ("order_id", "order_date");
-- sample:
SELECT CAST("order_id" AS text) AS "order_id", CAST("order_date" AS text) AS "order_date", count(*) AS rows FROM "safe_ops_stage_00000000000040008000000000000001" GROUP BY "order_id", "order_date" HAVING count(*) > 1 ORDER BY count(*) DESC LIMIT 5;

-- stage.analyze: tell the planner the stage's size
ANALYZE "safe_ops_stage_00000000000040008000000000000001" ("order_id", "order_date");

-- target.insert: insert rows whose key is new
INSERT INTO "mart"."orders" ("order_id", "order_date") SELECT "order_id", "order_date" FROM "safe_ops_stage_00000000000040008000000000000001" AS s WHERE NOT EXISTS (SELECT 1 FROM "mart"."orders" AS t WHERE t."order_id" = s."order_id" AND t."order_date" = s."order_date" AND (t."order_date" >= :_start AND t."order_date" < :_end));
-- :_start = datetime.date(2026, 1, 1)
-- :_end = datetime.date(2026, 1, 2)

-- target.arrived: count the rows of the staged keys
SELECT count(*) AS rows_arrived FROM "mart"."orders" AS t JOIN "safe_ops_stage_00000000000040008000000000000001" AS s ON t."order_id" = s."order_id" AND t."order_date" = s."order_date" WHERE (t."order_date" >= :_start AND t."order_date" < :_end);
-- :_start = datetime.date(2026, 1, 1)
-- :_end = datetime.date(2026, 1, 2)

-- target.count: count the partition as it stands now, with its checksum
SELECT count(*) AS rows_after, sum(hash_numeric_extended(hash_record_extended(ROW("order_id", "order_date"), 0), 0))::text AS checksum FROM "mart"."orders" WHERE ("order_date" >= :_start AND "order_date" < :_end);
-- :_start = datetime.date(2026, 1, 1)
-- :_end = datetime.date(2026, 1, 2)

-- ledger.publish: record the load as published, give the claim back

-- commit: commit data and ledger together
