# SPDX-License-Identifier: Apache-2.0

from collections import Counter

import pytest

from training.readers.emoji import TRAINING_SHARE, emoji, split_emoji

pytestmark = pytest.mark.backend_independent


def test_emoji_match_unicode_14():
    rows = list(emoji())
    assert len({name for name, _ in rows}) == len(rows)
    # The counts are the same for every Python version: Unicode 14 and later add no characters here.
    assert Counter(label for _, label in rows) == {
        "animal": 112,
        "food": 115,
        "office": 41,
        "vehicle": 58,
        "weather": 45,
    }
    assert {("steam locomotive", "vehicle"), ("tropical fish", "animal")} < set(rows)


def test_split_is_stratified_and_disjoint():
    train, test = split_emoji(seed=1)
    rows = Counter(label for _, label in emoji())
    train_counts = Counter(train.class_names[index] for index in train.strata)
    assert train_counts == {label: round(TRAINING_SHARE * count) for label, count in rows.items()}
    assert sorted(train.texts + test.texts) == sorted(name for name, _ in emoji())
    assert split_emoji(seed=1)[1].texts == test.texts
    assert split_emoji(seed=2)[1].texts != test.texts
