-- append_once into "mart"."orders", order_date=2026-01-01..2026-01-02

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

-- target.look: look whether the rows are there already, and the same
SELECT there.rows_before, there.content AS content_there, CASE WHEN there.rows_before > 0 THEN (SELECT sum(hash_numeric_extended(hash_record_extended(ROW("order_id", "line_no", "order_date", "amount"), 0), 0))::text FROM "safe_ops_stage_00000000000040008000000000000001") END AS content_staged FROM (SELECT count(*) AS rows_before, sum(hash_numeric_extended(hash_record_extended(ROW("order_id", "line_no", "order_date", "amount"), 0), 0))::text AS content FROM "mart"."orders" WHERE (("order_date" >= :_start AND "order_date" < :_end) AND "source" = CAST(:_slice AS text))) AS there;
-- :_start = datetime.date(2026, 1, 1)
-- :_end = datetime.date(2026, 1, 2)
-- :_slice = 'eu/0001.csv'

-- target.insert: insert the staged rows, if none of them is there
INSERT INTO "mart"."orders" ("order_id", "line_no", "order_date", "amount", "source") SELECT "order_id", "line_no", "order_date", "amount", CAST(:_slice AS text) FROM "safe_ops_stage_00000000000040008000000000000001" WHERE NOT EXISTS (SELECT 1 FROM "mart"."orders" WHERE (("order_date" >= :_start AND "order_date" < :_end) AND "source" = CAST(:_slice AS text)));
-- :_slice = 'eu/0001.csv'
-- :_start = datetime.date(2026, 1, 1)
-- :_end = datetime.date(2026, 1, 2)

-- target.count: count the partition as it stands now, with its checksum
SELECT count(*) AS rows_after, sum(hash_numeric_extended(hash_record_extended(ROW("order_id", "line_no", "order_date", "amount"), 0), 0))::text AS checksum FROM "mart"."orders" WHERE (("order_date" >= :_start AND "order_date" < :_end) AND "source" = CAST(:_slice AS text));
-- :_start = datetime.date(2026, 1, 1)
-- :_end = datetime.date(2026, 1, 2)
-- :_slice = 'eu/0001.csv'

-- ledger.publish: record the load as published, give the claim back

-- commit: commit data and ledger together
