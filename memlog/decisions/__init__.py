"""What is decided about each kind of command, and what in the log stands in its way."""
