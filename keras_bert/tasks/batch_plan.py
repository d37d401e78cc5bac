# SPDX-License-Identifier: Apache-2.0
"""Which batches of an epoch are read, trained on, and make an update together."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator


@dataclasses.dataclass(frozen=True)
class BatchPlan:
    """Where a call of `fit` starts in its first epoch, and where its updates end.

    With gradient accumulation, the micro-batches of an update share the divisors of their losses.
    So training that resumes in the middle of an update reads the update from its first batch on,
    but does not train on that part again.

    Args:
        initial_batch: The first batch to train on.
        steps_per_epoch: See `keras.Model.fit`. `None` if an epoch ends with its data.
        batches_per_update: The number of batches in an update. The last update of an epoch may have
            fewer.

    Example:

    An epoch of 8 batches has updates of 3, 3 and 2 batches. Training resumes at batch 4:

    | batch | 0 | 1 | 2 | 3 | 4 | 5 | 6 | 7 |
    |---|---|---|---|---|---|---|---|---|
    | update | 0 | 0 | 0 | 1 | 1 | 1 | 2 | 2 |
    | is read | no | no | no | yes | yes | yes | yes | yes |
    | is trained on | no | no | no | no | yes | yes | yes | yes |

    >>> plan = BatchPlan(initial_batch=4, steps_per_epoch=8, batches_per_update=3)
    >>> plan.first_read, plan.num_read_again
    (3, 1)

    The updates that are read have 3 and 2 batches, and in the next epoch 3, 3 and 2 again:

    >>> sizes = plan.update_sizes()
    >>> [next(sizes) for _ in range(5)]
    [3, 2, 3, 3, 2]
    """

    initial_batch: int = 0
    steps_per_epoch: int | None = None
    batches_per_update: int = 1

    @property
    def first_read(self) -> int:
        """The first batch to read: the first of the update that has the initial batch."""
        return self.initial_batch - self.num_read_again

    @property
    def num_read_again(self) -> int:
        """The number of batches that are read, but not trained on, before the initial batch."""
        return self.initial_batch % self.batches_per_update

    def max_read(self, epochs: int) -> int | None:
        """Returns how many batches are read in all epochs; `None` if their data decides."""
        steps = self.steps_per_epoch
        return None if steps is None else self.num_read_again + epochs * steps

    def update_sizes(self) -> Iterator[int]:
        """Yields the number of batches of each update that is read, in epoch after epoch.

        Without `steps_per_epoch`, each update is full. The last is as long as the data lasts.
        """
        # Without steps, an update after another one is like an epoch after another one.
        epoch = self.steps_per_epoch or self.batches_per_update
        first = self.first_read % epoch
        while True:
            for start in range(first, epoch, self.batches_per_update):
                yield min(self.batches_per_update, epoch - start)
            first = 0


ALL_BATCHES = BatchPlan()
"""The plan that reads all batches, from the first on."""
