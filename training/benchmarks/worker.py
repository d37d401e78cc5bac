# SPDX-License-Identifier: Apache-2.0
"""A child process that does one library's work when it is told to, and times it.

It reads a JSON line with the library and the workload from standard input, answers with a JSON line
when it has warmed up, and then answers each further line with the seconds that one round took.
"""

from __future__ import annotations

import importlib
import json
import os
import resource
import sys
from collections.abc import Callable
from typing import Any

from .workload import Workload

# Each library is imported in the process that measures it, and in no other.
LIBRARIES = {
    "keras_bert": (f"{__package__}.keras_subjects", "keras_bert_work"),
    "keras_hub": (f"{__package__}.keras_subjects", "keras_hub_work"),
    "transformers": (f"{__package__}.torch_subject", "transformers_work"),
}
WARM_UP_STEPS = 2


def main() -> None:
    # Libraries print to standard output; the answers keep it for themselves.
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", buffering=1)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    order = json.loads(sys.stdin.readline())
    try:
        run = _prepare(order["library"], Workload(**order["workload"]))
    except Exception as error:
        # Whatever a library fails with, the other rows of the table are still wanted.
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
    """The most memory in use so far: the accelerator's where there is one, else the process'."""
    for peak in (_torch_peak, _jax_peak, _tensorflow_peak):
        found = peak()
        if found:
            return found
    # Linux counts in KiB.
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
