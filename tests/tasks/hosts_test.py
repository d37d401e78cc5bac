# SPDX-License-Identifier: Apache-2.0
"""Fine-tuning and prediction on two hosts match one host."""

import json

import keras
import numpy as np
import pytest

import keras_bert
from keras_bert import data
from tests.small_tasks import CONFIG
from tests.text.small_tokenizers import make_tokenizer
from tests.training.host_processes import HostProcesses

pytestmark = [
    pytest.mark.skipif(keras.backend.backend() != "jax", reason="JAX trains on multiple hosts"),
    pytest.mark.slow,
]

WORDS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "good", "bad", "film", "long", "dull")

PROGRAM = """
import json, sys
sys.modules["tensorflow"] = None  # Keras would import it to seed it.
import keras
address, count, number = (flag.partition("=")[2] for flag in sys.argv[1:])
keras.distribution.initialize(address, int(count), int(number))
keras.distribution.set_distribution(keras.distribution.DataParallel(auto_shard_dataset=False))
from tests.tasks.hosts_test import compute_predictions, train_tasks

answers = {"predicted": compute_predictions(), **train_tasks(), "errors": []}
model = answers.pop("model")
features = model.preprocessor(["a film"])
texts = ["a film"] * (4 + 2 * int(number))
for call in (
    lambda: model.predict(features for _ in range(2)),
    lambda: model.fit(texts, [0] * len(texts), batch_size=2),
):
    try:
        call()
    except ValueError as error:
        answers["errors"].append(str(error))
print(json.dumps(answers))
"""


def make_task(task, preprocessor, *arguments, **options):
    """Returns a task with large random weights, so that its predictions differ."""
    keras.utils.set_random_seed(0)
    config = CONFIG.replace(
        vocabulary_size=len(WORDS), max_sequence_length=32, dropout=0.1, initializer_range=0.3
    )
    preprocessor = preprocessor(make_tokenizer(*WORDS), 32, **options)
    return task(keras_bert.Backbone(config), *arguments, preprocessor=preprocessor)


def random_texts(count):
    random = np.random.default_rng(0)
    return [" ".join(random.choice(WORDS[5:], size)) for size in random.integers(1, 30, count)]


def train_tasks():
    """Trains a classifier on texts of many lengths, with dropout, and a multiple-choice model.

    Returns the classifier, the losses of both models and the classifier's scores. The rows of the
    multiple-choice model have different numbers of choices.
    """
    texts = random_texts(90)  # Not a multiple of the batch size
    labels = np.array(["good" in text for text in texts], "int32")
    model = make_task(keras_bert.TextClassifier, data.TextClassifierPreprocessor, 2)
    model.compile(keras.optimizers.SGD(0.1))
    history = model.fit(texts, labels, batch_size=8, epochs=2, verbose=0).history
    scores = model.evaluate(texts, labels, batch_size=8, verbose=0)
    choice = make_task(keras_bert.MultipleChoice, data.MultipleChoicePreprocessor)
    choice.compile(keras.optimizers.SGD(0.1, gradient_accumulation_steps=2))
    rows = [(text, ["good", "bad film", "dull"][: 1 + len(text) % 3]) for text in texts[:24]]
    choice_data = {"y": np.zeros(24, "int32"), "sample_weight": np.linspace(0, 1, 24)}
    choice_history = choice.fit(rows, **choice_data, batch_size=4, epochs=2, verbose=0).history
    losses = history["loss"] + choice_history["loss"]
    return {"model": model, "losses": losses, "scores": scores}


def compute_predictions():
    """Computes the outputs for each form of input. Two hosts cannot halve the number of rows."""
    texts = random_texts(13)
    words = [text.split() for text in texts]
    classifier = make_task(keras_bert.TextClassifier, data.TextClassifierPreprocessor, 2)
    tagger = make_task(keras_bert.TokenClassifier, data.TokenClassifierPreprocessor, 3)
    answerer = make_task(
        keras_bert.QuestionAnswerer,
        data.QuestionAnswererPreprocessor,
        doc_stride=4,
        max_query_length=4,
    )
    choice = make_task(keras_bert.MultipleChoice, data.MultipleChoicePreprocessor)
    masked_lm = make_task(keras_bert.MaskedLM, data.TextClassifierPreprocessor)
    features = classifier.preprocessor(texts)
    batches = (texts[start : start + 5] for start in (0, 5, 10))
    answers = {
        "texts": classifier.predict(texts, batch_size=5, verbose=0),
        "one": classifier.predict(texts[:1], verbose=0),
        "batches": classifier.predict(batches, steps=3, verbose=0),
        "features": classifier.predict(features, batch_size=4, verbose=0),
        "classify": [answer["score"] for answer in classifier.classify(texts)],
        "words": tagger.predict(words, batch_size=5, verbose=0),
        "questions": answerer.predict(
            {"question": ["a film"] * 13, "context": texts}, batch_size=3, verbose=0
        ),
        "choices": choice.predict([(text, ["good", "bad film"]) for text in texts], verbose=0),
        "fill": [answer["score"] for answer in masked_lm.fill("a [MASK] film", top_k=3)],
    }
    return [np.asarray(leaf, float).tolist() for leaf in keras.tree.flatten(answers)]


def test_two_hosts_match_one_host(tmp_path):
    two = HostProcesses(("-c", PROGRAM), 2, tmp_path)
    one, predictions = train_tasks(), compute_predictions()
    assert two.wait() == [0, 0], "\n".join(two.read_outputs())
    for read_outputs in two.read_outputs():
        results = json.loads(read_outputs.splitlines()[-1])
        for name in ("losses", "scores"):
            np.testing.assert_allclose(results[name], one[name], rtol=1e-5)
        assert len(results["predicted"]) == len(predictions)
        for values, expected in zip(results["predicted"], predictions, strict=True):
            np.testing.assert_allclose(values, expected, rtol=1e-5, atol=1e-6)
        feature_error, row_error = results["errors"]
        assert "In one of 2 processes, x must be text" in feature_error
        assert "num_rows must be the same in all processes" in row_error
