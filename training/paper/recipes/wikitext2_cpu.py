# SPDX-License-Identifier: Apache-2.0
"""A small BERT, pre-trained on WikiText-2's raw text on a CPU, including the vocabulary.

    python -m training.pretrain --recipe=wikitext2_cpu --data_dir=DIR

It uses full sentences without a sentence objective, as RoBERTa does. With two million words, this
lowers the perplexity faster. It does not use dropout, because the network is too small to overfit.

Score: 38.9% of the masked tokens in the validation text predicted, perplexity 39.1 (a bigram model
on the same tokens: 21.9%, 130.6).
Time: 11 minutes.
Hardware: two CPU cores, shared with tests.
Recorded: 23 November 2026, commit def2c5f.
"""

from ...pretraining.config import PretrainConfig

CONFIG = PretrainConfig.from_flags(
    input_files=("wikitext-2.train.tokens",),
    dev_files=("wikitext-2.valid.tokens",),
    format="paragraphs",
    document_ends="wikitext",
    sequence_format="full_sentences",
    duplicate_factor=1,
    vocabulary_size=4000,
    output_dir="runs/wikitext2_cpu",
    model="bert_l4_h128_uncased",
    dropout=0.0,
    phases=("64:1",),
    batch_size=32,
    num_steps=5000,
    warmup_steps=500,
    optimizer="adamw",
    learning_rate=2e-3,
    eval_every=500,
)
