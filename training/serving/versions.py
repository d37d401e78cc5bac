# SPDX-License-Identifier: Apache-2.0
"""Replaces a served model when its directory has a new version."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

from absl import logging

# As TensorFlow Serving's --file_system_poll_wait_seconds
_SECONDS_BETWEEN_CHECKS = 1.0


class VersionWatcher:
    """A thread that serves the newest version in a directory, as TensorFlow Serving does.

    If the newest version is removed, the version before it is served again. A version that cannot
    be loaded is tried again when its files change. Until then, the current version is served.

    Args:
        served: The directory of the served version.
        find_newest: Returns the directory of the newest version, or `None` without versions.
        replace: Loads a version and replaces the served model.
    """

    def __init__(
        self,
        served: Path,
        find_newest: Callable[[], Path | None],
        replace: Callable[[Path], None],
    ) -> None:
        self._served = served
        self._find_newest = find_newest
        self._replace = replace
        self._failed_files: set[tuple[Path, int, int]] = set()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"versions-{served}", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stops the thread. A version that is being loaded is not served any more."""
        self._stopped.set()

    def _run(self) -> None:
        while not self._stopped.wait(_SECONDS_BETWEEN_CHECKS):
            try:
                self._check()
            except OSError as error:  # For example, a network file system is gone for a moment.
                logging.warning("the versions next to %s cannot be read: %s", self._served, error)

    def _check(self) -> None:
        newest = self._find_newest()
        if newest is None or newest == self._served:
            return
        files = {(file, file.stat().st_size, file.stat().st_mtime_ns) for file in newest.rglob("*")}
        if files == self._failed_files:
            return
        try:
            self._replace(newest)
        except Exception as error:  # TensorFlow raises errors of many classes.
            self._failed_files = files
            logging.error("%s is not served, but still %s: %s", newest, self._served, error)
            return
        logging.info("%s is served instead of %s", newest, self._served)
        self._served = newest
