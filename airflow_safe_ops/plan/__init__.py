"""Pure decisions: what a load will do, as data that the dry run prints and the run executes."""
