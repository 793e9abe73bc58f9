"""Text of others, as the ledger's columns take it."""

from __future__ import annotations


def storable(text: str) -> str:
    """Without what PostgreSQL refuses: NUL, and halves of characters. What was to be kept with it is not lost to it."""
    return text.replace("\x00", "\ufffd").encode("utf-8", "replace").decode("utf-8")
