# SPDX-License-Identifier: Apache-2.0

import keras
import numpy as np
import pytest

pytestmark = pytest.mark.on_torch

pandas = pytest.importorskip("pandas")

from keras_bert import Backbone, MultipleChoice  # noqa: E402
from keras_bert.data import MultipleChoicePreprocessor  # noqa: E402
from keras_bert.data.adapters.choices import choice_columns, is_choices  # noqa: E402
from keras_bert.losses import ListNetLoss  # noqa: E402
from tests import small_tasks  # noqa: E402
from tests.models.small_backbone import random_weights  # noqa: E402
from tests.text.small_tokenizers import make_tokenizer  # noqa: E402

TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "good", "bad", "film", "a", "b", "c"]


def make_task(**changes):
    config = small_tasks.CONFIG.replace(
        vocabulary_size=len(TOKENS), max_sequence_length=16, initializer_range=0.3, **changes
    )
    preprocessor = MultipleChoicePreprocessor(make_tokenizer(*TOKENS), sequence_length=16)
    return MultipleChoice(Backbone(config), preprocessor)


@pytest.fixture(scope="module")
def task():
    task = make_task()
    random_weights(task)
    return task


ROWS = [
    ("a film", ["good", "bad film", "a b c a b c"]),
    ("b", ["good"]),
    ("a film c b", ["bad", "a good film"]),
]


def compute_logits(task, texts, choices):
    features = task.preprocessor(texts, choices)
    return keras.ops.convert_to_numpy(task(features))


def test_choices_are_scored_independently(task):
    logits = task.predict(ROWS, verbose=0)
    assert logits.shape == (3, 3)
    assert logits.dtype == np.float32
    for row, (text, choices) in enumerate(ROWS):
        assert (logits[row, len(choices) :] == -1e9).all()
        single_logits = compute_logits(task, [text], [choices[-1:]])
        np.testing.assert_allclose(logits[row, len(choices) - 1], single_logits[0, 0], atol=1e-5)


@pytest.mark.on_each_backend
def test_fit_learns_scores_of_all_choices():
    """Texts have different numbers of choices, also in a batch."""
    task = make_task()
    task.compile(keras.optimizers.Adam(3e-3), ListNetLoss())
    scores = [[0.0, 3.0, 1.0], [1.0], [2.0, -1.0]]
    history = task.fit(ROWS * 30, scores * 30, epochs=2, batch_size=4, verbose=0).history
    assert history["loss"][1] < history["loss"][0]
    for (text, choices), expected in zip(ROWS, scores, strict=True):
        order = [item["index"] for item in task.rank(text, choices)]
        assert order == [item["choice"] for item in task.choose((text, choices))]
        assert order[0] == np.argmax(expected)
    with pytest.raises(ValueError, match="row 1 must be a list with a finite score for each of"):
        task.fit(ROWS, [[0.0, 3.0, 1.0], [1.0, 2.0], [2.0, -1.0]])
    with pytest.raises(ValueError, match="row 0 must be a list with a finite score for each of"):
        task.fit(ROWS, [0, 0, 1])


def test_all_input_forms_match(task):
    expected = task.predict(ROWS, verbose=0)
    texts, choices = zip(*ROWS, strict=True)
    features = task.preprocessor(list(texts), choices)
    assert features["token_ids"].shape == features["padding_mask"].shape == (3, 3, 11)
    np.testing.assert_allclose(task.predict(features, verbose=0), expected, atol=1e-5)
    columns = {"text": texts, "choices": choices}
    for form in ((list(texts), list(choices)), columns, pandas.DataFrame(columns)):
        assert is_choices(form)
        assert choice_columns(form) == choice_columns(ROWS)
    one_row = {name: value[1:2, :1, :5] for name, value in features.items()}
    del one_row["padding_mask"]
    single_logits = keras.ops.convert_to_numpy(task(one_row))
    np.testing.assert_allclose(single_logits, expected[1:2, :1], atol=1e-5)


def test_choose_ranks_choices(task):
    answers = task.choose(ROWS)
    probabilities = np.exp(task.predict(ROWS, verbose=0))
    for (_, choices), answer, row in zip(ROWS, answers, probabilities, strict=True):
        assert sorted(ranked["choice"] for ranked in answer) == list(range(len(choices)))
        scores = [ranked["score"] for ranked in answer]
        assert scores == sorted(scores, reverse=True)
        for ranked in answer:
            assert ranked["text"] == choices[ranked["choice"]]
            assert ranked["score"] == pytest.approx(row[ranked["choice"]] / row.sum(), abs=1e-5)
    single = task.choose(ROWS[0])
    assert [ranked["choice"] for ranked in single] == [ranked["choice"] for ranked in answers[0]]
    assert task.choose([]) == []


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        (ROWS, [0, 0], r"the 3 texts. Received: shape \(2,\)"),
        (ROWS, [0, 1, 0], r"label of row 1 must be the index of one of its 1 choices"),
        (ROWS, None, "y must be the index of the correct choice"),
        ([("a", [])], [0], r"choices of row 0 must be at least one string. Received: \[\]"),
        ([("a", "b")], [0], "choices of row 0 must be a list"),
        ([("a", ["b"]), "c"], [0, 0], "Row 1 must be a list of"),
        ((["a"], [["b"], ["c"]]), [0], "1 texts and 2 lists of choices"),
        ({"choices": [["b"]]}, [0], "Received: no column 'text'"),
        ({"text": ["a"]}, [0], "must be a list of .*Received: dict of text in an unsup"),
        (np.array([[[99]]]), [0], "token_ids must be at least 0 and below 10. Received: 99"),
    ],
)
def test_invalid_input_raises(task, x, y, message):
    with pytest.raises(ValueError, match=message):
        task.evaluate(x, y)
