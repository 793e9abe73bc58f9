"""Mapped loads: each map index owns a partition of its own, given as a dict."""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo

from airflow.sdk import DAG

from airflow_safe_ops import IdempotentLoadOperator

NEW_YORK = ZoneInfo("America/New_York")

with DAG(
    "mapped",
    schedule="@daily",
    start_date=datetime(2013, 1, 1, tzinfo=NEW_YORK),
    end_date=datetime(2013, 12, 31, tzinfo=NEW_YORK),
    catchup=False,
):
    # Days of two zones overlap by eighteen hours: both map indexes write these rows, one after the other.
    IdempotentLoadOperator.partial(
        task_id="zones",
        conn_id="warehouse",
        table="mart.mapped_zones_events",
        strategy="delete_insert",
        sql="""
            SELECT event_id, event_at, region, amount FROM raw.event
            WHERE event_at >= :partition_start AND event_at < :partition_end
        """,
    ).expand(
        partition=[
            {"column": "event_at", "grain": "day", "timezone": "America/New_York"},
            {"column": "event_at", "grain": "day", "timezone": "Europe/Berlin"},
        ]
    )
    IdempotentLoadOperator.partial(
        task_id="regions",
        conn_id="warehouse",
        table="mart.mapped_regions_events",
        strategy="delete_insert",
        sql="SELECT event_id, event_at, region, amount FROM raw.event WHERE region = :region",
    ).expand(partition=[{"region": "EU"}, {"region": "US"}])
