# SPDX-License-Identifier: Apache-2.0
"""CoNLL-2003 named entities with frozen features of BERT-base, cased (the BERT paper's table 7).

    python -m training.paper.feature_tagging --recipe=conll_features --data_dir=DIR --features=last

`--data_dir` contains the official `eng.train`, `eng.testa` and `eng.testb`, with IOB1 labels in the
fourth column.

Score and time: not run here.
Published score (development F1, Devlin et al., 2019): embeddings 91.0, second_to_last 95.6, last
94.9, weighted_last_4 95.9, concatenated_last_4 96.1, weighted_all 95.5.
Hardware: one GPU. The features of the training set's last four layers take 2.5 GB on disk.
"""

from ..feature_tagging_job import FeatureTaggingConfig

CONFIG = FeatureTaggingConfig.from_flags(
    train_file="eng.train",
    dev_file="eng.testa",
    test_file="eng.testb",
    context=True,
    preset="hf://google-bert/bert-base-cased",
    sequence_length=384,
    epochs=20,
    num_seeds=5,
    output_dir="runs/conll_features",
)
