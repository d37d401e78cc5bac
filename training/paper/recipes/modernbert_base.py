# SPDX-License-Identifier: Apache-2.0
"""ModernBERT base, pre-trained as in the paper, with 30% masked and with long sequences at the end.

    python -m training.pretrain --recipe=modernbert_base --input_files=DIR \\
        --dev_files=FILE --dev_masked_lm_probability=0.15

The paper counts tokens instead of steps. With 4,608 sequences of 1,024 tokens per step, its 1,719
billion tokens are 375,000 steps. In the first 50 billion tokens, the batch size grows from 768
sequences. In the first 3 billion tokens, the learning rate rises. Then follow 250 billion tokens in
sequences of 8,192. In the last 50 billion tokens, the learning rate falls by 1 - √x. In these
phases, this recipe keeps the number of tokens per batch.

The recipe differs from the paper in three ways. The base of the global rotary positions is 160,000
from the start, instead of 10,000 for the sequences of 1,024 tokens. Attention output has no
dropout, but the paper's code uses 0.1 in pre-training. The paper changes its mixture of texts
between the phases. The paper's weight decay of 1e-5 is not multiplied by the learning rate, so it
is equal to this recipe's weight decay at the peak learning rate.

Score and time: not run here.
Hardware: each training step accumulates 48 micro-batches of 98,304 tokens, for one large
accelerator.

Reference: [ModernBERT](https://arxiv.org/abs/2412.13663), section 2.2 and appendix A, and
`modernbert-base-pretrain.yaml` in its code.
"""

from ...pretraining.config import PretrainConfig

CONFIG = PretrainConfig.from_flags(
    output_dir="runs/modernbert_base",
    model="modernbert_base",
    vocabulary_size=50_368,
    sequence_format="full_sentences",
    packing=True,
    duplicate_factor=1,
    random_special_tokens=False,
    masked_lm_probability=0.3,
    phases=("1024:0.855", "8192:0.145:batch_size=576:learning_rate=3e-4"),
    batch_size=4608,
    initial_batch_size=768,
    batch_warmup_steps=21_200,
    accumulation=48,
    num_steps=438_500,
    warmup_steps=3800,
    schedule="trapezoidal",
    decay_steps=10_600,
    optimizer="stable_adamw",
    learning_rate=8e-4,
    weight_decay=0.0125,
    beta_2=0.98,
    epsilon=1e-6,
    clip_norm=0.0,
    eval_every=500,
)
