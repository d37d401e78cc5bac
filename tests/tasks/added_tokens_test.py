# SPDX-License-Identifier: Apache-2.0
"""Adds tokens to tasks of every structure."""

import keras
import numpy as np
import pytest

import keras_bert
from keras_bert import Backbone
from tests.small_tasks import CONFIG, LETTERS, make_text_task

pytestmark = pytest.mark.on_torch

MARKERS = ["<e1>", "</e1>"]
TEXTS = ["a b", "b"]
MARKED = ["a <e1> b", "<e1>b</e1>a"]


def perturb(task):
    random = np.random.default_rng(0)
    for weight in task.weights:
        weight.assign(random.normal(0, 0.5, weight.shape))
    return task


def make_linear_masked_lm():
    config = CONFIG.replace(vocabulary_size=len(LETTERS), masked_lm_head="linear")
    preprocessor = {"tokenizer": {"vocabulary": LETTERS}, "sequence_length": 12}
    return keras_bert.MaskedLM(Backbone(config), preprocessor=preprocessor)


CASES = {
    "classifier": lambda: make_text_task("TextClassifier", 2),
    "masked_lm": lambda: make_text_task("MaskedLM"),
    "linear_masked_lm": make_linear_masked_lm,
    "electra": lambda: make_text_task("ReplacedTokenDetector"),
}


def logits(task, texts):
    """Returns the outputs by name. The outputs for the vocabulary include all tokens."""
    features = task.preprocessor(texts)
    if "mask_positions" in task.input:
        features["mask_positions"] = np.zeros((len(texts), 1), "int32")
    outputs = task.predict(features, verbose=0)
    return outputs if isinstance(outputs, dict) else {"": outputs}


@pytest.mark.parametrize("name", CASES)
def test_added_tokens_only_add_mean_rows(name, tmp_path):
    task = perturb(CASES[name]())
    larger = task.with_added_tokens(MARKERS)
    count = len(LETTERS)
    assert larger.config.vocabulary_size == larger.preprocessor.tokenizer.vocabulary_size
    assert larger.preprocessor.tokenizer(MARKED) == [[5, count, 6], [count, 6, count + 1, 5]]
    outputs = logits(larger, TEXTS)
    for key, expected in logits(task, TEXTS).items():
        if key in ("sampled_ids", "replaced_token_logits"):
            continue  # The generator samples from a larger vocabulary.
        values = outputs[key]
        if values.shape != expected.shape:
            means = expected.mean(axis=-1, keepdims=True)
            expected = np.concatenate([expected, means, means], axis=-1)
        np.testing.assert_allclose(values, expected, atol=1e-4)
    table = keras.ops.convert_to_numpy(larger.backbone.token_embedding_table)
    np.testing.assert_allclose(table[count:], table[:count].mean(axis=0)[None].repeat(2, 0), 1e-4)
    larger.save(tmp_path / "task.keras")
    larger.save_to_preset(tmp_path / "preset")
    for loaded in (
        keras_bert.load_model(tmp_path / "task.keras"),
        type(task).from_preset(tmp_path / "preset"),
    ):
        for key, values in logits(loaded, MARKED).items():
            np.testing.assert_allclose(values, logits(larger, MARKED)[key], atol=1e-5)


def test_added_tokens_use_unused_rows_first():
    config = CONFIG.replace(vocabulary_size=len(LETTERS) + 1)
    preprocessor = {"tokenizer": {"vocabulary": LETTERS}, "sequence_length": 12}
    task = keras_bert.TextClassifier(Backbone(config), 2, preprocessor=preprocessor)
    task.compile()
    task = task.with_added_tokens(["<e1>"]).with_added_tokens([*MARKERS, "a b"])
    assert task.preprocessor.tokenizer.added_tokens == (*MARKERS, "a b")
    assert task.config.vocabulary_size == len(LETTERS) + 3
    task.fit(MARKED, [0, 1], epochs=2, verbose=0)
    table = keras.ops.convert_to_numpy(task.backbone.token_embedding_table)
    assert np.abs(table[-3] - table[-2]).max() > 0


@pytest.mark.filterwarnings("ignore:.*does not have a `quantize` method")
@pytest.mark.parametrize(
    ("change", "tokens", "message"),
    [
        (lambda task: task.quantize("int8"), MARKERS, "must be added before `quantize`"),
        (lambda task: task.backbone.enable_lora(2), MARKERS, "must be added before `quantize`"),
        (None, ["[MASK]"], r"must not be empty or special tokens. Received: '\[MASK\]'"),
        (None, ["a"], r"that no text is split into, .* Received: 'a' \(token 5\)"),
        (None, [" <e1>"], "without whitespace around them"),
        (None, ["##x"], "must not start with ##"),
        (None, ["<e1>", "<e1>"], "must not contain duplicates"),
    ],
)
def test_unsupported_added_tokens_raise(change, tokens, message):
    task = make_text_task("TextClassifier", 2)
    if change:
        change(task)
    with pytest.raises(ValueError, match=message):
        task.with_added_tokens(tokens)


def test_tasks_of_tasks_have_no_added_tokens():
    ensemble = keras_bert.Ensemble([make_text_task("TextClassifier", 2) for _ in range(2)])
    with pytest.raises(ValueError, match=r"consists of other tasks\. Add the tokens to each"):
        ensemble.with_added_tokens(MARKERS)
