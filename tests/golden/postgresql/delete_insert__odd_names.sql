-- delete_insert into "Größe x"."sel""ect", Tag der Bestellung=2026-01-01..2026-01-02

-- claim.hold: hold the claim until the end of this transaction

-- stage.create: make an empty stage with the target's types
CREATE TEMP TABLE "safe_ops_stage_00000000000040008000000000000001" ON COMMIT DROP AS SELECT "or""der", "100%", "Tag der Bestellung" FROM "Größe x"."sel""ect" WITH NO DATA;

-- stage.fill: run the query into the stage
INSERT INTO "safe_ops_stage_00000000000040008000000000000001" ("or""der", "100%", "Tag der Bestellung") (
TABLE raw
);

-- stage.look: count the staged rows, those outside the partition, and NULLs where they must not be
SELECT count(*) AS rows_staged, count(*) FILTER (WHERE "Tag der Bestellung" IS NULL) AS null_in_partition, count(*) FILTER (WHERE NOT ("Tag der Bestellung" >= :_start AND "Tag der Bestellung" < :_end)) AS rows_outside FROM "safe_ops_stage_00000000000040008000000000000001";
-- :_start = datetime.date(2026, 1, 1)
-- :_end = datetime.date(2026, 1, 2)
-- sample:
SELECT CAST("Tag der Bestellung" AS text) AS "Tag der Bestellung" FROM "safe_ops_stage_00000000000040008000000000000001" WHERE NOT ("Tag der Bestellung" >= :_start AND "Tag der Bestellung" < :_end) OR "Tag der Bestellung" IS NULL LIMIT 5;
-- :_start = datetime.date(2026, 1, 1)
-- :_end = datetime.date(2026, 1, 2)

-- target.look: look at what the partition holds now
SELECT (SELECT (NOT EXISTS (SELECT 1 FROM "safe_ops_stage_00000000000040008000000000000001") AND EXISTS (SELECT 1 FROM "Größe x"."sel""ect" WHERE ("Tag der Bestellung" >= :_start AND "Tag der Bestellung" < :_end)))::int) AS rows_before, EXISTS (SELECT 1 FROM "Größe x"."sel""ect" WHERE ("Tag der Bestellung" >= :part0_start AND "Tag der Bestellung" < :part0_end)) AS unledgered;
-- :_start = datetime.date(2026, 1, 1)
-- :_end = datetime.date(2026, 1, 2)
-- :part0_start = datetime.date(2026, 1, 1)
-- :part0_end = datetime.date(2026, 1, 2)

-- target.delete: delete the partition's rows
DELETE FROM "Größe x"."sel""ect" WHERE ("Tag der Bestellung" >= :_start AND "Tag der Bestellung" < :_end);
-- :_start = datetime.date(2026, 1, 1)
-- :_end = datetime.date(2026, 1, 2)

-- target.insert: insert the staged rows
INSERT INTO "Größe x"."sel""ect" ("or""der", "100%", "Tag der Bestellung") SELECT "or""der", "100%", "Tag der Bestellung" FROM "safe_ops_stage_00000000000040008000000000000001";

-- target.count: count the partition as it stands now, with its checksum
SELECT count(*) AS rows_after, sum(hash_numeric_extended(hash_record_extended(ROW("or""der", "Tag der Bestellung", "100%"), 0), 0))::text AS checksum FROM "Größe x"."sel""ect" WHERE ("Tag der Bestellung" >= :_start AND "Tag der Bestellung" < :_end);
-- :_start = datetime.date(2026, 1, 1)
-- :_end = datetime.date(2026, 1, 2)

-- ledger.publish: record the load as published, give the claim back

-- commit: commit data and ledger together
