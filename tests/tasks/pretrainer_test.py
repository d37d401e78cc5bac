# SPDX-License-Identifier: Apache-2.0
"""Masked LM and next sentence logits, and the shared embedding table."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_bert.data import (
    InstanceEncoder,
    InstanceMaker,
    StaticMasker,
    pretraining_batches,
    write_records,
)
from keras_bert.models import Backbone
from keras_bert.tasks import Pretrainer
from tests.models import numpy_bert
from tests.models.small_backbone import WITHOUT_DROPOUT, features, random_weights, to_numpy

POSITIONS = np.array([[0, 6, 3], [1, 2, 0], [1, 0, 0]], "int32")


def inputs() -> dict[str, np.ndarray]:
    return {**features(), "mask_positions": POSITIONS}


def model_with_random_weights(config=WITHOUT_DROPOUT, **arguments) -> Pretrainer:
    model = Pretrainer(Backbone(config), **arguments)
    random_weights(model)
    return model


@pytest.fixture(scope="module")
def model() -> Pretrainer:
    return model_with_random_weights()


@pytest.mark.parametrize("activation", ["gelu_erf", "gelu_tanh"])
def test_agrees_with_numpy(activation):
    config = WITHOUT_DROPOUT.replace(activation=activation)
    model = model_with_random_weights(config)
    weights, x = numpy_bert.weights_of(model), inputs()
    encoded = numpy_bert.encoder(weights, config, x)
    expected = {
        "masked_lm_logits": numpy_bert.masked_lm_logits(
            weights, config, encoded["sequence_output"], POSITIONS
        ),
        "next_sentence_logits": numpy_bert.next_sentence_logits(weights, encoded["pooled_output"]),
    }
    for name, logits in model(x).items():
        np.testing.assert_allclose(to_numpy(logits), expected[name], atol=5e-5, rtol=1e-5)


def test_the_gradient_reaches_the_table_from_both_sides():
    used = set(inputs()["token_ids"][inputs()["padding_mask"]])
    predicted, *others = sorted(set(range(1, 50)) - used)
    model = model_with_random_weights()
    table = model.backbone.token_embedding_table
    before = table.numpy().copy()
    losses = {
        "masked_lm_logits": lambda _, logits: ops.sum(ops.square(logits[..., predicted])),
        "next_sentence_logits": lambda _, logits: 0.0 * ops.sum(ops.square(logits)),
    }
    model.compile(keras.optimizers.SGD(1.0), loss=losses, metrics=[])
    model.train_on_batch(inputs(), {name: np.zeros((3, 1)) for name in losses})
    update = abs(table.numpy() - before).max(axis=-1)
    assert update[predicted] > 1e-4  # as an output
    assert all(update[row] > 1e-6 for row in used)  # as inputs
    assert (update[others] == 0).all()


@pytest.mark.on_tensorflow
@pytest.mark.parametrize("next_sentence", [True, False])
def test_keras_file_round_trip(next_sentence, tmp_path):
    model = model_with_random_weights(next_sentence=next_sentence)
    model.backbone.blocks[0].trainable = False
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert isinstance(loaded, Pretrainer)
    assert loaded.get_config() == model.get_config()
    assert len(loaded.trainable_variables) == len(model.trainable_variables)
    # Tied again: one table, and the head's product goes through it
    assert loaded.get_layer("token_embedding") is loaded.backbone.token_embedding
    assert loaded.count_params() == model.count_params()
    expected, outputs = model(inputs()), loaded(inputs())
    for name in expected:
        np.testing.assert_array_equal(to_numpy(outputs[name]), to_numpy(expected[name]))


@pytest.mark.on_tensorflow
@pytest.mark.parametrize("call", ["fit", "evaluate", "predict"])
def test_text_is_refused_with_what_to_do(model, call):
    with pytest.raises(ValueError, match=r"create-pretraining-data.*pretraining_batches"):
        getattr(model, call)(["A text.", "Another one."])


@pytest.mark.on_tensorflow
def test_fit_follows_the_message_about_text(tmp_path):
    words = [f"w{number}" for number in range(40)]
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words]
    documents = [[np.arange(5 + n, 9 + n) for n in range(k, k + 6)] for k in range(0, 30, 5)]
    instances = InstanceMaker(2, 3, sequence_length=12, duplicate_factor=2)(documents)
    encode = InstanceEncoder(tokens, [2, 3], 12, StaticMasker(4, len(tokens), 3))
    rng = np.random.default_rng(0)
    write_records(tmp_path / "a.tfrecord", (encode(row, rng) for row in instances))

    model = model_with_random_weights()
    model.compile("sgd")
    with pytest.raises(ValueError, match=r"keras_bert\.data\.pretraining_batches\(files, "):
        model.fit(["a text"])
    batches = pretraining_batches(str(tmp_path / "*"), batch_size=4, sequence_length=12)
    history = model.fit(batches, validation_data=batches, verbose=0).history
    assert {"masked_lm_logits_accuracy", "val_next_sentence_logits_accuracy"} <= set(history)
