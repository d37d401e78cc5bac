# SPDX-License-Identifier: Apache-2.0
"""Atomic writes: a file or folder gets its name only when it is complete."""

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

# In a scratch folder, the file that its process locks, with the name of the machine
_LOCK_FILE = ".process"
# Arguments of Linux' renameat2: paths are relative to the working directory; names are exchanged.
_AT_FDCWD, _RENAME_EXCHANGE = -100, 2
# Paths of files that this process has open
_STANDARD = {"/dev/stdout": "1", "/dev/stderr": "2"}
_DESCRIPTORS = (Path("/dev/fd"), Path("/proc/self/fd"))


@contextlib.contextmanager
def scratch_directory(parent: str | os.PathLike[str], name: str) -> Iterator[Path]:
    """Context manager that yields a new hidden folder, and removes it at the end.

    A process that is killed leaves its folder, `.NAME.*.partial`. It is removed when the next one
    is created in the same place, by any process on the same machine: a file in it is locked as long
    as its own process lives. On Windows, and on file systems without locks, it stays.

    Args:
        parent: The folder to create it in, which exists.
        name: A part of its name, such as that of the file that is being written.
    """
    remove_abandoned(parent)
    # File systems limit the bytes of a name, and a character may have four.
    part = os.fsencode(name)[:100].decode("utf-8", "ignore")
    folder = Path(tempfile.mkdtemp(".partial", f".{part}.", os.path.abspath(parent)))
    lock = _locked(folder)
    try:
        yield folder
    except OSError as error:
        # Nobody knows the path in the hidden folder.
        if error.errno and str(error.filename or folder).startswith(str(folder)):
            error.filename = os.path.join(parent, name)
        raise
    finally:
        _remove(folder)
        if lock is not None:
            lock.close()


def remove_abandoned(parent: str | os.PathLike[str]) -> None:
    """Removes the scratch folders in a folder that killed processes of this machine have left."""
    for path in Path(parent).glob(f".*.partial/{_LOCK_FILE}") if fcntl else ():
        with contextlib.suppress(OSError), open(path, "r+", encoding="utf-8") as file:
            # A disk may be shared with machines whose locks are not seen here.
            if file.read() == platform.node():
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _remove(path.parent)


def _remove(folder: Path) -> None:
    """Removes a scratch folder; its locked file last, so that a kill meanwhile leaves one again."""
    with contextlib.suppress(OSError):
        for path in folder.iterdir():
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            elif path.name != _LOCK_FILE:
                path.unlink(missing_ok=True)
    shutil.rmtree(folder, ignore_errors=True)


def _locked(folder: Path) -> IO[str] | None:
    """Returns the locked file of a new scratch folder; closing it releases the lock."""
    if fcntl is None:
        return None
    unlocked = folder / f"{_LOCK_FILE}.new"
    with contextlib.ExitStack() as stack:
        try:
            file = stack.enter_context(open(unlocked, "w", encoding="utf-8"))
            file.write(platform.node())
            file.flush()
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Only a locked file has the name by which others find it.
            os.replace(unlocked, folder / _LOCK_FILE)
        except OSError:  # a file system without locks, or a full one
            return None
        stack.pop_all()
        return file


@contextlib.contextmanager
def atomic_path(path: str | os.PathLike[str], *, sync: bool = False) -> Iterator[Path]:
    """Context manager that yields a temporary path, and renames it to `path` at the end.

    If the block raises an error, the temporary file is removed, and an existing file at `path` is
    not changed. What a killed process leaves is in a `scratch_directory` next to `path`.

    A link stays, and the file that it points to is replaced. A new file has the permissions of the
    one that it replaces. A file that cannot be replaced is overwritten: one that is mounted, as in
    a container, or one in a folder that is not writable. A device or a named pipe is written to
    directly. To an open file, such as `/dev/stdout`, the content is added at the end.

    Args:
        path: Path of a file, which is replaced if it exists; or of a folder, which must be empty or
            not exist.
        sync: Whether to flush the content and the renaming to disk, so that they survive a power
            failure.

    Yields:
        The temporary path, which does not exist, with the same name in another folder; or `path`
        itself if it is a device or a named pipe.

    Raises:
        FileNotFoundError: If the folder of `path` does not exist.
        NotADirectoryError: If it is a file.

    Example:

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with atomic_path(f"{folder}/vocab.txt") as temporary:
    ...         _ = temporary.write_text("[PAD]")
    ...     os.listdir(folder)
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
    # Several may write the same file: the last one wins.
    with scratch_directory(parent, given.name) as folder:
        temporary = folder / given.name
        try:
            yield temporary
        except OSError as error:
            if error.filename is None:  # as of a full disk
                error.add_note(f"while {given} was being written")
            raise
        if sync:
            _sync(temporary)
            for content in temporary.rglob("*"):
                _sync(content)
        if os.name == "nt" and temporary.is_dir() and target.is_dir():
            target.rmdir()  # Windows does not replace a folder, even an empty one.
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
    """Moves a file or folder to its place; overwrites a file that cannot be replaced."""
    if not (new.is_file() and target.is_file()):
        os.replace(new, target)
        return
    before = target.stat()
    with contextlib.suppress(OSError):  # Only root may give a file to its owner.
        if hasattr(os, "chown"):
            os.chown(new, before.st_uid, before.st_gid)
    with contextlib.suppress(OSError):  # a file system without permissions
        os.chmod(new, stat.S_IMODE(before.st_mode))
    try:
        os.replace(new, target)
    except OSError:
        with open(new, "rb") as source, open(target, "r+b") as file:
            shutil.copyfileobj(source, file)
            file.truncate()


def exchange(first: Path, second: Path) -> None:
    """Exchanges the names of two files or folders of one disk.

    On Linux this is one step: whenever a process is killed, both exist, each with one of the names.
    Elsewhere, and on file systems without this operation, `second` is in a hidden folder
    `.NAME.*.replaced` in between, which nothing removes if the process is killed.

    Raises:
        OSError: If they cannot be renamed; both keep their names.
    """
    if _exchanged(first, second):
        return
    folder = tempfile.mkdtemp(".replaced", f".{second.name[:50]}.", second.parent)
    kept = Path(folder, second.name)
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
            os.rmdir(folder)


def _exchanged(first: Path, second: Path) -> bool:
    """Exchanges two names by Linux' own operation; returns whether there is one."""
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
    """Writes a file in UTF-8 atomically; bytes of file names that are not UTF-8 are escaped."""
    write_bytes(path, text.encode(errors="backslashreplace"))


def write_json(path: str | os.PathLike[str], value: Any) -> None:
    """Writes an indented JSON file atomically."""
    write_text(path, json.dumps(value, indent=2) + "\n")


def make_directory(path: str | os.PathLike[str]) -> None:
    """Creates a folder and its parents, unless they exist.

    Raises:
        NotADirectoryError: If it or one of its parents is a file.
    """
    folder = Path(path)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        blocking = next(part for part in (folder, *folder.parents) if os.path.lexists(part))
        raise NotADirectoryError(f"{folder} cannot be a folder: {blocking} is a file.") from None


def check_replaceable(
    paths: Iterable[Path], is_own: Callable[[Path], bool], advice: str = "", name: str = "path"
) -> None:
    """Checks that a command may replace what is at some paths: only what it has written itself.

    An empty folder may always be replaced.

    Args:
        paths: The paths of files and folders, which need not exist.
        is_own: Whether the command has written what is at a path.
        advice: What the user can do if its own files must not be replaced either, such as `pass
            overwrite=True to replace it`; empty if they may be.
        name: The name of the option for the path, such as `--output_dir`.

    Raises:
        FileExistsError: If it may not.
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
            "What exists must have been written by the same command to be replaced. Received: "
            f"{deepest}. Choose another {name}, or move that file."
        )
    if taken and advice:
        raise FileExistsError(f"{taken[0]} exists already; {advice}.")


def check_parent_exists(path: str | os.PathLike[str]) -> None:
    """Checks that the folder of a file to write exists, and is no file."""
    target = Path(path)
    if target.parent.is_dir():
        return
    if target.parent.exists():
        raise NotADirectoryError(f"{target} cannot be written: {target.parent} is not a folder.")
    raise FileNotFoundError(
        f"{target} cannot be written: the folder {target.parent} does not exist."
    )


def _sync(path: Path) -> None:
    """Flushes a file or, where the system supports it, the entries of a folder to disk."""
    if path.is_dir() and os.name != "posix":
        return
    # Windows flushes only what is open for writing.
    descriptor = os.open(path, os.O_RDWR if os.name == "nt" else os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
