"""Which class a failure is of, and what is done about each class."""
