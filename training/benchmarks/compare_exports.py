# SPDX-License-Identifier: Apache-2.0
"""Compares the size, speed, scores and predictions of a model's exports.

    python -m training.benchmarks.compare_exports --model=runs/reviews/seed_1/model.keras \\
        --data_file=dev.csv --calibration_file=train.csv --text=review --label=stars
    python -m training.benchmarks.compare_exports --model=runs/squad/seed_1/model.keras \\
        --data_file=dev-v1.1.json --calibration_file=train-v1.1.json --data_rows=1000

Exports a classifier, a regression model or a question answerer in each format and precision. Runs
all exports on the examples of --data_file in this process. Prints a table that shows which export
is small and fast enough, and what it loses. Scores and predictions are compared with the float32
SavedModel. The timed rounds alternate between the exports, so other work on the machine affects all
exports equally. The processor time of one thread is measured, so other work hardly affects it.
Writes the exports and compare_exports.json to --output_dir.
"""

from __future__ import annotations

import dataclasses
import os
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from absl import logging

from keras_bert import atomic
from keras_bert.export import FORMATS
from keras_bert.progress import bar
from keras_bert.tables import markdown_table

from ..engine import program
from ..engine.options import NonNegativeInt, PositiveInt
from ..engine.saved_models import check_model
from ..export import megabytes
from ..readers.labeled_text import TextColumns, read_labeled_text
from ..readers.question_files import read_questions
from ..scores import classifier_scores, question_scores
from .export_runtimes import RUNTIMES, THREADS, Arrays, Network

_PRECISIONS = {name: FORMATS[name].dtypes for name in RUNTIMES}
# OpenVINO runs a float32 file in the precision of its settings.
_PRECISIONS["openvino"] += ("bfloat16",)
_REFERENCE = "tf_saved_model:float32"
_BATCH_SIZE = 32  # for scoring
_MOST_TIMED = 64  # examples


@dataclasses.dataclass(frozen=True)
class CompareExportsConfig(TextColumns):
    """The model, the data and the exports to compare.

    Args:
        model: The .keras file. It must contain a classifier, regression model or question answerer.
        data_file: Labeled examples to score and time. For a question answerer, a SQuAD JSON file.
        data_rows: Number of examples in data_file to use, at equal distances. 0 uses all.
        calibration_file: Typical texts or questions, for example the training file. Required for
            tf_saved_model:int8 and openvino:int8.
        calibration_rows: Number of examples in calibration_file to use, at equal distances.
        exports: The exports to compare, each format:precision. Speed is relative to the first
            export. Formats are tf_saved_model (float32, bfloat16, int8), onnx (float32, int8),
            openvino (float32, bfloat16, int8) and litert (float32, int8).
        batches: The batches to time. Either a number of examples with their own lengths, or
            examples x tokens, such as 8x128. For a question answerer, the examples are passage
            windows.
        rounds: Number of times that each export is timed.
        output_dir: Directory for the outputs.
    """

    model: str = ""
    data_file: str = ""
    data_rows: NonNegativeInt = 0
    calibration_file: str = ""
    calibration_rows: PositiveInt = 300
    exports: tuple[str, ...] = (
        "tf_saved_model:bfloat16",
        "tf_saved_model:float32",
        "onnx:float32",
        "onnx:int8",
        "openvino:float32",
        "openvino:bfloat16",
        "openvino:int8",
    )
    batches: tuple[str, ...] = ("1", "16", "8x128")
    rounds: PositiveInt = 6
    output_dir: str = "runs/exports"

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in self.exports:
            format, _, dtype = name.partition(":")
            if dtype not in _PRECISIONS.get(format, ()):
                names = [f"{one}:{other}" for one in _PRECISIONS for other in _PRECISIONS[one]]
                raise ValueError(f"--exports must be among {', '.join(names)}. Received: {name!r}")
        for name in self.batches:
            if not all(part.isdecimal() and int(part) for part in name.split("x", 1)):
                raise ValueError(
                    "--batches must be examples, or examples x tokens as in 8x128. Received: "
                    f"{name!r}"
                )


@dataclasses.dataclass
class Export:
    """An export's measurements.

    Args:
        name: `format:precision`.
        megabytes: Size of the export's files.
        scores: The score by metric, in percent except for `mse`.
        change: The difference to the float32 SavedModel's score, by metric.
        changed: Percentage of examples with a different class or answer than the float32
            SavedModel's prediction. `None` for regression.
        largest_move: The maximum difference to the float32 SavedModel's probabilities or predicted
            scores.
        milliseconds: Processor time per example, by the name of the batch. It is the median over
            the rounds.
        speed: The speed relative to the first export, by the name of the batch.
        unavailable: The reason why there are no results, or an empty string.
    """

    name: str
    megabytes: float = 0.0
    scores: dict[str, float] = dataclasses.field(default_factory=dict)
    change: dict[str, float] = dataclasses.field(default_factory=dict)
    changed: float | None = None
    largest_move: float = 0.0
    milliseconds: dict[str, float] = dataclasses.field(default_factory=dict)
    speed: dict[str, float] = dataclasses.field(default_factory=dict)
    unavailable: str = ""


@dataclasses.dataclass(frozen=True)
class ComparedPredictions:
    """A network's predictions for the examples.

    Args:
        scores: The score by metric.
        labels: The classes or answer texts, `(examples,)`. `None` for regression.
        numbers: The probabilities of classes or answers, or the predicted scores.
    """

    scores: dict[str, float]
    labels: np.ndarray[Any, Any] | None
    numbers: np.ndarray[Any, Any]


def main(config: CompareExportsConfig) -> None:
    program.require(program.TRAINING_LIBRARIES, "training")
    # TensorFlow reads these variables when it starts.
    os.environ |= dict.fromkeys(("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS"), str(THREADS))
    compare(config)


def compare(config: CompareExportsConfig) -> list[Export]:
    """Prints the table, writes compare_exports.json, and returns the results of each export.

    Raises:
        FileNotFoundError: If a file does not exist.
        ValueError: If the model is not supported or a file is invalid.
    """
    check_model(config.model)
    if not Path(config.data_file).is_file():
        raise FileNotFoundError(
            f"--data_file must be an existing file. Received: {config.data_file!r}"
        )
    calibrated = [name for name in config.exports if _is_calibrated(name)]
    if calibrated and not Path(config.calibration_file).is_file():
        raise FileNotFoundError(
            f"--calibration_file must be an existing file, because {calibrated[0]} requires "
            f"typical texts. Received: {config.calibration_file!r}"
        )
    program.import_quietly("tensorflow")
    import keras_bert

    task = keras_bert.load_model(config.model, compile=False)
    kinds: dict[str, type[_Texts | _Questions]] = {"classify": _Texts, "answer": _Questions}
    if getattr(task, "predict_method", "") not in kinds:
        raise ValueError(
            f"--model must be a TextClassifier or a QuestionAnswerer. Received: {config.model}, "
            f"which is a {type(task).__name__}"
        )
    rows = kinds[task.predict_method](task, config)
    names = tuple(task.output) if isinstance(task.output, dict) else (task.output_name,)
    exports, networks = {}, {}
    for name in dict.fromkeys((_REFERENCE, *config.exports)):
        path = _export(task, name, rows, Path(config.output_dir))
        exports[name] = Export(name, megabytes(path))
        try:
            format, _, dtype = name.partition(":")
            networks[name] = RUNTIMES[format](path, dtype, names)
        except ImportError as error:
            logging.warning("%s: %s", name, error)
            exports[name].unavailable = str(error)
    reference = _answers(networks[_REFERENCE], rows)
    table = [exports[name] for name in config.exports]
    available = {export.name: networks[export.name] for export in table if not export.unavailable}
    times = _times(available, _timed_batches(task, rows.inputs, config.batches), config.rounds)
    for name, network in available.items():
        export, answers = exports[name], _answers(network, rows)
        export.scores = answers.scores
        export.change = {
            metric: score - reference.scores[metric] for metric, score in answers.scores.items()
        }
        if answers.labels is not None:
            export.changed = 100 * float(np.mean(answers.labels != reference.labels))
        export.largest_move = float(np.max(np.abs(answers.numbers - reference.numbers)))
        export.milliseconds = times[name]
        first = times[next(iter(available))]
        export.speed = {batch: first[batch] / value for batch, value in times[name].items()}
    print(format_table(table, config.batches))
    results = {
        "config": dataclasses.asdict(config),
        "exports": [dataclasses.asdict(export) for export in table],
    }
    atomic.write_json(Path(config.output_dir, "compare_exports.json"), results)
    return table


def format_table(exports: Sequence[Export], batches: Sequence[str]) -> str:
    """Formats the results as a Markdown table."""
    metrics = list(next((export.scores for export in exports if export.scores), {}))
    heads = ["export", "MB", f"times as fast: {' / '.join(map(_batch_title, batches))}"]
    for metric in metrics:
        heads += [metric, "change"]
    heads += ["changed answers", "largest move"]
    rows = []
    for export in exports:
        cells = [export.name, f"{export.megabytes:.1f}"]
        if export.unavailable:
            cells += [f"not measured: {export.unavailable}", *[""] * (len(heads) - 3)]
        else:
            cells.append(" / ".join(f"{export.speed[name]:.2f}" for name in batches))
            for metric in metrics:
                cells += [f"{export.scores[metric]:.2f}", f"{export.change[metric]:+.2f}"]
            changed_share = "" if export.changed is None else f"{export.changed:.2f}%"
            cells += [changed_share, f"{export.largest_move:.3f}"]
        rows.append(cells)
    return markdown_table(heads, rows)


def _batch_title(name: str) -> str:
    count, _, length = name.partition("x")
    if length:
        return f"{count} x {length} tokens"
    return "1 row" if count == "1" else f"{count} rows"


# === The examples ===


class _Texts:
    """Labeled texts or text pairs, for a classifier or a regression model.

    Attributes:
        inputs: The inputs, as `evaluation_batches` accepts them.
        pair: Whether the inputs are text pairs.
        batches: The features in batches.
        calibration: Inputs for calibration.
    """

    def __init__(self, task: Any, config: CompareExportsConfig) -> None:
        names = None if task.is_regression else task.class_names
        data = read_labeled_text(config.data_file, config, names, regression=task.is_regression)
        data = data.rows(_spread(len(data), config.data_rows))
        self.inputs: Sequence[Any] = data.inputs
        self.pair = data.text_pairs is not None
        self.calibration: Sequence[Any] = ()
        if config.calibration_file:
            texts = read_labeled_text(config.calibration_file, config, labeled=False).inputs
            self.calibration = [texts[row] for row in _spread(len(texts), config.calibration_rows)]
        batches = list(task.evaluation_batches(data.inputs, data.labels, batch_size=_BATCH_SIZE))
        self.batches = [_ids(features) for features, _ in batches]
        self._labels = np.concatenate([np.asarray(labels) for _, labels in batches])
        self._metrics = classifier_scores.metrics_for(task.num_classes)
        self._is_regression = task.is_regression

    def answers(self, outputs: Sequence[Arrays]) -> ComparedPredictions:
        """Returns the predictions, given the outputs for each batch."""
        from scipy.special import softmax

        logits = np.concatenate([output["logits"].astype("float32") for output in outputs])
        labels = None if self._is_regression else np.argmax(logits, axis=-1)
        predictions = logits[:, 0] if labels is None else labels
        scores = classifier_scores.score(self._metrics, predictions, self._labels)
        return ComparedPredictions(
            scores, labels, logits if labels is None else softmax(logits, axis=-1)
        )


class _Questions:
    """Questions and passages, for a question answerer; see `_Texts`."""

    pair = False

    def __init__(self, task: Any, config: CompareExportsConfig) -> None:
        from keras_bert.data.adapters.questions import window_batches
        from keras_bert.data.batch_options import BatchOptions
        from keras_bert.data.questions import question_rows

        file = read_questions(config.data_file, encoding=config.encoding)
        self.inputs = [file.examples[row] for row in _spread(len(file.examples), config.data_rows)]
        self.calibration: Sequence[Any] = ()
        if config.calibration_file:
            path, encoding = config.calibration_file, config.encoding
            examples = read_questions(path, labeled=False, encoding=encoding).examples
            indices = _spread(len(examples), config.calibration_rows)
            self.calibration = [(examples[row].question, examples[row].context) for row in indices]
        self._task = task
        self._golds = question_scores.gold_answers(self.inputs, file.has_unanswerable)
        self._windows = question_rows(self.inputs, task.preprocessor)
        options = BatchOptions(_BATCH_SIZE)
        self._batches = list(window_batches(self._windows, task.preprocessor, options))
        self.batches = [_ids(features) for features, _ in self._batches]

    def answers(self, outputs: Sequence[Arrays]) -> ComparedPredictions:
        """Returns the predictions, given the outputs for each batch."""
        from keras_bert.tasks.answer_spans import find_answer_spans
        from keras_bert.tasks.question_answerer import logits_of_tokens

        def outputs_of_batches() -> Iterator[Any]:
            for (features, index), output in zip(self._batches, outputs, strict=True):
                # Exports with a fixed length have more padding.
                length = features["token_ids"].shape[1]
                yield features, index, {name: x[:, :length] for name, x in output.items()}

        logits = logits_of_tokens(self._windows, outputs_of_batches())
        spans = find_answer_spans(
            self._windows,
            logits["start_logits"],
            logits["end_logits"],
            max_answer_length=self._task.max_answer_length,
        )
        contexts = [example.context for example in self.inputs]
        answers = spans.answers(contexts, self._task.null_threshold)
        texts = [answer["answer"] for answer in answers]
        best = question_scores.best_by_key(self.inputs, texts, spans.best_scores.tolist())
        numbers = np.array([answer["score"] for answer in answers])
        return ComparedPredictions(self._golds.scores(best), np.array(texts), numbers)


def _answers(network: Network, rows: _Texts | _Questions) -> ComparedPredictions:
    return rows.answers([network(features) for features in rows.batches])


def _spread(count: int, number: int) -> list[int]:
    """Returns the indices of `number` examples at equal distances. 0 returns all indices."""
    if not 0 < number < count:
        return list(range(count))
    return np.linspace(0, count - 1, number).astype(int).tolist()


def _ids(features: Mapping[str, Any]) -> Arrays:
    return {name: np.asarray(values, "int32") for name, values in features.items()}


# === Exports ===


def _is_calibrated(name: str) -> bool:
    format, _, dtype = name.partition(":")
    return dtype == "int8" and FORMATS[format].is_calibrated


def _export(task: Any, name: str, rows: _Texts | _Questions, directory: Path) -> Path:
    """Writes an export in `format:precision` and returns its path."""
    format, _, dtype = name.partition(":")
    dtype = "float32" if name == "openvino:bfloat16" else dtype
    directory /= f"{format}_{dtype}"
    path = directory / f"1{FORMATS[format].suffixes[0]}"
    logging.info("exporting %s", path)
    directory.mkdir(parents=True, exist_ok=True)
    options: dict[str, Any] = {}
    if format == "tf_saved_model":
        options = {"warm_up": False, "pair": rows.pair}
    if _is_calibrated(name):
        options["calibration"] = rows.calibration
    if FORMATS[format].has_fixed_length:
        options["sequence_length"] = task.preprocessor.sequence_length
    task.export(path, format, dtype=dtype, overwrite=True, **options)
    return path


# === Speed ===


def _timed_batches(
    task: Any, inputs: Sequence[Any], names: Sequence[str]
) -> dict[str, list[Arrays]]:
    """Returns batches of token ids by their names."""
    texts = [inputs[row] for row in _spread(len(inputs), _MOST_TIMED)]

    def batches(count: int) -> list[Arrays]:
        rows = task.evaluation_batches(texts, batch_size=count)
        return [_ids(features) for features, *_ in rows]

    result = {}
    for name in names:
        count, _, length = name.partition("x")
        if length:
            # Non-padding tokens only
            ids = np.concatenate([features["token_ids"].reshape(-1) for features in batches(1)])
            token_ids = np.resize(ids, (int(count), int(length)))
            features = {"token_ids": token_ids, "segment_ids": np.zeros_like(token_ids)}
            result[name] = [{**features, "padding_mask": np.ones_like(token_ids)}]
        else:
            result[name] = batches(int(count))
    return result


def _times(
    networks: Mapping[str, Network], batches: Mapping[str, Sequence[Arrays]], rounds: int
) -> dict[str, dict[str, float]]:
    """Returns milliseconds per example by network and batch, from alternating rounds."""
    times: dict[str, dict[str, list[float]]] = {
        name: {kind: [] for kind in batches} for name in networks
    }
    with bar("timing", rounds, "rounds") as progress:
        for number in range(rounds + 1):
            for kind, part in batches.items():
                count = sum(len(features["token_ids"]) for features in part)
                for name, network in networks.items():
                    start = time.process_time()
                    for features in part:
                        network(features)
                    if number:  # The first round also traces and allocates.
                        seconds = time.process_time() - start
                        times[name][kind].append(1000 * seconds / count)
            progress.update(bool(number))
    return {
        name: {kind: statistics.median(values) for kind, values in own.items()}
        for name, own in times.items()
    }


if __name__ == "__main__":
    program.run(main, CompareExportsConfig)
