"""`memlog`, `memlog-mcp` and `python -m memlog` are the command line."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import NoReturn


def main(*first: str) -> None:
    """Runs what was typed, behind `first`.

    Ctrl-C while the command line is being imported ends it without a traceback, in the words that it has for later.
    """
    try:
        _find_own_packages()
        from server.cli import main as run

        run([*first, *sys.argv[1:]], _leave)
    except KeyboardInterrupt:
        print("\nAborted!", file=sys.stderr)
        _leave()


def _find_own_packages() -> None:
    """Beside this one, whatever PYTHONPATH and the folder of `python -m memlog` have under these names."""
    sys.path.insert(0, str(Path(__file__).parents[1]))
    for package in ("projections", "server"):
        import_module(package)
    del sys.path[0]  # for what else is there, the order is the caller's


def _leave() -> NoReturn:
    """Ends the process at once, and waits for no thread."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError):
            stream.flush()
    os._exit(1)


def serve() -> None:
    """`memlog-mcp`: the stdio server, for clients that take a command without arguments."""
    main("serve")


if __name__ == "__main__":
    main()
