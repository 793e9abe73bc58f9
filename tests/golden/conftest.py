"""`pytest tests/golden --update-golden` writes the golden files anew; the difference is for people to read."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write the golden files instead of comparing")


@pytest.fixture
def update_golden(request: pytest.FixtureRequest) -> bool:
    """Whether the golden files are to be written. The option is known only where this folder is named."""
    return bool(request.config.getoption("--update-golden", default=False))
