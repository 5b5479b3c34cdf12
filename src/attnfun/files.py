"""Files that others wrote, read once: regular files only, and no more bytes than a limit; and files written whole.

A file is opened once and everything is asked of the open descriptor, so what is checked is what is read. A pipe or a
device is opened without waiting for a writer, and refused.
"""

import csv
import io
import os
import secrets
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from attnfun.errors import InvalidRequest, require

TEXT_LIMIT = 512 << 20


class TooLong(InvalidRequest):
    """A file has more bytes than are read of one."""


def read_bytes(path: str | os.PathLike[str], limit: int) -> bytes:
    """All bytes of a regular file of at most `limit` bytes; InvalidRequest in one sentence for anything else."""
    shown, number = f"{os.fspath(path)!r:.200}", None
    try:
        number = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
        with open(number, "rb", closefd=False) as stream:
            if not stat.S_ISREG(os.fstat(number).st_mode):
                raise InvalidRequest(f"cannot read {shown}: it is a device or a pipe; a regular file is needed")
            data = stream.read(limit + 1) if os.fstat(number).st_size <= limit else None
    except IsADirectoryError:
        raise InvalidRequest(f"cannot read {shown}: it is a folder; a regular file is needed") from None
    except (OSError, ValueError) as error:  # ValueError: a null character in the name
        reason = str(getattr(error, "strerror", None) or error)
        raise InvalidRequest(f"cannot read {shown}: {reason[:1].lower()}{reason[1:]}") from None
    finally:
        if number is not None:
            os.close(number)
    if data is None or len(data) > limit:
        raise TooLong(f"cannot read {shown}: it has more than {limit:,} bytes, the most that is read of one")
    return data


def require_regular(path: str | os.PathLike[str]) -> None:
    """Refuse what `read_bytes` would, for readers that open a file themselves and look at its length."""
    try:
        read_bytes(path, 0)
    except TooLong:
        return


def read_text(path: str | os.PathLike[str], limit: int = TEXT_LIMIT) -> str:
    """The text of a file, ends of lines as they are; '-' is standard input, with the same limit."""
    if os.fspath(path) == "-":
        text = sys.stdin.read(limit + 1)
        require(len(text) <= limit, f"standard input has more than {limit:,} characters, the most that is read of it")
        return text
    try:
        return read_bytes(path, limit).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InvalidRequest(f"cannot read {os.fspath(path)!r:.200}: it is not UTF-8 text") from None


def lines_of(path: str | os.PathLike[str]) -> io.StringIO:
    """The same for `csv`, which wants the ends of lines untouched."""
    return io.StringIO(read_text(path), newline="")


@contextmanager
def reading_csv(label: str) -> Iterator[None]:
    """Turn what `csv` refuses, such as endless fields, into an InvalidRequest with its label."""
    try:
        yield
    except csv.Error as error:
        raise InvalidRequest(f"{label}: not a CSV file ({error})") from None


def write_whole(path: str | os.PathLike[str], data: bytes) -> str:
    """Write all or nothing, on disk when this returns; the name. InvalidRequest for a path that cannot be written."""
    target = Path(path)
    scratch = target.parent / f".attnfun-{secrets.token_hex(8)}.tmp"
    try:
        with open(scratch, "xb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(scratch, target)
    except (OSError, ValueError) as error:
        raise InvalidRequest(f"cannot write {str(target)!r}: {getattr(error, 'strerror', None) or error}") from error
    finally:
        with suppress(OSError, ValueError):
            scratch.unlink()
    return str(target)
