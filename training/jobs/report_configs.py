# SPDX-License-Identifier: Apache-2.0
"""The configs of `evaluate` and `insight`. These commands use jobs to score and explain models."""

from __future__ import annotations

import dataclasses
from typing import Any

from ..engine.options import NonNegativeInt, PositiveInt, UnusedFlags, check_one_of, check_unset
from ..readers.choice_files import check_choice_files
from ..readers.labeled_text import TextColumns
from ..readers.tagged_words import WordColumns
from ..readers.task_files import KINDS

# The same as in keras_bert.insight.attribution, which is only imported when the command runs.
METHODS = ("integrated_gradients", "gradient_x_input", "occlusion")


# Flags that only apply to some types of data
_FLAGS_OF_KINDS = {
    "text": (*TextColumns.__annotations__, "class_names"),
    "multiple_choice": ("format", "quoting"),
    "squad": (
        "null_odds",
        "null_threshold",
        "max_document_words",
        "doc_stride",
        "max_query_length",
    ),
    "tagging": tuple(WordColumns.__annotations__),
}


def check_flags_of_kind(config: Any, kind: str, *files: str) -> None:
    """Checks that no flag is given that does not apply to a type of data and its file formats.

    Raises:
        ValueError: If such a flag is given.
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
        kind: Type of the data, one of auto, text, squad, tagging and multiple_choice. auto uses the
            type of the model, or infers it from the file.
        model: The .keras file of the task to score. Multiple files, separated by commas or given by
            wildcards such as seed_*/model.keras, are scored as an ensemble and one by one. To score
            an export, pass its predictions as --predictions. Give either --model or --predictions.
        predictions: The file of predictions to score. Give either --model or --predictions.
        null_odds: For SQuAD 2.0, the file of null odds that belongs to --predictions.
        null_threshold: Null odds above which a question counts as unanswered. Requires null_odds.
        max_document_words: For TriviaQA, the number of words to read from the start of documents.
            Defaults to 800. 0 reads all. Use the same value as in training.
        format: For text, one of tsv, csv, jsonl (JSON Lines or an array), arrow (Parquet, Arrow)
            and xlsx. For choices, one of swag, codah, jsonl, arrow and xlsx. auto infers the format
            from the suffix.
        label_map: Labels to rename in both the file and the predictions. For example,
            neutral:non-entailment,contradiction:non-entailment scores an MNLI model on HANS.
        class_names: With --predictions, the class names in the order of their IDs. By default, the
            labels in alphabetical order.
        plots_dir: Directory for the plots: confusion.png and calibration.png for a classifier,
            spans.html for a question answerer given by --model. Empty for no plots.
        report_dir: Directory for report.html, a self-contained page of errors, and scores.json.
            Empty for no report.
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
            yield ["null_threshold"], "--null_odds is not given"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_one_of(self, kind=KINDS)


@dataclasses.dataclass(frozen=True)
class InsightConfig(TextColumns, WordColumns):
    """The model, the data, and the contents of the report.

    Args:
        model: A task's .keras file, or a masked LM as a preset, a checkpoint directory or
            hf://...
        data_file: A file that suits the task's evaluation. For a masked LM, a text file.
        report_dir: Directory for index.html, insight.json and the figures.
        compare_with: A second model of the same task, to compare the bias of both models. For
            example, the model before fine-tuning. Optional.
        examples: Number of predictions to explain.
        method: How predictions are explained: integrated_gradients, gradient_x_input or occlusion.
        rows: For a classifier, the number of examples, from the start of the file, whose errors are
            counted and whose words are swapped. 0 uses all.
        label: For text, the column of the label. Empty for unlabeled text.
        format: For text, one of tsv, csv, jsonl (JSON Lines or an array), arrow (Parquet, Arrow)
            and xlsx. For choices, one of swag, codah, jsonl, arrow and xlsx. auto infers the format
            from the suffix.
        crows_pairs: For a masked LM, the CSV file of CrowS-Pairs. Empty to skip it.
        winobias_pro: For a masked LM, the WinoBias file with pro-stereotypical sentences. Empty to
            skip it.
        winobias_anti: The matching WinoBias file with anti-stereotypical sentences.
        stereoset: For a masked LM, a file in StereoSet's format. Empty to skip it.
        batch_size: Number of examples per batch.
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
