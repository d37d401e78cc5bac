# SPDX-License-Identifier: Apache-2.0
"""A discriminator that learns what belongs together."""

import keras
import numpy as np

from keras_bert import Backbone, BertConfig
from keras_bert.tasks import ReplacedTokenDetector

CONFIG = BertConfig(
    vocabulary_size=24,
    num_layers=2,
    num_heads=2,
    hidden_dim=32,
    intermediate_dim=64,
    max_sequence_length=10,
    initializer_range=0.1,
    dropout=0.0,
    attention_dropout=0.0,
    pooler=False,
)
MASK, TOPIC = 3, 10


def rows(count: int, seed: int) -> np.ndarray:
    """Rows whose tokens are all of the one topic or all of the other."""
    random = np.random.default_rng(seed)
    topics = random.integers(0, 2, (count, 1))
    ids = 4 + topics * TOPIC + random.integers(0, TOPIC, (count, 10))
    ids[:, 0] = 2
    return ids.astype("int32")


def test_it_finds_the_token_of_another_topic():
    keras.utils.set_random_seed(0)
    model = ReplacedTokenDetector(Backbone(CONFIG), generator_size=0.5)
    # A generator that learns would soon keep to the topic. Its embeddings are the model's.
    for layer in (model.generator, *model.generator_heads["masked_lm"]):
        layer.trainable = False
    model.compile(keras.optimizers.Adam(2e-3))
    ids = rows(32 * 200, 0)
    random = np.random.default_rng(1)
    positions = random.permuted(np.tile(np.arange(1, 10), (len(ids), 1)), axis=1)[:, :2]
    originals = np.take_along_axis(ids, positions, axis=1)
    masked = ids.copy()
    np.put_along_axis(masked, positions, MASK, axis=1)
    features = {"token_ids": masked, "mask_positions": positions.astype("int32")}
    model.fit(features, originals, batch_size=32, verbose=0)
    some = {name: value[:640] for name, value in features.items()}
    scores = model.evaluate(some, originals[:640], return_dict=True, verbose=0)
    assert scores["discriminator_precision"] > 0.9
    assert scores["discriminator_recall"] > 0.4  # Of six seeds, 0.55 to 0.61

    ids = rows(64, 2)
    ids[:, 5] = 4 + (ids[:, 5] - 4 + TOPIC) % (2 * TOPIC)
    encoded = model.discriminator(ids)["sequence_output"]
    logits = keras.ops.convert_to_numpy(model.head(encoded))
    assert np.mean(logits[:, 1:].argmax(axis=1) == 4) > 0.8
