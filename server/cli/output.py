"""stdout, which may be closed, full, or in an encoding that has few characters."""

from __future__ import annotations

import codecs
import errno
import io
import json
import os
import sys

_SPELT = "as-json-spells-it"


def spell_out_what_it_lacks() -> None:
    """From now on a character that the encoding of stdout has not is written as JSON spells it, which `--json` may hold
    too; and so is a byte of a file's name that is no character."""
    codecs.register_error(_SPELT, _spelt)
    if isinstance(sys.stdout, io.TextIOWrapper):  # it is None where the caller closed it
        sys.stdout.reconfigure(errors=_SPELT)


def _spelt(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeEncodeError)
    return json.dumps(error.object[error.start : error.end])[1:-1], error.end


def require() -> None:
    """Raises OSError where the caller has closed stdout: what is written there is lost, and click says nothing."""
    if sys.stdout is None:
        raise OSError(errno.EBADF, os.strerror(errno.EBADF))


def forget() -> None:
    """Lets go of what cannot be written: Python would try again at its end, and say so in its own words."""
    if sys.stdout is None:  # closed by the caller
        return
    try:
        sys.stdout.flush()
    except OSError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
