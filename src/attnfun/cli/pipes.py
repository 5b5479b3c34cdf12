"""Output into a pipe whose reader may go away, as in `attnfun … | head`.

A command then works to its end and returns its usual exit code; what nobody reads is dropped. Left alone, the write
would end the command in the middle, each library in its own way: a traceback, code 1, or a line at exit.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class Patient:
    """A stream that goes on into nothing once its reader is gone; everything else is the stream's own."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        try:
            return int(self._stream.write(text))
        except BrokenPipeError:
            self._drop()
            return len(text)

    def writelines(self, lines: Any) -> None:
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except BrokenPipeError:
            self._drop()

    def _drop(self) -> None:
        """Put the null device in the place of the pipe: what is still in the buffer goes there, now and at exit."""
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, self._stream.fileno())
        os.close(nothing)


@contextmanager
def patient() -> Iterator[None]:
    """stdout and stderr that outlive their readers."""
    kept = sys.stdout, sys.stderr
    mine = Patient(sys.stdout), Patient(sys.stderr)
    sys.stdout, sys.stderr = mine  # type: ignore[assignment]
    try:
        yield
    finally:
        for stream in mine:
            stream.flush()
        sys.stdout, sys.stderr = kept
