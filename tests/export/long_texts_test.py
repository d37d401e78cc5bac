# SPDX-License-Identifier: Apache-2.0
"""Limits on the cost of large requests: tokens per chunk and bytes per text."""

import dataclasses

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")
pytest.importorskip("tensorflow_text")

from keras_bert.export.served_inputs import truncate_to_max_bytes  # noqa: E402
from keras_bert.export.served_outputs import ServedOutputs  # noqa: E402
from tests.export.batching_session import assert_same_outputs, run_alone  # noqa: E402
from tests.export.served_tasks import KINDS_BY_INPUT_FORM, OPTIONS, strings  # noqa: E402
from tests.models.small_backbone import WITHOUT_DROPOUT  # noqa: E402
from tests.small_tasks import make_text_task  # noqa: E402

pytestmark = [pytest.mark.needs_tensorflow, pytest.mark.backend_independent]

TEXTS = ["naïve café, the cat", "the cat", "中中", ""]


class RecordingModel:
    """Records the shape of each chunk, and returns the token ids twice."""

    output_name = "logits"
    input = ()
    output = tf.TensorSpec([None, None, 2])

    def __init__(self):
        self.chunk_shapes = []
        self.config = WITHOUT_DROPOUT.replace(max_sequence_length=50)

    def __call__(self, features, training):
        ids = tf.ensure_shape(
            tf.numpy_function(self.record, [features["token_ids"]], tf.int64), [None, None]
        )
        return tf.cast(tf.stack([ids] * 2, axis=-1), tf.float32)

    def record(self, ids):
        self.chunk_shapes.append(ids.shape)
        return ids


@pytest.mark.parametrize(
    ("lengths", "chunk_shapes"),
    [
        ([], [(0, 8)]),
        ([3], [(1, 8)]),
        ([9, 16, 2, 16], [(2, 16), (2, 16)]),
        ([44], [(1, 48)]),  # exceeds the chunk size
        ([49], [(1, 50)]),  # limited by the model's positions
        ([1, 44, 15, 14, 8, 1], [(1, 48), (2, 16), (3, 8)]),
    ],
    ids=str,
)
def test_chunks_have_similar_lengths(lengths, chunk_shapes):
    recorder = RecordingModel()
    max_length = max(lengths, default=7)
    mask = np.arange(max_length) < np.array(lengths, int).reshape(-1, 1)
    ids = np.arange(1, mask.size + 1).reshape(mask.shape) * mask
    features = {"token_ids": tf.constant(ids), "padding_mask": tf.constant(mask)}
    options = dataclasses.replace(OPTIONS, chunk_tokens=40)
    served = ServedOutputs(recorder, options)
    outputs = served.compute_in_chunks({**features, "segment_ids": None})
    assert recorder.chunk_shapes == chunk_shapes
    # The outputs are in row order.
    np.testing.assert_array_equal(outputs["logits"], np.stack([ids, ids], axis=-1))


@pytest.mark.parametrize("served_task", KINDS_BY_INPUT_FORM, indirect=True)
def test_outputs_are_independent_of_chunks(served_task):
    """For requests with multiple rows to every signature. The last size fits in one chunk."""
    signatures_by_size = [
        served_task.task.serving_signatures(
            dataclasses.replace(served_task.options, chunk_tokens=size)
        )
        for size in (24, 10_000)
    ]
    for name, requests in served_task.requests.items():
        for request in requests:
            arguments = [tf.constant(value) for value in request.values()]
            chunked, whole = (
                {
                    key: value.numpy()
                    for key, value in signatures[name].python_function(*arguments).items()
                }
                for signatures in signatures_by_size
            )
            assert_same_outputs(chunked, whole)


def test_tagger_windows_can_exceed_a_chunk(served_tagger):
    words = ["cat", "mat", "able", "the", "no", "42", "é"]
    text = " ".join(np.random.default_rng(0).choice(words, 500))
    task = served_tagger.task
    windows = task.preprocessor.windows([text.split()]).token_ids
    assert len(windows.values) > OPTIONS.chunk_tokens
    outputs = run_alone(served_tagger.signatures["serving_default"], {"text": strings([text])})
    tags = task.tag(text)
    assert [label.decode() for label in outputs["labels"][0]] == [tag["label"] for tag in tags]
    np.testing.assert_allclose(outputs["scores"][0], [tag["score"] for tag in tags], atol=1e-4)


def test_count_tokens_matches_python(served_task):
    if "count_tokens" not in served_task.functions:
        pytest.skip("taggers read texts in windows")
    specs = served_task.functions["count_tokens"].input_signature
    # One token in total. Contexts do not count.
    other_fields = {"text_pair": ["b"] * 2, "context": ["a"] * 2, "choices": [["b", ""]] * 2}
    other_fields = {spec.name: other_fields[spec.name] for spec in specs[1:]}
    num_other_tokens = len(other_fields.keys() - {"context"})
    limit = served_task.task.preprocessor.truncated_rows.limit
    limit -= {"text": 2 + len(other_fields), "question": 0}[specs[0].name]
    texts = ["a " * (limit - num_other_tokens), "a " * (limit - num_other_tokens + 1)]
    fields = {specs[0].name: texts, **other_fields}
    outputs = run_alone(
        served_task.signatures["count_tokens"], {name: strings(x) for name, x in fields.items()}
    )
    for name, expected in (
        ("num_tokens", [limit, limit + 1]), ("max_tokens", [limit] * 2), ("truncated", [0, 1])
    ):  # fmt: skip
        rows = outputs[name].reshape(2, -1)
        assert rows[:, 0].tolist() == expected
        assert not rows[:, 1:].any()  # padding
    preprocessor = served_task.task.preprocessor
    preprocessor.truncated_rows.reset()
    fields["choices"] = [["b"]] * 2
    served_task.task.predict_rows([{n: x[row] for n, x in fields.items()} for row in range(2)])
    assert preprocessor.truncated_rows.num_truncated == 1


@pytest.mark.parametrize(
    ("limit", "expected"),
    [
        (1, ["n", "t", "", ""]),
        (3, ["na", "the", "中", ""]),  # ï and 中 have multiple bytes.
        (4, ["naï", "the ", "中", ""]),
        (6, ["naïve", "the ca", "中中", ""]),
        (None, TEXTS),
    ],
)
def test_texts_are_truncated_between_characters(limit, expected):
    options = dataclasses.replace(OPTIONS, max_text_bytes=limit)
    truncated = truncate_to_max_bytes(tf.constant([TEXTS, TEXTS]), options).numpy()
    assert [[text.decode() for text in row] for row in truncated] == [expected, expected]


@pytest.mark.parametrize("served_task", KINDS_BY_INPUT_FORM, indirect=True)
def test_text_signatures_respect_max_text_bytes(served_task):
    options = dataclasses.replace(served_task.options, max_text_bytes=9)
    whole, limited = (
        served_task.task.serving_signatures(limits) for limits in (served_task.options, options)
    )
    for name in served_task.functions:
        long = served_task.requests[name][0]
        if name in ("serve_ids", "serve_words", "serve_counted_words", "serve_examples"):
            continue
        short = {
            key: np.vectorize(lambda text: text[:9], otypes=[object])(value)
            if value.dtype.kind == "O"
            else value
            for key, value in long.items()
        }
        assert any((short[key] != value).any() for key, value in long.items())
        limited_and_whole = [
            functions[name].python_function(*(tf.constant(value) for value in request.values()))
            for functions, request in ((limited, long), (whole, short))
        ]
        for key, expected in limited_and_whole[1].items():
            if key == "truncated":
                assert limited_and_whole[0][key].numpy().any()
            elif key != "ranked_choices":
                assert limited_and_whole[0][key].numpy().tolist() == expected.numpy().tolist()


@pytest.mark.parametrize(
    ("name", "long_texts"), [("TextClassifier", "max"), ("TextEmbedder", "mean")]
)
def test_served_windows_match_predictions(name, long_texts):
    arguments = [2] if name == "TextClassifier" else []
    task = make_text_task(name, *arguments, sequence_length=8, long_texts=long_texts)
    class_names = ("x", "y") if name == "TextClassifier" else None
    options = dataclasses.replace(OPTIONS, class_names=class_names, chunk_tokens=24)
    if name == "TextEmbedder":
        prompts = {"prompts": {"query": "a b "}, "default_prompt_name": "query"}
        task = type(task)(task.backbone, task.preprocessor, **prompts, include_prompt=False)
    signatures = task.serving_signatures(options)
    texts = ["a b", "a b b " * 20, "", "b a a " * 3]
    served = signatures["serving_default"](tf.constant(texts))
    outputs = task.predict(texts, verbose=0)
    for dataset in (tf.data.Dataset.from_tensor_slices(texts), tf.data.Dataset.from_tensors(texts)):
        np.testing.assert_allclose(task.predict(dataset, verbose=0), outputs, atol=1e-6)
    answers = task.serving_answers([{"text": text} for text in texts])
    # Clients receive a single output, such as an embedding, without its name.
    expected = {"label", "score", "probabilities", "num_windows"} if class_names else {"embedding"}
    assert set(served) == set(answers[0]) == expected
    for key in expected - {"label"}:
        values = [answer[key] for answer in answers]
        np.testing.assert_allclose(served[key], values, atol=1e-6)
    counts = signatures["count_tokens"](tf.constant(texts))
    assert not counts["truncated"].numpy().any()
    assert counts["num_windows"].numpy().tolist() == task.num_windows(texts).tolist()
