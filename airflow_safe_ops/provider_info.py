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
            {"integration-name": "Safe Ops", "python-modules": ["airflow_safe_ops.operators.load"]},
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
                    "instance": {
                        "description": "A name for this Airflow, written to each attempt, where several share one.",
                        "version_added": "0.1.0",
                        "type": "string",
                        "example": "production",
                        "default": "",
                    },
                },
            },
        },
    }
