# SPDX-License-Identifier: Apache-2.0
"""A child process that runs the workload with one library, and measures it.

It reads a JSON line with the library and the workload from standard input, writes a JSON line after
warming up, and then writes the seconds of a round for each further line that it reads.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Callable
from typing import Any

from .workload import Workload

# Each library is imported only in the process that measures it.
LIBRARIES = {
    "keras_bert": (f"{__package__}.keras_subjects", "keras_bert_work"),
    "keras_hub": (f"{__package__}.keras_subjects", "keras_hub_work"),
    "transformers": (f"{__package__}.torch_subject", "transformers_work"),
}
WARM_UP_STEPS = 2


def main() -> None:
    # Standard output is reserved for the answers; what libraries print goes to standard error.
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", buffering=1)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    order = json.loads(sys.stdin.readline())
    try:
        run = _prepare(order["library"], Workload(**order["workload"]))
    except Exception as error:
        # The failure of one library must not prevent the other rows of the table.
        print(json.dumps({"unavailable": f"{type(error).__name__}: {error}"}), file=answers)
        return
    print(json.dumps({"ready": True}), file=answers)
    for _ in sys.stdin:
        seconds = run(order["workload"]["steps"])
        print(json.dumps({"seconds": seconds, "peak_bytes": _peak_bytes()}), file=answers)


def _prepare(library: str, workload: Workload) -> Callable[[int], float]:
    module, name = LIBRARIES[library]
    run = getattr(importlib.import_module(module), name)(workload)
    run(WARM_UP_STEPS)
    return run


def _peak_bytes() -> int:
    """Returns the peak memory: the accelerator's if there is one, otherwise the process's.

    On Windows, that of a process is unknown, and 0 is returned.
    """
    for peak in (_torch_peak, _jax_peak, _tensorflow_peak):
        found = peak()
        if found:
            return found
    try:
        import resource
    except ImportError:
        return 0
    # In KiB on Linux
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _torch_peak() -> int:
    torch: Any = sys.modules.get("torch")
    return torch.cuda.max_memory_allocated() if torch and torch.cuda.is_available() else 0


def _jax_peak() -> int:
    jax: Any = sys.modules.get("jax")
    statistics = jax.local_devices()[0].memory_stats() if jax else None
    return (statistics or {}).get("peak_bytes_in_use", 0)


def _tensorflow_peak() -> int:
    tf: Any = sys.modules.get("tensorflow")
    if not tf or not tf.config.list_physical_devices("GPU"):
        return 0
    return tf.config.experimental.get_memory_info("GPU:0")["peak"]


if __name__ == "__main__":
    main()
