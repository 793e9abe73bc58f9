"""The only room in which SQL text stands: one file a dialect, one file a strategy."""
