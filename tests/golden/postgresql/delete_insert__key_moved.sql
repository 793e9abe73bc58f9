-- delete_insert into "mart"."orders", loaded_at=2026-03-02..2026-03-09@America/New_York

-- claim.hold: hold the claim until the end of this transaction

-- stage.create: make an empty stage with the target's types
CREATE TEMP TABLE "safe_ops_stage_00000000000040008000000000000001" ON COMMIT DROP AS SELECT "order_id", "line_no", "order_date", "amount", "loaded_at" FROM "mart"."orders" WITH NO DATA;

-- stage.fill: run the query into the stage
INSERT INTO "safe_ops_stage_00000000000040008000000000000001" ("order_id", "line_no", "order_date", "amount", "loaded_at") (
SELECT order_id, line_no, order_date, amount, loaded_at FROM raw
);

-- stage.look: count the staged rows, those outside the partition, and NULLs where they must not be
SELECT count(*) AS rows_staged, count(*) FILTER (WHERE "loaded_at" IS NULL) AS null_in_partition, count(*) FILTER (WHERE NOT ("loaded_at" >= :_start AND "loaded_at" < :_end)) AS rows_outside, count(*) FILTER (WHERE "order_id" IS NULL) AS null_key_0, count(*) FILTER (WHERE "line_no" IS NULL) AS null_key_1 FROM "safe_ops_stage_00000000000040008000000000000001";
-- :_start = datetime.datetime(2026, 3, 2, 5, 0, tzinfo=datetime.timezone.utc)
-- :_end = datetime.datetime(2026, 3, 9, 4, 0, tzinfo=datetime.timezone.utc)
-- sample:
SELECT CAST("loaded_at" AS text) AS "loaded_at", CAST("order_id" AS text) AS "order_id", CAST("line_no" AS text) AS "line_no" FROM "safe_ops_stage_00000000000040008000000000000001" WHERE NOT ("loaded_at" >= :_start AND "loaded_at" < :_end) OR "loaded_at" IS NULL OR "order_id" IS NULL OR "line_no" IS NULL LIMIT 5;
-- :_start = datetime.datetime(2026, 3, 2, 5, 0, tzinfo=datetime.timezone.utc)
-- :_end = datetime.datetime(2026, 3, 9, 4, 0, tzinfo=datetime.timezone.utc)

-- target.look: look at what the partition holds now
SELECT (SELECT (NOT EXISTS (SELECT 1 FROM "safe_ops_stage_00000000000040008000000000000001") AND EXISTS (SELECT 1 FROM "mart"."orders" WHERE ("loaded_at" >= :_start AND "loaded_at" < :_end)))::int) AS rows_before, EXISTS (SELECT 1 FROM "mart"."orders" WHERE ("loaded_at" >= :part0_start AND "loaded_at" < :part0_end)) AS unledgered;
-- :_start = datetime.datetime(2026, 3, 2, 5, 0, tzinfo=datetime.timezone.utc)
-- :_end = datetime.datetime(2026, 3, 9, 4, 0, tzinfo=datetime.timezone.utc)
-- :part0_start = datetime.datetime(2026, 3, 2, 5, 0, tzinfo=datetime.timezone.utc)
-- :part0_end = datetime.datetime(2026, 3, 9, 4, 0, tzinfo=datetime.timezone.utc)

-- stage.unique: look for keys that are staged twice
CREATE UNIQUE INDEX ON "safe_ops_stage_00000000000040008000000000000001" ("order_id", "line_no");
-- sample:
SELECT CAST("order_id" AS text) AS "order_id", CAST("line_no" AS text) AS "line_no", count(*) AS rows FROM "safe_ops_stage_00000000000040008000000000000001" GROUP BY "order_id", "line_no" HAVING count(*) > 1 ORDER BY count(*) DESC LIMIT 5;

-- stage.analyze: tell the planner the stage's size
ANALYZE "safe_ops_stage_00000000000040008000000000000001" ("order_id", "line_no");

-- target.lock: lock the table against other writers until the commit
LOCK TABLE "mart"."orders" IN SHARE ROW EXCLUSIVE MODE;

-- target.moved: look for staged keys that stand in another partition
SELECT count(*) AS keys_moved FROM "mart"."orders" AS t JOIN "safe_ops_stage_00000000000040008000000000000001" AS s ON t."order_id" = s."order_id" AND t."line_no" = s."line_no" WHERE (t."loaded_at" >= :_start AND t."loaded_at" < :_end) IS NOT TRUE;
-- :_start = datetime.datetime(2026, 3, 2, 5, 0, tzinfo=datetime.timezone.utc)
-- :_end = datetime.datetime(2026, 3, 9, 4, 0, tzinfo=datetime.timezone.utc)
-- sample:
SELECT CAST(CAST((t."loaded_at" AT TIME ZONE 'America/New_York') AS date) AS text) AS "loaded_at", count(*) AS keys FROM "mart"."orders" AS t JOIN "safe_ops_stage_00000000000040008000000000000001" AS s ON t."order_id" = s."order_id" AND t."line_no" = s."line_no" WHERE (t."loaded_at" >= :_start AND t."loaded_at" < :_end) IS NOT TRUE GROUP BY 1 ORDER BY 1 LIMIT 1000;
-- :_start = datetime.datetime(2026, 3, 2, 5, 0, tzinfo=datetime.timezone.utc)
-- :_end = datetime.datetime(2026, 3, 9, 4, 0, tzinfo=datetime.timezone.utc)

-- target.delete_moved: take moved keys out of their old partitions
DELETE FROM "mart"."orders" AS t USING "safe_ops_stage_00000000000040008000000000000001" AS s WHERE t."order_id" = s."order_id" AND t."line_no" = s."line_no" AND (t."loaded_at" >= :_start AND t."loaded_at" < :_end) IS NOT TRUE;
-- :_start = datetime.datetime(2026, 3, 2, 5, 0, tzinfo=datetime.timezone.utc)
-- :_end = datetime.datetime(2026, 3, 9, 4, 0, tzinfo=datetime.timezone.utc)

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
