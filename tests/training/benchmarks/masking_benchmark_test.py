# SPDX-License-Identifier: Apache-2.0
import pytest

pytest.importorskip("tensorflow")

from training.benchmarks import masking

pytestmark = [pytest.mark.needs_tensorflow, pytest.mark.backend_independent]


def test_both_mask_the_same_share_of_the_same_rows():
    results = masking.run(rounds=2, num_batches=2, length=20)
    assert results["tokens"] == 2 * 256 * 20
    names = ["keras_bert token", "keras_bert word", "keras_bert ngram", "keras_hub"]
    assert list(results["masked"]) == names
    # Three of twenty; fewer where a whole word does not fit
    assert results["masked"]["keras_bert token"] == pytest.approx(0.15)
    assert results["masked"]["keras_hub"] == pytest.approx(0.15)
    assert results["masked"]["keras_bert word"] == pytest.approx(0.15, rel=0.02)
    assert results["masked"]["keras_bert ngram"] == pytest.approx(0.15, rel=0.02)
    assert results["speedup"]["keras_hub"] == 1
    for name, median in results["tokens_per_second"].items():
        assert 0 < results["slowest"][name] <= median <= results["fastest"][name]
