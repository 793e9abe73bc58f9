"""A trigger whose work fails, and an operator that is resumed with what it says: the class must come through."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import psycopg
from airflow.sdk import BaseOperator
from airflow.triggers.base import BaseTrigger, TriggerEvent

from airflow_safe_ops.failures.event import is_failure, raise_event, to_event

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

BEFORE_IT_ENDS = 3.0


class FailingTrigger(BaseTrigger):
    """Opens a connection that is refused in the way named; "" is well."""

    def __init__(self, how: str) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.how = how

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """As the triggerer makes it again."""
        return f"{FailingTrigger.__module__}.{FailingTrigger.__qualname__}", {"how": self.how}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """One event: how it ended."""
        await asyncio.sleep(BEFORE_IT_ENDS)
        try:
            if self.how == "denied":
                raise psycopg.errors.InsufficientPrivilege("permission denied for table t")  # noqa: TRY301
            if self.how == "reset":
                await asyncio.open_connection("127.0.0.1", 1)
        except Exception as error:  # noqa: BLE001 - it is handed over
            yield TriggerEvent(to_event(error))
        else:
            yield TriggerEvent({"status": "success"})


class DeferredOperator(BaseOperator):
    """Waits for the trigger, which fails at the first try alone."""

    def __init__(self, *, how: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.how = how

    def execute(self, context: Any) -> None:
        """Give the worker's slot back."""
        how = self.how if context["ti"].try_number == 1 else ""
        self.defer(trigger=FailingTrigger(how), method_name="execute_complete")

    def execute_complete(self, context: Any, event: dict[str, Any]) -> str:
        """Fail as the trigger failed."""
        if is_failure(event):
            raise_event(event)
        return str(event["status"])
