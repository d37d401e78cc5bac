# SPDX-License-Identifier: Apache-2.0
"""A small BERT from WikiText-2's raw text, on a CPU: vocabulary, records, training.

    python -m training.pretrain --recipe=wikitext2_cpu --data_dir=DIR

Hardware, time and score: the README's table of recipes.
"""

from training.pretrain_config import PretrainConfig

CONFIG = PretrainConfig(
    input_files=("wikitext-2.train.tokens",),
    dev_files=("wikitext-2.valid.tokens",),
    format="paragraphs",
    document_ends="wikitext",
    vocabulary_size=8000,
    output_dir="runs/wikitext2_cpu",
    duplicate_factor=5,
    model="bert_l4_h256_uncased",
    phases=("128:1",),
    batch_size=32,
    num_steps=4000,
    warmup_steps=400,
    learning_rate=1e-3,
    interval=200,
)
