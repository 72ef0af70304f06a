"""memlog with files that begin with small maps, and grow from there.

`python small_maps.py BYTES ARGUMENTS…`: everything else is the real command line.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from memlog.storage import environment

environment.MAP_BYTES_START = int(sys.argv[1])  # before those are imported whose default it is

if __name__ == "__main__":
    from server.cli import main

    main(sys.argv[2:])
