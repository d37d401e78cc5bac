# SPDX-License-Identifier: Apache-2.0

from collections import Counter

import numpy as np
import pytest

from training.readers.data_splits import counts_table, hold_out_tenth, stratified_sample

pytestmark = pytest.mark.backend_independent


def test_stratified_sample_keeps_proportions():
    sizes = {"a": 500, "b": 37, "c": 3, "d": 160}
    strata = np.random.default_rng(0).permutation(np.repeat(list(sizes), list(sizes.values())))
    assert stratified_sample(strata.tolist(), 0) == list(range(700))
    assert stratified_sample(strata.tolist(), 701) == list(range(700))
    for count in (1, 70, 699, 700):
        sample = stratified_sample(strata.tolist(), count)
        assert len(sample) == len(set(sample)) == count
        assert sample == sorted(sample)
        sample_counts = Counter(strata[sample])
        assert all(
            abs(sample_counts[name] - count * size / 700) < 1 for name, size in sizes.items()
        )


def test_singleton_classes_are_not_held_out():
    strata = ["x"] * 5 + [f"only {index}" for index in range(95)]
    train, dev = hold_out_tenth(strata, "a.tsv")
    assert {strata[index] for index in dev} == {"x"}
    assert len(dev) == 2
    assert sorted(train + dev) == list(range(100))
    with pytest.raises(ValueError, match=r"a\.tsv must have at least .* Received: 95 rows"):
        hold_out_tenth(strata[5:], "a.tsv")


def test_accept_few_allows_small_files():
    rows = ["good", "bad"] * 8
    _, dev = hold_out_tenth(rows, "a.tsv", accept_few=True)
    assert sorted(rows[index] for index in dev) == ["bad", "good"]
    with pytest.raises(ValueError, match=r"must have at least 20 rows .* Received: 16 rows"):
        hold_out_tenth(rows, "a.tsv")


def test_counts_table_is_truncated():
    counts = {
        name: {str(index): index for index in range(150)} for name in ("train", "dev_matched")
    }
    lines = counts_table(counts).splitlines()
    assert lines[-1] == "… and 126 more"
    assert lines[2].split() == ["1", "1", "1"]
