# SPDX-License-Identifier: Apache-2.0
"""Dynamic masking: its rates, and equal results in NumPy and in a graph.

Rates are checked to within five standard deviations of the binomial count. A correct rate would
fail once in 1.7 million runs. All seeds are fixed, so the results do not vary.
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


def make_masker(**options):
    return MaskedLMMaskGenerator.from_tokenizer(make_tokenizer(*VOCABULARY), **options)


def make_rows(count=400, length=128, shortest=3, seed=0, pieces=0.3):
    """Returns padded rows `[CLS] A [SEP] B [SEP]` with words of one or more pieces."""
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
    padding_mask = columns < lengths[:, None]
    return {
        "token_ids": np.where(padding_mask, ids, PAD),
        "padding_mask": padding_mask,
        "segment_ids": ((columns > lengths[:, None] // 2) & padding_mask).astype("int32"),
    }


def assert_rate(count, trials, rate):
    spread = 5 * np.sqrt(trials * rate * (1 - rate))
    assert np.all(np.abs(count - trials * rate) <= spread), (count / trials, rate)


def masked_positions(masked, length):
    """Returns a bool array `(batch, length)` that is True at masked positions."""
    result = np.zeros((len(masked["mask_ids"]), length), bool)
    used = masked["mask_weights"] == 1
    result[np.nonzero(used)[0], masked["mask_positions"][used]] = True
    return result


# === Number and positions ===


@pytest.mark.parametrize("max_predictions", [None, 7])
def test_number_of_masks_matches_original_bert(max_predictions):
    features = make_rows(count=300)
    masked = make_masker(max_predictions=max_predictions)(features, 0)
    for ids, weights in zip(features["token_ids"], masked["mask_weights"], strict=True):
        number = min(max_predictions or 128, max(1, round(0.15 * (ids != PAD).sum())))
        assert weights.sum() == min(number, (ids >= FIRST_WORD).sum())


@pytest.mark.parametrize("options", [{}, {"max_predictions": 3}, {"unit": "ngram"}])
def test_dynamic_length_matches_static_length(options):
    generate_masks = make_masker(**options)
    function = tf.function(
        lambda token_ids, padding_mask: generate_masks(
            {"token_ids": token_ids, "padding_mask": padding_mask}, 1
        ),
        input_signature=[tf.TensorSpec([None, None], dtype) for dtype in (tf.int32, tf.bool)],
    )
    for length in (5, 30, 128):
        features = make_rows(count=20, length=length)
        del features["segment_ids"]
        tensors = {name: tf.constant(value) for name, value in features.items()}
        assert_equal(function(**tensors), generate_masks(features, 1))


@pytest.mark.parametrize("unit", UNITS)
def test_labels_are_the_original_tokens(unit):
    features = make_rows()
    masked = make_masker(unit=unit)(features, 5)
    used = masked["mask_weights"] == 1
    assert set(np.unique(masked["mask_weights"])) == {0, 1}
    # Used positions come first, in ascending order.
    assert (np.diff(used.astype(int), axis=1) <= 0).all()
    assert (np.diff(masked["mask_positions"], axis=1)[used[:, 1:]] > 0).all()
    assert not masked["mask_ids"][~used].any()
    assert not masked["mask_positions"][~used].any()

    is_masked = masked_positions(masked, 128)
    assert is_masked.sum() == used.sum()
    labels = np.take_along_axis(features["token_ids"], masked["mask_positions"], axis=1)
    np.testing.assert_array_equal(masked["mask_ids"][used], labels[used])
    np.testing.assert_array_equal(
        masked["token_ids"][~is_masked], features["token_ids"][~is_masked]
    )
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
def test_special_tokens_and_padding_are_not_masked(unit):
    features = make_rows(count=2000, shortest=2)
    # Tokens in the padding are ignored. A literal [MASK] in the text is not predicted.
    features["token_ids"][~features["padding_mask"]] = 7
    features["token_ids"][:, 3] = MASK
    masked = make_masker(unit=unit, mask_selection_rate=0.9)(features, 0)
    is_masked = masked_positions(masked, 128)
    assert not is_masked[~features["padding_mask"]].any()
    assert (features["token_ids"][is_masked] >= FIRST_WORD).all()


def test_each_token_is_equally_likely():
    ids = np.full((20000, 20), 7, "int32")
    ids[:, [0, 9, 19]] = [CLS, SEP, SEP]
    masked = make_masker()(ids, 0)
    counts = masked_positions(masked, 20).sum(axis=0)
    selectable = ids[0] == 7
    assert counts[selectable].sum() == 3 * 20000
    assert_rate(counts[selectable], 20000, 3 / 17)


# === Replacements ===

REPLACEMENT_RATES = [(0.8, 0.1), (0.0, 1.0)]


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize(("mask_rate", "random_rate"), REPLACEMENT_RATES)
def test_replacement_rates(unit, mask_rate, random_rate):
    _, before, after = mask_rows(
        unit=unit,
        mask_token_rate=mask_rate,
        random_token_rate=random_rate,
        random_token_ids=[UNK],  # not in the rows
    )
    assert_rate((after == MASK).sum(), len(after), mask_rate)
    assert_rate((after == UNK).sum(), len(after), random_rate)
    assert_rate((after == before).sum(), len(after), round(1 - mask_rate - random_rate, 9))


def mask_rows(features=None, **options):
    """Returns a masked batch, and the tokens at masked positions before and after masking."""
    features = features or make_rows(count=1000)
    masked = make_masker(**options)(features, 1)
    is_masked = masked_positions(masked, features["token_ids"].shape[1])
    return masked, features["token_ids"][is_masked], masked["token_ids"][is_masked]


# === Words ===


def reference_words(ids):
    """Returns the positions of each word, by a plain definition of words."""
    words = []
    for position, token in enumerate(ids):
        if token < FIRST_WORD and token != UNK:
            words.append(None)
        elif token >= FIRST_PIECE and words and words[-1]:
            words[-1].append(position)
        else:
            words.append([position])
    return [word for word in words if word]


@pytest.mark.parametrize("rate", [0.15, 0.5])
def test_whole_words_fit_the_budget(rate):
    features = make_rows(count=300, pieces=0.4)
    masked = make_masker(unit="word", mask_selection_rate=rate)(features, 0)
    assert_whole_words_fit_the_budget(features, masked_positions(masked, 128), rate)


def assert_whole_words_fit_the_budget(features, is_masked, rate):
    for ids, row_mask in zip(features["token_ids"], is_masked, strict=True):
        words = reference_words(ids)
        assert all(row_mask[word].all() == row_mask[word].any() for word in words)
        budget = max(1, round(rate * (ids != PAD).sum()))
        assert row_mask.sum() <= budget
        lengths = [len(word) for word in words if not row_mask[word[0]]]
        assert not lengths or min(lengths) > budget - row_mask.sum()


@pytest.mark.parametrize("seed", range(3))
def test_unit_selection_matches_original_bert(seed):
    random = np.random.default_rng(seed)
    lengths = [random.integers(1, 6, 30) for _ in range(50)]
    width = max(sum(row) for row in lengths)
    sizes, starts = np.zeros((2, 50, width), "int32")
    for row, units in enumerate(lengths):
        sizes[row, : sum(units)] = np.repeat(units, units)
        starts[row, np.cumsum(units) - units] = 1
    budgets = random.integers(0, 40, (50, 1)).astype("int32")
    is_selected = _take_while_they_fit(NUMPY, sizes, starts > 0, budgets)
    for row, units in enumerate(lengths):
        expected, total = [], 0
        for size in units:
            fits = total + size <= budgets[row, 0]
            total += size * fits
            expected += [fits] * size
        np.testing.assert_array_equal(is_selected[row, : len(expected)], expected)
        assert not is_selected[row, len(expected) :].any()


def test_piece_after_separator_starts_a_word():
    ids = np.tile([CLS, 7, SEP, 60, 61, SEP], (200, 1)).astype("int32")
    masked = make_masker(unit="word", mask_selection_rate=0.34)(ids, 0)  # two of six tokens
    assert {tuple(row) for row in masked_positions(masked, 6).astype(int)} == {
        (0, 1, 0, 0, 0, 0),
        (0, 0, 0, 1, 1, 0),
    }


def test_word_starts_feature():
    ids = np.tile([CLS, 7, 8, 9, 10, SEP], (200, 1)).astype("int32")
    starts = np.tile([0, 1, 0, 1, 0, 1], (200, 1))
    generate_masks = MaskedLMMaskGenerator(
        100, MASK, [PAD, CLS, SEP], unit="word", mask_selection_rate=0.34
    )
    masked = generate_masks({"token_ids": ids, "word_starts": starts}, 0)
    assert "word_starts" not in masked
    assert {tuple(row) for row in masked_positions(masked, 6).astype(int)} == {
        (0, 1, 1, 0, 0, 0),
        (0, 0, 0, 1, 1, 0),
    }
    with pytest.raises(ValueError, match="requires the first token of each word"):
        generate_masks(ids)


# === N-grams ===


def run_lengths(starts):
    """Returns the n-gram lengths, except the first and last of each row, which may be truncated."""
    return np.concatenate([np.diff(np.flatnonzero(row))[1:] for row in starts])


@pytest.mark.parametrize("max_ngram", [1, 2, 3, 5])
def test_ngram_length_probabilities(max_ngram):
    all_positions, budgets = np.ones((100, 500), bool), np.full(100, 75)
    starts = ngram_starts(
        NUMPY, all_positions, all_positions, max_ngram, budgets, RandomRows((0, 0))
    )
    lengths = run_lengths(starts)
    assert len(lengths) > 10_000
    weights = 1 / np.arange(1, max_ngram + 1)
    counts = np.bincount(lengths, minlength=max_ngram + 1)
    assert counts[0] == 0
    assert len(counts) == max_ngram + 1
    assert_rate(counts[1:], len(lengths), weights / weights.sum())


# === Packed rows ===


@pytest.mark.parametrize("unit", UNITS)
def test_sequence_id_0_is_padding(unit):
    ids = np.tile([CLS, 7, 8, SEP, CLS, 9, SEP, 11, 11, 11], (300, 1)).astype("int32")
    sequences = np.tile([1, 1, 1, 1, 2, 2, 2, 0, 0, 0], (300, 1))
    features = {"token_ids": ids, "sequence_ids": sequences}
    is_masked = masked_positions((make_masker(unit=unit, mask_selection_rate=0.3)(features, 0)), 10)
    assert (is_masked.sum(axis=1) == 2).all()  # 30% of seven tokens, not of ten
    assert not is_masked[:, [0, 3, 4, 6, 7, 8, 9]].any()


def test_words_do_not_cross_packed_sequences():
    ids = np.tile([7, 60, 61, 62], (200, 1)).astype("int32")
    features = {"token_ids": ids, "sequence_ids": np.tile([1, 1, 2, 2], (200, 1))}
    is_masked = masked_positions(
        (make_masker(unit="word", mask_selection_rate=0.5)(features, 0)), 4
    )
    assert {tuple(row) for row in is_masked.astype(int)} == {(1, 1, 0, 0), (0, 0, 1, 1)}


# === NumPy and graph ===


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
def test_graph_masks_match_numpy(unit, length, packed, step, options):
    features = make_rows(count=9, length=length, seed=length)
    if packed:
        padding_mask = features.pop("padding_mask")
        features["sequence_ids"] = ((1 + np.arange(length) // 7) * padding_mask).astype("int32")
    generate_masks = make_masker(unit=unit, seed=11, **options)
    tensors = {name: tf.constant(value) for name, value in features.items()}
    expected = generate_masks(features, step)
    assert all(isinstance(value, np.ndarray) for value in expected.values())
    graph = tf.function(lambda features, step: generate_masks(features, step))
    step_tensor = None if step is None else tf.constant(step, tf.int64)
    for masked in (generate_masks(tensors, step), graph(tensors, step_tensor)):
        assert_equal(masked, expected)
        assert {name: value.dtype.name for name, value in masked.items()} == {
            name: value.dtype.name for name, value in expected.items()
        }


# === Seeds and steps ===


def assert_equal(first, second):
    assert first.keys() == second.keys()
    for name in first:
        np.testing.assert_array_equal(first[name], second[name], err_msg=name)


def masks_differ(first, second):
    return (np.asarray(first["mask_positions"]) != np.asarray(second["mask_positions"])).any()


@pytest.mark.parametrize("unit", UNITS)
def test_masks_depend_on_seed_and_step(unit):
    features, generate_masks = make_rows(count=8), make_masker(unit=unit, seed=3)
    expected = generate_masks(features, 10)
    generate_masks(features, 11)
    assert_equal(generate_masks(features, 10), expected)
    assert_equal(make_masker(unit=unit, seed=3)(features, np.int64(10)), expected)
    later = generate_masks(features, 10 + 2**32)
    assert masks_differ(later, expected)
    assert masks_differ(generate_masks(features, 11), expected)
    assert masks_differ(make_masker(unit=unit, seed=4)(features, 10), expected)


def test_first_step_resumes_masks():
    features = make_rows(count=32, length=32)
    generate_masks = make_masker()

    def masked_batches(skip):
        batches = tf.data.Dataset.from_tensor_slices(features).batch(4).repeat(2)
        return list(generate_masks.mask_dataset(batches.skip(skip), first_step=skip))

    all_batches = masked_batches(0)
    assert len(all_batches) == 16
    for first, second in zip(all_batches[5:], masked_batches(5), strict=True):
        assert_equal(first, second)
    # A batch has different masks in the second epoch.
    assert all(masks_differ(all_batches[i], all_batches[i + 8]) for i in range(8))
    np.testing.assert_array_equal(all_batches[0]["segment_ids"], all_batches[8]["segment_ids"])
    assert_equal(
        all_batches[9], generate_masks({name: value[4:8] for name, value in features.items()}, 9)
    )


def test_masks_without_step_are_deterministic():
    features, generate_masks = make_rows(count=8, length=32), make_masker()
    dataset = tf.data.Dataset.from_tensor_slices(features).batch(4).map(generate_masks)
    first, second = list(dataset), list(dataset)
    for first_batch, second_batch in zip(first, second, strict=True):
        assert_equal(first_batch, second_batch)
    assert masks_differ(first[0], first[1])


@pytest.mark.parametrize("unit", UNITS)
def test_single_row_and_empty_batch(unit):
    features, generate_masks = make_rows(count=2), make_masker(unit=unit)
    row = generate_masks({name: value[0] for name, value in features.items()}, 2)
    assert_equal(
        row,
        {k: v[0] for k, v in generate_masks({k: v[:1] for k, v in features.items()}, 2).items()},
    )
    empty = generate_masks(np.zeros((0, 128), "int32"), 0)
    assert empty["mask_positions"].shape == (0, 20)
    padding_only = generate_masks(np.zeros((2, 8), "int32"), 0)
    assert not padding_only["mask_weights"].any()


# === Errors ===

INVALID_OPTIONS = [
    ({"unit": "sentence"}, "unit must be one of token, word, ngram"),
    (
        {"mask_selection_rate": 0.0},
        r"mask_selection_rate must be a number in \(0, 1\]. Received: 0\.0",
    ),
    ({"mask_token_rate": 0.9, "random_token_rate": 0.2}, r"Received: 0\.9 \+ 0\.2"),
    ({"mask_token_rate": -0.1}, r"mask_token_rate must be a number in \[0, 1\]. Received: -0\.1"),
    ({"max_ngram": 0}, "max_ngram must be an integer above 0. Received: 0"),
    ({"max_predictions": 0}, "max_predictions must be an integer above 0. Received: 0"),
    (
        {"random_token_ids": [3, 100]},
        "random_token_ids must be at least 0 and below the vocabulary size 100. Received: 100",
    ),
    ({"random_token_ids": []}, "random_token_ids must be None or"),
]


@pytest.mark.parametrize(("options", "message"), INVALID_OPTIONS)
def test_invalid_options_raise(options, message):
    with pytest.raises(ValueError, match=message):
        make_masker(**options)


@pytest.mark.parametrize(
    "ragged",
    [tf.ragged.constant([[CLS, 7, SEP], [CLS]]), Ragged(np.array([CLS, 7, SEP]), np.array([1, 2]))],
    ids=["tensorflow", "numpy"],
)
def test_ragged_rows_raise(ragged):
    with pytest.raises(
        ValueError,
        match=r"token_ids must have rows of the same length. Received: ragged rows. Pad or pack "
        r"them first",
    ):
        make_masker()(ragged, 0)
