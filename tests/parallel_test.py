# SPDX-License-Identifier: Apache-2.0
"""Training on two devices matches one device.

The number of devices is fixed when a process starts. So a separate process with two virtual CPUs
trains the same tasks twice, on one device and on both.
"""

import json
import os
import subprocess
import sys

import keras
import numpy as np
import pytest

from tests.source_imports import ROOT

DEVICES = {
    "jax": """
import contextlib
import jax
import keras

def both_devices():
    keras.distribution.set_distribution(keras.distribution.DataParallel())
    return contextlib.nullcontext()

NUM_DEVICES = len(jax.devices())
""",
    "tensorflow": """
import tensorflow as tf
cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
both_devices = strategy.scope
NUM_DEVICES = strategy.num_replicas_in_sync
""",
}

PROGRAM = """
import contextlib, json
import keras
import numpy as np
import keras_bert
from tests.small_tasks import CONFIG as SMALL, TASKS, make_task

CONFIG = keras_bert.BertConfig(
    vocabulary_size=50, num_layers=1, num_heads=2, hidden_dim=16, intermediate_dim=32,
    max_sequence_length=12, dropout=0.0, attention_dropout=0.0,
)
random = np.random.default_rng(0)
lengths = random.integers(3, 9, (16, 1))
mask = np.arange(8) < lengths
FEATURES = {"token_ids": random.integers(1, 50, (16, 8)) * mask, "padding_mask": mask}
LABELS = random.integers(0, 2, 16)
# The loss is divided by the weights of the whole batch, even if all rows with weight 0, which only
# pad the last batch, are on the second device.
WEIGHTS = (random.uniform(0.1, 3.0, 16) * (np.arange(16) < 13)).astype("float32")

def train_classifier(scope, micro_batches):
    keras.utils.set_random_seed(0)
    with scope:
        classifier = keras_bert.TextClassifier(keras_bert.Backbone(CONFIG), num_classes=2)
        optimizer = keras_bert.optimizers.AdamW(
            1e-3, num_train_steps=20, num_warmup_steps=2, global_clipnorm=1.0,
            gradient_accumulation_steps=micro_batches,
        )
        classifier.compile(optimizer)
    history = classifier.fit(
        FEATURES, LABELS, sample_weight=WEIGHTS,
        batch_size=8 // (micro_batches or 1), epochs=3, shuffle=False, verbose=0,
    )
    logits = classifier.predict(FEATURES, batch_size=8, verbose=0)
    return {"loss": history.history["loss"], "logits": logits.tolist()}

config = SMALL.replace(dropout=0.0, attention_dropout=0.0, initializer_range=0.3)

def twice(rows):
    return np.concatenate([rows, rows])

def train_task(task, scope):
    with scope:
        model = make_task(task, config)
        model.compile(keras.optimizers.SGD(0.01))
    x, y, weights = keras.tree.map_structure(twice, TASKS[task]()[1])
    history = model.fit(
        x, y, sample_weight=weights, batch_size=8, epochs=2, shuffle=False, verbose=0
    )
    return history.history["loss"]

# Multiple losses, a second model, and a loss of all rows. On TensorFlow, other tasks are trained on
# text.
names = ("Pretrainer", "Distiller", "TextEmbedder")[: 3 if keras.backend.backend() == "jax" else 2]
tasks = [task for task in TASKS if task.__name__ in names]

def train(make_scope, micro_batches=None):
    classifier = train_classifier(make_scope(), micro_batches)
    return classifier, {task.__name__: train_task(task, make_scope()) for task in tasks}

single, double = train(contextlib.nullcontext), train(both_devices, micro_batches=2)
print(json.dumps({"devices": NUM_DEVICES, "single": single, "double": double}))
"""

TEXT = """
import contextlib, json
import keras
import numpy as np
import keras_bert
from keras_bert import data
from tests.small_tasks import CONFIG
from tests.text.small_tokenizers import make_tokenizer

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "good", "bad", "film", "long", "dull"]
config = CONFIG.replace(
    vocabulary_size=len(WORDS), dropout=0.0, attention_dropout=0.0, classifier_dropout=0.0,
    answer_dropout=0.0, initializer_range=0.3,
)
random = np.random.default_rng(0)
words = [list(random.choice(WORDS[5:], size)) for size in (3, 7, 2, 5, 4)]
texts = [" ".join(sentence) for sentence in words]
pairs = list(zip(texts, texts[::-1]))
labels = np.array([0, 1, 1, 0, 1])
tags = [[int(word == "good") for word in sentence] for sentence in words]
questions = [
    {"question": "a film", "context": text, "answers": {"text": [text[:4]], "answer_start": [0]}}
    for text in texts
]
choices = [(text, ["good", "bad film", "long"]) for text in texts]

def make(task, preprocessor, *arguments, **options):
    packer = preprocessor(make_tokenizer(*WORDS), 12, **options)
    return task(keras_bert.Backbone(config), *arguments, preprocessor=packer)

masked_lm = lambda: make(keras_bert.MaskedLM, data.TextClassifierPreprocessor)
CASES = {
    "TextClassifier": (
        lambda: make(keras_bert.TextClassifier, data.TextClassifierPreprocessor, 2), pairs, labels
    ),
    "TokenClassifier": (
        lambda: make(keras_bert.TokenClassifier, data.TokenClassifierPreprocessor, 2), words, tags
    ),
    "QuestionAnswerer": (
        lambda: make(
            keras_bert.QuestionAnswerer, data.QuestionAnswererPreprocessor,
            doc_stride=2, max_query_length=2,
        ),
        questions, None,
    ),
    "MultipleChoice": (
        lambda: make(keras_bert.MultipleChoice, data.MultipleChoicePreprocessor), choices, labels
    ),
    "TextEmbedder": (
        lambda: make(keras_bert.TextEmbedder, data.TextClassifierPreprocessor), pairs, None
    ),
    "MaskedLM": (masked_lm, texts, None),
    "ReplacedTokenDetector": (
        lambda: make(keras_bert.ReplacedTokenDetector, data.TextClassifierPreprocessor), texts, None
    ),
    "Distiller": (lambda: keras_bert.Distiller(masked_lm(), masked_lm()), texts, None),
}

# Results that are random, or depend on the other rows of a replica, are not compared.
UNCOMPARED = {"TextEmbedder", "MaskedLM", "ReplacedTokenDetector", "Distiller"}

def train_case(name, scope):
    make_model, x, y = CASES[name]
    keras.utils.set_random_seed(0)
    with scope:
        model = make_model()
        has_classes = name in ("TextClassifier", "TokenClassifier")
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(keras.optimizers.SGD(0.1), loss if has_classes else None)
    # The second batch has a single row.
    found = {"loss": model.fit(x, y, batch_size=4, shuffle=False, verbose=0).history["loss"]}
    if name in UNCOMPARED:
        return found
    found["scores"] = model.evaluate(x, y, batch_size=4, verbose=0)
    if name == "TextClassifier":
        slices = tf.data.Dataset.from_tensor_slices((tuple(map(list, zip(*pairs))), labels))
        features = model.preprocessor(*zip(*pairs))
        found["other forms"] = [
            model.evaluate(slices, batch_size=4, verbose=0),
            model.evaluate(slices.batch(4), verbose=0),
            model.evaluate(
                features, labels, batch_size=4,
                verbose=0,
            ),
        ]
        found["outputs"] = [model.predict(x, batch_size=4, verbose=0).tolist()]
        found["outputs"] += [model.predict(x[:1], verbose=0).tolist()]
    elif y is not None:
        found["outputs"] = keras.tree.map_structure(
            lambda values: np.asarray(values).tolist(), model.predict(x, batch_size=4, verbose=0)
        )
    return found

single = {
    name: train_case(name, contextlib.nullcontext()) for name in CASES if name not in UNCOMPARED
}
double = {name: train_case(name, both_devices()) for name in CASES}
try:
    make_model, x, y = CASES["TextClassifier"]
    with both_devices():
        make_model().predict(x, batch_size=3)
except ValueError as error:
    prediction_error = str(error)
print(json.dumps({"single": single, "double": double, "prediction_error": prediction_error}))
"""

MASKS = """
import json
import keras
import numpy as np
from keras_bert.layers import Attention, FeedForward, Norm, TokenSampler, TransformerBlock

rows = np.ones((4, 8, 16), "float32")
with both_devices():
    keras.utils.set_random_seed(0)
    block = TransformerBlock(Attention(2), Norm(), FeedForward(8), Norm(), dropout=0.5)
    block.build(rows.shape)
    attention = Attention(2, dropout=0.5)
    attention.build(rows.shape)
    sampled = TokenSampler()

@tf.function
def step():
    def on_replica():
        x, slots = tf.constant(rows), tf.zeros((4, 8), "int32")
        x *= tf.range(1.0, 17)  # LayerNorm of equal numbers has no result
        return (
            block(x, training=True),
            attention(x * tf.range(1.0, 9)[:, None], training=True),
            sampled(tf.zeros((4, 8, 50)), slots, slots, training=True),
        )
    return strategy.run(on_replica)

found = [[np.array(part) for part in strategy.experimental_local_results(each)] for each in step()]
print(json.dumps([bool((first == second).all()) for first, second in found]))
"""

BACKEND = keras.backend.backend()

pytestmark = [
    pytest.mark.skipif(BACKEND not in DEVICES, reason="Keras distributes on JAX and TensorFlow"),
    pytest.mark.slow,
    # Before a release only. Otherwise, tests/optimizers/distribution_test.py and
    # tests/training/devices_test.py compare two devices with one.
    *([pytest.mark.release] if BACKEND == "tensorflow" else []),
]


@pytest.fixture(scope="module")
def program_outputs():
    """Runs all programs in one process with two devices, and returns their JSON outputs."""
    programs = [PROGRAM, *((TEXT, MASKS) if BACKEND == "tensorflow" else ())]
    process = subprocess.run(
        [sys.executable, "-c", "".join([DEVICES[BACKEND], *programs])],
        cwd=ROOT,
        env=os.environ | {"JAX_NUM_CPU_DEVICES": "2"},
        capture_output=True,
        text=True,
    )
    assert process.returncode == 0, process.stderr[-4000:]
    lines = [line for line in process.stdout.splitlines() if line.startswith(("{", "["))]
    assert len(lines) == len(programs)
    return [json.loads(line) for line in lines]


@pytest.fixture(scope="module")
def training_results(program_outputs):
    """The results of one device and of both: the classifier's, and the losses of each task."""
    answers = program_outputs[0]
    assert answers["devices"] == 2
    return answers["single"], answers["double"]


def test_two_devices_match_one_device(training_results):
    (single, _), (double, _) = training_results
    assert single["loss"][-1] < single["loss"][0]
    np.testing.assert_allclose(double["loss"], single["loss"], rtol=1e-5)
    np.testing.assert_allclose(double["logits"], single["logits"], atol=1e-5)


def test_task_losses_match_on_two_devices(training_results):
    (_, single), (_, double) = training_results
    assert len(double) == (3 if BACKEND == "jax" else 2)
    for name, losses in double.items():
        assert losses[1] != losses[0], name
        np.testing.assert_allclose(losses, single[name], rtol=1e-5, err_msg=name)


@pytest.mark.skipif(BACKEND != "tensorflow", reason="a strategy of TensorFlow's")
def test_text_training_matches_on_two_devices(program_outputs):
    answers = program_outputs[1]
    for name, double in answers["double"].items():
        assert np.isfinite(double["loss"]).all(), name
    for name, single in answers["single"].items():
        double = answers["double"][name]
        for part in single:
            actual, expected = map(keras.tree.flatten, (double[part], single[part]))
            np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-5, err_msg=name)
    assert "batch_size must be a multiple of the 2 devices" in answers["prediction_error"]


@pytest.mark.skipif(
    BACKEND != "tensorflow", reason="on JAX, one mask is for the rows of all devices"
)
def test_replicas_drop_and_sample_differently(program_outputs):
    assert program_outputs[2] == [False, False, False]
