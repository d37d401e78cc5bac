# SPDX-License-Identifier: Apache-2.0

import pytest

from keras_bert.data.batch_options import BatchOptions

pytestmark = pytest.mark.backend_independent


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"bucketing_window": 0}, "bucketing_window must be an integer above 0. Received: 0"),
        ({"batch_size": 0}, "batch_size must be an integer above 0. Received: 0"),
        ({"num_replicas": 3}, "a multiple of the 3 devices"),
        (
            {"shard": (2, 2)},
            r"shard must be \(index, count\) with an index below the count, .* Received: "
            r"shard=\(2, 2\)",
        ),
        (
            {"shard": (0, 3)},
            r"batch_size must be a multiple of the count. Received: shard=\(0, 3\) and "
            r"batch_size=4",
        ),
    ],
)
def test_invalid_options_raise(options, message):
    with pytest.raises(ValueError, match=message):
        BatchOptions(**{"batch_size": 4, **options})
