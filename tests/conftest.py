"""Settings that every test shares; fixtures stand next to the tests that use them."""

from __future__ import annotations

import resource
import signal

import pytest
from hypothesis import settings

from projections.search import asking, questions

LONG = (
    "test_bench.py",
    "test_damage.py",
    "test_kills.py",
    "test_package.py",
    "test_prelude.py",
    "test_processes.py",
    "test_stdio.py",
    "test_torture.py",
)
"""Files that take longest. They come first, so that no process is left alone with one of them at the end."""

FILES = 4_096
"""So many may each process of the tests have open, where the system lets it."""

# No deadline: a machine under load is not a failing property. The parent is hypothesis's own
# profile for where it runs, which under CI draws the same examples every time.
settings.register_profile("memlog", parent=settings(), deadline=None)
settings.load_profile("memlog")

# Nor is a model that takes its time: what a search does without one is for the tests that set these.
for seconds in (questions.LOADING_SECONDS, questions.PATIENCE_SECONDS, asking.ANSWER_SECONDS):
    seconds.update(dict.fromkeys(seconds, 60.0))

# A shell without job control starts what runs in the background deaf to Ctrl-C, with all its children.
signal.signal(signal.SIGINT, signal.default_int_handler)


# Some tests open a thousand connections. Many systems grant 256 or 1,024 files, and more to whoever asks. Tests about
# few files take them from their own server.
granted, most = resource.getrlimit(resource.RLIMIT_NOFILE)
if granted != resource.RLIM_INFINITY and granted < FILES:
    enough = FILES if most == resource.RLIM_INFINITY else min(FILES, most)
    resource.setrlimit(resource.RLIMIT_NOFILE, (enough, most))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: item.path.name not in LONG)
