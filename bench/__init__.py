"""How fast memlog is, beside how fast the bare parts under it are on the same machine in the same minute.

`rows` is what a benchmark reports, `registry` the list of them, `world` what those of one run share, `report`
and `plot` how it is shown.
Nothing of memlog imports this.
"""

import projections  # noqa: F401 - before numpy, which begins as many threads as that says
