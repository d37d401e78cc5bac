# SPDX-License-Identifier: Apache-2.0
"""`NextSentencePredictor`: which head it reads, and which inputs it accepts."""

import keras
import numpy as np
import pytest

from keras_bert import Backbone, BertConfig, NextSentencePredictor, Pretrainer, load_model
from keras_bert.data import TextClassifierPreprocessor
from tests.text import small_tokenizers

# The preset also has a masked LM head.
pytestmark = [
    pytest.mark.on_torch,
    pytest.mark.filterwarnings("ignore:.*unused weights.*masked_lm"),
]

PAIRS = [("the cat sat", "on the mat"), ("the mat", "the cat"), ("a cat", "a mat")]


def save_pretrainer(directory, **changes):
    keras.utils.set_random_seed(0)
    tokenizer = small_tokenizers.make("wordpiece")
    config = BertConfig(
        vocabulary_size=tokenizer.vocabulary_size,
        num_layers=2,
        num_heads=2,
        hidden_dim=8,
        intermediate_dim=16,
        max_sequence_length=24,
        initializer_range=0.5,
    ).replace(**changes)
    pretrainer = Pretrainer(Backbone(config), TextClassifierPreprocessor(tokenizer, 24))
    pretrainer.save_to_preset(directory)
    return pretrainer


def test_predictor_reads_pretrainer_head(tmp_path):
    pretrainer = save_pretrainer(tmp_path / "pretrainer")
    predictor = NextSentencePredictor.from_preset(tmp_path / "pretrainer")
    first, second = zip(*PAIRS, strict=True)
    features = pretrainer.preprocessor(list(first), list(second))
    positions = np.zeros((len(PAIRS), 1), "int32")
    expected = pretrainer.predict({**features, "mask_positions": positions}, verbose=0)
    logits = predictor.predict(PAIRS, verbose=0)
    np.testing.assert_allclose(logits, expected["next_sentence_logits"], atol=1e-5)
    labels = [answer["label"] for answer in predictor.classify(PAIRS)]
    assert labels == [("is_next", "not_next")[index] for index in logits.argmax(axis=-1)]
    predictor.save(tmp_path / "predictor.keras")
    predictor.save_to_preset(tmp_path / "predictor")
    for copy in (
        load_model(tmp_path / "predictor.keras"),
        NextSentencePredictor.from_preset(tmp_path / "predictor"),
    ):
        np.testing.assert_allclose(copy.predict(PAIRS, verbose=0), logits, atol=1e-6)


def test_albert_classes_are_orders(tmp_path):
    save_pretrainer(tmp_path, layer_sharing="all")
    predictor = NextSentencePredictor.from_preset(tmp_path)
    assert predictor.class_names == ("in_order", "swapped")


def test_single_texts_raise(tmp_path):
    save_pretrainer(tmp_path)
    predictor = NextSentencePredictor.from_preset(tmp_path)
    with pytest.raises(ValueError, match=r"x must be text pairs.*Received: single texts"):
        predictor.classify(["the cat sat", "on the mat"])
    with pytest.raises(ValueError, match=r"Row 0 must have text_pair\. Received: text"):
        predictor.predict_rows([{"text": "the cat sat"}])


@pytest.mark.on_tensorflow
def test_export_accepts_pairs(tmp_path):
    tf = pytest.importorskip("tensorflow")
    save_pretrainer(tmp_path / "preset")
    predictor = NextSentencePredictor.from_preset(tmp_path / "preset")
    predictor.export(tmp_path / "1")
    serve = tf.saved_model.load(tmp_path / "1").signatures["serving_default"]
    first, second = map(tf.constant, zip(*PAIRS, strict=True))
    outputs = serve(text=first, text_pair=second)
    expected = [answer["label"].encode() for answer in predictor.classify(PAIRS)]
    assert outputs["label"].numpy().tolist() == expected
