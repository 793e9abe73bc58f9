"""What a DAG author says, as frozen data: partitions, targets, checks, and who runs it."""
