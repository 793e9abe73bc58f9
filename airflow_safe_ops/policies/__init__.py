"""
The cluster policy: what Airflow asks for each DAG that it parses (entry point ``airflow.policy``).

Airflow imports this module whenever it starts, so it imports nothing else. Whatever goes wrong behind it is logged
and the DAG goes through as its author wrote it: a policy must never take a dag-processor or a scheduler down.
"""

from __future__ import annotations

import logging
from typing import Any

from pluggy import HookimplMarker

# Airflow's own `airflow.policies.hookimpl`. Importing it starts Airflow, which loads this module while it is half made
# and would find no hook in it.
hookimpl = HookimplMarker("airflow.policy")
log = logging.getLogger(__name__)


@hookimpl
def dag_policy(dag: Any) -> None:
    """
    Look at a DAG by each rule; warn of what is found or set it right, as ``[safe_ops]`` says.

    :param dag: the DAG as its file made it.
    :raises AirflowClusterPolicySkipDag: a rule that is enforced refuses this DAG; its file's other DAGs stay.
    """
    try:
        from airflow_safe_ops.policies.review import review

        refusal = review(dag)
    except Exception:
        log.exception("SO-714 The cluster policy of airflow-safe-ops failed; the DAG goes through as it is written.")
        return
    if refusal is not None:
        from airflow.exceptions import AirflowClusterPolicySkipDag

        raise AirflowClusterPolicySkipDag(str(refusal))
