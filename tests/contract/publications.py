"""What tests of publications share: one publication, its receiver, and its row in the ledger."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from airflow_safe_ops import HttpReceiver, publish_once
from airflow_safe_ops.errors import SafeOpsError

if TYPE_CHECKING:
    from tests.contract.postgres import PostgresWarehouse
    from tests.receiver import Receiver

KEY = "orders/2026-01-01"
INTENT = {"day": "2026-01-01", "rows": 3, "total": "12.50"}
OTHER = {**INTENT, "rows": 4}


def to(receiver: Receiver, *, asks: bool = True, **more: Any) -> HttpReceiver:
    """A receiver by HTTP."""
    return HttpReceiver(receiver.url + "/{key}", receiver.lookup_url if asks else None, **more)


def publish(receiver: Receiver, intent: Any = None, /, *, asks: bool = True, **more: Any) -> Any:
    """Publish it in this process, by hand."""
    idempotent = more.pop("idempotent", receiver.takes_keys)
    how = {"conn_id": "warehouse", "settle": 0, "to": to(receiver, asks=asks, idempotent=idempotent), **more}
    return publish_once(KEY, INTENT if intent is None else intent, **how)


def fails(kind: type[SafeOpsError], receiver: Receiver, /, *args: Any, **more: Any) -> SafeOpsError:
    """It fails with this error."""
    with pytest.raises(kind) as failed:
        publish(receiver, *args, **more)
    return failed.value


def row(warehouse: PostgresWarehouse, columns: str = "state, how, sends") -> Any:
    """Its row in the ledger; all of them where there are more."""
    rows = warehouse.ledger("publication", columns)
    return rows[0] if len(rows) == 1 else rows


def age(warehouse: PostgresWarehouse, seconds: float) -> None:
    """What was begun was begun so much earlier."""
    by = f"interval '{seconds} s'"
    warehouse.execute(
        f"UPDATE safe_ops.safe_ops_publication SET sent_at = sent_at - {by}, keyed_at = keyed_at - {by}, "
        f"answered_at = answered_at - {by}"
    )


def die(warehouse: PostgresWarehouse) -> None:
    """Its publisher died in mid-send, a while ago."""
    warehouse.execute("UPDATE safe_ops.safe_ops_publication SET state = 'sending', token = gen_random_uuid()")
    age(warehouse, 60)
