# SPDX-License-Identifier: Apache-2.0
"""What many rows and long texts may cost: a bound on tokens at a time, and on bytes."""

import dataclasses

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")
pytest.importorskip("tensorflow_text")

from keras_bert.export.served_inputs import truncate_to_max_bytes  # noqa: E402
from keras_bert.export.served_outputs import ServedOutputs  # noqa: E402
from tests.export.batching_session import check_same, run_alone  # noqa: E402
from tests.export.served_tasks import FORMS_OF_ROWS, OPTIONS, strings  # noqa: E402
from tests.models.small_backbone import WITHOUT_DROPOUT  # noqa: E402

pytestmark = [pytest.mark.needs_tensorflow, pytest.mark.backend_independent]

TEXTS = ["naïve café, the cat", "the cat", "中中", ""]


class Recorder:
    """Notes the shape of each part that it is given, and returns the ids of its tokens twice."""

    output_name = "logits"
    output = tf.TensorSpec([None, None, 2])

    def __init__(self):
        self.parts = []
        self.config = WITHOUT_DROPOUT.replace(max_sequence_length=50)

    def __call__(self, features, training):
        ids = tf.ensure_shape(
            tf.numpy_function(self.noted, [features["token_ids"]], tf.int64), [None, None]
        )
        return tf.cast(tf.stack([ids] * 2, axis=-1), tf.float32)

    def noted(self, ids):
        self.parts.append(ids.shape)
        return ids


@pytest.mark.parametrize(
    ("lengths", "parts"),
    [
        ([], [(0, 8)]),
        ([3], [(1, 8)]),
        ([9, 16, 2, 16], [(2, 16), (2, 16)]),
        ([44], [(1, 48)]),  # more than a part has
        ([49], [(1, 50)]),  # the model has no more positions
        ([1, 44, 15, 14, 8, 1], [(1, 48), (2, 16), (3, 8)]),
    ],
    ids=str,
)
def test_a_part_has_rows_of_similar_lengths_of_a_few_sizes(lengths, parts):
    recorder = Recorder()
    longest = max(lengths, default=7)
    mask = np.arange(longest) < np.array(lengths, int).reshape(-1, 1)
    ids = np.arange(1, mask.size + 1).reshape(mask.shape) * mask
    features = {"token_ids": tf.constant(ids), "padding_mask": tf.constant(mask)}
    options = dataclasses.replace(OPTIONS, chunk_tokens=40)
    served = ServedOutputs(recorder, options)
    outputs = served.compute_in_chunks({**features, "segment_ids": None})
    assert recorder.parts == parts
    # In the order of the rows
    np.testing.assert_array_equal(outputs["logits"], np.stack([ids, ids], axis=-1))


@pytest.mark.parametrize("served", FORMS_OF_ROWS, indirect=True)
def test_answers_do_not_depend_on_the_parts(served):
    """Of requests of several rows, to every signature; the last size is that of one part."""
    by_size = [
        served.task.serving_signatures(dataclasses.replace(served.options, chunk_tokens=size))
        for size in (24, 10_000)
    ]
    for name, requests in served.requests.items():
        for request in requests:
            arguments = [tf.constant(value) for value in request.values()]
            in_parts, whole = (
                {
                    key: value.numpy()
                    for key, value in each[name].python_function(*arguments).items()
                }
                for each in by_size
            )
            check_same(in_parts, whole)


def test_a_tagger_reads_a_text_of_more_windows_than_a_part(served_tagger):
    words = ["cat", "mat", "able", "the", "no", "42", "é"]
    text = " ".join(np.random.default_rng(0).choice(words, 500))
    task = served_tagger.task
    windows = task.preprocessor.windows([text.split()]).token_ids
    assert len(windows.values) > OPTIONS.chunk_tokens
    received = run_alone(served_tagger.signatures["serving_default"], {"text": strings([text])})
    tags = task.tag(text)
    assert [label.decode() for label in received["labels"][0]] == [tag["label"] for tag in tags]
    np.testing.assert_allclose(received["scores"][0], [tag["score"] for tag in tags], atol=1e-4)


def test_texts_are_said_to_be_cut_as_in_python(served):
    if "count_tokens" not in served.functions:
        pytest.skip("a tagger reads texts in windows")
    specs = served.functions["count_tokens"].input_signature
    # One token in all, but for contexts, which do not count
    others = {"text_pair": ["b"] * 2, "context": ["a"] * 2, "choices": [["b", ""]] * 2}
    others = {spec.name: others[spec.name] for spec in specs[1:]}
    num_others = len(others.keys() - {"context"})
    limit = served.task.preprocessor.truncated_rows.limit
    limit -= {"text": 2 + len(others), "question": 0}[specs[0].name]
    texts = ["a " * (limit - num_others), "a " * (limit - num_others + 1)]
    fields = {specs[0].name: texts, **others}
    received = run_alone(
        served.signatures["count_tokens"], {name: strings(x) for name, x in fields.items()}
    )
    for name, expected in (
        ("num_tokens", [limit, limit + 1]), ("max_tokens", [limit] * 2), ("truncated", [0, 1])
    ):  # fmt: skip
        rows = received[name].reshape(2, -1)
        assert rows[:, 0].tolist() == expected
        assert not rows[:, 1:].any()  # padding
    preprocessor = served.task.preprocessor
    preprocessor.truncated_rows.reset()
    fields["choices"] = [["b"]] * 2
    served.task.predict_rows([{n: x[row] for n, x in fields.items()} for row in range(2)])
    assert preprocessor.truncated_rows.num_cut == 1


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
    cut = truncate_to_max_bytes(tf.constant([TEXTS, TEXTS]), options).numpy()
    assert [[text.decode() for text in row] for row in cut] == [expected, expected]


@pytest.mark.parametrize("served", FORMS_OF_ROWS, indirect=True)
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
            if key == "truncated":
                assert both[0][key].numpy().any()
            elif key != "ranked_choices":
                assert both[0][key].numpy().tolist() == expected.numpy().tolist()
