# SPDX-License-Identifier: Apache-2.0
"""A task answers rows of its fields with its verb."""

import pytest

import keras_bert
from keras_bert import Backbone, BertConfig
from tests.text import small_tokenizers

pytestmark = pytest.mark.backend_independent

ROWS = {
    "TextClassifier": {"text": "the test"},
    "TokenClassifier": {"text": "the test"},
    "QuestionAnswerer": {"question": "what fails", "context": "the test fails"},
    "MultipleChoice": {"text": "the test", "choices": ["fails", "is skipped"]},
    "TextEmbedder": {"text": "the test"},
    "MaskedLM": {"text": "the [MASK] fails"},
    "ReplacedTokenDetector": {"text": "the test"},
}
# The call of the method for a list of one row
CALLS = {
    "TextClassifier": lambda task, text: task.classify([text]),
    "TokenClassifier": lambda task, text: task.tag([text]),
    "QuestionAnswerer": lambda task, question, context: task.answer([question], [context]),
    "MultipleChoice": lambda task, text, choices: task.choose([(text, choices)]),
    "TextEmbedder": lambda task, text: [{"embedding": task.embed(text).tolist()}],
    "MaskedLM": lambda task, text: task.fill([text]),
    "ReplacedTokenDetector": lambda task, text: task.detect([text]),
}


def made(name):
    tokenizer = small_tokenizers.make("wordpiece")
    config = BertConfig(
        vocabulary_size=tokenizer.vocabulary_size,
        num_layers=1,
        hidden_dim=8,
        num_heads=2,
        intermediate_dim=16,
        max_sequence_length=32,
    )
    task = getattr(keras_bert, name)
    length = {"sequence_length": 32}
    if name == "QuestionAnswerer":
        length |= {"doc_stride": 8, "max_query_length": 8}
    preprocessor = task.preprocessor_class(tokenizer, **length)
    classes = {"num_classes": 2} if "num_classes" in task.options else {}
    return task(Backbone(config), preprocessor=preprocessor, **classes)


@pytest.mark.parametrize("name", ROWS)
def test_rows_are_answered_as_the_method_answers_them(name):
    task, row = made(name), ROWS[name]
    assert set(row) == set(task.fields)
    assert callable(getattr(task, task.verb))
    assert task.apply_verb([{**row, "id": 7}]) == CALLS[name](task, **row)
    assert len(task.apply_verb([row] * 3)) == 3
    assert task.apply_verb([]) == []
    with pytest.raises(ValueError, match=f"Row 1 has no {task.fields[0]}; it has id"):
        task.apply_verb([row, {"id": 1}])


def test_pairs_are_an_optional_field_of_all_rows_or_none():
    classifier = made("TextClassifier")
    row = {"text": "the test", "text_pair": "fails"}
    (answer,) = classifier.apply_verb([row])
    assert answer == classifier.classify([("the test", "fails")])[0]
    with pytest.raises(ValueError, match="Row 1 has no text_pair"):
        classifier.apply_verb([row, {"text": "the test"}])


def test_a_task_that_answers_no_text_says_so():
    with pytest.raises(ValueError, match="A Pretrainer does not answer text"):
        made("Pretrainer").apply_verb([{"text": "the test"}])
