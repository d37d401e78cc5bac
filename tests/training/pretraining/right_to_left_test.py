# SPDX-License-Identifier: Apache-2.0

import pytest

from training.pretraining.right_to_left import PreviousTokenTargets

pytestmark = pytest.mark.backend_independent


def test_each_token_predicts_the_previous_token():
    features = {"token_ids": [[2, 5, 6, 3, 0]], "segment_ids": [[0, 0, 1, 1, 0]]}
    targets = PreviousTokenTargets()(features)
    assert targets["token_ids"].tolist() == [[3, 6, 5, 2, 0]]
    assert targets["segment_ids"].tolist() == [[1, 1, 0, 0, 0]]
    assert targets["mask_ids"].tolist() == [[6, 5, 2, 0]]
    assert targets["mask_weights"].tolist() == [[1.0, 1.0, 1.0, 0.0]]
