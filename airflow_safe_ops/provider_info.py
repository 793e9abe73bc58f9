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
                },
            },
        },
    }
