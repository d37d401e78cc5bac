# SPDX-License-Identifier: Apache-2.0
"""The configs of the programs that ask the jobs about a model: `evaluate` and `insight`."""

from __future__ import annotations

import dataclasses
from typing import Any

from ..engine.options import NonNegativeInt, PositiveInt, UnusedFlags, check_one_of, check_unset
from ..readers.choice_files import check_choice_files
from ..readers.labeled_text import TextColumns
from ..readers.tagged_words import WordColumns
from ..readers.task_files import KINDS

# As in keras_bert.insight.attribution, which is imported only when the program runs
METHODS = ("integrated_gradients", "gradient_x_input", "occlusion")


# The flags that only some kinds of data have
_TEXT = tuple(field.name for field in dataclasses.fields(TextColumns))
_FLAGS_OF_KINDS = {
    "text": (*_TEXT, "class_names"),
    "multiple_choice": ("format", "quoting"),
    "squad": ("null_odds", "null_threshold", "max_document_words"),
    "tagging": tuple(field.name for field in dataclasses.fields(WordColumns)),
}


def check_flags_of_kind(config: Any, kind: str, *files: str) -> None:
    """Checks that no flag is given that data of a kind, in files of some formats, do not have.

    Raises:
        ValueError: If one is.
    """
    flags = {flag for own in _FLAGS_OF_KINDS.values() for flag in own}
    check_unset(config, flags.difference(_FLAGS_OF_KINDS[kind]), f"the data are of kind {kind}")
    if kind == "text":
        config.check_text_files(*files)
    elif kind == "multiple_choice":
        check_choice_files(config, *files)
    elif kind == "tagging":
        config.check_word_files(*files)


@dataclasses.dataclass(frozen=True)
class EvaluateConfig(TextColumns, WordColumns):
    """The labeled file, and the model or the predictions to score on it.

    Args:
        data_file: The labeled file.
        kind: The kind of data: text, squad, tagging or choice; auto takes that of the model, or
            looks at the file.
        model: The .keras file of the task to score; several, separated by commas or by wildcards
            as in seed_*/model.keras, are scored as an ensemble, and one by one. Predictions of an
            export are scored with --predictions. Give either --model or --predictions.
        predictions: The file of predictions to score. Give either --model or --predictions.
        null_odds: For SQuAD 2.0, the file of null odds that belongs to --predictions.
        null_threshold: Null odds above which a question counts as unanswered; only with null_odds.
        max_document_words: Of TriviaQA, number of words to read of a document, the first ones; 0
            for all, 800 by default. Take what the model was trained with.
        format: For text, tsv, csv or jsonl (JSON Lines or an array); for choices, swag, codah or
            jsonl; auto infers it from the suffix.
        label_map: Labels to read as others, of the file as of the predictions: with
            neutral:non-entailment,contradiction:non-entailment a model of MNLI is scored on HANS.
        class_names: With --predictions, the class names in the order of their ids; empty takes the
            labels in alphabetical order.
        plots_dir: Folder for the plots: confusion.png and calibration.png for a classifier,
            spans.html for a question answerer given by --model; empty for no plots.
        report_dir: Folder for report.html, a self-contained page of errors, and scores.json; empty
            for no report.
    """

    data_file: str = ""
    kind: str = "auto"
    model: str = ""
    predictions: str = ""
    null_odds: str = ""
    null_threshold: float = 1.0
    max_document_words: NonNegativeInt | None = None
    class_names: tuple[str, ...] = ()
    plots_dir: str = ""
    report_dir: str = ""

    def unused_flags(self) -> UnusedFlags:
        yield from super().unused_flags()
        if not self.null_odds:
            yield ["null_threshold"], "there are no --null_odds"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_one_of(self, kind=KINDS)


@dataclasses.dataclass(frozen=True)
class InsightConfig(TextColumns, WordColumns):
    """The model, the data, and what the report has.

    Args:
        model: The .keras file of a task; or a masked LM: a preset, a checkpoint's folder or hf://...
        data_file: A file that the task is evaluated on; for a masked LM, a file of text.
        report_dir: The folder for index.html, insight.json and the figures.
        compare_with: Another model of the same task, such as the one before fine-tuning, whose
            bias is set beside that of the model; empty for none.
        examples: The number of rows whose answers are explained.
        method: How answers are explained: integrated_gradients, gradient_x_input or occlusion.
        rows: For a classifier, the number of rows whose errors are counted and whose words are
            swapped, from the beginning of the file; 0 for all.
        label: For text, the column of the label; empty if there is none.
        format: For text, tsv, csv or jsonl (JSON Lines or an array); for choices, swag, codah or
            jsonl; auto infers it from the suffix.
        crows_pairs: For a masked LM, the CSV file of CrowS-Pairs; empty leaves it out.
        winobias_pro: For a masked LM, WinoBias' file of pro-stereotyped sentences; empty leaves it
            out.
        winobias_anti: The file of anti-stereotyped sentences that belongs to it.
        stereoset: For a masked LM, a file in StereoSet's format; empty leaves it out.
        batch_size: Rows in a batch.
    """

    model: str = ""
    data_file: str = ""
    report_dir: str = ""
    compare_with: str = ""
    examples: PositiveInt = 8
    method: str = METHODS[0]
    rows: NonNegativeInt = 1000
    crows_pairs: str = ""
    winobias_pro: str = ""
    winobias_anti: str = ""
    stereoset: str = ""
    batch_size: PositiveInt = 64

    def __post_init__(self) -> None:
        super().__post_init__()
        check_one_of(self, method=METHODS)
