"""No child outlives its test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.crash.harness import kill_the_living


@pytest.fixture(autouse=True)
def _no_child_is_left() -> Iterator[None]:
    yield
    kill_the_living()
