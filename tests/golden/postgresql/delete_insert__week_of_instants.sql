-- delete_insert into "mart"."orders", loaded_at=2026-03-02..2026-03-09@America/New_York

-- claim.hold: hold the claim until the end of this transaction

-- stage.create: make an empty stage with the target's types
CREATE TEMP TABLE "safe_ops_stage_00000000000040008000000000000001" ON COMMIT DROP AS SELECT "order_id", "line_no", "order_date", "amount", "loaded_at" FROM "mart"."orders" WITH NO DATA;

-- stage.fill: run the query into the stage
INSERT INTO "safe_ops_stage_00000000000040008000000000000001" ("order_id", "line_no", "order_date", "amount", "loaded_at") (
SELECT * FROM raw.orders WHERE d >= :partition_start AND d < :partition_end AND kind LIKE 'a%' -- all
);
-- :partition_start = datetime.datetime(2026, 3, 2, 5, 0, tzinfo=datetime.timezone.utc)
-- :partition_end = datetime.datetime(2026, 3, 9, 4, 0, tzinfo=datetime.timezone.utc)

-- stage.look: count the staged rows, those outside the partition, and NULLs where they must not be
SELECT count(*) AS rows_staged, count(*) FILTER (WHERE "loaded_at" IS NULL) AS null_in_partition, count(*) FILTER (WHERE NOT ("loaded_at" >= :_start AND "loaded_at" < :_end)) AS rows_outside FROM "safe_ops_stage_00000000000040008000000000000001";
-- :_start = datetime.datetime(2026, 3, 2, 5, 0, tzinfo=datetime.timezone.utc)
-- :_end = datetime.datetime(2026, 3, 9, 4, 0, tzinfo=datetime.timezone.utc)
-- sample:
SELECT CAST("loaded_at" AS text) AS "loaded_at" FROM "safe_ops_stage_00000000000040008000000000000001" WHERE NOT ("loaded_at" >= :_start AND "loaded_at" < :_end) OR "loaded_at" IS NULL LIMIT 5;
-- :_start = datetime.datetime(2026, 3, 2, 5, 0, tzinfo=datetime.timezone.utc)
-- :_end = datetime.datetime(2026, 3, 9, 4, 0, tzinfo=datetime.timezone.utc)

-- target.look: look at what the partition holds now
SELECT (SELECT (NOT EXISTS (SELECT 1 FROM "safe_ops_stage_00000000000040008000000000000001") AND EXISTS (SELECT 1 FROM "mart"."orders" WHERE ("loaded_at" >= :_start AND "loaded_at" < :_end)))::int) AS rows_before, EXISTS (SELECT 1 FROM "mart"."orders" WHERE ("loaded_at" >= :part0_start AND "loaded_at" < :part0_end)) AS unledgered;
-- :_start = datetime.datetime(2026, 3, 2, 5, 0, tzinfo=datetime.timezone.utc)
-- :_end = datetime.datetime(2026, 3, 9, 4, 0, tzinfo=datetime.timezone.utc)
-- :part0_start = datetime.datetime(2026, 3, 4, 5, 0, tzinfo=datetime.timezone.utc)
-- :part0_end = datetime.datetime(2026, 3, 5, 5, 0, tzinfo=datetime.timezone.utc)

-- target.delete: delete the partition's rows
DELETE FROM "mart"."orders" WHERE ("loaded_at" >= :_start AND "loaded_at" < :_end);
-- :_start = datetime.datetime(2026, 3, 2, 5, 0, tzinfo=datetime.timezone.utc)
-- :_end = datetime.datetime(2026, 3, 9, 4, 0, tzinfo=datetime.timezone.utc)

-- target.insert: insert the staged rows
INSERT INTO "mart"."orders" ("order_id", "line_no", "order_date", "amount", "loaded_at") SELECT "order_id", "line_no", "order_date", "amount", "loaded_at" FROM "safe_ops_stage_00000000000040008000000000000001";

-- target.count: count the partition as it stands now, with its checksum
SELECT count(*) AS rows_after, sum(hash_numeric_extended(hash_record_extended(ROW("order_id", "line_no", "order_date", "loaded_at", "amount"), 0), 0))::text AS checksum FROM "mart"."orders" WHERE ("loaded_at" >= :_start AND "loaded_at" < :_end);
-- :_start = datetime.datetime(2026, 3, 2, 5, 0, tzinfo=datetime.timezone.utc)
-- :_end = datetime.datetime(2026, 3, 9, 4, 0, tzinfo=datetime.timezone.utc)

-- ledger.publish: record the load as published, give the claim back

-- commit: commit data and ledger together
