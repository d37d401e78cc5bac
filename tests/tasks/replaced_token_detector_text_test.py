# SPDX-License-Identifier: Apache-2.0
"""Replaced token detection on text: training, predictions and checkpoints."""

import keras
import numpy as np
import pytest

pytestmark = pytest.mark.on_torch

from keras_bert import Backbone, BertConfig, MaskedLM, TextClassifier  # noqa: E402
from keras_bert.checkpoints import CheckpointWarning, save_hugging_face  # noqa: E402
from keras_bert.data import TextClassifierPreprocessor  # noqa: E402
from keras_bert.tasks import ReplacedTokenDetector  # noqa: E402
from tests.models.small_backbone import to_numpy  # noqa: E402
from tests.text.small_tokenizers import make_tokenizer  # noqa: E402

TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat", "sat", "on", "mat", ".", "é"]
TOKENIZER = make_tokenizer(*TOKENS).get_config()
CONFIG = BertConfig.from_name("electra_small_discriminator").replace(
    vocabulary_size=len(TOKENS),
    num_layers=2,
    num_heads=2,
    hidden_dim=16,
    intermediate_dim=32,
    embedding_dim=12,
    max_sequence_length=16,
    initializer_range=0.2,
)
TEXTS = ["the cat sat on the mat.", "é cat sat."] * 32


def make_detector(**arguments) -> ReplacedTokenDetector:
    keras.utils.set_random_seed(0)
    preprocessor = TextClassifierPreprocessor(make_tokenizer(*TOKENS), sequence_length=12)
    return ReplacedTokenDetector(
        Backbone(CONFIG), preprocessor, **{"generator_size": 0.5, **arguments}
    )


def check_same_weights(one, other) -> None:
    for weight, expected in zip(one.weights, other.weights, strict=True):
        np.testing.assert_array_equal(to_numpy(weight), to_numpy(expected))


@pytest.mark.on_each_backend
def test_detect_returns_token_spans_and_scores():
    model = make_detector()
    texts = ["The  cat É.", "mat"]
    first, second = model.detect(texts, threshold=0, batch_size=2)
    assert [(t["token"], texts[0][t["start"] : t["end"]]) for t in first] == [
        ("the", "The"), ("cat", "cat"), ("[UNK]", "É"), (".", ".")
    ]  # fmt: skip
    assert [t["token"] for t in second] == ["mat"]
    ids = np.array([[2, 5, 6, 1, 10, 3]])
    logits = to_numpy(model.head(model.discriminator(ids)["sequence_output"]))[0, 1:-1]
    np.testing.assert_allclose([t["score"] for t in first], 1 / (1 + np.exp(-logits)), rtol=1e-4)
    scores = sorted(t["score"] for t in first)
    between = (scores[1] + scores[2]) / 2  # A score's last digit depends on the batch.
    assert len(model.detect(texts[0], threshold=between)) == 2
    assert len(model.detect("the " * 20, threshold=0)) == 10


def test_detect_truncates_at_tokenizer_side():
    text, tokenizer = (
        "the cat sat on the mat . the cat",
        make_tokenizer(*TOKENS, truncation_side="left"),
    )
    preprocessor = TextClassifierPreprocessor(tokenizer, 8)
    task = ReplacedTokenDetector(make_detector().backbone, preprocessor, generator_size=0.5)
    tokens = task.detect(text, threshold=0)
    assert [text[token["start"] : token["end"]] for token in tokens] == text.split()[-6:]


def test_preset_stores_generator_and_discriminator(tmp_path):
    model = make_detector(discriminator_weight=20.0)
    model.save_to_preset(tmp_path / "preset")
    loaded = ReplacedTokenDetector.from_preset(tmp_path / "preset")
    assert loaded.discriminator_weight == 20.0
    assert loaded.generator.config == model.generator.config
    assert loaded.detect(TEXTS[0], threshold=0) == model.detect(TEXTS[0], threshold=0)
    check_same_weights(loaded, model)
    with pytest.warns(CheckpointWarning):  # About the heads
        classifier = TextClassifier.from_preset(tmp_path / "preset", num_classes=2)
    check_same_weights(classifier.backbone, model.discriminator)
    generator = MaskedLM.from_preset(tmp_path / "preset" / "generator")
    check_same_weights(generator.backbone, model.generator)
    loaded = ReplacedTokenDetector.from_preset(tmp_path / "preset", encoder_dropout=0.3)
    assert (loaded.config.dropout, loaded.generator.config.dropout) == (0.3, 0.3)


def test_hugging_face_generator_and_discriminator(tmp_path):
    model = make_detector()
    save_hugging_face(
        model.discriminator,
        tmp_path / "discriminator",
        heads=model.heads,
        tokenizer={"vocabulary": TOKENS},
    )
    save_hugging_face(
        model.generator,
        tmp_path / "generator",
        heads=model.generator_heads,
        tokenizer={"vocabulary": TOKENS},
    )
    loaded = ReplacedTokenDetector.from_preset(
        tmp_path / "discriminator", generator_preset=tmp_path / "generator"
    )
    check_same_weights(loaded, model)
    with pytest.warns(CheckpointWarning, match="has no generator. It is initialized randomly"):
        fresh = ReplacedTokenDetector.from_preset(tmp_path / "discriminator", generator_size=0.5)
    check_same_weights(fresh.discriminator, model.discriminator)
