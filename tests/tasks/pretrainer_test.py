# SPDX-License-Identifier: Apache-2.0
"""`Pretrainer`: the shared embedding table, and training on documents and records."""

import functools

import keras
import numpy as np
import pytest
from keras import ops

from keras_bert.checkpoints import CheckpointWarning
from keras_bert.data import (
    InstanceEncoder,
    InstanceGenerator,
    StaticMasker,
    TextClassifierPreprocessor,
    pretraining_batches,
    write_records,
)
from keras_bert.models import Backbone
from keras_bert.tasks import NextSentencePredictor, Pretrainer
from keras_bert.text import WordPieceTokenizer
from tests.models.small_backbone import WITHOUT_DROPOUT, features, random_weights

POSITIONS = np.array([[0, 6, 3], [1, 2, 0], [1, 0, 0]], "int32")


def make_inputs() -> dict[str, np.ndarray]:
    return {**features(), "mask_positions": POSITIONS}


def make_model(config=WITHOUT_DROPOUT, **arguments) -> Pretrainer:
    model = Pretrainer(Backbone(config), **arguments)
    random_weights(model)
    return model


@pytest.fixture(scope="module")
def model() -> Pretrainer:
    return make_model()


def test_embedding_table_has_input_and_output_gradients():
    input_ids = set(make_inputs()["token_ids"][make_inputs()["padding_mask"]])
    predicted, *unused_ids = sorted(set(range(1, 50)) - input_ids)
    model = make_model()
    table = model.backbone.token_embedding_table
    before = table.numpy().copy()
    losses = {
        "masked_lm_logits": lambda _, logits: ops.sum(ops.square(logits[..., predicted])),
        "next_sentence_logits": lambda _, logits: 0.0 * ops.sum(ops.square(logits)),
    }
    model.compile(keras.optimizers.SGD(1.0), loss=losses, metrics=[])
    model.train_on_batch(make_inputs(), {name: np.zeros((3, 1)) for name in losses})
    update = abs(table.numpy() - before).max(axis=-1)
    assert update[predicted] > 1e-4  # The target token
    assert all(update[row] > 1e-6 for row in input_ids)  # Input tokens
    assert (update[unused_ids] == 0).all()


@pytest.mark.on_torch
def test_fit_on_documents_trains_both_heads(tmp_path):
    words = [f"w{number}" for number in range(40)]
    tokenizer = WordPieceTokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words])
    documents = [words[start : start + 10] for start in range(0, 40, 10)]
    config = WITHOUT_DROPOUT.replace(vocabulary_size=tokenizer.vocabulary_size)
    preprocessor = TextClassifierPreprocessor(tokenizer, sequence_length=12)
    model = Pretrainer(Backbone(config), preprocessor, sequence_format="sentence_order")
    model.compile("sgd")
    steps = model.num_steps(documents, batch_size=4, epochs=2)
    fit = functools.partial(model.fit, batch_size=4, epochs=2, verbose=0)
    history = fit(documents, validation_data=documents).history
    assert {"masked_lm_logits_accuracy", "val_next_sentence_logits_accuracy"} <= set(history)
    assert steps == int(model.optimizer.iterations) >= 2 * 10 * len(documents) // 4
    model.save_to_preset(tmp_path)
    with pytest.warns(CheckpointWarning, match=r"unused weights.*masked_lm"):
        predictor = NextSentencePredictor.from_preset(tmp_path)
    assert predictor.class_names == ("in_order", "swapped")
    with pytest.raises(ValueError, match="documents, each a list of sentences"):
        fit(words)


@pytest.mark.on_torch
def test_fit_on_records(tmp_path):
    words = [f"w{number}" for number in range(40)]
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words]
    documents = [[np.arange(5 + n, 9 + n) for n in range(k, k + 6)] for k in range(0, 30, 5)]
    instances = InstanceGenerator(2, 3, sequence_length=12, duplicate_factor=2)(documents)
    encode = InstanceEncoder(tokens, [2, 3], 12, StaticMasker(4, len(tokens), 3))
    rng = np.random.default_rng(0)
    write_records(tmp_path / "a.tfrecord", (encode(row, rng) for row in instances))

    model = make_model()
    model.compile("sgd")
    batches = pretraining_batches(str(tmp_path / "*"), batch_size=4, sequence_length=12)
    history = model.fit(batches, validation_data=batches, verbose=0).history
    assert {"masked_lm_logits_accuracy", "val_next_sentence_logits_accuracy"} <= set(history)
