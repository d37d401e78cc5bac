# SPDX-License-Identifier: Apache-2.0
"""`model_inputs` shows what `fit` trains on, and where each token comes from."""

import collections
import random
from xml.etree import ElementTree

import numpy as np
import pytest

from keras_bert import (
    Backbone,
    BertConfig,
    Pretrainer,
    TextClassifier,
    TokenClassifier,
    insight,
)
from keras_bert.models.inputs import ROWS_OF_TUPLES
from keras_bert.tasks import fit_plan
from tests import task_cases
from tests.text.small_tokenizers import make_tokenizer

pytestmark = pytest.mark.on_torch

TASKS = [name for name in task_cases.CASES if not name.startswith("distilled")]
FEATURES = "token_ids", "segment_ids", "padding_mask", "mask_positions"
ARGUMENTS = {
    "epochs": 1,
    "validation_split": 0.0,
    "validation_data": None,
    "shuffle": False,
    "class_weight": None,
    "initial_batch": 0,
    "bucketing_window": 1,
    "keras_arguments": {},
}


def fitted_sequences(task, data, batch_size):
    """Returns the sequences in the batches that `fit` trains on, in the order of training."""
    arguments = fit_plan.FitArguments(batch_size=batch_size, **ARGUMENTS)
    x, y, weights = (data.get(name) for name in ("x", "y", "sample_weight"))
    train = fit_plan.plan_fit(task, x, y, weights, arguments).train
    batches = [(train.x,)] if train.are_arrays else train.x
    for features, *_ in batches:
        rows = features.get(ROWS_OF_TUPLES, slice(None))
        length = features["token_ids"].shape[-1]
        columns = [
            features[name][rows].reshape(-1, features[name].shape[-1] if name[0] == "m" else length)
            for name in FEATURES
            if name in features
        ]
        yield from (row for row in zip(*columns, strict=True) if row[2].any())


def hashable(arrays):
    return tuple(tuple(np.asarray(array).tolist()) for array in arrays)


@pytest.mark.parametrize("family", ["bert", "roberta"])
@pytest.mark.parametrize("name", TASKS)
def test_sequences_are_those_of_fit(name, family):
    case = task_cases.task_case(name, family)
    task = task_cases.make_task(case, family)
    random.seed(1)
    inputs = insight.model_inputs(task, **case.data)
    random.seed(1)  # `fit` samples masks from this seed. Without masks, nothing is sampled.
    expected = fitted_sequences(task, case.data, task_cases.NUM_ROWS)
    shown = collections.Counter(
        hashable(row.features[name] for name in FEATURES if name in row.features) for row in inputs
    )
    assert shown == collections.Counter(map(hashable, expected))
    # The examples are in the order of the input.
    assert [row.example for row in inputs] == sorted(row.example for row in inputs)
    assert {row.example for row in inputs} == set(range(task_cases.NUM_ROWS))
    if name not in ("classes", "pairs", "questions", "choices", "embedding"):
        return
    tokenizer = task.preprocessor.tokenizer
    not_in_text = {tokenizer.pad_token, tokenizer.cls_token, tokenizer.sep_token}
    for row in inputs:
        texts = list(row.texts.values())
        for token, span in zip(row.tokens, row.spans, strict=True):
            assert (token in not_in_text) == (span is None)
            if span is not None and token != tokenizer.unk_token:
                text = tokenizer.token_text(tokenizer.token_to_id(token))
                assert text.strip(" #") == texts[span[0]][span[1] : span[2]]


WORDS = ["my", "dog", "is", "cute", "he", "likes", "play", "##ing"]
TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]


def make_task(task_class, sequence_length, **options):
    config = BertConfig(len(TOKENS), num_layers=1, hidden_dim=8, num_heads=2, intermediate_dim=16)
    preprocessor = task_class.preprocessor_class(make_tokenizer(*TOKENS), sequence_length)
    return task_class(Backbone(config), preprocessor=preprocessor, **options)


def test_labels_and_truncation_are_shown():
    classifier = make_task(TextClassifier, 8, class_names=["no", "yes"])
    rows = insight.model_inputs(classifier, [("my dog is cute", "Hé likes")], ["yes"])
    assert str(rows) == "\n".join(
        [
            "example 0, label: yes, 8 tokens",
            "truncated: text lost 1 of 4 tokens at the end, 4 characters: 'cute'",
            "",
            "field             text                  text_pair",
            "token      [CLS]  my    dog  is  [SEP]  he         likes  [SEP]",
            "text                                    Hé",
            "id         2      5     6    7   3      9          10     3",
            "segment    0      0     0    0   0      1          1      1",
            "position   0      1     2    3   4      5          6      7",
            "character         0     3    7          0          3",
        ]
    )
    tagger = make_task(TokenClassifier, 8, class_names=["O", "B-X"])
    (row,) = insight.model_inputs(tagger, [["playing", "Hé"]], [["O", "B-X"]])
    assert row.token_labels["label"] == ("", "O", "", "B-X", "", "", "", "")
    assert row.spans[1:4] == ((0, 0, 7), (0, 0, 7), (0, 8, 10))
    tagger.preprocessor.word_unit = "characters"
    (row,) = insight.model_inputs(tagger, [list("하다")])
    assert row.texts == {"words": "하다"}
    assert row.spans[1:3] == ((0, 0, 1), (0, 1, 2))
    long_sentence = ["playing", "dog", "cute", "is", "he"] * 2
    windows = insight.model_inputs(tagger, [long_sentence], [["O"] * 10])
    assert [str(excerpt) for row in windows for excerpt in row.excerpts] == [
        "window: words 0 to 5 of 10",
        *["truncated: 'playing' lost 1 of 2 tokens"] * 2,
        "window: words 5 to 9 of 10",
        "truncated: 'playing' lost 1 of 2 tokens",
    ]
    assert sum(label == "O" for row in windows for label in row.token_labels["label"]) == 10


def test_sequences_contain_multiple_documents():
    pretrainer = make_task(Pretrainer, 16, next_sentence=False, duplicate_factor=1)
    (row,) = insight.model_inputs(pretrainer, [["my dog"], ["is", "cute"], ["he"]])
    assert list(row.texts) == ["document 1", "document 2", "document 3"]
    assert sorted(row.texts.values()) == ["he", "is cute", "my dog"]


def test_pictures_are_wrapped_and_escaped():
    classifier = make_task(TextClassifier, 32, num_classes=2)
    (row,) = insight.model_inputs(classifier, ["my <dog> & 한국어 " * 4])
    image = ElementTree.fromstring(row.svg(width=300))
    assert float(image.get("width")) <= 300
    boxes = image.findall("{http://www.w3.org/2000/svg}rect")
    # A token, its three embeddings, and the padding
    assert len(boxes) == 4 * 26 + 1
    assert "한국" in row._repr_html_()
