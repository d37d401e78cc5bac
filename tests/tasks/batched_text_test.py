# SPDX-License-Identifier: Apache-2.0
"""Batched text and `tf.data.Dataset` give the same results as lists."""

import itertools
import threading

import keras
import numpy as np
import pytest

import keras_bert
from keras_bert.data.adapters.text_batches import PrebatchedText, open_batched_text
from keras_bert.data.batch_options import BatchOptions
from tests.small_tasks import make_text_task

pytestmark = pytest.mark.on_torch

TEXTS = ["a", "b a", "a a b", "b", "a b", "b b b b", "a a"]
PAIRS = {"text": TEXTS, "text_pair": TEXTS[::-1]}
LABELS = [0, 1, 1, 0, 1, 1, 0]
WEIGHTS = [1.0, 2.0, 0.5, 1.0, 0.0, 3.0, 1.0]
NAMES = ("no", "yes")
BATCHES = [slice(0, 2), slice(2, 4), slice(4, 6), slice(6, 7)]


def select_rows(x, batch):
    return {name: x[name][batch] for name in x} if isinstance(x, dict) else x[batch]


class Sequence(keras.utils.PyDataset):
    """Batches of two rows."""

    def __init__(self, *columns, num_batches=4):
        super().__init__()
        self.columns = columns
        self.count = num_batches

    @property
    def num_batches(self):
        return self.count

    def __getitem__(self, index):
        batch = BATCHES[index % len(BATCHES)]
        return tuple(select_rows(column, batch) for column in self.columns)


def generator(*columns):
    sequence = Sequence(*columns)
    return (sequence[index] for index in range(len(BATCHES)))


def endless_generator(*columns):
    sequence = Sequence(*columns)
    return (sequence[index] for index in itertools.count())


def data_loader(*columns, unknown_size=False):
    data = pytest.importorskip("torch.utils.data")

    def row(index):
        return tuple(
            {name: x[name][index] for name in x} if isinstance(x, dict) else x[index]
            for x in columns
        )

    class Rows(data.Dataset):
        def __len__(self):
            return len(LABELS)

        def __getitem__(self, index):
            return row(index)

    class Stream(data.IterableDataset):
        def __iter__(self):
            return (row(index) for index in range(len(LABELS)))

    return data.DataLoader(Stream() if unknown_size else Rows(), batch_size=2)


def single_pass_loader(*columns):
    data = pytest.importorskip("torch.utils.data")

    class Stream(data.IterableDataset):
        rows = zip(*columns, strict=True)

        def __iter__(self):
            return self.rows

    return data.DataLoader(Stream(), batch_size=2)


def unsized_loader(*columns):
    return data_loader(*columns, unknown_size=True)


@pytest.fixture(scope="module")
def classifier():
    """A classifier with class names and without dropout."""
    task = make_text_task("TextClassifier", 2)
    config = task.config.replace(dropout=0.0, attention_dropout=0.0, initializer_range=0.5)
    task = keras_bert.TextClassifier(
        keras_bert.Backbone(config), preprocessor=task.preprocessor, class_names=NAMES
    )
    task.compile(keras.optimizers.SGD(0.1))
    return task


@pytest.fixture(scope="module")
def weights(classifier):
    return classifier.get_weights()


@pytest.fixture
def train(classifier, weights):
    """Returns a function that trains from the same weights and returns each epoch's loss."""

    def fit(*data, **options):
        classifier.set_weights(weights)
        return classifier.fit(*data, verbose=0, **options).history["loss"]

    return fit


def check_threads_stop():
    """Checks that the threads that make batches stop."""
    for thread in threading.enumerate():
        if thread.name == "batches":
            thread.join(2)
            assert not thread.is_alive()


FORMS = [Sequence, generator, data_loader, unsized_loader]


def test_sharded_batches_have_the_maximum_length(classifier):
    preprocessor = classifier.preprocessor
    options = BatchOptions(2, compiles=True, shard=(0, 2))
    batches = PrebatchedText(open_batched_text(generator(TEXTS)), preprocessor, options, None)
    lengths = {features["token_ids"].shape[1] for features, _ in batches}
    assert lengths == {preprocessor.sequence_length}


def test_iterator_rows_are_not_lost(classifier):
    loader = single_pass_loader(TEXTS, LABELS)
    batches = PrebatchedText(
        open_batched_text(loader), classifier.preprocessor, BatchOptions(2), None
    )
    next(iter(batches))
    assert len(list(loader.dataset.rows)) == len(LABELS) - 2


@pytest.mark.filterwarnings("ignore:Your input ran out of data")
@pytest.mark.parametrize(
    "form", [pytest.param(Sequence, marks=pytest.mark.on_each_backend), *FORMS[1:]]
)
def test_batched_text_matches_lists(form, train, classifier):
    x = PAIRS if form in (Sequence, data_loader) else TEXTS
    in_order = {"batch_size": 2, "bucketing_window": 1, "shuffle": False}
    expected = train(x, LABELS, sample_weight=np.array(WEIGHTS), **in_order)
    data = (x, LABELS, np.array(WEIGHTS, "float32"))
    assert train(form(*data), shuffle=False) == pytest.approx(expected, rel=1e-5)
    expected = classifier.evaluate(x, LABELS, verbose=0)
    validation = form(x, [NAMES[label] for label in LABELS])
    assert classifier.evaluate(validation, verbose=0) == pytest.approx(expected, rel=1e-5)
    expected = classifier.predict(x, verbose=0)
    for columns in ((x,), (x, LABELS)):
        logits = classifier.predict(form(*columns), verbose=0)
        np.testing.assert_allclose(logits, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("form", [lambda *x: Sequence(*x, num_batches=None), endless_generator])
def test_steps_limit_endless_input(form, train, classifier):
    first_six = slice(0, 6)
    in_order = {"batch_size": 2, "bucketing_window": 1, "shuffle": False}
    expected = train(TEXTS[first_six], LABELS[first_six], **in_order)
    history = train(form(TEXTS, LABELS), steps_per_epoch=3, epochs=2, shuffle=False)
    assert history[0] == pytest.approx(expected[0], rel=1e-5)
    logits = classifier.predict(form(TEXTS), steps=3, verbose=0)
    expected = classifier.predict(TEXTS[first_six], verbose=0)
    np.testing.assert_allclose(logits, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.filterwarnings("ignore:Your input ran out of data")
@pytest.mark.parametrize(
    ("form", "validation"), [(Sequence, Sequence), (unsized_loader, single_pass_loader)]
)
def test_batched_epochs_and_validation_match_lists(form, validation, train):
    in_order = {"batch_size": 2, "bucketing_window": 1, "shuffle": False, "epochs": 2}
    expected = train(TEXTS, LABELS, **in_order)
    data = {"validation_data": validation(TEXTS, LABELS), "epochs": 2, "shuffle": False}
    assert train(form(TEXTS, LABELS), **data) == pytest.approx(expected, rel=1e-5)
    check_threads_stop()


def test_sequence_batches_are_reshuffled_each_epoch(classifier, monkeypatch):
    seen = []
    monkeypatch.setattr(Sequence, "__getitem__", _record_index(seen, Sequence.__getitem__))
    keras.utils.set_random_seed(3)
    classifier.fit(Sequence(TEXTS, LABELS), epochs=3, verbose=0)
    orders = [tuple(seen[start : start + 4]) for start in range(len(seen) - 12, len(seen), 4)]
    assert all(sorted(order) == [0, 1, 2, 3] for order in orders)
    assert len(set(orders)) > 1


def _record_index(seen, function):
    def recorded(self, index):
        seen.append(index)
        return function(self, index)

    return recorded


@pytest.mark.filterwarnings("ignore:Your input ran out of data")
def test_invalid_batch_error_includes_its_index(classifier):
    cases = [
        (
            (["a", "b", "a", None], LABELS),
            r"Batch 1 is invalid\. Row 1 must be text as a string, .* Received: None of type None",
        ),
        (
            (TEXTS, [0, 1, 1, 2, 1, 1, 0]),
            r"Batch 1 is invalid\. The label in row 1 must be an id from 0 to 1\. Received: 2",
        ),
        (
            (TEXTS, LABELS, [1.0, 1.0, 1.0, -1.0]),
            r"Batch 1 is invalid\. The sample weight in row 1 must be a finite number of at "
            r"least 0\. Received: -1\.0",
        ),
        (
            (TEXTS, LABELS[:3]),
            r"Batch 1 is invalid\. There must be one label or weight for each of the 2 texts\. "
            r"Received: shape \(1,\)",
        ),
    ]
    for columns, message in cases:
        for form in (Sequence, generator):
            with pytest.raises(ValueError, match=message):
                classifier.fit(form(*columns), shuffle=False, verbose=0)
    with pytest.raises(
        ValueError,
        match=r"A generator must yield batches: a list of texts or .* Received: the single text",
    ):
        classifier.predict((text for text in TEXTS), verbose=0)
    with pytest.raises(ValueError, match="a pair of texts, or a text and its label"):
        classifier.predict(generator(TEXTS, TEXTS), verbose=0)
    pairs = list(zip(TEXTS, TEXTS, strict=True))
    with pytest.raises(ValueError, match="A DataLoader collates pairs into two columns"):
        classifier.fit(data_loader(pairs, LABELS), verbose=0)
    with pytest.raises(ValueError, match="is a generator or can only be read once"):
        classifier.fit(generator(TEXTS, LABELS), epochs=2, verbose=0)
    with pytest.raises(ValueError, match="y must have labels"):
        classifier.evaluate(Sequence(TEXTS), verbose=0)
    with pytest.raises(
        ValueError, match=r"Pass steps, the number of batches: the PyDataset is infinite"
    ):
        classifier.predict(Sequence(TEXTS, num_batches=None), verbose=0)
    with pytest.raises(ValueError, match="Sequence, whose batches cannot be counted"):
        classifier.num_steps(Sequence(TEXTS, num_batches=None))
    assert classifier.num_steps(Sequence(TEXTS, LABELS), epochs=2) == 8
    with pytest.raises(
        ValueError,
        match=r"x must be a text, a list of texts, .* Received: \w+ of text in an unsupported form",
    ):
        make_text_task("TokenClassifier", 2).predict(Sequence(TEXTS), verbose=0)


def test_evaluation_inside_its_own_data_raises(classifier):
    class Evaluating(Sequence):
        def __getitem__(self, index):
            if index:
                classifier.evaluate(TEXTS, LABELS, verbose=0)
            return super().__getitem__(index)

    data = Evaluating(TEXTS, LABELS)
    with pytest.raises(RuntimeError, match="by the data set that it is being evaluated on"):
        classifier.evaluate(data, verbose=0)
    with pytest.raises(RuntimeError, match="by the data set that it is being evaluated on"):
        classifier.fit(TEXTS, LABELS, validation_data=data, verbose=0)


# === tf.data datasets ===


def single(tf, *columns):
    return tf.data.Dataset.from_tensor_slices(columns)


def batched(tf, *columns):
    return single(tf, *columns).batch(2)


def unknown_size(tf, *columns):
    return single(tf, *columns).filter(lambda *row: True)


def batched_unknown_size(tf, *columns):
    return unknown_size(tf, *columns).batch(2)


# TensorFlow computes the batches on each backend, so one form is enough on JAX and PyTorch.
DATASETS = [
    unknown_size,
    *(
        pytest.param(form, marks=pytest.mark.on_tensorflow)
        for form in (single, batched, batched_unknown_size)
    ),
]


@pytest.mark.needs_tensorflow
@pytest.mark.on_each_backend
@pytest.mark.filterwarnings("ignore:Your input ran out of data")
@pytest.mark.parametrize("form", DATASETS)
def test_dataset_matches_lists(form, train, classifier):
    tf = pytest.importorskip("tensorflow")
    options = {"batch_size": 2, "bucketing_window": 1, "shuffle": False, "epochs": 2}
    names, weights = [NAMES[label] for label in LABELS], np.array(WEIGHTS, "float32")
    expected = train(PAIRS, LABELS, sample_weight=weights, **options)
    dataset = form(tf, PAIRS, names, weights)
    held_out = {"validation_data": form(tf, PAIRS, names)}
    assert train(dataset, **options, **held_out) == pytest.approx(expected, rel=1e-5)
    expected = classifier.evaluate(PAIRS, LABELS, verbose=0, batch_size=2)
    labeled = form(tf, PAIRS, names)
    assert classifier.evaluate(labeled, verbose=0, batch_size=2) == pytest.approx(
        expected, rel=1e-5
    )
    logits = classifier.predict(labeled, verbose=0, batch_size=2)
    np.testing.assert_allclose(
        logits, classifier.predict(PAIRS, verbose=0, batch_size=2), rtol=1e-4, atol=1e-5
    )
    one_epoch = {**options, "epochs": 1, "initial_batch": 2}
    expected = train(TEXTS, LABELS, **one_epoch)
    assert train(form(tf, TEXTS, LABELS), **one_epoch) == pytest.approx(expected, rel=1e-5)
    check_threads_stop()
    with pytest.raises(
        ValueError, match=r"label in row [13] must be one of no, yes. Received: 'maybe'"
    ):
        train(form(tf, PAIRS, [*names[:3], "maybe", *names[4:]]), **options)


@pytest.mark.needs_tensorflow
@pytest.mark.on_each_backend
@pytest.mark.parametrize(
    ("form", "shuffle"),
    [(batched, False), pytest.param(single, True, marks=pytest.mark.on_tensorflow)],
)
def test_infinite_dataset_trains_for_given_steps(form, shuffle, train, monkeypatch):
    tf = pytest.importorskip("tensorflow")
    monkeypatch.setattr("keras_bert.data.tfdata.text_datasets.SHUFFLE_BATCHES", 8)
    options = {"batch_size": 2, "bucketing_window": 1, "shuffle": False}
    dataset = form(tf, TEXTS[:6], LABELS[:6]).repeat()
    losses = train(dataset, steps_per_epoch=3, epochs=2, **{**options, "shuffle": shuffle})
    assert len(losses) == 2
    if not shuffle:
        expected = train(TEXTS[:6], LABELS[:6], epochs=2, **options)
        assert losses == pytest.approx(expected, rel=1e-5)
