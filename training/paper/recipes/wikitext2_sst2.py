# SPDX-License-Identifier: Apache-2.0
"""SST-2 (sentiment of movie reviews) with the small BERT of `wikitext2_cpu_more`.

    python -m training.finetune --recipe=wikitext2_sst2 --data_dir=DIR
    python -m training.finetune --recipe=wikitext2_sst2 --data_dir=DIR --nopretrained \\
        --output_dir=runs/random_sst2

The second command trains from random weights instead.

Score: accuracy 79.4, 79.4 and 79.5 with pre-training, 78.2, 78.8 and 78.2 from random weights, with
seeds 1, 2 and 3.
Time: 3 minutes per seed.
Hardware: one CPU core on a machine with other work.
Recorded: 21 November 2026, commit f23a1fb.

The gain is small because an encyclopedia contains little sentiment. A linear model on the encoder
of `wikitext2_cpu` classifies no better than a linear model on a random encoder. With 8,000 instead
of all 67,349 examples, there was no gain.
"""

from ...jobs.classification import FinetuneConfig

CONFIG = FinetuneConfig.from_flags(
    task="sst2",
    preset="runs/wikitext2_cpu_more/preset",
    batch_size=64,
    learning_rate=5e-4,
    epochs=1,
    dropout=0.1,
    encoder_dropout=0.1,
    sequence_length=64,
    num_seeds=3,
    output_dir="runs/wikitext2_sst2",
)
