# SPDX-License-Identifier: Apache-2.0
"""CoNLL-2003 named entities with BERT-base, cased, as in the BERT paper with document context.

    python -m training.finetune --recipe=conll_ner --data_dir=DIR

`--data_dir` contains the official `eng.train`, `eng.testa` and `eng.testb`, with IOB1 labels in the
fourth column.

Score and time: not run here.
Published score (Devlin et al., 2019, table 7): development F1 96.4, test F1 92.4.
Hardware: one GPU.
"""

from ...jobs.tagging import TaggingConfig

CONFIG = TaggingConfig.from_flags(
    train_file="eng.train",
    dev_file="eng.testa",
    test_file="eng.testb",
    context=True,
    preset="hf://google-bert/bert-base-cased",
    learning_rate=5e-5,
    batch_size=32,
    epochs=4,
    sequence_length=384,
    num_seeds=5,
    output_dir="runs/conll_ner",
)
