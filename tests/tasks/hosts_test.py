# SPDX-License-Identifier: Apache-2.0
"""Fine-tuning on text on two hosts is that on one."""

import json

import keras
import numpy as np
import pytest

import keras_bert
from keras_bert.data import TextClassifierPreprocessor
from tests.small_tasks import CONFIG
from tests.text.small_tokenizers import of_tokens
from tests.training.host_processes import HostProcesses

pytestmark = pytest.mark.skipif(keras.backend.backend() != "jax", reason="several hosts")

WORDS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "good", "bad", "film", "long", "dull")

PROGRAM = """
import json, os, sys
import keras
address, count, number = (flag.partition("=")[2] for flag in sys.argv[1:])
keras.distribution.initialize(address, int(count), int(number))
keras.distribution.set_distribution(keras.distribution.DataParallel(auto_shard_dataset=False))
from tests.tasks.hosts_test import trained

model, losses = trained()
try:
    model.predict(["a film"])
except ValueError as error:
    losses["refused"] = str(error)
print(json.dumps(losses))
"""


def trained():
    """A classifier that has read texts of many lengths, with dropout, and its losses."""
    random = np.random.default_rng(0)
    # Not a multiple of the batch size
    texts = [" ".join(random.choice(WORDS[5:], size)) for size in random.integers(1, 30, 90)]
    labels = np.array(["good" in text for text in texts], "int32")
    keras.utils.set_random_seed(0)
    preprocessor = TextClassifierPreprocessor(of_tokens(*WORDS), 32)
    config = CONFIG.replace(vocabulary_size=len(WORDS), max_sequence_length=32, dropout=0.1)
    model = keras_bert.TextClassifier(keras_bert.Backbone(config), 2, preprocessor=preprocessor)
    model.compile(keras.optimizers.SGD(0.1))
    history = model.fit(texts, labels, batch_size=8, epochs=2, verbose=0).history
    scores = model.evaluate(texts, labels, batch_size=8, verbose=0)
    return model, {"losses": history["loss"], "scores": scores}


def test_two_hosts_train_on_text_and_evaluate_as_one(tmp_path):
    two = HostProcesses(("-c", PROGRAM), 2, tmp_path)
    _, one = trained()
    assert two.wait() == [0, 0], "\n".join(two.printed())
    for printed in two.printed():
        found = json.loads(printed.splitlines()[-1])
        np.testing.assert_allclose(found["losses"], one["losses"], rtol=1e-5)
        np.testing.assert_allclose(found["scores"], one["scores"], rtol=1e-5)
        assert "one of 2 processes of a distribution" in found["refused"]
