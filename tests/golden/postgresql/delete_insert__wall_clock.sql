-- delete_insert into "mart"."orders", seen_at=2026-01-01..2026-01-02

-- claim.hold: hold the claim until the end of this transaction

-- stage.create: make an empty stage with the target's types
CREATE TEMP TABLE "safe_ops_stage_00000000000040008000000000000001" ON COMMIT DROP AS SELECT "order_id", "line_no", "order_date", "amount", "seen_at" FROM "mart"."orders" WITH NO DATA;

-- stage.fill: run the query into the stage
INSERT INTO "safe_ops_stage_00000000000040008000000000000001" ("order_id", "line_no", "order_date", "amount", "seen_at") (
SELECT order_id, line_no, order_date, amount, seen_at FROM raw
);

-- stage.look: count the staged rows, those outside the partition, and NULLs where they must not be
SELECT count(*) AS rows_staged, count(*) FILTER (WHERE "seen_at" IS NULL) AS null_in_partition, count(*) FILTER (WHERE NOT ("seen_at" >= :_start AND "seen_at" < :_end)) AS rows_outside FROM "safe_ops_stage_00000000000040008000000000000001";
-- :_start = datetime.datetime(2026, 1, 1, 0, 0)
-- :_end = datetime.datetime(2026, 1, 2, 0, 0)
-- sample:
SELECT CAST("seen_at" AS text) AS "seen_at" FROM "safe_ops_stage_00000000000040008000000000000001" WHERE NOT ("seen_at" >= :_start AND "seen_at" < :_end) OR "seen_at" IS NULL LIMIT 5;
-- :_start = datetime.datetime(2026, 1, 1, 0, 0)
-- :_end = datetime.datetime(2026, 1, 2, 0, 0)

-- target.look: look at what the partition holds now
SELECT (SELECT (NOT EXISTS (SELECT 1 FROM "safe_ops_stage_00000000000040008000000000000001") AND EXISTS (SELECT 1 FROM "mart"."orders" WHERE ("seen_at" >= :_start AND "seen_at" < :_end)))::int) AS rows_before, EXISTS (SELECT 1 FROM "mart"."orders" WHERE ("seen_at" >= :part0_start AND "seen_at" < :part0_end)) AS unledgered;
-- :_start = datetime.datetime(2026, 1, 1, 0, 0)
-- :_end = datetime.datetime(2026, 1, 2, 0, 0)
-- :part0_start = datetime.datetime(2026, 1, 1, 0, 0)
-- :part0_end = datetime.datetime(2026, 1, 2, 0, 0)

-- target.delete: delete the partition's rows
DELETE FROM "mart"."orders" WHERE ("seen_at" >= :_start AND "seen_at" < :_end);
-- :_start = datetime.datetime(2026, 1, 1, 0, 0)
-- :_end = datetime.datetime(2026, 1, 2, 0, 0)

-- target.insert: insert the staged rows
INSERT INTO "mart"."orders" ("order_id", "line_no", "order_date", "amount", "seen_at") SELECT "order_id", "line_no", "order_date", "amount", "seen_at" FROM "safe_ops_stage_00000000000040008000000000000001";

-- target.count: count the partition as it stands now, with its checksum
SELECT count(*) AS rows_after, sum(hash_numeric_extended(hash_record_extended(ROW("order_id", "line_no", "order_date", "seen_at", "amount"), 0), 0))::text AS checksum FROM "mart"."orders" WHERE ("seen_at" >= :_start AND "seen_at" < :_end);
-- :_start = datetime.datetime(2026, 1, 1, 0, 0)
-- :_end = datetime.datetime(2026, 1, 2, 0, 0)

-- ledger.publish: record the load as published, give the claim back

-- commit: commit data and ledger together
