# SPDX-License-Identifier: Apache-2.0
"""A question answerer on a BiLSTM over the encoder's sequence output."""

import keras
import numpy as np
import pytest

from keras_bert import Backbone, BertConfig, QuestionAnswerer
from keras_bert.layers import bidirectional_lstm
from keras_bert.optimizers import AdamW

CONFIG = BertConfig(
    vocabulary_size=20,
    num_layers=1,
    num_heads=2,
    hidden_dim=8,
    intermediate_dim=16,
    max_sequence_length=16,
    causal=True,
)
IDS = np.array([[2, 7, 3, 9, 8, 3], [2, 7, 3, 5, 3, 0]])
FEATURES = {"token_ids": IDS, "padding_mask": IDS != 0}


def bilstm(*numbers):
    return bidirectional_lstm(*numbers, return_sequences=True)


def make_answerer(**arguments):
    return QuestionAnswerer(Backbone(CONFIG), **{"top_layers": bilstm(6), **arguments})


def logits(answerer, rows=slice(None), length=None):
    features = {name: values[rows, :length] for name, values in FEATURES.items()}
    outputs = answerer.predict(features, verbose=0)
    return np.stack([outputs["start_logits"], outputs["end_logits"]])


@pytest.fixture(scope="module")
def answerer():
    return make_answerer()


def test_every_weight_trains(answerer):
    model = make_answerer(top_layers=bilstm(6, 1))
    before = [keras.ops.convert_to_numpy(weight) for weight in model.trainable_variables]
    model.compile(AdamW(0.01, weight_decay=0.0))
    targets = {"start_logits": np.array([3, 0]), "end_logits": np.array([4, 0])}
    model.fit(FEATURES, targets, verbose=0)
    for variable, value in zip(model.trainable_variables, before, strict=True):
        assert np.abs(keras.ops.convert_to_numpy(variable) - value).max() > 0, variable.path


@pytest.mark.on_tensorflow
def test_it_comes_back_from_files(tmp_path):
    answerer = with_preprocessor()
    answerer.save(tmp_path / "answerer.keras")
    answerer.save_to_preset(tmp_path / "preset")
    for same in (
        keras.saving.load_model(tmp_path / "answerer.keras"),
        QuestionAnswerer.from_preset(tmp_path / "preset"),
    ):
        assert same.head_options == {"bilstm_units": 6, "bilstm_layers": 2}
        np.testing.assert_allclose(logits(same), logits(answerer), atol=1e-6)


def with_preprocessor():
    from keras_bert.data import QuestionAnswererPreprocessor
    from keras_bert.text import WordPieceTokenizer

    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
    tokenizer = WordPieceTokenizer([*special, *"abcdefghijklmnop"])
    return make_answerer(preprocessor=QuestionAnswererPreprocessor(tokenizer, 16, 5, 4))


@pytest.mark.on_tensorflow
def test_a_top_without_tokens_is_refused():
    with pytest.raises(ValueError, match=r"top_layers return the shape .*\(batch, length, feat"):
        make_answerer(top_layers=bidirectional_lstm(6))
