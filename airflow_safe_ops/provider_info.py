"""What Airflow reads about this provider."""

from __future__ import annotations

from typing import Any

from airflow_safe_ops import __version__


def get_provider_info() -> dict[str, Any]:
    """Describe this provider in the form that Airflow's provider manager validates."""
    return {
        "package-name": "airflow-safe-ops",
        "name": "Safe Ops",
        "description": "Partitions that can be loaded again: idempotent loads, and a ledger that proves it.",
        "versions": [__version__],
        "integrations": [
            {"integration-name": "Safe Ops", "tags": ["software"]},
        ],
        "operators": [
            {
                "integration-name": "Safe Ops",
                "python-modules": ["airflow_safe_ops.operators.load", "airflow_safe_ops.operators.publish"],
            },
        ],
        "cli": ["airflow_safe_ops.cli.definition.get_safe_ops_cli_commands"],
        "config": {
            "safe_ops": {
                "description": "How loads that can be repeated keep their ledger.",
                "options": {
                    "ledger_schema": {
                        "description": (
                            "Schema of the target database that holds the ledger. Every load of one database "
                            "has to use the same one: two ledgers are no mutual exclusion."
                        ),
                        "version_added": "0.1.0",
                        "type": "string",
                        "example": None,
                        "default": "safe_ops",
                    },
                    "lock_timeout": {
                        "description": (
                            "Longest wait for another load of an overlapping partition, and for any lock of the "
                            "database, in seconds. A load that waited so long fails, names whom it waited for, and "
                            "is left to Airflow's retries. An operator's lock_timeout comes first."
                        ),
                        "version_added": "0.1.0",
                        "type": "float",
                        "example": None,
                        "default": "600",
                    },
                    "claim_grace": {
                        "description": (
                            "How long a claim is left to an owner that does not begin its transaction, in seconds by "
                            "the database's clock. After that the next in the queue takes it away. Raise it where "
                            "workers are often stopped for longer."
                        ),
                        "version_added": "0.1.0",
                        "type": "float",
                        "example": None,
                        "default": "5",
                    },
                    "log_samples": {
                        "description": (
                            "Whether a refusal shows some of the rows that it refuses, partition and key columns, in "
                            "the task's log and in the ledger. Set it to False where keys are personal data."
                        ),
                        "version_added": "0.1.0",
                        "type": "boolean",
                        "example": None,
                        "default": "True",
                    },
                    "policy_unsafe_backfill": {
                        "description": (
                            "A DAG with a task that writes and is not safe to repeat: off, warn, or enforce, which "
                            "takes backfill out of the DAG's allowed_run_types."
                        ),
                        "version_added": "0.1.0",
                        "type": "string",
                        "example": None,
                        "default": "warn",
                    },
                    "policy_max_active_runs": {
                        "description": (
                            "A DAG whose max_active_runs is above max_active_runs_cap: off, warn, or enforce, which "
                            "lowers it to the cap."
                        ),
                        "version_added": "0.1.0",
                        "type": "string",
                        "example": None,
                        "default": "warn",
                    },
                    "policy_catchup": {
                        "description": (
                            "A DAG with catchup=True whose max_active_runs is above catchup_cap: off, warn, or "
                            "enforce, which lowers it to the cap."
                        ),
                        "version_added": "0.1.0",
                        "type": "string",
                        "example": None,
                        "default": "warn",
                    },
                    "policy_retries": {
                        "description": (
                            "A task without retries: off, warn, or enforce, which gives it default_retries and "
                            "SafeRetryPolicy. Tasks that are not safe to repeat, or say retries=0, are left alone."
                        ),
                        "version_added": "0.1.0",
                        "type": "string",
                        "example": None,
                        "default": "warn",
                    },
                    "policy_start_date": {
                        "description": (
                            "A start date that is computed from the current time: off, warn, or enforce, which "
                            "leaves that DAG out."
                        ),
                        "version_added": "0.1.0",
                        "type": "string",
                        "example": None,
                        "default": "warn",
                    },
                    "policy_split_write": {
                        "description": (
                            "Two tasks of one DAG of which one deletes from a table and the other inserts into it: "
                            "off or warn; enforce warns too, since no policy can join two tasks."
                        ),
                        "version_added": "0.1.0",
                        "type": "string",
                        "example": None,
                        "default": "warn",
                    },
                    "max_active_runs_cap": {
                        "description": "The most runs of one DAG at a time, for the rule policy_max_active_runs.",
                        "version_added": "0.1.0",
                        "type": "integer",
                        "example": None,
                        "default": "16",
                    },
                    "catchup_cap": {
                        "description": (
                            "The most runs at a time of a DAG with catchup=True, for the rule policy_catchup."
                        ),
                        "version_added": "0.1.0",
                        "type": "integer",
                        "example": None,
                        "default": "3",
                    },
                    "default_retries": {
                        "description": (
                            "The retries that policy_retries gives to a task without any; SafeRetryPolicy decides how "
                            "many of them a failure is worth."
                        ),
                        "version_added": "0.1.0",
                        "type": "integer",
                        "example": None,
                        "default": "5",
                    },
                    "writing_operators": {
                        "description": (
                            "Classes whose tasks write, as dotted names, separated by commas or spaces; subclasses "
                            "count. Empty: well-known ones, listed in docs/policies.md. A task also writes if its "
                            "sql does."
                        ),
                        "version_added": "0.1.0",
                        "type": "string",
                        "example": "airflow.providers.apache.spark.operators.spark_submit.SparkSubmitOperator",
                        "default": "",
                    },
                    "policy_exceptions": {
                        "description": (
                            "DAGs that are left out of rules: a JSON list of objects with a DAG's tag, the names of "
                            "the rules, and the reason."
                        ),
                        "version_added": "0.1.0",
                        "type": "string",
                        "example": '[{"tag": "legacy", "rules": ["unsafe_backfill"], "reason": "merges soon"}]',
                        "default": "",
                    },
                    "instance": {
                        "description": "A name for this Airflow, written to each attempt, where several share one.",
                        "version_added": "0.1.0",
                        "type": "string",
                        "example": "production",
                        "default": "",
                    },
                    "failure_rules": {
                        "description": (
                            "Rules that say of which class an error is, a JSON list, asked before the package's own. "
                            "Each has one or more of exception (package.Class), sqlstate (40P01 or 40), code "
                            "(mysql:1213, http:503, errno:ENOSPC) and message (a regular expression); the class: "
                            "transient, contention, resource, late_input, permission, contract, data or cancelled; "
                            "and, if wanted, reason and advice."
                        ),
                        "version_added": "0.1.0",
                        "type": "string",
                        "example": (
                            '[{"exception": "acme.Busy", "class": "contention", "reason": "the warehouse is busy"}]'
                        ),
                        "default": "",
                    },
                },
            },
        },
    }
