# SPDX-License-Identifier: Apache-2.0
"""Plans which batches `fit` reads, trains on, and combines in an optimizer step."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator


@dataclasses.dataclass(frozen=True)
class BatchPlan:
    """Where `fit` starts in its first epoch, and where its optimizer steps end.

    With gradient accumulation, all micro-batches in a step use the same loss divisors. If training
    resumes within a step, it reads the step from its first batch, but does not train on the first
    part again.

    Args:
        initial_batch: Index of the first batch to train on.
        steps_per_epoch: See `keras.Model.fit`. `None` if an epoch ends with its data.
        batches_per_update: Number of batches per optimizer step. The last step in an epoch may have
            fewer.

    Example:

    An epoch of 8 batches has optimizer steps of 3, 3 and 2 batches. Training resumes at batch 4:

    | batch | 0 | 1 | 2 | 3 | 4 | 5 | 6 | 7 |
    |---|---|---|---|---|---|---|---|---|
    | step | 0 | 0 | 0 | 1 | 1 | 1 | 2 | 2 |
    | read | no | no | no | yes | yes | yes | yes | yes |
    | trained on | no | no | no | no | yes | yes | yes | yes |

    >>> plan = BatchPlan(initial_batch=4, steps_per_epoch=8, batches_per_update=3)
    >>> plan.first_read, plan.num_read_again
    (3, 1)

    The remaining steps have 3 and 2 batches. The next epoch again has steps of 3, 3 and 2 batches:

    >>> sizes = plan.update_sizes()
    >>> [next(sizes) for _ in range(5)]
    [3, 2, 3, 3, 2]
    """

    initial_batch: int = 0
    steps_per_epoch: int | None = None
    batches_per_update: int = 1

    @property
    def first_read(self) -> int:
        """Index of the first batch to read, the first in the initial batch's optimizer step."""
        return self.initial_batch - self.num_read_again

    @property
    def num_read_again(self) -> int:
        """Number of batches before the initial batch to read again, without training on them."""
        return self.initial_batch % self.batches_per_update

    def max_read(self, epochs: int) -> int | None:
        """Returns the number of batches to read in all epochs, or `None` if the data decides."""
        steps = self.steps_per_epoch
        return None if steps is None else self.num_read_again + epochs * steps

    def update_sizes(self) -> Iterator[int]:
        """Yields the number of batches to read for each optimizer step, over all epochs.

        Without `steps_per_epoch`, each step is full. The last step ends with the data.
        """
        # Without `steps_per_epoch`, consecutive steps are like consecutive epochs.
        epoch = self.steps_per_epoch or self.batches_per_update
        first = self.first_read % epoch
        while True:
            for start in range(first, epoch, self.batches_per_update):
                yield min(self.batches_per_update, epoch - start)
            first = 0


ALL_BATCHES = BatchPlan()
"""A plan that reads all batches."""
