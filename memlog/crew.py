"""Threads for what somebody waits for, as many as the system grants."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

MORE_THREADS = "Give the process more threads (ulimit -u) or more memory, then call again."
"""What to do where it has too few."""


class Crew(ThreadPoolExecutor):
    """Up to so many threads; where no more are granted, those that are there do all. `submit` raises RuntimeError where
    there is none."""

    def _adjust_thread_count(self) -> None:
        try:
            super()._adjust_thread_count()
        except RuntimeError:
            if self._threads:
                return
            # It waits alone, and would be run by the next thread that is granted, when nobody knows of it any more.
            self._work_queue.get_nowait()
            raise
