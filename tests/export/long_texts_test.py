# SPDX-License-Identifier: Apache-2.0
"""What long texts may cost: a bound on windows in flight, and on the bytes that are read."""

import dataclasses

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")
pytest.importorskip("tensorflow_text")

from keras_bert.export import signatures  # noqa: E402
from tests.export.batching_session import run_alone  # noqa: E402
from tests.export.served_tasks import OPTIONS, strings  # noqa: E402

pytestmark = [pytest.mark.needs_tensorflow, pytest.mark.backend_independent]

TEXTS = ["naïve café, the cat", "the cat", "中中", ""]


class Recorder:
    """Notes how many windows it is given at a time, and returns their ids twice."""

    output_name = "logits"
    output = tf.TensorSpec([None, None, 2])

    def __init__(self):
        self.rows = []

    def __call__(self, features, training):
        self.rows.append(len(features["token_ids"]))
        return tf.cast(tf.stack([features["token_ids"]] * 2, axis=-1), tf.float32)


@pytest.mark.parametrize(
    ("count", "rows"), [(0, [0]), (1, [1]), (32, [32]), (70, [32, 32, 6])], ids=str
)
def test_no_more_windows_than_a_part_are_read_at_a_time(count, rows):
    recorder = Recorder()
    ids = tf.reshape(tf.range(count * 3), [count, 3])
    outputs = signatures.windowed_outputs(recorder, {"token_ids": ids})
    assert recorder.rows == rows
    np.testing.assert_array_equal(outputs["logits"], np.stack([ids, ids], axis=-1))


def test_a_tagger_reads_a_text_of_more_windows_than_a_part(served_tagger):
    words = ["cat", "mat", "able", "the", "no", "42", "é"]
    text = " ".join(np.random.default_rng(0).choice(words, 500))
    task = served_tagger.task
    assert int(task.preprocessor.windows([text.split()]).token_ids.nrows()) > signatures.PART
    received = run_alone(served_tagger.signatures["serving_default"], {"text": strings([text])})
    tags = task.tag(text)
    assert [label.decode() for label in received["labels"][0]] == [tag["label"] for tag in tags]
    np.testing.assert_allclose(received["scores"][0], [tag["score"] for tag in tags], atol=1e-4)


@pytest.mark.parametrize(
    ("limit", "expected"),
    [
        (1, ["n", "t", "", ""]),
        (3, ["na", "the", "中", ""]),  # ï and the second 中 have more than one byte
        (4, ["naï", "the ", "中", ""]),
        (6, ["naïve", "the ca", "中中", ""]),
        (None, TEXTS),
    ],
)
def test_texts_are_cut_between_characters(limit, expected):
    options = dataclasses.replace(OPTIONS, max_text_bytes=limit)
    cut = signatures.limited(tf.constant([TEXTS, TEXTS]), options).numpy()
    assert [[text.decode() for text in row] for row in cut] == [expected, expected]


def test_every_text_signature_reads_no_more_than_the_limit(served):
    options = dataclasses.replace(served.options, max_text_bytes=9)
    whole, limited = (served.task.serving_signatures(it) for it in (served.options, options))
    for name in served.functions:
        long = served.requests[name][0]
        if name in ("serve_ids", "serve_words", "serve_counted_words", "serve_examples"):
            continue
        short = {
            key: np.vectorize(lambda text: text[:9], otypes=[object])(value)
            if value.dtype.kind == "O"
            else value
            for key, value in long.items()
        }
        assert any((short[key] != value).any() for key, value in long.items())
        both = [
            functions[name].python_function(*(tf.constant(value) for value in request.values()))
            for functions, request in ((limited, long), (whole, short))
        ]
        for key, expected in both[1].items():
            if key != "ranked_choices":
                assert both[0][key].numpy().tolist() == expected.numpy().tolist()
