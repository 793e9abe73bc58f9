"""IdempotentLoadOperator: load one partition, again and again, with one outcome."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.providers.common.sql.operators.sql import BaseSQLOperator

from airflow_safe_ops.context import run_identity
from airflow_safe_ops.definition.checks import Check, check_from
from airflow_safe_ops.definition.load import (
    CHOICES,
    Checksum,
    Load,
    NotMatchedBySource,
    OnChanged,
    OnDuplicates,
    OnEmpty,
    OnKeyMoved,
    OnSchemaChange,
    OnUnledgered,
    Strategy,
    check_choice,
    check_names,
)
from airflow_safe_ops.definition.notation import partition_from
from airflow_safe_ops.definition.partition import Partition, TimePartition, ValuePartition, WholeTable
from airflow_safe_ops.errors import InvalidArgument, SafeOpsError, UnsupportedConnection
from airflow_safe_ops.retry import give_policy, hand_over, use_rules
from airflow_safe_ops.settings import load_settings

if TYPE_CHECKING:
    from airflow_safe_ops.execution.result import LoadResult
    from airflow_safe_ops.execution.runner import LoadRunner
    from airflow_safe_ops.plan.model import Plan


class IdempotentLoadOperator(BaseSQLOperator):
    """
    Load one partition of a table from one SELECT, so that any number of runs end as one clean run.

    What makes a re-run safe: the run owns exactly the rows of its partition, which its dates alone decide; the
    query's rows are staged and audited before anything is touched; delete, insert and the ledger's record commit
    in one transaction; and a claim keeps every overlapping load away until then. A retry, a clear, a backfill, a
    kill at any moment and a second run at the same time therefore leave the partition as one run leaves it.

    Delete-then-insert and merge with a final check follow the audit-publish pattern of the field; the claim is a
    row with a fencing token, as described in M. Kleppmann, "Designing Data-Intensive Applications", chapter 8.

    .. exampleinclude:: dags/revenue_daily.py

    :param conn_id: connection of the database that holds the target; PostgreSQL 15 or later (templated)
    :param table: the target, ``schema.table``; it must exist. Parts in double quotes may hold any character
        (templated)
    :param sql: one SELECT, or a ``.sql`` file that holds one. ``:partition_start`` and ``:partition_end`` are the
        bounds of a time partition, ``:column`` the value of a value partition, ``:name`` a parameter; all are
        bound by the driver, never pasted (templated)
    :param partition: the part of the target that a run owns: :class:`TimePartition`, :class:`ValuePartition`,
        :class:`WholeTable`, or the dict or text of one (templated)
    :param strategy: ``delete_insert`` (default) replaces the partition; ``merge`` updates rows that differ and
        inserts new keys; ``append_once`` only adds rows, those of one partition (and ``source_slice``) once
    :param parameters: values for ``:name`` in the SQL (templated)
    :param columns: the target's columns to load, where the others take their defaults; default all
    :param unique_key: columns of which every combination stands once; checked on the query's rows and against
        the other partitions. Needed by ``merge``. Default None: the promise is per partition
    :param sequence_by: column whose largest value is the latest row of a key
    :param on_duplicates: ``fail`` (default) or ``keep_latest`` by ``sequence_by``; ties fail
    :param on_key_moved: a staged key that stands in another partition: ``fail`` (default) names the partitions,
        ``move`` takes the old rows away
    :param not_matched_by_source: ``merge`` only: rows of the partition whose key the query does not return:
        ``keep`` (default) or ``delete``
    :param on_schema_change: columns of query and target differ: ``fail`` (default), ``append_new_columns``,
        ``ignore``
    :param on_empty: no rows for a partition that has rows: ``fail`` (default) or ``replace``
    :param on_unledgered: the partition holds rows that no recorded load wrote: ``fail`` (default) or ``replace``;
        with ``append_once`` ``adopt`` instead: they are recorded if they are what the query returns
    :param source_slice: ``append_once`` only: what of the source is loaded, where several loads append to one
        partition: a file's name, a batch's number; ``:source_slice`` in the SQL. Needs ``unique_key`` or
        ``source_slice_column``. Default None: the partition itself (templated)
    :param source_slice_column: a column of the target that the operator fills with ``source_slice``; the query does
        not return it. Default None: the rows of a slice are found by their ``unique_key``
    :param on_changed: ``append_once`` only: the query returns other rows than those that were appended: ``fail``
        (default) or ``skip``, which keeps the first ones
    :param exclusive: lock the table against every other writer during the load; readers go on. Default False
    :param checksum: ``auto`` (default) and ``full`` hash all columns, ``key`` the unique key, ``off`` nothing;
        it decides whether an unchanged reload says so
    :param audits: checks on the staged rows, before publication
    :param post_checks: checks on the partition as written, in the same transaction
    :param lock_timeout: longest wait for an overlapping load or a lock, in seconds or as timedelta; default
        ``[safe_ops] lock_timeout``, 600 seconds
    :param emit_unchanged: whether a reload that changed nothing still emits its outlets' asset events; default
        True
    :param dry_run: log the plan and write nothing; default False
    :param retry_policy: Airflow 3.3: default :class:`~airflow_safe_ops.SafeRetryPolicy`, unless the task or its
        ``default_args`` give another one
    :raises SafeOpsError: the load was refused or failed; the retry policy sees by its class whether a retry can help
    :raises AirflowFailException: before Airflow 3.3, or with ``retry_on_failure=False``: no retry is to follow;
        ``__cause__`` is the :class:`~airflow_safe_ops.errors.SafeOpsError` with code and facts
    """

    template_fields: Sequence[str] = (
        "conn_id",
        "database",
        "hook_params",
        "table",
        "sql",
        "partition",
        "parameters",
        "source_slice",
        "audits",
        "post_checks",
    )
    template_ext: Sequence[str] = (".sql",)
    template_fields_renderers: ClassVar[dict[str, str]] = {
        "sql": "sql",
        "partition": "json",
        "parameters": "json",
    }
    ui_color = "#d5e8d4"
    safe_to_repeat: ClassVar[bool] = True  # what the cluster policy asks for

    def __init__(
        self,
        *,
        table: str,
        sql: str,
        partition: Partition | Mapping[str, Any] | str,
        strategy: Strategy = "delete_insert",
        parameters: Mapping[str, Any] | None = None,
        columns: Sequence[str] | None = None,
        unique_key: Sequence[str] | None = None,
        sequence_by: str | None = None,
        on_duplicates: OnDuplicates = "fail",
        on_key_moved: OnKeyMoved = "fail",
        not_matched_by_source: NotMatchedBySource = "keep",
        on_schema_change: OnSchemaChange = "fail",
        on_empty: OnEmpty = "fail",
        on_unledgered: OnUnledgered = "fail",
        source_slice: str | None = None,
        source_slice_column: str | None = None,
        on_changed: OnChanged = "fail",
        exclusive: bool = False,
        checksum: Checksum = "auto",
        audits: Sequence[Check] = (),
        post_checks: Sequence[Check] = (),
        lock_timeout: float | timedelta | None = None,
        emit_unchanged: bool = True,
        dry_run: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        give_policy(self)
        self.table = table
        self.sql = sql
        self.partition = partition
        self.strategy = strategy
        self.parameters = parameters
        self.columns = columns
        self.unique_key = unique_key
        self.sequence_by = sequence_by
        self.on_duplicates = on_duplicates
        self.on_key_moved = on_key_moved
        self.not_matched_by_source = not_matched_by_source
        self.on_schema_change = on_schema_change
        self.on_empty = on_empty
        self.on_unledgered = on_unledgered
        self.source_slice = source_slice
        self.source_slice_column = source_slice_column
        self.on_changed = on_changed
        self.exclusive = exclusive
        self.checksum = checksum
        self.audits = audits
        self.post_checks = post_checks
        self.lock_timeout = lock_timeout
        self.emit_unchanged = emit_unchanged
        self.is_dry_run = dry_run
        self._runner: LoadRunner | None = None
        self._result: LoadResult | None = None
        self._check_literals()

    def execute(self, context: Any) -> dict[str, Any] | None:
        """Load the partitions that this run owns; see the class."""
        try:
            if self.is_dry_run:
                from airflow_safe_ops.report.plan import plan_text

                self.log.info("Dry run, nothing is written:\n%s", plan_text(self.plans(context)))
                self.outlets = []
                return None
            self._runner = self.runner(context)
            self._result = self._runner.execute()
        except SafeOpsError as error:
            hand_over(self, error)
            raise
        self.log.info("%s", self._result)
        summary = self._result.as_dict()
        self._announce(context, summary, changed=self._result.changed_in_run)
        return summary

    def plans(self, context: Any) -> list[Plan]:
        """
        What a run would do now, with nothing written.

        :raises SafeOpsError: what it would refuse.
        """
        return self.runner(context).plans()

    def runner(self, context: Any) -> LoadRunner:
        """The load of this run, ready to execute."""
        from airflow_safe_ops.execution.runner import LoadRunner
        from airflow_safe_ops.ledger.claims import Patience
        from airflow_safe_ops.sql.dialect import dialect_for

        settings = load_settings()
        use_rules(settings.failure_rules)
        given = self.lock_timeout.total_seconds() if isinstance(self.lock_timeout, timedelta) else self.lock_timeout
        patience = Patience(settings.lock_timeout if given is None else float(given), settings.claim_grace)
        hook = self._hook_with_dialect()
        return LoadRunner(
            load=self._load(),
            run=run_identity(context, instance=settings.instance, params=self.parameters),
            connect=hook.get_conn,
            dialect=dialect_for(hook.dialect_name, settings.ledger_schema),
            patience=patience,
            seconds=self.execution_timeout.total_seconds() if self.execution_timeout else None,
            log_samples=settings.log_samples,
        )

    def on_kill(self) -> None:
        """Cancel the running statement; the transaction is rolled back and the claim given back."""
        if self._runner is not None:
            self._runner.cancel()

    def get_openlineage_facets_on_start(self) -> Any:
        """What the query reads, and the target."""
        return self._lineage(super().get_openlineage_facets_on_start())

    def get_openlineage_facets_on_complete(self, task_instance: Any) -> Any:
        """The same, with the rows that the load left in its partitions and the checks that they passed."""
        return self._lineage(super().get_openlineage_facets_on_complete(task_instance))

    def render_template(self, content: Any, context: Any, jinja_env: Any = None, seen_oids: Any = None) -> Any:
        """Partitions and checks are rendered as copies: several tasks may share one object."""
        if isinstance(content, TimePartition | ValuePartition | WholeTable | Check):
            render = super().render_template
            return content.rendered(lambda text: render(text, context, jinja_env))
        return super().render_template(content, context, jinja_env, seen_oids)

    def _load(self) -> Load:
        return Load(
            table=self.table,
            sql=self.sql,
            partition=partition_from(self.partition),
            strategy=self.strategy,
            columns=_tuple(self.columns),
            unique_key=_tuple(self.unique_key),
            sequence_by=self.sequence_by,
            on_duplicates=self.on_duplicates,
            on_key_moved=self.on_key_moved,
            not_matched_by_source=self.not_matched_by_source,
            on_schema_change=self.on_schema_change,
            on_empty=self.on_empty,
            on_unledgered=self.on_unledgered,
            source_slice=self.source_slice,
            source_slice_column=self.source_slice_column,
            on_changed=self.on_changed,
            exclusive=self.exclusive,
            checksum=self.checksum,
            parameters=dict(self.parameters or {}),
            audits=tuple(check_from(check) for check in self.audits),
            post_checks=tuple(check_from(check) for check in self.post_checks),
        )

    def _lineage(self, of_sql: Any) -> Any:
        from airflow_safe_ops.operators.lineage import with_target

        checks = [check_from(check) for check in (*self.audits, *self.post_checks)]
        return with_target(of_sql, self.get_db_hook(), self.table, self._result, checks)

    def _check_literals(self) -> None:
        """Refuse at parse time what is wrong whatever a run renders."""
        for name in CHOICES:
            check_choice(name, getattr(self, name))
        for name in ("unique_key", "columns"):
            check_names(name, getattr(self, name))
        sql: Any = self.sql
        if not isinstance(sql, str) and not hasattr(sql, "resolve"):
            raise InvalidArgument(f"sql is a {type(sql).__name__}, not text.")
        literal = isinstance(self.partition, Mapping | str) and "{{" not in str(self.partition)
        if literal:
            partition_from(self.partition)
        given = (self.table, self.sql, self.parameters, self.source_slice, self.audits, self.post_checks)
        is_known = not any(hasattr(value, "resolve") for value in given) and not isinstance(self.parameters, str)
        if is_known and isinstance(self.partition, TimePartition | ValuePartition | WholeTable):
            self._load()

    def _hook_with_dialect(self) -> Any:
        try:
            hook = self.get_db_hook()
        except Exception as error:
            if any(words in str(error) for words in ("common-sql", "Unknown hook type")):
                raise UnsupportedConnection(f"Connection {self.conn_id!r} is no SQL database: {error}") from error
            raise
        hook.connection  # noqa: B018 - looked up here: the worker thread only connects
        return hook

    def _announce(self, context: Any, summary: dict[str, Any], *, changed: bool) -> None:
        """Tell the outlets what was loaded; hold their events back where nothing changed and that is wanted."""
        if not changed and not self.emit_unchanged:
            self.log.info("Nothing changed: no asset event.")
            self.outlets = []
            return
        events = context.get("outlet_events")
        for outlet in self.outlets:
            if events is not None:
                events[outlet].extra = summary


def _tuple(names: Sequence[str] | None) -> tuple[str, ...] | None:
    return None if names is None else tuple(names)
