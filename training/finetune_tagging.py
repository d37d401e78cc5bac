# SPDX-License-Identifier: Apache-2.0
"""Fine-tunes a pretrained encoder on tagged words: named entities, chunks, parts of speech.

On files of your own, words and labels in columns:

    python -m training.finetune_tagging --train_file=train.conll --dev_file=dev.conll

By a recipe, with any of its values changed by a flag:

    python -m training.finetune_tagging --recipe=minilm_wnut17 --data_dir=ner --epochs=1

It writes into `output_dir`: for each seed the best model (`seed_N/model.keras`) and the curves of
loss and score (`seed_N/curves.png`); `results.json`; of the best seed the tagged development and
test sentences (`dev.conll`, `test.conll`: the last column is the prediction, the one before it the
label), their scores by type (`dev_scores.json`, `test_scores.json`); and a SavedModel that takes
text (`export/1`).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from training.engine import config_flags, program
from training.engine.pretrained import preset_or_minilm
from training.engine.run_report import Stopwatch
from training.jobs import tagging_reports
from training.jobs.tagging import TaggingConfig, TaggingData, model_inputs, read_data
from training.scores import entity_scores

if TYPE_CHECKING:
    from keras_bert import TokenClassifier
    from keras_bert.data.conll import TaggedText
    from training.engine import finetuning
    from training.engine.seed_runs import SeedRun


def main(arguments: list[str]) -> None:
    program.train_and_report(arguments, TaggingConfig, read_data, finetune, "texts.txt")


def finetune(config: TaggingConfig, data: TaggingData) -> dict[str, Any]:
    """Trains every seed, writes what came of it, and returns the results.

    Args:
        config: what to do.
        data: what `read_data` read.

    Returns:
        What `results.json` holds: the config, the runs, and for each metric the mean over the
        seeds of the last epoch's score, with half the width of its 95 % interval.
    """
    from training.engine import finetuning
    from training.scores import baselines

    preset = preset_or_minilm(config.preset)
    folder = Path(config.output_dir)
    folder.mkdir(parents=True, exist_ok=True)
    to_beat = {"dev": baselines.of_tags(data.train, data.dev)}
    baselines.show(to_beat)
    runs = finetuning.train_seeds(
        config,
        data,
        lambda seed_run: train(config, data, preset, seed_run),
        Path(config.train_file).name,
    )
    best = max(runs, key=lambda run: entity_scores.selection_score(run.best["dev"]))
    results = finetuning.results_of(config, runs, best, to_beat)
    finetuning.write_json(results, folder / "results.json")
    _finish(config, data, results, folder)
    finetuning.write_json(results, folder / "results.json")
    return results


def train(
    config: TaggingConfig, data: TaggingData, preset: str, seed_run: SeedRun
) -> finetuning.Run:
    """Trains with one seed, keeps the best epoch's model, and returns its scores."""
    import keras

    from keras_bert import TokenClassifier
    from keras_bert.data.tagging import ragged_words
    from training.engine import finetuning

    keras.utils.set_random_seed(seed_run.seed)
    tagger = TokenClassifier.from_preset(
        preset,
        class_names=data.class_names,
        sequence_length=config.sequence_length,
        dropout=None if config.dropout < 0 else config.dropout,
        load_weights=config.pretrained,
        dtype=finetuning.resolve_precision(config.precision),
    )
    words, labels = (
        model_inputs(data.train, values, config.context)
        for values in (data.train.words, data.train.labels)
    )
    num_windows = int(tagger.preprocessor.windows(ragged_words(words)).token_ids.nrows())
    tagger.compile(finetuning.make_optimizer(config, num_windows))

    def score(model: TokenClassifier) -> finetuning.DevScores:
        return {"dev": score_tagger(model, data.dev, config.context)}

    evaluation = finetuning.DevEvaluation(
        score, seed_run.model_path, config.patience, entity_scores.selection_score
    )
    fit_epoch = finetuning.epochs_of_text(tagger, words, labels, config)
    return finetuning.fit_and_evaluate(
        tagger, fit_epoch, config, evaluation, seed_run, num_rows=len(data.train)
    )


def predicted_labels(tagger: TokenClassifier, text: TaggedText, context: bool) -> list[list[str]]:
    """A label for each word of each sentence."""
    logits = tagger.predict(model_inputs(text, text.words, context), batch_size=64, verbose=0)
    sentences = [sentence for document in logits for sentence in document] if context else logits
    return [[tagger.class_names[index] for index in np.argmax(s, axis=-1)] for s in sentences]


def score_tagger(tagger: TokenClassifier, text: TaggedText, context: bool) -> dict[str, float]:
    """The scores of a tagger on labelled sentences."""
    return entity_scores.tagging_scores(predicted_labels(tagger, text, context), text.labels)


def _finish(
    config: TaggingConfig, data: TaggingData, results: dict[str, Any], folder: Path
) -> None:
    """What is done once, with the best model of all seeds; adds to the results."""
    from keras_bert import load_model

    watch = Stopwatch(results["seconds"])
    tagger = load_model(results["kept"]["model"])
    with watch.part("answers"):
        for name, text in {"dev": data.dev, "test": data.test}.items():
            if text is None:
                continue
            predictions = predicted_labels(tagger, text, config.context)
            by_type = tagging_reports.write_report(folder, name, text, predictions, config.scheme)
            if name == "dev":
                results["by_class"] = by_type
    if config.export:
        with watch.part("export"):
            tagger.export(folder / "export" / "1", overwrite=True)


if __name__ == "__main__":
    config_flags.define_program_flags(TaggingConfig())
    program.run(main)
