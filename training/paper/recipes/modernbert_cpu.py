# SPDX-License-Identifier: Apache-2.0
"""A small ModernBERT, pre-trained on WikiText-2, for comparison with `wikitext2_cpu`.

    python -m training.pretrain --recipe=wikitext2_cpu --data_dir=DIR
    python -m training.pretrain --recipe=modernbert_cpu --data_dir=DIR

Its scores are comparable to `wikitext2_cpu`, because the vocabulary, the examples, the validation
masks (15% of the tokens) and the total FLOPs are the same. The batch size is 8 in the first steps,
and 32 after the first 810 steps.

Score: 48.0% of the masked tokens in the validation text predicted, perplexity 16.9, mean of seeds 1
to 3 in float32 (range 47.5 to 48.7%, 16.3 to 17.4). `wikitext2_cpu` with the same seeds and
vocabulary: 36.5%, 49.7 (range 35.3 to 38.8%, 40.4 to 55.6).
Time: 17 minutes on one core. `wikitext2_cpu` took 12 minutes.
Hardware: one CPU core (Intel Xeon), in float32, shared with other work.
Recorded: 26 November 2026, commit d1c1161.
"""

from . import wikitext2_cpu

CONFIG = wikitext2_cpu.CONFIG.replace(
    output_dir="runs/modernbert_cpu",
    vocabulary="runs/wikitext2_cpu/vocab.txt",
    model="modernbert_base",
    num_layers=5,
    hidden_dim=128,
    num_heads=2,
    masked_lm_probability=0.3,
    dev_masked_lm_probability=0.15,
    initial_batch_size=8,
    batch_warmup_steps=810,
    optimizer="stable_adamw",
    beta_2=0.98,
    clip_norm=0.0,
    schedule="trapezoidal",
    decay_steps=1000,
)
