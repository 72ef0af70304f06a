"""`memlog serve` that waits at the gate before it imports the SDK.

`python gated_serve.py GATE ARGUMENTS…`: GATE is a FIFO; writing to it and closing it lets the import
go on. Everything else is the real command line.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

sys.path.insert(0, str(Path(__file__).parents[2]))


class Gate:
    """Stands before the finders of modules, and lets the SDK's models pass once it was opened."""

    @staticmethod
    def find_spec(
        fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname == "mcp_types":
            Path(sys.argv[1]).read_text()
        return None


sys.meta_path.insert(0, Gate)

if __name__ == "__main__":
    from server.cli import main

    main(["serve", *sys.argv[2:]])
