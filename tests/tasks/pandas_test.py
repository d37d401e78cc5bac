# SPDX-License-Identifier: Apache-2.0
"""Pandas objects as inputs, and data frames as outputs."""

import numpy as np
import pytest

pytestmark = pytest.mark.on_torch

pandas = pytest.importorskip("pandas")

from keras_bert import Backbone, QuestionAnswerer, TextClassifier  # noqa: E402
from keras_bert.data import TextClassifierPreprocessor  # noqa: E402
from keras_bert.data.questions import QuestionAnswererPreprocessor  # noqa: E402
from tests.checkpoints.small_models import small_config  # noqa: E402
from tests.text.small_tokenizers import make_tokenizer  # noqa: E402

TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "good", "bad", "film", "is", "who", "it"]
CONFIG = small_config(vocabulary_size=len(TOKENS), num_layers=1, max_sequence_length=16)
FRAME = pandas.DataFrame(
    {
        "id": [30, 10, 20],
        "text": ["good film", "bad film", "it is good"],
        "text_pair": ["it is", "is it", "who"],
        "label": ["yes", "no", "yes"],
    }
).set_index("id")


@pytest.fixture(scope="module")
def classifier():
    preprocessor = TextClassifierPreprocessor(make_tokenizer(*TOKENS), 16)
    task = TextClassifier(Backbone(CONFIG), preprocessor=preprocessor, class_names=("no", "yes"))
    task.compile("sgd")
    return task


def test_label_column_replaces_y(classifier):
    expected = classifier.evaluate(FRAME, FRAME["label"], verbose=0)
    assert classifier.evaluate(FRAME, verbose=0) == expected
    columns = {name: list(FRAME[name]) for name in FRAME}
    history = classifier.fit(columns, validation_data=FRAME, verbose=0).history
    assert np.isfinite(history["val_loss"][0])
    wrong = {**columns, "label": ["yes", "no", "maybe"]}
    with pytest.raises(
        ValueError, match=r"label in row 2 must be one of no, yes. Received: 'maybe'"
    ):
        classifier.fit(wrong, verbose=0)


def test_predictions_keep_the_input_index(classifier):
    pairs = list(zip(FRAME["text"], FRAME["text_pair"], strict=True))
    for asked, rows in {
        "frame": (FRAME, pairs),
        "series": (FRAME["text"], list(FRAME["text"])),
    }.values():
        answers = classifier.classify(asked)
        assert list(answers.index) == [30, 10, 20]
        assert answers.to_dict("records") == classifier.classify(rows)
        ranked = classifier.classify(asked, top_k=2)
        assert list(ranked.index) == [30, 10, 20]
        assert list(ranked) == classifier.classify(rows, top_k=2)


def test_series_of_questions_keeps_the_index():
    tokenizer = make_tokenizer(*TOKENS)
    task = QuestionAnswerer(Backbone(CONFIG), QuestionAnswererPreprocessor(tokenizer, 16, 4, 4))
    answers = task.answer(FRAME["text"], FRAME["text_pair"])
    assert list(answers.index) == [30, 10, 20]
    assert set(answers.columns) == {"answer", "start", "end", "score"}
