"""Counts and rankings of what was written, at any moment of the log."""
