# SPDX-License-Identifier: Apache-2.0
"""Dynamic masking, compared with its rates, and in NumPy with that in a graph.

A rate passes within five standard deviations of its binomial count: a correct rate would fail
once in 1.7 million times. Every draw is seeded, so that results do not vary.
"""

import numpy as np
import pytest

pytestmark = [pytest.mark.needs_tensorflow, pytest.mark.backend_independent]

tf = pytest.importorskip("tensorflow")

from keras_bert.data import MaskedLMMaskGenerator  # noqa: E402
from keras_bert.data.arrays import NUMPY, Ragged  # noqa: E402
from keras_bert.data.pretraining.mask_selection import (  # noqa: E402
    RandomRows,
    _take_while_they_fit,
    ngram_starts,
)
from tests.text.small_tokenizers import make_tokenizer  # noqa: E402

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
PAD, UNK, CLS, SEP, MASK = range(5)
VOCABULARY = [*SPECIAL, *(f"w{i}" for i in range(45)), *(f"##p{i}" for i in range(50))]
FIRST_WORD, FIRST_PIECE = 5, 50
UNITS = ["token", "word", "ngram"]


def masker(**options):
    return MaskedLMMaskGenerator.from_tokenizer(make_tokenizer(*VOCABULARY), **options)


def rows(count=400, length=128, shortest=3, seed=0, pieces=0.3):
    """Rows `[CLS] A [SEP] B [SEP]` of words of one or more pieces, padded."""
    random = np.random.default_rng(seed)
    is_piece = random.random((count, length)) < pieces
    words = random.integers(FIRST_WORD, FIRST_PIECE, (count, length))
    ids = np.where(is_piece, words + 45, words).astype("int32")
    lengths = random.integers(shortest, length + 1, count)
    lengths[: count // 2] = length
    columns = np.arange(length)
    ids[:, 0] = CLS
    ids[np.arange(count), lengths // 2] = SEP
    ids[np.arange(count), lengths - 1] = SEP
    real = columns < lengths[:, None]
    return {
        "token_ids": np.where(real, ids, PAD),
        "padding_mask": real,
        "segment_ids": ((columns > lengths[:, None] // 2) & real).astype("int32"),
    }


def assert_rate(count, trials, rate):
    spread = 5 * np.sqrt(trials * rate * (1 - rate))
    assert np.all(np.abs(count - trials * rate) <= spread), (count / trials, rate)


def chosen(masked, length):
    """Bool `(batch, length)`, from the slots."""
    result = np.zeros((len(masked["mask_ids"]), length), bool)
    used = masked["mask_weights"] == 1
    result[np.nonzero(used)[0], masked["mask_positions"][used]] = True
    return result


# === How many, and where ===


@pytest.mark.parametrize("max_predictions", [None, 7])
def test_every_row_gets_the_number_of_the_released_code(max_predictions):
    features = rows(count=300)
    masked = masker(max_predictions=max_predictions)(features, 0)
    for ids, weights in zip(features["token_ids"], masked["mask_weights"], strict=True):
        number = min(max_predictions or 128, max(1, round(0.15 * (ids != PAD).sum())))
        assert weights.sum() == min(number, (ids >= FIRST_WORD).sum())


@pytest.mark.parametrize("options", [{}, {"max_predictions": 3}, {"unit": "ngram"}])
def test_a_length_known_only_when_it_runs_gives_the_same(options):
    make = masker(**options)
    function = tf.function(
        lambda token_ids, padding_mask: make(
            {"token_ids": token_ids, "padding_mask": padding_mask}, 1
        ),
        input_signature=[tf.TensorSpec([None, None], dtype) for dtype in (tf.int32, tf.bool)],
    )
    for length in (5, 30, 128):
        features = rows(count=20, length=length)
        del features["segment_ids"]
        tensors = {name: tf.constant(value) for name, value in features.items()}
        assert_equal(function(**tensors), make(features, 1))


@pytest.mark.parametrize("unit", UNITS)
def test_labels_are_what_was_there_and_the_rest_is_as_it_was(unit):
    features = rows()
    masked = masker(unit=unit)(features, 5)
    used = masked["mask_weights"] == 1
    assert set(np.unique(masked["mask_weights"])) == {0, 1}
    # Used slots come first, in ascending order
    assert (np.diff(used.astype(int), axis=1) <= 0).all()
    assert (np.diff(masked["mask_positions"], axis=1)[used[:, 1:]] > 0).all()
    assert not masked["mask_ids"][~used].any()
    assert not masked["mask_positions"][~used].any()

    where = chosen(masked, 128)
    assert where.sum() == used.sum()
    labels = np.take_along_axis(features["token_ids"], masked["mask_positions"], axis=1)
    np.testing.assert_array_equal(masked["mask_ids"][used], labels[used])
    np.testing.assert_array_equal(masked["token_ids"][~where], features["token_ids"][~where])
    for name in ("padding_mask", "segment_ids"):
        np.testing.assert_array_equal(masked[name], features[name])
    assert {name: value.dtype.name for name, value in masked.items()} == {
        "token_ids": "int32",
        "padding_mask": "bool",
        "segment_ids": "int32",
        "mask_positions": "int32",
        "mask_ids": "int32",
        "mask_weights": "float32",
    }


@pytest.mark.parametrize("unit", UNITS)
def test_special_tokens_and_padding_are_never_chosen(unit):
    features = rows(count=2000, shortest=2)
    # The content of padding is ignored; a literal [MASK] in the text is not predicted.
    features["token_ids"][~features["padding_mask"]] = 7
    features["token_ids"][:, 3] = MASK
    masked = masker(unit=unit, mask_selection_rate=0.9)(features, 0)
    where = chosen(masked, 128)
    assert not where[~features["padding_mask"]].any()
    assert (features["token_ids"][where] >= FIRST_WORD).all()


def test_every_token_of_a_row_is_equally_likely():
    ids = np.full((20000, 20), 7, "int32")
    ids[:, [0, 9, 19]] = [CLS, SEP, SEP]
    masked = masker()(ids, 0)
    counts = chosen(masked, 20).sum(axis=0)
    selectable = ids[0] == 7
    assert counts[selectable].sum() == 3 * 20000
    assert_rate(counts[selectable], 20000, 3 / 17)


# === What comes in their places ===

TABLE_8 = [(0.8, 0.1), (0.0, 1.0)]


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize(("mask_rate", "random_rate"), TABLE_8)
def test_the_split_into_mask_random_and_same(unit, mask_rate, random_rate):
    _, before, after = replaced(
        unit=unit,
        mask_token_rate=mask_rate,
        random_token_rate=random_rate,
        random_token_ids=[UNK],  # nowhere in the rows
    )
    assert_rate((after == MASK).sum(), len(after), mask_rate)
    assert_rate((after == UNK).sum(), len(after), random_rate)
    assert_rate((after == before).sum(), len(after), round(1 - mask_rate - random_rate, 9))


def replaced(features=None, **options):
    """A masked batch, and what was and what is at the chosen places."""
    features = features or rows(count=1000)
    masked = masker(**options)(features, 1)
    where = chosen(masked, features["token_ids"].shape[1])
    return masked, features["token_ids"][where], masked["token_ids"][where]


# === Words ===


def words_of(ids):
    """Lists of places, by a plain statement of what a word is."""
    words = []
    for place, token in enumerate(ids):
        if token < FIRST_WORD and token != UNK:
            words.append(None)
        elif token >= FIRST_PIECE and words and words[-1]:
            words[-1].append(place)
        else:
            words.append([place])
    return [word for word in words if word]


@pytest.mark.parametrize("rate", [0.15, 0.5])
def test_whole_words_fill_the_budget(rate):
    features = rows(count=300, pieces=0.4)
    masked = masker(unit="word", mask_selection_rate=rate)(features, 0)
    assert_whole_words_fill_the_budget(features, chosen(masked, 128), rate)


def assert_whole_words_fill_the_budget(features, is_chosen, rate):
    for ids, row in zip(features["token_ids"], is_chosen, strict=True):
        words = words_of(ids)
        assert all(row[word].all() == row[word].any() for word in words)
        budget = max(1, round(rate * (ids != PAD).sum()))
        assert row.sum() <= budget
        lengths = [len(word) for word in words if not row[word[0]]]
        assert not lengths or min(lengths) > budget - row.sum()


@pytest.mark.parametrize("seed", range(3))
def test_units_are_taken_in_order_as_by_the_released_code(seed):
    random = np.random.default_rng(seed)
    lengths = [random.integers(1, 6, 30) for _ in range(50)]
    width = max(sum(row) for row in lengths)
    sizes, starts = np.zeros((2, 50, width), "int32")
    for row, units in enumerate(lengths):
        sizes[row, : sum(units)] = np.repeat(units, units)
        starts[row, np.cumsum(units) - units] = 1
    budgets = random.integers(0, 40, (50, 1)).astype("int32")
    taken = _take_while_they_fit(NUMPY, sizes, starts > 0, budgets)
    for row, units in enumerate(lengths):
        expected, total = [], 0
        for size in units:
            fits = total + size <= budgets[row, 0]
            total += size * fits
            expected += [fits] * size
        np.testing.assert_array_equal(taken[row, : len(expected)], expected)
        assert not taken[row, len(expected) :].any()


def test_a_piece_behind_a_separator_is_a_word_of_its_own():
    ids = np.tile([CLS, 7, SEP, 60, 61, SEP], (200, 1)).astype("int32")
    masked = masker(unit="word", mask_selection_rate=0.34)(ids, 0)  # two of six
    assert {tuple(row) for row in chosen(masked, 6).astype(int)} == {
        (0, 1, 0, 0, 0, 0),
        (0, 0, 0, 1, 1, 0),
    }


def test_words_may_be_given_by_their_starts():
    ids = np.tile([CLS, 7, 8, 9, 10, SEP], (200, 1)).astype("int32")
    starts = np.tile([0, 1, 0, 1, 0, 1], (200, 1))
    make = MaskedLMMaskGenerator(100, MASK, [PAD, CLS, SEP], unit="word", mask_selection_rate=0.34)
    masked = make({"token_ids": ids, "word_starts": starts}, 0)
    assert "word_starts" not in masked
    assert {tuple(row) for row in chosen(masked, 6).astype(int)} == {
        (0, 1, 1, 0, 0, 0),
        (0, 0, 0, 1, 1, 0),
    }
    with pytest.raises(ValueError, match="requires the first token of each word"):
        make(ids)


# === Runs of words ===


def run_lengths(starts):
    """Words in each run but a row's first and last, which its ends may have cut."""
    return np.concatenate([np.diff(np.flatnonzero(row))[1:] for row in starts])


@pytest.mark.parametrize("max_ngram", [1, 2, 3, 5])
def test_runs_of_n_words_come_with_a_probability_like_one_over_n(max_ngram):
    everywhere, budgets = np.ones((100, 500), bool), np.full(100, 75)
    starts = ngram_starts(NUMPY, everywhere, everywhere, max_ngram, budgets, RandomRows((0, 0)))
    lengths = run_lengths(starts)
    assert len(lengths) > 10_000
    weights = 1 / np.arange(1, max_ngram + 1)
    counts = np.bincount(lengths, minlength=max_ngram + 1)
    assert counts[0] == 0
    assert len(counts) == max_ngram + 1
    assert_rate(counts[1:], len(lengths), weights / weights.sum())


# === Packed rows ===


@pytest.mark.parametrize("unit", UNITS)
def test_packed_rows_have_padding_where_there_is_no_sequence(unit):
    ids = np.tile([CLS, 7, 8, SEP, CLS, 9, SEP, 11, 11, 11], (300, 1)).astype("int32")
    sequences = np.tile([1, 1, 1, 1, 2, 2, 2, 0, 0, 0], (300, 1))
    features = {"token_ids": ids, "sequence_ids": sequences}
    where = chosen((masker(unit=unit, mask_selection_rate=0.3)(features, 0)), 10)
    assert (where.sum(axis=1) == 2).all()  # of seven tokens, not of ten
    assert not where[:, [0, 3, 4, 6, 7, 8, 9]].any()


def test_words_end_with_their_sequence():
    ids = np.tile([7, 60, 61, 62], (200, 1)).astype("int32")
    features = {"token_ids": ids, "sequence_ids": np.tile([1, 1, 2, 2], (200, 1))}
    where = chosen((masker(unit="word", mask_selection_rate=0.5)(features, 0)), 4)
    assert {tuple(row) for row in where.astype(int)} == {(1, 1, 0, 0), (0, 0, 1, 1)}


# === The same in NumPy and in a graph ===


@pytest.mark.parametrize(
    ("unit", "length", "packed", "step", "options"),
    [
        ("token", 5, False, 3, {}),
        ("word", 31, True, 2**33 + 1, {"random_special_tokens": False}),
        ("ngram", 31, True, 2**33 + 1, {}),
        ("token", 64, False, None, {"max_predictions": 3}),
        ("ngram", 128, True, None, {"max_ngram": 1}),
        ("word", 512, False, 5, {"mask_selection_rate": 0.5}),
    ],
)
def test_masks_of_arrays_and_of_tensors_are_equal(unit, length, packed, step, options):
    features = rows(count=9, length=length, seed=length)
    if packed:
        real = features.pop("padding_mask")
        features["sequence_ids"] = ((1 + np.arange(length) // 7) * real).astype("int32")
    make = masker(unit=unit, seed=11, **options)
    tensors = {name: tf.constant(value) for name, value in features.items()}
    expected = make(features, step)
    assert all(isinstance(value, np.ndarray) for value in expected.values())
    graph = tf.function(lambda features, step: make(features, step))
    asked = None if step is None else tf.constant(step, tf.int64)
    for masked in (make(tensors, step), graph(tensors, asked)):
        assert_equal(masked, expected)
        assert {name: value.dtype.name for name, value in masked.items()} == {
            name: value.dtype.name for name, value in expected.items()
        }


# === The same again, and different again ===


def assert_equal(first, second):
    assert first.keys() == second.keys()
    for name in first:
        np.testing.assert_array_equal(first[name], second[name], err_msg=name)


def differ(first, second):
    return (np.asarray(first["mask_positions"]) != np.asarray(second["mask_positions"])).any()


@pytest.mark.parametrize("unit", UNITS)
def test_masks_are_a_function_of_seed_and_step(unit):
    features, make = rows(count=8), masker(unit=unit, seed=3)
    expected = make(features, 10)
    make(features, 11)
    assert_equal(make(features, 10), expected)
    assert_equal(masker(unit=unit, seed=3)(features, np.int64(10)), expected)
    later = make(features, 10 + 2**32)
    assert differ(later, expected)
    assert differ(make(features, 11), expected)
    assert differ(masker(unit=unit, seed=4)(features, 10), expected)


def test_training_that_goes_on_sees_the_masks_it_would_have_seen():
    features = rows(count=32, length=32)
    make = masker()

    def steps(skip):
        batches = tf.data.Dataset.from_tensor_slices(features).batch(4).repeat(2)
        return list(make.mask_dataset(batches.skip(skip), first_step=skip))

    whole = steps(0)
    assert len(whole) == 16
    for first, second in zip(whole[5:], steps(5), strict=True):
        assert_equal(first, second)
    # The second time that a batch occurs, its masks differ.
    assert all(differ(whole[i], whole[i + 8]) for i in range(8))
    np.testing.assert_array_equal(whole[0]["segment_ids"], whole[8]["segment_ids"])
    assert_equal(whole[9], make({name: value[4:8] for name, value in features.items()}, 9))


def test_without_a_step_the_same_batch_has_the_same_masks():
    features, make = rows(count=8, length=32), masker()
    dataset = tf.data.Dataset.from_tensor_slices(features).batch(4).map(make)
    first, second = list(dataset), list(dataset)
    for one, other in zip(first, second, strict=True):
        assert_equal(one, other)
    assert differ(first[0], first[1])


@pytest.mark.parametrize("unit", UNITS)
def test_a_single_row_and_an_empty_batch(unit):
    features, make = rows(count=2), masker(unit=unit)
    row = make({name: value[0] for name, value in features.items()}, 2)
    assert_equal(
        row, {k: v[0] for k, v in make({k: v[:1] for k, v in features.items()}, 2).items()}
    )
    empty = make(np.zeros((0, 128), "int32"), 0)
    assert empty["mask_positions"].shape == (0, 20)
    nothing = make(np.zeros((2, 8), "int32"), 0)
    assert not nothing["mask_weights"].any()


# === What is refused ===

WRONG = [
    ({"unit": "sentence"}, "unit must be one of token, word, ngram"),
    ({"mask_selection_rate": 0.0}, r"mask_selection_rate must .*0\.0"),
    ({"mask_token_rate": 0.9, "random_token_rate": 0.2}, r"Received: 0\.9 \+ 0\.2"),
    ({"mask_token_rate": -0.1}, r"mask_token_rate must .*-0\.1"),
    ({"max_ngram": 0}, "max_ngram must .*0"),
    ({"max_predictions": 0}, "max_predictions must .*0"),
    ({"random_token_ids": [3, 100]}, "random_token_ids must .* below the vocabulary size 100"),
    ({"random_token_ids": []}, "random_token_ids must be None or"),
]


@pytest.mark.parametrize(("options", "message"), WRONG)
def test_wrong_arguments_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        masker(**options)


@pytest.mark.parametrize(
    "ragged",
    [tf.ragged.constant([[CLS, 7, SEP], [CLS]]), Ragged(np.array([CLS, 7, SEP]), np.array([1, 2]))],
    ids=["tensorflow", "numpy"],
)
def test_ragged_rows_are_refused(ragged):
    with pytest.raises(ValueError, match=r"token_ids must .* ragged rows. Pad or pack them first"):
        masker()(ragged, 0)
