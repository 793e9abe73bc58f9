"""Errors as they are really raised, and what they are classed as."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from airflow_safe_ops.failures.classify import classify
from airflow_safe_ops.retry import HAS_RETRY_POLICY

if TYPE_CHECKING:
    from collections.abc import Callable

needs_policy = pytest.mark.skipif(not HAS_RETRY_POLICY, reason="Airflow has retry policies since 3.3")


def caught(work: Callable[[], object]) -> BaseException:
    """What the work raises."""
    try:
        work()
    except BaseException as error:  # noqa: BLE001 - the tables have those too
        return error
    raise AssertionError("nothing was raised")


def raise_it(error: BaseException) -> None:
    """Raise an error."""
    raise error


def raised(error: BaseException) -> BaseException:
    """The error as it is after it was raised."""
    return caught(lambda: raise_it(error))


def behind(outer: BaseException, inner: BaseException) -> BaseException:
    """Raised from it."""

    def work() -> None:
        raise outer from inner

    return caught(work)


def meanwhile(outer: BaseException, inner: BaseException) -> BaseException:
    """Raised while it was handled."""

    def work() -> None:
        try:
            raise_it(inner)
        except BaseException:  # noqa: BLE001 - whatever it is
            raise outer  # noqa: B904 - that is the point

    return caught(work)


def of(error: BaseException) -> tuple[str, str]:
    """The class and the code that decided."""
    verdict = classify(error)
    return str(verdict.failure), verdict.code
