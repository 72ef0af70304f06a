"""Settings that every test shares; fixtures stand next to the tests that use them."""

from __future__ import annotations

from hypothesis import settings

# No deadline: a machine under load is not a failing property. The parent is hypothesis's own
# profile for where it runs, which under CI draws the same examples every time.
settings.register_profile("memlog", parent=settings(), deadline=None)
settings.load_profile("memlog")
