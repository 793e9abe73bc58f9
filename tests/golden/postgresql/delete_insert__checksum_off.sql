-- delete_insert into "mart"."orders", order_date=2026-01-01..2026-01-02

-- claim.hold: hold the claim until the end of this transaction

-- stage.create: make an empty stage with the target's types
CREATE TEMP TABLE "safe_ops_stage_00000000000040008000000000000001" ON COMMIT DROP AS SELECT "order_id", "line_no", "order_date", "amount" FROM "mart"."orders" WITH NO DATA;

-- stage.fill: run the query into the stage
INSERT INTO "safe_ops_stage_00000000000040008000000000000001" ("order_id", "line_no", "order_date", "amount") (
SELECT order_id, line_no, order_date, amount FROM raw
);

-- stage.look: count the staged rows, those outside the partition, and NULLs where they must not be
SELECT count(*) AS rows_staged, count(*) FILTER (WHERE "order_date" IS NULL) AS null_in_partition, count(*) FILTER (WHERE NOT ("order_date" >= :_start AND "order_date" < :_end)) AS rows_outside FROM "safe_ops_stage_00000000000040008000000000000001";
-- :_start = datetime.date(2026, 1, 1)
-- :_end = datetime.date(2026, 1, 2)
-- sample:
SELECT CAST("order_date" AS text) AS "order_date" FROM "safe_ops_stage_00000000000040008000000000000001" WHERE NOT ("order_date" >= :_start AND "order_date" < :_end) OR "order_date" IS NULL LIMIT 5;
-- :_start = datetime.date(2026, 1, 1)
-- :_end = datetime.date(2026, 1, 2)

-- target.look: look at what the partition holds now
SELECT (SELECT (NOT EXISTS (SELECT 1 FROM "safe_ops_stage_00000000000040008000000000000001") AND EXISTS (SELECT 1 FROM "mart"."orders" WHERE ("order_date" >= :_start AND "order_date" < :_end)))::int) AS rows_before, EXISTS (SELECT 1 FROM "mart"."orders" WHERE ("order_date" >= :part0_start AND "order_date" < :part0_end)) AS unledgered;
-- :_start = datetime.date(2026, 1, 1)
-- :_end = datetime.date(2026, 1, 2)
-- :part0_start = datetime.date(2026, 1, 1)
-- :part0_end = datetime.date(2026, 1, 2)

-- target.delete: delete the partition's rows
DELETE FROM "mart"."orders" WHERE ("order_date" >= :_start AND "order_date" < :_end);
-- :_start = datetime.date(2026, 1, 1)
-- :_end = datetime.date(2026, 1, 2)

-- target.insert: insert the staged rows
INSERT INTO "mart"."orders" ("order_id", "line_no", "order_date", "amount") SELECT "order_id", "line_no", "order_date", "amount" FROM "safe_ops_stage_00000000000040008000000000000001";

-- target.count: count the partition as it stands now, with its checksum
SELECT count(*) AS rows_after, NULL::text AS checksum FROM "mart"."orders" WHERE ("order_date" >= :_start AND "order_date" < :_end);
-- :_start = datetime.date(2026, 1, 1)
-- :_end = datetime.date(2026, 1, 2)

-- ledger.publish: record the load as published, give the claim back

-- commit: commit data and ledger together
