"""The record of every load, in the target's own database, and the claims that keep two loads apart."""
