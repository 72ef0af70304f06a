"""memlog: an event-sourced memory for language-model agents. This package is the core: log, state, decisions."""

__version__ = "0.1.0"
