# SPDX-License-Identifier: Apache-2.0
"""Token classification: named entities, chunks, parts of speech."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from absl import logging

from keras_bert import atomic
from keras_bert.data.conll import MissingLabelsError, TaggedText, write_conll
from keras_bert.data.labels import join_names
from keras_bert.data.tagging_schemes import SCHEMES, Notation, are_span_labels, detect_notation
from keras_bert.text.words import WORD_UNITS

from ..engine.finetuning_config import SCORED_ROWS, LabeledFilesConfig
from ..engine.job import DevScores, Evaluation, InsightRows, Job, JobData, Training, finite
from ..engine.options import ProperFraction, check_one_of, check_unset
from ..readers.label_warnings import warn_of_spellings
from ..readers.tagged_words import (
    WordColumns,
    convert_to_scheme,
    hold_out,
    label_counts,
    label_names,
    model_inputs,
    sample,
    sentence_texts,
    warn_of_unknown_labels,
)
from ..scores import entity_scores
from .report_configs import EvaluateConfig, InsightConfig

if TYPE_CHECKING:
    from keras_bert import TokenClassifier

    from ..scores.baselines import Baselines


@dataclasses.dataclass(frozen=True)
class TaggedFilesConfig(WordColumns, LabeledFilesConfig):
    """Training on words and labels in columns, such as entities, chunks or parts of speech.

    Args:
        train_file: Training file: words and labels in columns, in the format of the CoNLL shared
            tasks.
        dev_file: Validation file, used to select the best epoch. If empty, a random tenth of
            train_file is held out, stratified by type.
        test_file: Test file, predicted after training and scored if it has the label_column.
            Optional.
        train_rows: Number of training sentences to use, in a random stratified sample. 0 uses all.
        scheme: Tagging scheme for training: IOB1, IOB2 or BIOES. Span labels in other schemes are
            converted, as are spans in brackets, (PER* … *), and bare types next to O. keep disables
            the conversion.
        context: Whether to fill each sentence's window with the surrounding sentences of the
            document. The files must mark documents.
        sequence_length: Maximum window length in tokens. Longer sentences are split into multiple
            windows.
        skip_invalid: Whether to skip and count sentences with an invalid line, instead of raising
            an error.
    """

    scheme: str = "IOB2"
    context: bool = False
    skip_invalid: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        check_one_of(self, scheme=("keep", *SCHEMES))


@dataclasses.dataclass(frozen=True)
class TaggingData(JobData):
    """Sentences, of class `TaggedText`.

    Args:
        class_names: The labels of the training sentences: O first, then sorted by type.
    """

    class_names: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class TaggingConfig(TaggedFilesConfig):
    """Fine-tuning on words and labels in columns.

    Args:
        batch_size: Number of windows per optimizer step.
        dropout: Dropout rate before the classifier. Defaults to the checkpoint's rate.
        crf: Whether to add a conditional random field (CRF), which learns scores for pairs of
            consecutive labels. Predictions then follow the scheme. A preset with a CRF keeps it.
        constrained_decoding: Whether predictions must follow the scheme also without a CRF. For
            example, in IOB2 no I-PER follows O.
        word_unit: How the model splits texts into words: words, words_or_characters, whitespace,
            characters, characters_and_spaces (spaces are words), or segmented (as words, with a
            warning). auto infers it from the training words.
    """

    dropout: ProperFraction | None = None
    crf: bool = False
    constrained_decoding: bool = False
    word_unit: str = "auto"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_one_of(self, word_unit=("auto", *WORD_UNITS))


def read_data(config: TaggedFilesConfig) -> TaggingData:
    """Reads and validates all files before training starts.

    Raises:
        FileNotFoundError: If a file does not exist.
        ValueError: If a file is invalid. The message contains the file, the line and the reason.
    """
    if not config.train_file:
        raise ValueError(
            "--train_file must be a file of words and labels in columns. Received: no --train_file"
        )
    files = filter(None, (config.train_file, config.dev_file, config.test_file))
    config.check_word_files(*(config.path(name, "a file of words") for name in files))
    train = _read(config, config.train_file)
    notation = detect_notation(train.labels or ())
    train = _to_scheme(train, config, notation)
    if config.dev_file:
        dev = _to_scheme(_read(config, config.dev_file), config, notation)
    else:
        train, dev = hold_out(train)
    test = None
    if config.test_file:
        try:
            test = _to_scheme(_read(config, config.test_file), config, notation)
        except MissingLabelsError:
            test = _read(config, config.test_file, labeled=False)
    if 0 < config.train_rows < len(train):
        train = sample(train, config.train_rows)
    class_names = label_names(train)
    for text in (dev, *([test] if test else [])):
        warn_of_unknown_labels(text, class_names)
    return TaggingData(train, dev, test, class_names)


def _read(config: TaggedFilesConfig, name: str, labeled: bool = True) -> TaggedText:
    path = config.path(name, "a file of words in columns")
    text = config.read_words(path, labeled, skip_invalid=config.skip_invalid)
    for message in text.skipped:
        logging.warning("skipped a sentence: %s", message)
    warn_of_spellings(path, label_counts(text))
    return text


def _to_scheme(
    text: TaggedText, config: TaggedFilesConfig, notation: Notation | None
) -> TaggedText:
    return text if config.scheme == "keep" else convert_to_scheme(text, config.scheme, notation)


def evaluate(config: EvaluateConfig, model: Any) -> Evaluation:
    """Scores a tagger, or a file of its tags, see `Job.evaluate`."""
    from keras_bert.data.conll import read_conll
    from keras_bert.data.tagging_schemes import OUTSIDE, are_span_labels, detect_scheme

    from ..plots import error_report
    from ..readers import answer_files

    gold = config.read_words(config.data_file)
    if config.predictions:
        if Path(config.predictions).suffix == ".jsonl":
            rows = answer_files.matched_answers(
                Path(config.predictions), answer_files.read_tags, config.data_file, len(gold.words)
            )
            words = [[word for word, _ in row] for row in rows]
            labels = [[label for _, label in row] for row in rows]
        else:
            answer_text = read_conll(config.predictions, word_column=0, label_column=-1)
            words, labels = answer_text.words, answer_text.labels
        if words != gold.words:
            raise ValueError(
                f"{config.predictions} must have the same words as {config.data_file}. Received: "
                "different words"
            )
        scheme = detect_scheme(labels)
    else:
        tags = model.tag(gold.words, batch_size=SCORED_ROWS)
        labels = [[tag["label"] for tag in sentence] for sentence in tags]
        scheme = _infer_scheme(model.class_names) or detect_scheme(labels)
    if scheme is None and all(label == OUTSIDE for sentence in labels for label in sentence):
        scheme = "IOB2"
    if scheme is not None:
        # Otherwise, labels of the same entities in different schemes would count as word errors.
        gold = convert_to_scheme(gold, scheme)
    table = ""
    if are_span_labels(label for sentence in gold.labels for label in sentence):
        if scheme is None:
            raise ValueError(
                f"{config.predictions or config.model} must predict span labels (O, B-TYPE, "
                f"I-TYPE, …), as in {config.data_file}"
            )
        table = entity_scores.table(entity_scores.entity_scores(labels, gold.labels))
    macro = entity_scores.macro_scores(labels, gold.labels, scheme if table else None)
    return Evaluation(
        {**entity_scores.tagging_scores(labels, gold.labels), **macro},
        lambda: error_report.tagging_sections(gold, labels),
        table,
    )


def _infer_scheme(class_names: Sequence[str]) -> Any:
    """Infers the scheme of the training labels from a tagger's class names, or returns `None`."""
    from keras_bert.data.tagging_schemes import are_span_labels

    if not are_span_labels(class_names):
        return None
    letters: dict[str, set[str]] = {}
    for name in class_names:
        letter, _, kind = name.partition("-")
        letters.setdefault(kind, set()).add(letter)
    if any(prefixes & set("ESLUW") for prefixes in letters.values()):
        return "BIOES"
    # In IOB2, every type has a B- label. In IOB1, every type has an I- label, and a B- label only
    # if two spans are adjacent.
    types = [prefixes for prefixes in letters.values() if prefixes != {"O"}]
    if any("B" not in prefixes for prefixes in types):
        return "IOB1"
    return "IOB2" if any("I" not in prefixes for prefixes in types) else None


def sentences(config: InsightConfig, model: TokenClassifier) -> InsightRows:
    """Reads sentences of words, see `Job.read_insight_inputs`."""
    check_unset(config, ["label_column"], "the labels are not read")
    text = config.read_words(config.data_file, labeled=False)
    return InsightRows(text.words, sentence_texts(text))


def predicted_tag(model: TokenClassifier, row: Any) -> tuple[Any, Any, str]:
    """Returns the first word with a tag other than O, or the longest word.

    See `Job.predict_for_attribution`.
    """
    tags = model.tag([row])[0]
    number = next(
        (index for index, tag in enumerate(tags) if tag["label"] != "O"),
        max(range(len(row)), key=lambda index: len(row[index])),
    )
    return row, number, f"{row[number]}: {tags[number]['label']}"


class TaggingJob(Job):
    """Base class of jobs that label words. It reads the data, scores and reports."""

    data: TaggingData

    read = staticmethod(read_data)

    def baselines(self) -> dict[str, Baselines]:
        from ..scores import baselines

        scored = self.data.scored().items()
        return {name: baselines.tag_baselines(self.data.train, text) for name, text in scored}

    def predicted_labels(self, model: Any, name: str, text: TaggedText) -> list[list[str]]:
        """Predicts a label for each word in each sentence.

        Args:
            model: The model.
            name: The name of the data set, "dev" or "test".
            text: The sentences.
        """
        raise NotImplementedError

    def score(self, model: Any) -> DevScores:
        labels = self.predicted_labels(model, "dev", self.data.dev)
        return {"dev": entity_scores.tagging_scores(labels, self.data.dev.labels)}

    selection_score = staticmethod(entity_scores.selection_score)

    def report(self, load: Callable[[], Any], best: Path, directory: Path) -> dict[str, Any]:
        """Writes the scores, and `dev.conll` and `test.conll` with predictions as last column."""
        results: dict[str, Any] = {}
        for name, text in {"dev": self.data.dev, "test": self.data.test}.items():
            if text is None:
                continue
            predictions = self.predicted_labels(load(), name, text)
            write_conll(directory / f"{name}.conll", text, predictions)
            if text.labels is None:
                continue
            scores = tagging_report(predictions, text, self.config.scheme)
            atomic.write_json(directory / f"{name}_scores.json", scores)
            results["by_class"] = scores.get("by_type", {})
            if name == "test":
                results["test"] = entity_scores.tagging_scores(predictions, text.labels)
        return results


def tagging_report(
    predictions: entity_scores.Labels, text: TaggedText, scheme: Any
) -> dict[str, Any]:
    """Returns all scores of predictions: `tagging_scores`, scores by type, and strict matching.

    Strict matching needs the scheme, so it is omitted if the scheme is "keep".
    """
    scores: dict[str, Any] = dict(entity_scores.tagging_scores(predictions, text.labels))
    if "f1" not in scores:
        return scores
    scores_by_entity = entity_scores.entity_scores(predictions, text.labels)
    logging.info("%s\n%s", text.path, entity_scores.table(scores_by_entity))
    scores["macro"] = scores_by_entity.macro._asdict()
    scores["by_type"] = {name: row._asdict() for name, row in scores_by_entity.by_type.items()}
    if scheme != "keep":
        strict = entity_scores.entity_scores(predictions, text.labels, scheme)
        scores["strict"] = strict.micro._asdict()
        scores |= entity_scores.macro_scores(predictions, text.labels, scheme)
    return scores


class Tagging(TaggingJob):
    """Token classification with `keras_bert.TokenClassifier`."""

    config_class = TaggingConfig
    predict_method = "tag"
    example_input = "texts.txt"
    config: TaggingConfig

    evaluate = staticmethod(evaluate)
    read_insight_inputs = staticmethod(sentences)
    predict_for_attribution = staticmethod(predicted_tag)

    def build(self, seed: int) -> Training:
        from keras_bert import TokenClassifier

        from ..engine import finetuning

        config, train = self.config, self.data.train
        tagger = TokenClassifier.from_preset(
            self.preset,
            class_names=self.data.class_names,
            dropout=config.dropout,
            crf=config.crf or None,
            scheme=self._decoding_scheme(),
            word_unit=None if config.word_unit == "auto" else config.word_unit,
            **finetuning.preset_options(config),
        )
        words = model_inputs(train, train.words, config.context)
        labels = model_inputs(train, train.labels, config.context)
        return finetuning.training_of_text(tagger, words, labels, config, len(train))

    def _decoding_scheme(self) -> Any:
        """Returns the scheme that predictions must follow, or `None`."""
        config, names = self.config, self.data.class_names
        if config.scheme != "keep" and are_span_labels(names):
            return config.scheme if config.crf or config.constrained_decoding else None
        if config.constrained_decoding:
            raise ValueError(
                "--constrained_decoding requires span labels, such as O, B-PER and I-PER, and a "
                f"--scheme other than keep. Received: --scheme={config.scheme} and the labels "
                f"{join_names(names)}"
            )
        return None

    def predicted_labels(
        self, model: TokenClassifier, name: str, text: TaggedText
    ) -> list[list[str]]:
        context = self.config.context
        logits = model.predict(
            model_inputs(text, text.words, context), batch_size=SCORED_ROWS, verbose=0
        )
        sentences = [one for document in logits for one in document] if context else logits
        if name == "dev":
            class_ids = {label: index for index, label in enumerate(model.class_names)}
            ids = [[class_ids.get(label, -1) for label in labels] for labels in text.labels]
            self.dev_loss = model.sequence_loss(sentences, ids)
        labels, _ = model.decode([finite(sentence) for sentence in sentences])
        return [[model.class_names[index] for index in sentence] for sentence in labels]
