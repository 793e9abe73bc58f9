-- merge into "Größe x"."sel""ect", Tag der Bestellung=2026-01-01..2026-01-02
-- note: no unique index on (or"der): the look for moved keys reads the whole table and then locks it against other writers until the commit

-- claim.hold: hold the claim until the end of this transaction

-- stage.create: make an empty stage with the target's types
CREATE TEMP TABLE "safe_ops_stage_00000000000040008000000000000001" ON COMMIT DROP AS SELECT "or""der", "100%", "Tag der Bestellung" FROM "Größe x"."sel""ect" WITH NO DATA;

-- stage.fill: run the query into the stage
INSERT INTO "safe_ops_stage_00000000000040008000000000000001" ("or""der", "100%", "Tag der Bestellung") (
TABLE raw
);

-- stage.look: count the staged rows, those outside the partition, and NULLs where they must not be
SELECT count(*) AS rows_staged, count(*) FILTER (WHERE "Tag der Bestellung" IS NULL) AS null_in_partition, count(*) FILTER (WHERE NOT ("Tag der Bestellung" >= :_start AND "Tag der Bestellung" < :_end)) AS rows_outside, count(*) FILTER (WHERE "or""der" IS NULL) AS null_key_0 FROM "safe_ops_stage_00000000000040008000000000000001";
-- :_start = datetime.date(2026, 1, 1)
-- :_end = datetime.date(2026, 1, 2)
-- sample:
SELECT CAST("Tag der Bestellung" AS text) AS "Tag der Bestellung", CAST("or""der" AS text) AS "or""der" FROM "safe_ops_stage_00000000000040008000000000000001" WHERE NOT ("Tag der Bestellung" >= :_start AND "Tag der Bestellung" < :_end) OR "Tag der Bestellung" IS NULL OR "or""der" IS NULL LIMIT 5;
-- :_start = datetime.date(2026, 1, 1)
-- :_end = datetime.date(2026, 1, 2)

-- target.look: look at what the partition holds now
SELECT (SELECT count(*) FROM "Größe x"."sel""ect" WHERE ("Tag der Bestellung" >= :_start AND "Tag der Bestellung" < :_end)) AS rows_before, EXISTS (SELECT 1 FROM "Größe x"."sel""ect" WHERE ("Tag der Bestellung" >= :part0_start AND "Tag der Bestellung" < :part0_end)) AS unledgered;
-- :_start = datetime.date(2026, 1, 1)
-- :_end = datetime.date(2026, 1, 2)
-- :part0_start = datetime.date(2026, 1, 1)
-- :part0_end = datetime.date(2026, 1, 2)

-- stage.unique: look for keys that are staged twice
CREATE UNIQUE INDEX ON "safe_ops_stage_00000000000040008000000000000001" ("or""der");
-- sample:
SELECT CAST("or""der" AS text) AS "or""der", count(*) AS rows FROM "safe_ops_stage_00000000000040008000000000000001" GROUP BY "or""der" HAVING count(*) > 1 ORDER BY count(*) DESC LIMIT 5;

-- stage.analyze: tell the planner the stage's size
ANALYZE "safe_ops_stage_00000000000040008000000000000001" ("or""der");

-- target.lock: lock the table against other writers until the commit
LOCK TABLE "Größe x"."sel""ect" IN SHARE ROW EXCLUSIVE MODE;

-- target.moved: look for staged keys that stand in another partition
SELECT count(*) AS keys_moved FROM "Größe x"."sel""ect" AS t JOIN "safe_ops_stage_00000000000040008000000000000001" AS s ON t."or""der" = s."or""der" WHERE (t."Tag der Bestellung" >= :_start AND t."Tag der Bestellung" < :_end) IS NOT TRUE;
-- :_start = datetime.date(2026, 1, 1)
-- :_end = datetime.date(2026, 1, 2)
-- sample:
SELECT CAST(CAST(t."Tag der Bestellung" AS date) AS text) AS "Tag der Bestellung", count(*) AS keys FROM "Größe x"."sel""ect" AS t JOIN "safe_ops_stage_00000000000040008000000000000001" AS s ON t."or""der" = s."or""der" WHERE (t."Tag der Bestellung" >= :_start AND t."Tag der Bestellung" < :_end) IS NOT TRUE GROUP BY 1 ORDER BY 1 LIMIT 1000;
-- :_start = datetime.date(2026, 1, 1)
-- :_end = datetime.date(2026, 1, 2)

-- target.delete: delete the partition's rows whose key is not staged
DELETE FROM "Größe x"."sel""ect" AS t WHERE (t."Tag der Bestellung" >= :_start AND t."Tag der Bestellung" < :_end) AND NOT EXISTS (SELECT 1 FROM "safe_ops_stage_00000000000040008000000000000001" AS s WHERE t."or""der" = s."or""der");
-- :_start = datetime.date(2026, 1, 1)
-- :_end = datetime.date(2026, 1, 2)

-- target.update: update rows that differ
UPDATE "Größe x"."sel""ect" AS t SET "or""der" = s."or""der", "100%" = s."100%", "Tag der Bestellung" = s."Tag der Bestellung" FROM "safe_ops_stage_00000000000040008000000000000001" AS s WHERE t."or""der" = s."or""der" AND (t."Tag der Bestellung" >= :_start AND t."Tag der Bestellung" < :_end) AND ROW(t."or""der", t."100%", t."Tag der Bestellung")::record *<> ROW(s."or""der", s."100%", s."Tag der Bestellung")::record;
-- :_start = datetime.date(2026, 1, 1)
-- :_end = datetime.date(2026, 1, 2)
-- where a unique index refuses it, target.copies: look for staged keys that stand twice
SELECT count(*) AS rows_there, count(DISTINCT s.ctid) AS keys_there FROM "Größe x"."sel""ect" AS t JOIN "safe_ops_stage_00000000000040008000000000000001" AS s ON t."or""der" = s."or""der" WHERE (t."Tag der Bestellung" >= :_start AND t."Tag der Bestellung" < :_end);
-- :_start = datetime.date(2026, 1, 1)
-- :_end = datetime.date(2026, 1, 2)

-- target.insert: insert rows whose key is new
INSERT INTO "Größe x"."sel""ect" ("or""der", "100%", "Tag der Bestellung") SELECT "or""der", "100%", "Tag der Bestellung" FROM "safe_ops_stage_00000000000040008000000000000001" AS s WHERE NOT EXISTS (SELECT 1 FROM "Größe x"."sel""ect" AS t WHERE t."or""der" = s."or""der" AND (t."Tag der Bestellung" >= :_start AND t."Tag der Bestellung" < :_end));
-- :_start = datetime.date(2026, 1, 1)
-- :_end = datetime.date(2026, 1, 2)

-- target.arrived: count the rows of the staged keys
SELECT count(*) AS rows_arrived FROM "Größe x"."sel""ect" AS t JOIN "safe_ops_stage_00000000000040008000000000000001" AS s ON t."or""der" = s."or""der" WHERE (t."Tag der Bestellung" >= :_start AND t."Tag der Bestellung" < :_end);
-- :_start = datetime.date(2026, 1, 1)
-- :_end = datetime.date(2026, 1, 2)

-- target.count: count the partition as it stands now, with its checksum
SELECT count(*) AS rows_after, sum(hash_numeric_extended(hash_record_extended(ROW("or""der", "Tag der Bestellung", "100%"), 0), 0))::text AS checksum FROM "Größe x"."sel""ect" WHERE ("Tag der Bestellung" >= :_start AND "Tag der Bestellung" < :_end);
-- :_start = datetime.date(2026, 1, 1)
-- :_end = datetime.date(2026, 1, 2)

-- ledger.publish: record the load as published, give the claim back

-- commit: commit data and ledger together
