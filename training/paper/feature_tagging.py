# SPDX-License-Identifier: Apache-2.0
"""Trains a BiLSTM tagger on a frozen encoder's features, the BERT paper's feature-based approach.

    python -m training.paper.feature_tagging --recipe=conll_features --data_dir=DIR --features=last

The encoder processes each sentence once, and the features of its words are cached in `cache_dir`. A
two-layer bidirectional LSTM and a classifier are then trained on the features.

The `output_dir` contains each seed's best model (`seed_N/model.keras`) and its loss and score
curves (`seed_N/curves.png`). It also contains `results.json`, and the best seed's predictions on
the validation and test sets (`dev.conll`, `test.conll`) with their scores by entity type
(`dev_scores.json`, `test_scores.json`).
"""

from ..engine import program
from .feature_tagging_job import FeatureTagging, FeatureTaggingConfig


def main(config: FeatureTaggingConfig) -> None:
    program.fine_tune(config, FeatureTagging)


if __name__ == "__main__":
    program.run(main, FeatureTaggingConfig, with_recipes=True)
