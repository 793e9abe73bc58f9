"""Reports for a partner whose API the test plays: one that can be looked up, and one that cannot."""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import DAG

from airflow_safe_ops import HttpReceiver, PublishOnceOperator, Retries, SafeRetryPolicy

SOON = SafeRetryPolicy(transient=Retries(tries=3, delay=timedelta(seconds=2), growth=1, jitter=0))

for dag_id, lookup_url in (("published", "/reports/{key}"), ("published_blindly", None)):
    with DAG(dag_id, schedule=None):
        PublishOnceOperator(
            task_id="send",
            conn_id="warehouse",
            key=f"{dag_id} {{{{ ds }}}}",
            intent={"day": "{{ ds }}"},
            to=HttpReceiver("/reports/{key}", lookup_url, http_conn_id="partner"),
            retries=3,
            retry_delay=timedelta(seconds=1),
            retry_policy=SOON,
        )
