# SPDX-License-Identifier: Apache-2.0
import itertools

import numpy as np
import pytest

from keras_bert.data.adapters.choices import choice_labels
from keras_bert.data.adapters.reading import read_input
from keras_bert.data.adapters.texts import TextAdapter
from keras_bert.data.adapters.words import WordsAdapter
from keras_bert.data.labels import LabelRules, MultiLabelRules, validate_class_weight

pytestmark = pytest.mark.backend_independent

RULES = LabelRules(3, ("x", "y", "z"))
CHOICES = [["a", "b"], ["a", "b", "c"]]


@pytest.mark.parametrize("names", [*itertools.permutations("012"), *itertools.permutations("123")])
@pytest.mark.parametrize("labels", [[0, 1, 2], [1, 2], [1.0, 2.0], [2], [0]])
def test_ambiguous_numeric_labels_raise(names, labels):
    """Numbers are ids. They raise if they are also the names of other ids."""
    ids = list(map(int, labels))
    are_names = all(str(label) in names for label in ids)
    differ = any(names[label] != str(label) for label in ids)
    calls = [
        lambda: LabelRules(3, names).read(labels),
        lambda: LabelRules(3, names, lowest=None).read([*labels, -100]),
        lambda: validate_class_weight(dict.fromkeys(ids, 2.0), 3, names),
    ]
    for call in calls:
        if are_names and differ:
            with pytest.raises(ValueError, match="Pass names as strings"):
                call()
        else:
            call()
    assert LabelRules(3, names, are_parts=True).read(labels).tolist() == ids
    strings = [name for name in names if name in map(str, ids)]
    assert LabelRules(3, names).read(strings).tolist() == list(map(names.index, strings))


def test_labels_of_data_frames():
    pandas = pytest.importorskip("pandas")
    for column in (["y", "x"], pandas.Categorical(["y", "x"]), [1, 0], pandas.array([1, 0])):
        frame = pandas.DataFrame({"label": column})
        for labels in (frame, frame["label"], frame["label"].astype(object)):
            assert RULES.read(labels).tolist() == [1, 0]
    for values in ([0, 1, 7], [0.0, 1.0, 7.0]):  # A custom loss may expect ids or numbers.
        with pytest.raises(
            ValueError, match=r"label in row 2 must be an id from 0 to 1. Received: 7"
        ):
            LabelRules(2, may_be_numbers=True).read(pandas.DataFrame({"label": values}))
    soft = LabelRules(2, may_be_numbers=True).read(pandas.DataFrame({"label": [0.5, 7.0]}))
    assert soft.tolist() == [[0.5], [7.0]]
    lists = pandas.DataFrame({"labels": [["y"], ["x", "z"]]})
    for labels in (lists, lists["labels"]):
        rules = MultiLabelRules(3, RULES.class_names)
        assert rules.read(labels).tolist() == [[0, 1, 0], [1, 0, 1]]
    for labels in (pandas.Series([1, 0], dtype=object), pandas.DataFrame({"y": [1.0, 0.0]})):
        assert choice_labels(labels, CHOICES).tolist() == [1, 0]


def test_missing_label_error_includes_row():
    pandas = pytest.importorskip("pandas")
    columns = [
        ["x", None],
        ["x", float("nan")],
        [0, None],
        [0, float("nan")],
        np.array([0, np.nan]),
    ]
    series = [pandas.Series([0, None], dtype="Int64"), pandas.Series(["x", None], dtype="string")]
    for labels in (*columns, *series, pandas.DataFrame({"label": series[0]})):
        with pytest.raises(ValueError, match="The label in row 1 must not be missing"):
            RULES.read(labels)
    with pytest.raises(ValueError, match="The label in row 1 must not be missing"):
        choice_labels(series[0], CHOICES)


def test_label_with_spaces_raises():
    with pytest.raises(
        ValueError,
        match=r"label in row 1 must be one of x, y, z. Received: 'y '. Remove the spaces",
    ):
        RULES.read(["x", "y "])


@pytest.mark.parametrize("labels", [[2, 0], [-1, 0], [0.5, 0], ["a", "b"]])
def test_invalid_choice_label_raises(labels):
    with pytest.raises(ValueError, match=r"The label of row 0 must be the index of one"):
        choice_labels(labels, CHOICES)


def test_dataset_columns_map_by_class_name():
    """Columns of a dataset keep its class names, so its class order may differ from the model's."""
    datasets = pytest.importorskip("datasets")
    names = datasets.ClassLabel(names=["z", "x", "y"])
    features = {
        "words": datasets.List(datasets.Value("string")),
        "tags": datasets.List(names),
        "text": datasets.Value("string"),
        "label": names,
    }
    columns = {"words": [["a", "b"], ["a"]], "tags": [[0, 1], [2]], "text": ["a", "b"]}
    rows = datasets.Dataset.from_dict({**columns, "label": [2, 0]}, datasets.Features(features))
    tags = read_input([WordsAdapter], rows["words"], rows["tags"], rules=RULES)
    assert tags.labels.tolist() == [2, 0, 1]
    for x, y in ((rows, None), (rows, rows["label"]), (rows["text"], rows["label"])):
        actual = read_input([TextAdapter], x, y, rules=RULES, needs_labels=True)
        assert actual.labels.tolist() == [1, 2]
    assert read_input(
        [TextAdapter], rows, rules=LabelRules(3), needs_labels=True
    ).labels.tolist() == [2, 0]
