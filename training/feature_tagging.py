# SPDX-License-Identifier: Apache-2.0
"""Trains a BiLSTM tagger on features of a frozen encoder: the paper's feature-based approach.

    python -m training.feature_tagging --recipe=conll_features --data_dir=DIR --features=last

The encoder runs over each sentence once: the features of its words are kept in `cache_dir`. Then
two layers of bidirectional LSTM and a classifier are trained on them. It writes into `output_dir`:
for each seed the best model (`seed_N/model.keras`) and the curves of loss and score
(`seed_N/curves.png`); `results.json`; and of the best seed the tagged development and test
sentences (`dev.conll`, `test.conll`) with their scores by type (`dev_scores.json`,
`test_scores.json`).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from training.engine import config_flags, program
from training.engine.pretrained import preset_or_minilm
from training.engine.run_report import Stopwatch
from training.jobs import tagging_reports
from training.jobs.feature_tagging import FeatureTaggingConfig
from training.jobs.tagging import TaggingData, model_inputs, read_data
from training.scores import entity_scores

if TYPE_CHECKING:
    import keras

    from keras_bert.data.conll import TaggedText
    from training.engine import finetuning
    from training.engine.seed_runs import SeedRun


def main(arguments: list[str]) -> None:
    program.train_and_report(arguments, FeatureTaggingConfig, read_data, train_all)


def train_all(config: FeatureTaggingConfig, data: TaggingData) -> dict[str, Any]:
    """Computes the features, trains every seed, writes what came of it, returns the results.

    Args:
        config: what to do.
        data: what `read_data` read.

    Returns:
        What `results.json` holds, as for `finetune_tagging`.
    """
    import keras

    from training.engine import finetuning
    from training.jobs.word_features import WordFeatures
    from training.scores import baselines

    preset = preset_or_minilm(config.preset)
    folder = Path(config.output_dir)
    folder.mkdir(parents=True, exist_ok=True)
    to_beat = {"dev": baselines.of_tags(data.train, data.dev)}
    baselines.show(to_beat)
    features_of = WordFeatures(
        preset,
        config.features,
        config.cache_dir,
        sequence_length=config.sequence_length,
        dtype=finetuning.resolve_precision(config.precision),
    )
    texts = {"train": data.train, "dev": data.dev, "test": data.test}
    features = {
        name: features_of(model_inputs(text, text.words, config.context))
        for name, text in texts.items()
        if text is not None
    }
    runs = finetuning.train_seeds(
        config,
        data,
        lambda seed_run: train(config, data, features, seed_run, mix=features_of.mix),
        f"{Path(config.train_file).name}, {config.features}",
    )
    best = max(runs, key=lambda run: entity_scores.selection_score(run.best["dev"]))
    results = finetuning.results_of(config, runs, best, to_beat)
    finetuning.write_json(results, folder / "results.json")
    model = keras.models.load_model(best.model_path)
    with Stopwatch(results["seconds"]).part("answers"):
        for name in features.keys() - {"train"}:
            text = texts[name]
            predictions = predicted_labels(model, features[name], text, data.class_names)
            by_type = tagging_reports.write_report(folder, name, text, predictions, config.scheme)
            if name == "dev":
                results["by_class"] = by_type
    finetuning.write_json(results, folder / "results.json")
    return results


def train(
    config: FeatureTaggingConfig,
    data: TaggingData,
    features: dict[str, np.ndarray],
    seed_run: SeedRun,
    *,
    mix: bool,
) -> finetuning.Run:
    """Trains with one seed, keeps the best epoch's model, and returns its scores."""
    import keras

    from keras_bert.models.feature_tagger import feature_tagger
    from keras_bert.tasks.class_labels import class_ids
    from training.engine import finetuning
    from training.jobs.feature_batches import FeatureBatches

    keras.utils.set_random_seed(seed_run.seed)
    model = feature_tagger(
        *features["train"].shape[1:],
        len(data.class_names),
        mix=mix,
        num_layers=config.lstm_layers,
        units=config.lstm_units,
        dropout=config.dropout,
    )
    model.compile(
        finetuning.make_optimizer(config, len(data.train)),
        keras.losses.SparseCategoricalCrossentropy(
            from_logits=True, reduction="mean_with_sample_weight"
        ),
        weighted_metrics=[keras.metrics.SparseCategoricalAccuracy(name="accuracy")],
    )
    labels = [label for sentence in data.train.labels or () for label in sentence]
    batches = FeatureBatches(
        features["train"],
        [len(sentence) for sentence in data.train.words],
        config.batch_size // config.accumulation,
        class_ids(labels, data.class_names, len(data.class_names)),
        seed_run.seed,
    )

    def fit_epoch(epoch: int, batch: int, callbacks: list[keras.callbacks.Callback]) -> None:
        model.fit(
            batches.dataset(epoch, batch),
            shuffle=False,
            epochs=epoch + 1,
            initial_epoch=epoch,
            callbacks=callbacks,
            verbose=0,
        )

    def score(model: keras.Model) -> finetuning.DevScores:
        predictions = predicted_labels(model, features["dev"], data.dev, data.class_names)
        return {"dev": entity_scores.tagging_scores(predictions, data.dev.labels)}

    evaluation = finetuning.DevEvaluation(
        score, seed_run.model_path, config.patience, entity_scores.selection_score
    )
    return finetuning.fit_and_evaluate(
        model, fit_epoch, config, evaluation, seed_run, num_rows=len(data.train)
    )


def predicted_labels(
    model: keras.Model, features: np.ndarray, text: TaggedText, class_names: tuple[str, ...]
) -> list[list[str]]:
    """A label for each word of each sentence."""
    from training.jobs.feature_batches import predicted_ids

    answers = predicted_ids(model, features, [len(sentence) for sentence in text.words])
    return [[class_names[index] for index in sentence] for sentence in answers]


if __name__ == "__main__":
    config_flags.define_program_flags(FeatureTaggingConfig())
    program.run(main)
