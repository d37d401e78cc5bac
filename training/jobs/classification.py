# SPDX-License-Identifier: Apache-2.0
"""Text classification and regression on single texts or pairs, from files or GLUE."""

from __future__ import annotations

import contextlib
import csv
import dataclasses
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from absl import logging

from keras_bert import atomic
from keras_bert.data.labels import f1_thresholds, sigmoid, softmax
from keras_bert.data.texts import LONG_TEXTS

from ..engine.finetuning_config import SCORED_ROWS, LabeledFilesConfig
from ..engine.job import (
    DevScores,
    Evaluation,
    InsightRows,
    Job,
    JobData,
    Training,
    finite,
    read_probabilities,
)
from ..engine.options import (
    NonNegativeFloat,
    NonNegativeInt,
    PositiveInt,
    ProperFraction,
    UnusedFlags,
    check_one_of,
    check_unset,
)
from ..engine.output_directory import check_pairs
from ..engine.saved_models import model_files
from ..readers import glue
from ..readers.data_files import FORMATS, MissingColumnError
from ..readers.data_splits import hold_out_tenth, stratified_sample
from ..readers.labeled_text import LabeledText, TextColumns, parse_label_map, read_labeled_text
from ..readers.row_values import excerpt, required_labels
from .report_configs import EvaluateConfig, InsightConfig

if TYPE_CHECKING:
    from keras_bert import TextClassifier
    from keras_bert.tasks.temperature import TemperatureScaling

    from ..scores.baselines import Baselines


DEFAULT_BILSTM_LAYERS = 2
# The calibration of the model in the same directory
_CALIBRATION_FILE = "calibration.json"


@dataclasses.dataclass(frozen=True)
class FinetuneConfig(TextColumns, LabeledFilesConfig):
    """Fine-tuning on a file of labeled text, or on a GLUE task.

    Args:
        task: A GLUE task (sst2, cola, mrpc, stsb, rte, qnli, qqp, mnli, wnli) to read from
            data_dir. Empty for your own files.
        data_dir: Directory of the GLUE download, or of the files given by a relative path.
        train_file: Labeled text to train on, as .tsv, .csv, .jsonl, .json, .parquet, .arrow or
            .xlsx. Text files may be compressed. A directory of Parquet or Arrow files also works.
        dev_file: Labeled text that selects the best epoch. If empty, a random stratified tenth of
            train_file is held out.
        test_file: Text to predict after training, labeled or not. Optional.
        dev_rows: Number of examples to score in each validation file, in a random stratified
            sample. 0 uses all.
        long_texts: How longer texts than sequence_length are read: truncate, or in overlapping
            windows whose outputs are averaged (mean) or maximized (max). If empty, the checkpoint's
            own setting is kept, and most checkpoints truncate.
        added_tokens: Entity markers and other new tokens that text never splits, for example
            <subj>,</subj>,<obj>,</obj>. Their embeddings start at the mean of all tokens.
        dropout: Dropout rate before the classifier. Defaults to the checkpoint's rate.
        encoder_dropout: Both dropout rates of the encoder. Defaults to the checkpoint's rates.
        bilstm_units: Number of units per direction in a new BiLSTM between encoder and classifier.
            0 adds no BiLSTM. By default, the checkpoint's layers are kept.
        bilstm_layers: Number of layers in the new BiLSTM. Requires bilstm_units.
        calibrate: Whether to calibrate the probabilities on the validation examples, with a
            temperature. Two classes and multiple labels also have biases. Not used for GLUE tasks,
            because their scores are on the validation examples.
    """

    task: str = ""
    train_rows: NonNegativeInt = 0
    dev_rows: NonNegativeInt = 0
    long_texts: str = ""
    added_tokens: tuple[str, ...] = ()
    dropout: ProperFraction | None = None
    encoder_dropout: ProperFraction | None = None
    bilstm_units: NonNegativeInt | None = None
    bilstm_layers: PositiveInt = DEFAULT_BILSTM_LAYERS
    calibrate: bool = True

    def unused_flags(self) -> UnusedFlags:
        yield from super().unused_flags()
        if not self.bilstm_units:
            yield ["bilstm_layers"], "there is no new BiLSTM without --bilstm_units"
        if self.task:
            names = [field.name for field in dataclasses.fields(TextColumns)]
            reason = f"--task={self.task} (or its --recipe) has its own files and labels"
            yield ("train_file", "dev_file", "test_file", *names), reason
        if self.task or self.regression:
            yield ["calibrate"], "GLUE tasks and regressions are not calibrated"

    def __post_init__(self) -> None:
        super().__post_init__()
        formats = ("auto", *sorted(set(FORMATS.values())))
        check_one_of(self, format=formats, long_texts=("", *LONG_TEXTS))


@dataclasses.dataclass(frozen=True)
class FinetuneData(JobData):
    """Labeled texts with one or more validation sets.

    Args:
        metrics: The names of the metrics, see `classifier_scores.score`.
    """

    metrics: tuple[str, ...]


def read_data(config: FinetuneConfig) -> FinetuneData:
    """Reads and validates all files before training starts.

    Raises:
        FileNotFoundError: If a file does not exist.
        ValueError: If a file is invalid. The message contains the file, the line and the reason.
    """
    if not (config.task or config.train_file):
        raise ValueError("--train_file must be a file of labeled text, or --task a GLUE task")
    data = _read_glue(config) if config.task else _read_files(config)
    train = data.train.rows(stratified_sample(data.train.strata, config.train_rows))
    dev = {
        name: part.rows(stratified_sample(part.strata, config.dev_rows))
        for name, part in data.dev.items()
    }
    return dataclasses.replace(data, train=train, dev=dev)


def _read_glue(config: FinetuneConfig) -> FinetuneData:
    if not config.data_dir:
        raise ValueError(
            f"--data_dir must be the directory of the GLUE download for --task={config.task}. "
            "Received: no --data_dir"
        )
    task = glue.find_task(config.task)
    return FinetuneData(
        train=glue.read_split(config.data_dir, task, "train"),
        dev={name: glue.read_split(config.data_dir, task, name) for name in task.dev_splits},
        test=None,
        metrics=task.metrics,
    )


def _read_files(config: FinetuneConfig) -> FinetuneData:
    from ..scores.classifier_scores import LABEL_METRICS, metrics_for

    def read(
        name: str, class_names: tuple[str, ...] | None = None, labeled: bool = True
    ) -> LabeledText:
        path = config.path(name, "a file of labeled text")
        columns = config if name == config.train_file else config.for_other_file(path)
        return read_labeled_text(path, columns, class_names, labeled=labeled)

    files = filter(None, (config.train_file, config.dev_file, config.test_file))
    config.check_text_files(*(config.path(name, "a file of labeled text") for name in files))
    train = read(config.train_file)
    if config.dev_file:
        dev = read(config.dev_file, train.class_names)
    else:
        accept_few = isinstance(config, FewShotConfig)
        parts = hold_out_tenth(train.strata, train.path, accept_few=accept_few)
        train, dev = map(train.rows, parts)
    test = None
    if config.test_file:
        try:
            test = read(config.test_file, train.class_names)
        except MissingColumnError as error:
            test = read(config.test_file, train.class_names, labeled=False)
            logging.warning(
                "the test file is predicted but not scored, because it has no labels: %s", error
            )
    if train.class_names is None:
        deviation = float(np.std(required_labels(train.labels, train.path)))
        if not 0.1 <= deviation <= 10:
            logging.warning(
                "the scores should have a standard deviation of about 1. Received: %.3g. Divide "
                "them by it, because a larger or smaller range is learned slowly or not at all",
                deviation,
            )
    metrics = LABEL_METRICS if train.multi_label else metrics_for(train.num_classes)
    return FinetuneData(train, {"dev": dev}, test, metrics)


def evaluate(config: EvaluateConfig, model: Any) -> Evaluation:
    """Scores a classifier, or a file of its predictions, see `Job.evaluate`."""
    from ..plots import error_report
    from ..readers import answer_files
    from ..scores import classifier_scores

    if model:
        _check_kind_of_labels(config, model)
        check_unset(config, ["class_names"], "--model has its own class names")
    label_map = parse_label_map(config.label_map)
    class_names = config.class_names or (model.class_names if model else None)
    if class_names:
        class_names = tuple(dict.fromkeys(label_map.get(name, name) for name in class_names))
    regression = config.regression or (model is not None and model.is_regression)
    if regression and config.plots_dir:
        raise ValueError("--plots_dir is only supported for classes, not for regression")
    multi_label = config.multi_label or (model is not None and model.multi_label)
    if multi_label and not (model and model.multi_label and not config.plots_dir):
        raise ValueError(
            "--multi_label requires a multi-label classifier in --model, and cannot be used with "
            "--predictions or --plots_dir"
        )
    if multi_label and len(class_names) < len(model.class_names):
        raise ValueError(
            "--label_map must not rename multiple labels to the same name for a multi-label model. "
            f"Received: {','.join(config.label_map)}"
        )
    config = config.for_file(config.data_file, regression=regression, multi_label=multi_label)
    if model:
        check_pairs(model_files(config.model), config.text_pair, model.fields)
    data = read_labeled_text(
        config.data_file,
        config,
        None if regression else class_names,
        regression=regression,
        multi_label=multi_label,
    )
    if multi_label:
        probabilities = sigmoid(logits(model, data))
        scores = classifier_scores.label_scores(data.labels, probabilities, model.thresholds)
        applies = data.labels.reshape(-1) > 0
        scores["ece"] = classifier_scores.calibration_error(applies, probabilities.reshape(-1))
        return Evaluation(
            scores,
            lambda: error_report.multi_label_sections(
                data, probabilities, model.thresholds, scores
            ),
        )
    if model:
        rows = model.answers_from_logits(
            model.predict(data.inputs, batch_size=SCORED_ROWS, verbose=0),
            top_k=None if regression else 1,
        )
        rows = rows if regression else [row for (row,) in rows]
        rows = [answer_files.relabeled(row, label_map) for row in rows]
    else:
        names = data.class_names

        def read_row(row: dict[str, Any]) -> dict[str, Any]:
            if names is None:
                return answer_files.read_number(row)
            return answer_files.read_class(answer_files.relabeled(row, label_map), names)

        rows = answer_files.matched_answers(
            Path(config.predictions), read_row, config.data_file, len(data), data.ids, data.left_out
        )
    metrics = classifier_scores.metrics_for(data.num_classes)
    if data.class_names is None:
        numbers = [row["score"] for row in rows]
        return Evaluation(
            classifier_scores.score(metrics, numbers, data.labels),
            lambda: error_report.regression_sections(data, numbers),
        )
    predictions = [_class_id(data.class_names, row, config) for row in rows]
    probabilities = read_probabilities(rows)
    if config.plots_dir:
        _plot(config, data, predictions, probabilities)
    scores = classifier_scores.score(metrics, predictions, data.labels)
    if probabilities is not None:
        right = np.asarray(predictions) == data.labels
        scores["ece"] = classifier_scores.calibration_error(right, probabilities)
        if model and model.min_score is not None:
            is_answered = np.asarray(probabilities) >= model.min_score
            scores["coverage"] = 100 * float(is_answered.mean())
            if is_answered.any():
                scores["accuracy_if_answered"] = 100 * float(right[is_answered].mean())
    return Evaluation(
        scores,
        lambda: error_report.classifier_sections(data, predictions, probabilities),
    )


def _check_kind_of_labels(config: EvaluateConfig | InsightConfig, model: TextClassifier) -> None:
    """Raises an UnusedFlagError if the flags describe a different type of labels than the model."""
    kinds = {"regression": model.is_regression, "multi_label": model.multi_label}
    others = [name for name, is_its_own in kinds.items() if not is_its_own]
    check_unset(config, others, f"--model={config.model} predicts a different type of labels")
    if model.multi_label:
        check_unset(config, ["skip_labels"], "an example can have any number of labels")


def _class_id(class_names: tuple[str, ...], row: dict[str, Any], config: EvaluateConfig) -> int:
    label = str(row.get("label"))
    if label not in class_names:
        raise ValueError(
            f"{config.predictions or config.model} must predict one of "
            f"{excerpt(list(class_names), 300)}. Received: {excerpt(label)}"
        )
    return class_names.index(label)


def _plot(
    config: EvaluateConfig,
    data: LabeledText,
    predictions: list[int],
    probabilities: list[float] | None,
) -> None:
    from ..plots.classifier_plots import calibration_figure, confusion_figure
    from ..plots.style import save

    directory = Path(config.plots_dir)
    directory.mkdir(parents=True, exist_ok=True)
    labels = data.labels.tolist()
    save(confusion_figure(labels, predictions, data.class_names), directory / "confusion.png")
    if probabilities is not None:
        right = [label == answer for label, answer in zip(labels, predictions, strict=True)]
        save(calibration_figure(right, probabilities), directory / "calibration.png")


def labeled_texts(config: InsightConfig, model: TextClassifier) -> InsightRows:
    """Reads texts and their labels, see `Job.read_insight_inputs`."""
    _check_kind_of_labels(config, model)
    if not config.label:
        check_unset(config, ["label_map", "skip_labels"], "--label is empty")
    config = config.for_file(
        config.data_file, regression=model.is_regression, multi_label=model.multi_label
    )
    check_pairs([Path(config.model)], config.text_pair, model.fields)
    data = read_labeled_text(
        config.data_file,
        config,
        None if model.is_regression else model.class_names,
        regression=model.is_regression,
        labeled=bool(config.label),
        multi_label=model.multi_label,
    )
    # Without class names, the labels are class IDs, or scores for regression.
    numbers = None if model.class_names or data.labels is None else data.labels.tolist()
    return InsightRows(data.inputs, data.inputs, numbers or data.shown_labels)


def predicted_class(model: TextClassifier, row: Any) -> tuple[Any, Any, str]:
    """Returns a text and its predicted class, see `Job.predict_for_attribution`."""
    if model.multi_label:  # Explain the most probable label, even if it is below its threshold.
        answer = model.classify([row], top_k=1)[0][0]
        return row, answer["label"], f"label: {answer['label']} ({answer['score']:.3f})"
    answer = model.classify([row])[0]
    score = f"{answer['score']:.3f}"
    return row, None, f"answer: {answer['label']} ({score})" if "label" in answer else score


class ClassificationJob(Job):
    """Text classification and regression with `keras_bert.TextClassifier`."""

    config_class = FinetuneConfig
    predict_method = "classify"
    example_input = "texts.txt"
    config: FinetuneConfig
    data: FinetuneData

    read = staticmethod(read_data)
    evaluate = staticmethod(evaluate)
    read_insight_inputs = staticmethod(labeled_texts)
    predict_for_attribution = staticmethod(predicted_class)

    def __init__(self, config: FinetuneConfig, data: FinetuneData, preset: str) -> None:
        super().__init__(config, data, preset)
        self.title = config.task or self.title
        # The calibration of the last scored epoch, or the reason why none is possible
        self._calibration: TemperatureScaling | str | None = None

    def baselines(self) -> dict[str, Baselines]:
        from ..scores import baselines

        return baselines.text_baselines(self.data.train, self.data.scored(), self.data.metrics)

    def build(self, seed: int) -> Training:
        from ..engine import finetuning

        config, train = self.config, self.data.train
        top_layers = finetuning.bilstm(config.bilstm_units, config.bilstm_layers)
        task = new_classifier(config, train, self.preset, top_layers)
        return finetuning.training_of_text(task, train.inputs, train.labels, config, len(train))

    def score(self, model: TextClassifier) -> DevScores:
        outputs = {name: logits(model, dev) for name, dev in self.data.dev.items()}
        first, dev = next(iter(self.data.dev.items()))
        self.dev_loss = float(model.batch_loss(dev.labels, outputs[first]))
        if self.config.calibrate and not (self.config.task or model.is_regression):
            self._calibration = fit_calibration(model, outputs[first], dev)
            if not isinstance(self._calibration, str):
                outputs = {name: self._calibration.apply(part) for name, part in outputs.items()}
        if model.multi_label:
            model.thresholds = f1_thresholds(dev.labels, sigmoid(outputs[first]))
        return {
            name: score_logits(model, outputs[name], dev, self.data.metrics)
            for name, dev in self.data.dev.items()
        }

    def keep(self, directory: Path) -> None:
        calibration = self._calibration
        if calibration is None:
            return
        if isinstance(calibration, str):
            atomic.write_json(directory / _CALIBRATION_FILE, {"none_because": calibration})
        else:
            atomic.write_json(directory / _CALIBRATION_FILE, dataclasses.asdict(calibration))

    @contextlib.contextmanager
    def weights_to_save(self, task: TextClassifier) -> Iterator[None]:
        import keras

        # The training continues without the calibration.
        if self._calibration is None or isinstance(self._calibration, str):
            yield
            return
        weights = task.head.dense.weights
        values = [keras.ops.copy(weight) for weight in weights]
        task.head.transform_logits(1 / self._calibration.temperature, self._calibration.bias)
        try:
            yield
        finally:
            for weight, value in zip(weights, values, strict=True):
                weight.assign(value)

    def report(self, load: Callable[[], Any], best: Path, directory: Path) -> dict[str, Any]:
        from ..scores import classifier_scores

        classifier, test = load(), self.data.test
        results: dict[str, Any] = {"pairs": self.data.train.text_pairs is not None}
        if classifier.multi_label:
            results["thresholds"] = list(classifier.thresholds)
        outputs = None if test is None else logits(classifier, test)
        final, final_outputs = test, outputs
        if self.data.has_test_labels:
            results["test"] = score_logits(classifier, outputs, test, self.data.metrics)
        else:
            final = next(iter(self.data.dev.values()))
            final_outputs = logits(classifier, final)
        if (best / _CALIBRATION_FILE).is_file():
            name = "test" if self.data.has_test_labels else next(iter(self.data.dev))
            content = json.loads((best / _CALIBRATION_FILE).read_text(encoding="utf-8"))
            results["calibration"] = report_calibration(
                content, classifier, final_outputs, final, directory
            )
            results["calibration"]["data"] = name
        if final.class_names is not None:
            results["by_class"] = classifier_scores.per_class_scores(
                predictions(classifier, final_outputs), final.labels, final.class_names
            )
            if "f1" in self.data.metrics:  # For two classes, scikit-learn scores the second one.
                results["class_of_f1"] = final.class_names[1]
        if test is not None:
            columns = {"true_label": test.shown_labels, "text": test.texts}
            columns |= {"text_pair": test.text_pairs}
            if test.ids and None not in test.ids:
                columns["id"] = test.ids
            rows = classifier.answers_from_logits(outputs)
            write_answers(rows, directory / "predictions.tsv", columns)
        return results

    def export(self, model: TextClassifier, directory: Path) -> None:
        model.export(directory, pair=self.data.train.text_pairs is not None, overwrite=True)


@dataclasses.dataclass(frozen=True)
class FewShotConfig(FinetuneConfig):
    """Few-shot classifier training on pairs of examples.

    Args:
        batch_size: Number of pairs per optimizer step.
        epochs: Number of passes over the pairs.
        learning_rate: Peak learning rate, reached at the end of the warmup.
        max_pairs: Maximum number of pairs. 0 uses all pairs. Their number grows quadratically with
            the number of examples.
    """

    batch_size: PositiveInt = 16
    epochs: PositiveInt | None = 1
    learning_rate: NonNegativeFloat | None = 2e-5
    max_pairs: NonNegativeInt = 0

    def unused_flags(self) -> UnusedFlags:
        yield from super().unused_flags()
        names = ["regression", "text_pair", "bilstm_units", "dropout"]
        yield names, "--task=few_shot needs single texts with classes, and adds no layers"


class FewShotJob(ClassificationJob):
    """Few-shot classification with `keras_bert.TextClassifier.fit_few_shot`'s method."""

    config_class = FewShotConfig
    config: FewShotConfig

    def build(self, seed: int) -> Training:
        from keras_bert.losses import CosineSimilarityLoss
        from keras_bert.tasks.few_shot import FewShotTraining

        from ..engine import finetuning

        train = self.data.train
        classifier = new_classifier(self.config, train, self.preset, sentence_pooling(self.preset))
        self._training = FewShotTraining(classifier, train.inputs, train.labels)
        embedder = self._training.embedder
        pairs, scores = self._training.pairs(self.config.max_pairs or None)
        logging.info("%d pairs of %d rows", len(scores), len(train))
        finetuning.compile_task(embedder, self.config, pairs, CosineSimilarityLoss())
        fit_epoch = finetuning.epochs_of_text(embedder, pairs, scores, self.config)
        return Training(embedder, fit_epoch, len(scores))

    def score(self, model: TextClassifier) -> DevScores:
        scores = super().score(model)
        self.dev_loss = None  # It is the loss of the classes, unlike the training loss of pairs.
        return scores

    def task(self, model: Any) -> TextClassifier:
        self._training.fit_head()
        return self._training.classifier


def sentence_pooling(preset: str) -> list[Any]:
    """Returns `top_layers` that pool like the checkpoint does for sentence embeddings."""
    from keras_bert import TextEmbedder, checkpoints
    from keras_bert.layers import SentencePooling

    options = TextEmbedder.options_of_checkpoint(checkpoints.open_checkpoint(preset))
    names = ("pooling", "normalize")
    return [SentencePooling(**{name: options[name] for name in names if name in options})]


def new_classifier(
    config: FinetuneConfig, data: LabeledText, preset: str, top_layers: list[Any] | None
) -> TextClassifier:
    """Returns the pretrained encoder with a new head for the classes of `data`."""
    from keras_bert import TextClassifier

    from ..engine import finetuning

    classifier = TextClassifier.from_preset(
        preset,
        num_classes=data.num_classes,
        class_names=data.class_names,
        multi_label=data.multi_label,
        dropout=config.dropout,
        encoder_dropout=config.encoder_dropout,
        top_layers=top_layers,
        long_texts=config.long_texts or None,
        **finetuning.preset_options(config),
    )
    added = config.added_tokens
    return classifier.with_added_tokens(added) if added else classifier


def logits(classifier: TextClassifier, data: LabeledText) -> np.ndarray:
    """Returns a classifier's logits for texts, after checking that they are finite."""
    return finite(classifier.predict(data.inputs, batch_size=SCORED_ROWS, verbose=0))


def fit_calibration(
    classifier: TextClassifier, outputs: np.ndarray, data: LabeledText
) -> TemperatureScaling | str:
    """Fits a calibration to `logits`. Returns the reason as a string if no temperature is best."""
    from keras_bert.tasks.temperature import fit_temperature

    labels = required_labels(data.labels, data.path)
    targets = labels if classifier.multi_label else np.eye(classifier.num_classes)[labels]
    try:
        return fit_temperature(outputs, targets, multi_label=classifier.multi_label)
    except ValueError as error:
        return str(error)


def report_calibration(
    content: Mapping[str, Any],
    classifier: TextClassifier,
    outputs: np.ndarray,
    data: LabeledText,
    directory: Path,
) -> dict[str, Any]:
    """Plots the calibration, and returns its entry in `results.json`.

    Args:
        content: The content of the file that `ClassificationJob.keep` wrote.
        classifier: The calibrated classifier.
        outputs: Its `logits` for `data`.
        data: Labeled text.
        directory: Directory for the plot.
    """
    from ..plots.classifier_plots import calibration_figure
    from ..plots.style import save
    from ..scores.classifier_scores import calibration_error

    calibrated = right_and_probabilities(classifier, outputs, data)
    error = calibration_error(*calibrated)
    before = None
    results = {**content, "ece": error}
    if "temperature" in content:
        bias = np.array(content["bias"], outputs.dtype)
        original = (outputs - bias) * content["temperature"]
        before = right_and_probabilities(classifier, original, data)
        results["ece_before"] = calibration_error(*before)
    save(calibration_figure(*calibrated, before), directory / "calibration.png")
    return results


def right_and_probabilities(
    classifier: TextClassifier, outputs: np.ndarray, data: LabeledText
) -> tuple[np.ndarray, np.ndarray]:
    """Returns whether each prediction is right, and its probability, for a reliability diagram.

    For multi-label classification, each label of each example is a prediction that it applies.
    """
    labels = required_labels(data.labels, data.path)
    if classifier.multi_label:
        return labels.reshape(-1) > 0, sigmoid(outputs).reshape(-1)
    return np.argmax(outputs, axis=1) == labels, softmax(outputs).max(axis=1)


def predictions(classifier: TextClassifier, outputs: np.ndarray) -> np.ndarray:
    """Converts `logits` to class IDs, or to scores for regression.

    For multi-label classification, returns 0 or 1 for each class, with shape `(rows, classes)`.
    """
    if classifier.multi_label:
        return (sigmoid(outputs) >= classifier.thresholds).astype("int32")
    return outputs[:, 0] if classifier.is_regression else np.argmax(outputs, axis=-1)


def score_logits(
    classifier: TextClassifier, outputs: np.ndarray, data: LabeledText, metrics: Sequence[str]
) -> dict[str, float]:
    """Scores a classifier on labeled text, given its `logits`."""
    from ..scores import classifier_scores

    labels = required_labels(data.labels, data.path)
    if classifier.multi_label:
        probabilities = sigmoid(outputs)
        return classifier_scores.label_scores(labels, probabilities, classifier.thresholds)
    return classifier_scores.score(metrics, predictions(classifier, outputs), labels)


def write_answers(
    rows: Sequence[Any], path: Path, columns: Mapping[str, Sequence[Any] | None]
) -> None:
    """Writes one line per example with the class and its probability, or with the regression score.

    For multi-label classification, each cell is a JSON list. The other columns follow, except empty
    columns.
    """
    if isinstance(rows[0], list):
        rows = [
            {f"{name}s": json.dumps([label[name] for label in row]) for name in ("label", "score")}
            for row in rows
        ]
    given = {name: values for name, values in columns.items() if values is not None and len(values)}
    rows = [
        {**row, **{name: values[index] for name, values in given.items()}}
        for index, row in enumerate(rows)
    ]
    with (
        atomic.atomic_path(path) as temporary,
        open(temporary, "w", encoding="utf-8", newline="") as file,
    ):
        writer = csv.DictWriter(file, list(rows[0]), delimiter="\t")
        writer.writeheader()
        writer.writerows(rows)
