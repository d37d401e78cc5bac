# SPDX-License-Identifier: Apache-2.0
"""Fine-tunes a pretrained encoder to answer questions on passages, as in SQuAD.

    python -m training.finetune_squad --train_file=train-v1.1.json --dev_file=dev-v1.1.json

By a recipe, with any of its values changed by a flag:

    python -m training.finetune_squad --recipe=squad_v2 --data_dir=squad --epochs=3

It writes into `output_dir`: for each seed the best model (`seed_N/model.keras`), the curves of
loss and scores (`seed_N/curves.png`) and the answers to the dev questions (`predictions.json`,
`nbest_predictions.json` and, where questions may have no answer, `null_odds.json`);
`results.json`; the best seed's answers, those to the test file (`test/predictions.json`, …), and a
SavedModel that takes questions and passages (`export/1`).
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from absl import logging

from training.engine import config_flags, program
from training.engine.pretrained import preset_or_minilm
from training.engine.run_report import Stopwatch
from training.jobs.question_answering import SquadConfig, SquadData, read_data
from training.scores import squad_scores
from training.scores.squad_scores import GoldQuestion

if TYPE_CHECKING:
    from keras_bert import QuestionAnswerer
    from keras_bert.data.squad import QuestionExample
    from keras_bert.tasks.answer_spans import AnswerSpans
    from training.engine import finetuning
    from training.engine.seed_runs import SeedRun

ANSWER_FILES = ("predictions.json", "nbest_predictions.json", "null_odds.json")


def main(arguments: list[str]) -> None:
    program.train_and_report(arguments, SquadConfig, read_data, finetune, "questions.jsonl")


def finetune(config: SquadConfig, data: SquadData) -> dict[str, Any]:
    """Trains every seed, writes what came of it, and returns the results.

    Args:
        config: what to do.
        data: what `read_data` read.

    Returns:
        What `results.json` holds: the config, the runs, how much was skipped in the files, and
        for each score the mean over the seeds of the last epoch, with its interval.
    """
    from training.engine import finetuning
    from training.scores import baselines

    preset = preset_or_minilm(config.preset)
    folder = Path(config.output_dir)
    folder.mkdir(parents=True, exist_ok=True)
    for message in data.skipped:
        logging.warning("left out: %s", message)
    to_beat = {"dev": baselines.of_questions(data.dev, data.has_unanswerable)}
    baselines.show(to_beat)
    runs = finetuning.train_seeds(
        config, data, lambda seed_run: train(config, data, preset, seed_run), "SQuAD"
    )
    best = max(runs, key=lambda run: run.best["dev"]["f1"])
    for name in ANSWER_FILES:
        written = folder / f"seed_{best.seed}" / name
        if written.exists():
            finetuning.write_json(json.loads(written.read_text(encoding="utf-8")), folder / name)
    results = {
        **finetuning.results_of(config, runs, best, to_beat),
        "skipped": len(data.skipped),
    }
    finetuning.write_json(results, folder / "results.json")
    _finish(config, data, results, folder)
    finetuning.write_json(results, folder / "results.json")
    return results


def train(config: SquadConfig, data: SquadData, preset: str, seed_run: SeedRun) -> finetuning.Run:
    """Trains with one seed, keeps the best epoch's model and its answers to the dev questions."""
    import keras

    from training.engine import finetuning

    keras.utils.set_random_seed(seed_run.seed)
    answerer, num_windows = build_answerer(config, data, preset)
    golds = gold_questions(data.dev)
    answers: Answers

    def score(model: QuestionAnswerer) -> finetuning.DevScores:
        nonlocal answers
        answers = answer(model, data.dev, config, golds if data.has_unanswerable else None)
        # With it the model is saved.
        model.null_threshold = answers.threshold
        return {"dev": answers.scores(golds)}

    evaluation = finetuning.DevEvaluation(
        score,
        seed_run.model_path,
        config.patience,
        lambda scores: scores["f1"],
        keep=lambda: answers.write(seed_run.folder),
    )
    fit_epoch = finetuning.epochs_of_text(answerer, data.train, None, config)
    return finetuning.fit_and_evaluate(
        answerer, fit_epoch, config, evaluation, seed_run, num_rows=num_windows
    )


def build_answerer(
    config: SquadConfig, data: SquadData, preset: str
) -> tuple[QuestionAnswerer, int]:
    """The pretrained encoder with a head for spans, compiled; and the number of windows."""
    from keras_bert import QuestionAnswerer
    from keras_bert.data.question_rows import question_rows
    from training.engine import finetuning

    answerer = QuestionAnswerer.from_preset(
        preset,
        sequence_length=config.sequence_length,
        doc_stride=config.doc_stride,
        max_query_length=config.max_query_length,
        bilstm_units=None if config.bilstm_units < 0 else config.bilstm_units,
        load_weights=config.pretrained,
        dtype=finetuning.resolve_precision(config.precision),
    )
    answerer.max_answer_length = config.max_answer_length
    num_windows = len(question_rows(data.train, answerer.preprocessor))
    logging.info("%d questions in %d windows", len(data.train), num_windows)
    answerer.compile(optimizer=finetuning.make_optimizer(config, num_windows))
    return answerer, num_windows


@dataclasses.dataclass(frozen=True)
class Answers:
    """A model's answers to questions.

    Args:
        examples: the questions.
        spans: all that could answer them.
        threshold: the odds above which there is no answer; None where there always is one.
        n_best: how many answers of each question are written.
    """

    examples: Sequence[QuestionExample]
    spans: AnswerSpans
    threshold: float | None
    n_best: int

    @property
    def contexts(self) -> list[str]:
        """The questions' passages."""
        return [example.context for example in self.examples]

    @property
    def null_odds(self) -> dict[str, float]:
        """By how much no answer is likelier than the best one, by question id."""
        odds = self.spans.null_odds.tolist()
        return {example.id: value for example, value in zip(self.examples, odds, strict=True)}

    @property
    def predictions(self) -> dict[str, str]:
        """The answers by question id, empty for none."""
        answers = self.spans.answers(self.contexts, self.threshold)
        pairs = zip(self.examples, answers, strict=True)
        return {example.id: found["answer"] for example, found in pairs}

    def scores(self, golds: Sequence[GoldQuestion]) -> dict[str, float]:
        """The official scores, those of version 2.0 where there may be no answer."""
        return squad_scores.dev_scores(golds, self.predictions, self.threshold is not None)

    def write(self, folder: Path) -> None:
        """Writes the files of the released code."""
        from training.engine import finetuning

        n_best = self.spans.n_best(self.contexts, self.n_best, self.threshold is not None)
        by_id = {example.id: found for example, found in zip(self.examples, n_best, strict=True)}
        contents = [self.predictions, by_id]
        if self.threshold is not None:
            contents.append(self.null_odds)
        for name, content in zip(ANSWER_FILES, contents, strict=False):
            finetuning.write_json(content, folder / name)


def answer(
    model: QuestionAnswerer,
    examples: Sequence[QuestionExample],
    config: SquadConfig,
    golds: Sequence[GoldQuestion] | None = None,
) -> Answers:
    """A model's answers, with the threshold of the model, or the best one for known answers.

    Args:
        model: the question answerer.
        examples: the questions.
        config: the number of answers.
        golds: the answers that people gave, to tune the threshold by.
    """
    spans = model.answer_spans(examples, batch_size=64, n_best=config.n_best)
    threshold = model.null_threshold
    if golds is not None:
        texts = spans.best_texts([example.context for example in examples])
        threshold = squad_scores.best_threshold(
            squad_scores.f1_scores(golds, texts),
            squad_scores.f1_scores(golds, [""] * len(golds)),
            spans.null_odds,
        )
    return Answers(examples, spans, threshold, config.n_best)


def gold_questions(examples: Sequence[QuestionExample]) -> list[GoldQuestion]:
    """The answers that people gave, for the scores."""
    return [
        GoldQuestion(example.id, tuple(one.text for one in example.answers or ()))
        for example in examples
    ]


def _finish(config: SquadConfig, data: SquadData, results: dict[str, Any], folder: Path) -> None:
    """What is done once, with the best model of all seeds; adds to the results."""
    from keras_bert import load_model

    if not (config.export or data.test):
        return
    watch = Stopwatch(results["seconds"])
    answerer = load_model(results["kept"]["model"])
    if data.test:
        with watch.part("answers"):
            (folder / "test").mkdir(exist_ok=True)
            answer(answerer, data.test, config).write(folder / "test")
    if config.export:
        with watch.part("export"):
            answerer.export(folder / "export" / "1", overwrite=True)


if __name__ == "__main__":
    config_flags.define_program_flags(SquadConfig())
    program.run(main)
