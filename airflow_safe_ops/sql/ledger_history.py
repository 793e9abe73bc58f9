"""The ledger's story: what is read of it by people, and how it is kept small."""

from __future__ import annotations

from collections.abc import Sequence

from airflow_safe_ops.plan.model import Statement, bind
from airflow_safe_ops.sql.text import quoted


def is_row_locked(alias: str) -> str:
    """
    A transaction that has not ended holds the row: the row's ``xmax`` names it, on a standby too.

    So looking takes no lock, writes nothing and needs no right but SELECT.
    """
    snapshot = "pg_catalog.pg_snapshot_xmax(pg_catalog.pg_current_snapshot())::text::bigint"
    # xmax is the lower half of a transaction's number; the upper half is that of the nearest present number.
    xmax = f"{alias}.xmax::text::bigint"
    number = f"{snapshot} + ({xmax} - {snapshot} % 4294967296 + 6442450944) % 4294967296 - 2147483648"
    return (
        f"CASE WHEN {xmax} >= 3 "
        f"THEN coalesce(pg_catalog.pg_xact_status(greatest({number}, 0)::text::xid8) = 'in progress', FALSE) "
        "ELSE FALSE END"
    )


class LedgerHistorySql:
    """
    The statements that tell and shorten the story of the targets.

    :param schema: the ledger's schema, unquoted.
    """

    def __init__(self, schema: str) -> None:
        self._s = quoted(schema)

    def _t(self, table: str) -> str:
        return f"{self._s}.safe_ops_{table}"

    def targets(self) -> Statement:
        """Every target that the ledger knows."""
        return Statement(f"SELECT identity FROM {self._t('target')} ORDER BY identity")

    def partition_keys(self, table: str | None, text: str) -> Statement:
        """Partitions whose key is the text; where there is none, those whose key holds it."""
        also = f" AND t.identity = {bind('table')}" if table else ""
        return Statement(
            "WITH found AS (SELECT DISTINCT a.partition_key "
            f"FROM {self._t('attempt')} AS a JOIN {self._t('target')} AS t USING (target_id) "
            f"WHERE position({bind('text')} IN a.partition_key) > 0{also}) "
            f"SELECT partition_key FROM found WHERE partition_key = {bind('text')} OR NOT EXISTS "
            f"(SELECT 1 FROM found WHERE partition_key = {bind('text')}) ORDER BY partition_key",
            {"table": table, "text": text},
        )

    def _tries(self, where: str) -> str:
        """
        The attempts that meet a condition, each with its ``outcome``.

        ``started`` is ``running`` while its claim lives, else ``lost``.

        A claim lives while a transaction that has not ended holds its row. Between two transactions it lives for
        the seconds of ``grace``.
        """
        in_progress = is_row_locked("c")
        idle = f"pg_catalog.clock_timestamp() - c.touched_at >= make_interval(secs => {bind('grace')})"
        return (
            "SELECT t.identity, a.*, CASE WHEN a.state <> 'started' THEN a.state WHEN c.attempt_id IS NULL THEN 'lost' "
            f"WHEN {idle} AND NOT {in_progress} THEN 'lost' ELSE 'running' END AS outcome "
            f"FROM {self._t('attempt')} AS a JOIN {self._t('target')} AS t USING (target_id) "
            f"LEFT JOIN {self._t('claim')} AS c USING (attempt_id) WHERE {where}"
        )

    def attempts(self, table: str | None, partition: str | None, limit: int | None, grace: float = 5.0) -> Statement:
        """Attempts, newest last, each with its outcome as it stands now; the newest ``limit`` of them."""
        where = ["TRUE"]
        if table:
            where.append(f"t.identity = {bind('table')}")
        if partition:
            where.append(f"a.partition_key = {bind('partition')}")
        return Statement(
            f"WITH tries AS ({self._tries(' AND '.join(where))}), newest AS (SELECT *, count(*) OVER () AS total "
            f"FROM tries ORDER BY started_at DESC, attempt_id LIMIT CAST({bind('limit')} AS bigint)) "
            "SELECT * FROM newest ORDER BY started_at, attempt_id",
            {"table": table, "partition": partition, "limit": limit, "grace": grace},
        )

    def last_failure(self, dag_id: str, run_id: str, task_id: str, map_index: int) -> Statement:
        """The last failed attempt of one task in one run; ``outcome`` is that of its very last attempt."""
        names = ("dag_id", "run_id", "task_id", "map_index")
        same = " AND ".join(f"{name} = {bind(name)}" for name in names)
        return Statement(
            "SELECT try_number, partition_key, error_class, error_message, failure_class, failure_reason, "
            f"(SELECT state FROM {self._t('attempt')} WHERE {same} ORDER BY started_at DESC LIMIT 1) AS outcome "
            f"FROM {self._t('attempt')} WHERE {same} AND error_message IS NOT NULL ORDER BY started_at DESC LIMIT 1",
            dict(zip(names, (dag_id, run_id, task_id, map_index), strict=True)),
        )

    def partitions(self, table: str | None, limit: int | None = None, grace: float = 5.0) -> Statement:
        """
        Each partition that was published or tried, with how its attempts ended; the last ``limit`` of them.

        Its state is the recorded one. One that never was published is ``loading``, ``lost`` (its newest attempt
        is) or ``missing``.
        """
        where = f"t.identity = {bind('table')}" if table else "TRUE"
        counts = ", ".join(
            f"count(*) FILTER (WHERE outcome = '{outcome}') AS {outcome}"
            for outcome in ("published", "failed", "lost", "running")
        )
        tried = ", ".join(f"coalesce(r.{n}, 0) AS {n}" for n in ("attempts", "published", "failed", "lost", "running"))
        return Statement(
            f"WITH tries AS ({self._tries(where)}), "
            f"tried AS (SELECT target_id, partition_key, count(*) AS attempts, {counts}, max(started_at) AS tried_at, "
            "(array_agg(outcome ORDER BY started_at DESC))[1] AS newest FROM tries GROUP BY target_id, partition_key), "
            "listed AS (SELECT t.identity, coalesce(p.partition_key, r.partition_key) AS partition_key, "
            "CASE WHEN p.state IS NOT NULL THEN p.state WHEN r.running > 0 THEN 'loading' "
            "WHEN r.newest = 'lost' THEN 'lost' ELSE 'missing' END AS state, p.row_count, "
            f"{tried}, p.published_at, r.tried_at, p.attempt_id::text AS attempt_id "
            f"FROM {self._t('partition')} AS p FULL JOIN tried AS r "
            "ON r.target_id = p.target_id AND r.partition_key = p.partition_key "
            f"JOIN {self._t('target')} AS t ON t.target_id = coalesce(p.target_id, r.target_id) WHERE {where}), "
            "newest AS (SELECT *, count(*) OVER () AS total FROM listed "
            f'ORDER BY identity DESC, partition_key COLLATE "C" DESC LIMIT CAST({bind("limit")} AS bigint)) '
            'SELECT * FROM newest ORDER BY identity, partition_key COLLATE "C"',
            {"table": table, "limit": limit, "grace": grace},
        )

    def _old_attempts(self) -> str:
        """Attempts that began so long ago and are not the one that published a partition as it stands."""
        return (
            f"FROM {self._t('attempt')} AS a "
            f"WHERE a.started_at < pg_catalog.clock_timestamp() - make_interval(secs => {bind('seconds')}) "
            f"AND NOT EXISTS (SELECT 1 FROM {self._t('partition')} AS p WHERE p.attempt_id = a.attempt_id) "
            f"AND NOT EXISTS (SELECT 1 FROM {self._t('claim')} AS c WHERE c.attempt_id = a.attempt_id)"
        )

    def count_old(self, days: float) -> Statement:
        """How many rows a prune would delete."""
        return Statement(f"SELECT count(*) AS attempts {self._old_attempts()}", {"seconds": days * 86400})

    def prune(self, days: float) -> Sequence[Statement]:
        """Delete those attempts with their checks."""
        binds = {"seconds": days * 86400}
        return (
            Statement(
                f"DELETE FROM {self._t('check')} WHERE attempt_id IN (SELECT a.attempt_id {self._old_attempts()})",
                binds,
            ),
            Statement(
                f"DELETE FROM {self._t('attempt')} WHERE attempt_id IN (SELECT a.attempt_id {self._old_attempts()})",
                binds,
            ),
        )
