"""The end of a process that serves."""

from __future__ import annotations

import faulthandler
import logging
import os
import sys
import threading
from contextlib import suppress
from typing import NoReturn

DRAIN_S, TEARDOWN_S = 10.0, 5.0
"""How long a server that is to end waits for calls under way, and then for what is to be put away."""

SPANS_S = 2.0
"""How long the end waits for the spans of OpenTelemetry to be sent: its own limits are longer, and its collector may be
away."""

logger = logging.getLogger(__name__)


def give_up_after(seconds: float) -> None:
    """By then the process ends with exit code 1 and the tracebacks of its threads, unless it has ended.

    A thread in C sees to it, which needs neither the GIL nor a lock that a stuck call may hold. Where no thread is
    to be had the process ends when it ends.
    """
    try:
        faulthandler.dump_traceback_later(seconds, exit=True)
    except RuntimeError as error:
        logger.warning("a call that hangs will be waited for: %s", error)


def leave(exit_code: int) -> NoReturn:
    """Ends the process at once: the interpreter's own teardown takes 0.1 s and may wait for some library's thread.

    Spans are sent and what was logged is written out first. A thread may be making a handler in this very moment, half
    of which makes `logging.shutdown` fail; the exit code says how the serving ended, and nothing else.
    """
    with suppress(Exception):
        _send_spans()
    with suppress(Exception):
        logging.shutdown()
    os._exit(exit_code)


def _send_spans() -> None:
    """Those that whatever is configured in the process has gathered, and would send as the interpreter ends."""
    trace = sys.modules.get("opentelemetry.trace")
    flush = None if trace is None else getattr(trace.get_tracer_provider(), "force_flush", None)
    if flush is not None:
        sending = threading.Thread(target=flush, name="spans", daemon=True)
        sending.start()
        sending.join(SPANS_S)
