"""Files that others wrote, read once: regular files only, and no more bytes than a limit; and files written whole.

A file is opened once and everything is asked of the open descriptor, so what is checked is what is read. A pipe or a
device is opened without waiting for a writer, and refused.

A `Mapped` file is not read but looked at where it lies. Its bytes stay what they are when another file takes its name.
They change when somebody writes into the file itself, and a process that looks at what was cut off is killed by the
system. So whoever computes with them asks first whether the file is as it was (`Mapped.require_unchanged`): that
notices all but writing at that very moment. Nothing may be proved of such bytes.
"""

import csv
import io
import mmap
import os
import secrets
import stat
import sys
import weakref
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from attnfun.errors import InvalidRequest, require

TEXT_LIMIT = 512 << 20


class TooLong(InvalidRequest):
    """A file has more bytes than are read of one."""


class Mapped(mmap.mmap):
    """A file where it lies: a private map that nobody can write to through it."""

    shown: str
    _number: int
    _as_mapped: tuple[int, int]

    @classmethod
    def of(cls, number: int, shown: str) -> "Mapped":
        """The file of an open descriptor; its name is for messages alone."""
        own = os.dup(number)
        try:
            made = cls(own, 0, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ)
        except BaseException:
            os.close(own)
            raise
        weakref.finalize(made, os.close, own)
        made.shown, made._number, made._as_mapped = shown, own, _stamp(own)
        made.require_unchanged()
        return made

    def require_unchanged(self) -> None:
        """InvalidRequest where somebody wrote into the file, or shortened it, since it was mapped."""
        same = _stamp(self._number) == self._as_mapped and self._as_mapped[0] == len(self)
        require(same, f"{self.shown} was written to after it was opened: load it again")


def _stamp(number: int) -> tuple[int, int]:
    state = os.fstat(number)
    return state.st_size, state.st_mtime_ns


def map_behind(array: Any) -> Mapped | None:
    """The mapped file in which the entries of an array lie."""
    while array is not None and not isinstance(array, Mapped):
        array = array.obj if isinstance(array, memoryview) else getattr(array, "base", None)
    return array


def read_bytes(path: str | os.PathLike[str], limit: int) -> bytes:
    """All bytes of a regular file of at most `limit` bytes; InvalidRequest in one sentence for anything else."""
    with _opened(path, limit) as (number, shown):
        return _all_of(number, limit, shown)


def read_or_map(path: str | os.PathLike[str], limit: int, least: int) -> "bytes | Mapped":
    """The same, but a file of `least` bytes or more stays where it is, where the system has private maps."""
    with _opened(path, limit) as (number, shown):
        if hasattr(mmap, "MAP_PRIVATE") and os.fstat(number).st_size >= max(least, 1):
            return Mapped.of(number, shown)
        return _all_of(number, limit, shown)


@contextmanager
def _opened(path: str | os.PathLike[str], limit: int) -> Iterator[tuple[int, str]]:
    """The descriptor of a regular file of at most `limit` bytes, and what it is called in messages."""
    shown, number = f"{os.fspath(path)!r:.200}", None
    try:
        number = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
        state = os.fstat(number)
        if stat.S_ISDIR(state.st_mode):
            raise IsADirectoryError
        if not stat.S_ISREG(state.st_mode):
            raise InvalidRequest(f"cannot read {shown}: it is a device or a pipe; a regular file is needed")
        if state.st_size > limit:
            raise _too_long(shown, limit)
        yield number, shown
    except IsADirectoryError:
        raise InvalidRequest(f"cannot read {shown}: it is a folder; a regular file is needed") from None
    except (OSError, ValueError) as error:  # ValueError: a null character in the name
        reason = str(getattr(error, "strerror", None) or error)
        raise InvalidRequest(f"cannot read {shown}: {reason[:1].lower()}{reason[1:]}") from None
    finally:
        if number is not None:
            os.close(number)


def _all_of(number: int, limit: int, shown: str) -> bytes:
    """As many bytes are set aside as the file has; more are read where it has grown since."""
    size = min(os.fstat(number).st_size, limit)
    with open(number, "rb", closefd=False) as stream:
        data = stream.read(size + 1)
        if len(data) > size:
            data += stream.read(limit - size)
    if len(data) > limit:
        raise _too_long(shown, limit)
    return data


def _too_long(shown: str, limit: int) -> TooLong:
    return TooLong(f"cannot read {shown}: it has more than {limit:,} bytes, the most that is read of one")


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


def csv_rows(lines: Iterable[str], label: str) -> list[tuple[int, list[str]]]:
    """The rows that hold anything, each with the number of its line; InvalidRequest for what `csv` refuses."""
    reader = csv.reader(lines, skipinitialspace=True)
    try:
        return [(reader.line_num, [cell.strip() for cell in row]) for row in reader if row]
    except csv.Error as error:
        raise InvalidRequest(f"{label}: not a CSV file ({error})") from None


@dataclass(frozen=True)
class Table:
    """A CSV file: its header, and its rows, each with its place, "PATH, line N"; spaces around cells do not count."""

    path: str
    header: list[str]
    rows: list[tuple[str, list[str]]]

    @classmethod
    def read(cls, path: str) -> "Table":
        """The table of a file; '-' is standard input."""
        (_, header), *rows = csv_rows(io.StringIO(read_text(path), newline=""), path) or [(0, [])]
        return cls(path, header, [(f"{path}, line {number}", row) for number, row in rows])

    def picked(self, names: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
        """The cells of these columns, with the place of their row; InvalidRequest where one is not there."""
        missing, shown = [name for name in names if name not in self.header], ", ".join(self.header)[:80] or "nothing"
        require(not missing, f"{self.path}: no column {', '.join(missing)} in its header ({shown})")
        at = [self.header.index(name) for name in names]
        for place, row in self.rows:
            require(max(at) < len(row), f"{place}: fewer cells than the header")
            yield place, [row[k] for k in at]


def require_writable(path: str | os.PathLike[str]) -> None:
    """InvalidRequest in one sentence, before the work, for a path that `write_whole` would refuse."""
    shown, target = f"{os.fspath(path)!r:.200}", Path(path)
    try:
        folder = Path(os.path.realpath(target)).parent
        require(not target.is_dir(), f"cannot write {shown}: it is a folder")
        plain = target.is_file() or not target.exists()
        require(plain, f"cannot write {shown}: it is a device or a pipe; a regular file is needed")
        require(folder.is_dir(), f"cannot write {shown}: there is no folder {str(folder)!r}")
        require(os.access(folder, os.W_OK), f"cannot write {shown}: the folder does not accept files")
    except (OSError, ValueError) as error:  # ValueError: a null character in the name
        raise InvalidRequest(f"cannot write {shown}: {getattr(error, 'strerror', None) or error}") from None


def write_whole(path: str | os.PathLike[str], data: bytes | Iterable[bytes | memoryview]) -> str:
    """Write all, or all parts in turn, or nothing; on disk when this returns; the name. Refusals are InvalidRequest.

    A rename puts the file in its place. So a link is followed first, and a device, which would be gone, is refused.
    """
    require_writable(path)
    target = Path(os.path.realpath(path))
    scratch = target.parent / f".attnfun-{secrets.token_hex(8)}.tmp"
    try:
        with open(scratch, "xb") as stream:
            stream.writelines((data,) if isinstance(data, bytes) else data)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(scratch, target)
    except OSError as error:
        raise InvalidRequest(f"cannot write {os.fspath(path)!r:.200}: {error.strerror or error}") from error
    finally:
        with suppress(OSError):
            scratch.unlink()
    return os.fspath(path)
