# SPDX-License-Identifier: Apache-2.0
"""Writes files and directories atomically, so that a path never has incomplete content."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import json
import os
import platform
import shutil
import stat
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO, Any

try:
    import fcntl
except ImportError:  # not available on Windows
    fcntl = None  # type: ignore[assignment]

# The process that created a scratch directory keeps this file in it locked. The file contains the
# host name.
_LOCK_FILE = ".process"
# Arguments of Linux's renameat2: resolve paths from the working directory, and exchange them.
_AT_FDCWD, _RENAME_EXCHANGE = -100, 2
# Paths that refer to the open files of this process
_STANDARD = {"/dev/stdout": "1", "/dev/stderr": "2"}
_DESCRIPTORS = (Path("/dev/fd"), Path("/proc/self/fd"))


@contextlib.contextmanager
def scratch_directory(parent: str | os.PathLike[str], name: str) -> Iterator[Path]:
    """Context manager that yields a new hidden directory and removes it at the end.

    If the process is killed, its directory `.NAME.*.partial` remains. It is removed when any
    process on the same machine next creates a scratch directory in `parent`. While the process is
    running, it keeps a file in its scratch directory locked. On Windows and on file systems without
    locks, abandoned directories are not removed.

    Args:
        parent: The existing directory to create the scratch directory in.
        name: Part of the scratch directory's name, for example the name of the file to write.
    """
    remove_abandoned(parent)
    # File systems limit names in bytes, and a character has up to four bytes.
    part = os.fsencode(name)[:100].decode("utf-8", "ignore")
    directory = Path(tempfile.mkdtemp(".partial", f".{part}.", os.path.abspath(parent)))
    lock = _locked(directory)
    try:
        yield directory
    except OSError as error:
        # Users do not know the hidden directory, so report the path that they passed.
        if error.errno and str(error.filename or directory).startswith(str(directory)):
            error.filename = os.path.join(parent, name)
        raise
    finally:
        _remove(directory)
        if lock is not None:
            lock.close()


def remove_abandoned(parent: str | os.PathLike[str]) -> None:
    """Removes scratch directories left in `parent` by killed processes of this machine."""
    for path in Path(parent).glob(f".*.partial/{_LOCK_FILE}") if fcntl else ():
        with contextlib.suppress(OSError), open(path, "r+", encoding="utf-8") as file:
            # On a shared disk, the locks of other machines may not be visible here.
            if file.read() == platform.node():
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _remove(path.parent)


def _remove(directory: Path) -> None:
    """Removes a scratch directory.

    The locked file is removed last. If the process is killed in between, another process can still
    recognize the directory and remove it.
    """
    with contextlib.suppress(OSError):
        for path in directory.iterdir():
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            elif path.name != _LOCK_FILE:
                path.unlink(missing_ok=True)
    shutil.rmtree(directory, ignore_errors=True)


def _locked(directory: Path) -> IO[str] | None:
    """Creates and locks a scratch directory's lock file. Closing the file releases the lock."""
    if fcntl is None:
        return None
    unlocked = directory / f"{_LOCK_FILE}.new"
    with contextlib.ExitStack() as stack:
        try:
            file = stack.enter_context(open(unlocked, "w", encoding="utf-8"))
            file.write(platform.node())
            file.flush()
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Rename the file only now, so that other processes find it only when it is locked.
            os.replace(unlocked, directory / _LOCK_FILE)
        except OSError:  # The file system is full or has no locks.
            return None
        stack.pop_all()
        return file


@contextlib.contextmanager
def atomic_path(path: str | os.PathLike[str], *, sync: bool = False) -> Iterator[Path]:
    """Context manager that yields a temporary path and renames it to `path` at the end.

    If the block raises an error, the temporary file is removed, and an existing file at `path` is
    not changed. If the process is killed, its partial output remains in a `scratch_directory` next
    to `path`.

    If `path` is a symbolic link, its target is replaced. A new file keeps the permissions of the
    file that it replaces. A file that cannot be replaced is overwritten in place, for example a
    mounted file in a container or a file in a read-only directory. A device or a named pipe is
    written directly. If `path` is an open file, such as `/dev/stdout`, the content is written to it
    when the block ends.

    Args:
        path: File or directory to write. An existing file is replaced. A directory must be empty or
            not exist.
        sync: Whether to flush the content and the new name to disk, so that they survive a power
            failure.

    Yields:
        A temporary path that does not exist yet and has the same file name. For a device or a named
        pipe, `path` itself.

    Raises:
        FileNotFoundError: If the parent directory of `path` does not exist.
        NotADirectoryError: If the parent of `path` is a file.

    Example:

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as directory:
    ...     with atomic_path(f"{directory}/vocab.txt") as temporary:
    ...         _ = temporary.write_text("[PAD]")
    ...     os.listdir(directory)
    ['vocab.txt']
    """
    given = Path(path)
    if given.exists() and not (given.is_file() or given.is_dir()):
        yield given
        return
    target = Path(os.path.realpath(given)) if given.is_symlink() else given
    check_parent_exists(target)
    is_alone = target.is_file() and not os.access(target.parent, os.W_OK)
    if (is_alone or os.path.ismount(target)) and not os.access(target, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(given))
    descriptor = _STANDARD.get(str(given), given.name if given.parent in _DESCRIPTORS else "")
    parent = tempfile.gettempdir() if is_alone or descriptor else target.parent
    # If multiple processes write the same file, the last to finish wins.
    with scratch_directory(parent, given.name) as directory:
        temporary = directory / given.name
        try:
            yield temporary
        except OSError as error:
            if error.filename is None:  # For example, the disk is full.
                error.add_note(f"while {given} was being written")
            raise
        if sync:
            _sync(temporary)
            for content in temporary.rglob("*"):
                _sync(content)
        if os.name == "nt" and temporary.is_dir() and target.is_dir():
            target.rmdir()  # Windows does not replace directories, even empty ones.
        if descriptor:
            with (
                open(temporary, "rb") as source,
                open(int(descriptor), "wb", closefd=False) as file,
            ):
                shutil.copyfileobj(source, file)
            return
        _replace(temporary, target)
        if sync:
            _sync(target.parent)


def _replace(new: Path, target: Path) -> None:
    """Moves a file or directory to `target`. Overwrites a file that cannot be replaced."""
    if not (new.is_file() and target.is_file()):
        os.replace(new, target)
        return
    before = target.stat()
    with contextlib.suppress(OSError):  # Only root may change a file's owner.
        if hasattr(os, "chown"):
            os.chown(new, before.st_uid, before.st_gid)
    with contextlib.suppress(OSError):  # Some file systems have no permissions.
        os.chmod(new, stat.S_IMODE(before.st_mode))
    try:
        os.replace(new, target)
    except OSError:
        with open(new, "rb") as source, open(target, "r+b") as file:
            shutil.copyfileobj(source, file)
            file.truncate()


def exchange(first: Path, second: Path) -> None:
    """Exchanges two files or directories on the same disk.

    On Linux, the exchange is atomic. On other systems, and on file systems without this operation,
    `second` is moved to a hidden directory `.NAME.*.replaced` in between. If the process is killed
    then, that directory is not removed.

    Raises:
        OSError: If a path cannot be renamed. Both paths are then unchanged.
    """
    if _exchanged(first, second):
        return
    directory = tempfile.mkdtemp(".replaced", f".{second.name[:50]}.", second.parent)
    kept = Path(directory, second.name)
    try:
        os.rename(second, kept)
        try:
            os.rename(first, second)
        except BaseException:
            os.rename(kept, second)
            raise
        os.rename(kept, first)
    finally:
        with contextlib.suppress(OSError):
            os.rmdir(directory)


def _exchanged(first: Path, second: Path) -> bool:
    """Exchanges two paths with Linux's `renameat2`. Returns whether it succeeded."""
    rename = getattr(ctypes.CDLL(None), "renameat2", None) if sys.platform == "linux" else None
    if rename is None:
        return False
    paths = (_AT_FDCWD, os.fsencode(first), _AT_FDCWD, os.fsencode(second))
    return bool(rename(*paths, _RENAME_EXCHANGE) == 0)


def write_bytes(path: str | os.PathLike[str], content: bytes) -> None:
    """Writes a file atomically."""
    with atomic_path(path) as temporary:
        temporary.write_bytes(content)


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Writes a UTF-8 file atomically. Surrogates, as from undecodable file names, are escaped."""
    write_bytes(path, text.encode(errors="backslashreplace"))


def write_json(path: str | os.PathLike[str], value: Any) -> None:
    """Writes an indented JSON file atomically."""
    write_text(path, json.dumps(value, indent=2) + "\n")


def make_directory(path: str | os.PathLike[str]) -> None:
    """Creates a directory and its parents, unless they exist.

    Raises:
        NotADirectoryError: If the path or one of its parents is a file.
    """
    directory = Path(path)
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        blocking = next(part for part in (directory, *directory.parents) if os.path.lexists(part))
        raise NotADirectoryError(
            f"{directory} cannot be a directory: {blocking} is a file."
        ) from None


def check_replaceable(
    paths: Iterable[Path], is_own: Callable[[Path], bool], advice: str = "", name: str = "path"
) -> None:
    """Checks that a command only replaces files and directories that it has written itself.

    An empty directory may always be replaced.

    Args:
        paths: Paths of files and directories. They do not have to exist.
        is_own: Function that returns whether the command has written the file or directory at a
            path.
        advice: The fix in the error message if the command's own files must not be replaced either,
            for example `pass overwrite=True to replace it`. Empty if they may be replaced.
        name: Name of the option for the path, for example `--output_dir`.

    Raises:
        FileExistsError: If an existing file or directory must not be replaced.
    """
    taken = [
        path
        for path in paths
        if os.path.lexists(path) and not (path.is_dir() and not any(path.iterdir()))
    ]
    foreign = [path for path in taken if not is_own(path)]
    if foreign:
        deepest = min(foreign, key=lambda path: (-len(path.parts), path))
        raise FileExistsError(
            "An existing file is only replaced if it was written by the same command. Received: "
            f"{deepest}. Choose another {name}, or move that file."
        )
    if taken and advice:
        raise FileExistsError(f"{taken[0]} already exists: {advice}.")


def check_parent_exists(path: str | os.PathLike[str]) -> None:
    """Checks that the parent directory of `path` exists."""
    target = Path(path)
    if target.parent.is_dir():
        return
    if target.parent.exists():
        raise NotADirectoryError(f"{target} cannot be written: {target.parent} is not a directory.")
    raise FileNotFoundError(
        f"{target} cannot be written: the directory {target.parent} does not exist."
    )


def _sync(path: Path) -> None:
    """Flushes a file, or on POSIX systems a directory's entries, to disk."""
    if path.is_dir() and os.name != "posix":
        return
    # Windows can only flush files that are open for writing.
    descriptor = os.open(path, os.O_RDWR if os.name == "nt" else os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
