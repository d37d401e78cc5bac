# SPDX-License-Identifier: Apache-2.0
"""Compares the exports of a classifier or a regression: size, speed, scores and changed answers.

    python -m training.compare_exports --model=runs/finetune/seed_1/model.keras \\
        --data_file=dev.csv --calibration_file=train.csv --text=review --label=stars

Exports the model in each format and precision, runs them all on the rows of --data_file in this
process, and prints a table: which is small and fast enough, and what is lost. The exports take
turns, so that other work on the machine affects all of them alike, and processor time is measured,
so that it hardly affects them. Writes the exports and compare_exports.json to --output_dir; exports
that are there already are not written again.
"""

from __future__ import annotations

import dataclasses
import os
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from absl import flags, logging

from keras_bert import atomic

from .engine import program
from .engine.config_flags import define_flags, read_flags
from .engine.options import check_at_least
from .export import megabytes
from .readers.labelled_text import LabelledText, TextColumns
from .scores import classifier_scores

Features = dict[str, np.ndarray[Any, Any]]
# Token ids to logits
Network = Callable[[Features], np.ndarray[Any, Any]]

# OpenVINO computes a file in float32 in the precision that it is told.
_PRECISIONS = {
    "tf_saved_model": ("float32", "bfloat16"),
    "onnx": ("float32", "int8"),
    "openvino": ("float32", "bfloat16", "int8"),
    "litert": ("float32", "int8"),
}
_BATCH_SIZE = 32  # of the rows that are scored
_MOST_TIMED = 64  # rows of the file that are timed


@dataclasses.dataclass(frozen=True)
class CompareExportsConfig(TextColumns):
    """The model, the rows, and what is compared.

    Args:
        model: The .keras file of a classifier or a regression.
        data_file: Labeled rows, which are scored and timed.
        calibration_file: Texts like those that will be served, for openvino:int8, such as the
            training file.
        calibration_rows: Number of rows of that file to use.
        exports: What is compared, each format:precision. The first one is the standard of speed.
            Formats: tf_saved_model (float32, bfloat16), onnx (float32, int8), openvino (float32,
            bfloat16, int8), litert (float32, int8).
        batches: What is timed: a number of rows, at their own lengths, or rows x tokens, such as
            8x128.
        rounds: Number of times that each export is measured.
        seconds: Duration of a measurement, in seconds.
        threads: Number of threads that a runtime uses.
        output_dir: Folder to write to.
    """

    model: str = ""
    data_file: str = ""
    calibration_file: str = ""
    calibration_rows: int = 300
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
    rounds: int = 6
    seconds: float = 0.5
    threads: int = 1
    output_dir: str = "runs/exports"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_at_least(self, 1, "calibration_rows", "rounds", "threads")
        for name in self.exports:
            format, _, dtype = name.partition(":")
            if dtype not in _PRECISIONS.get(format, ()):
                known = [f"{one}:{other}" for one in _PRECISIONS for other in _PRECISIONS[one]]
                raise ValueError(f"--exports has {name!r}, expected some of {', '.join(known)}")
        for name in self.batches:
            if not all(part.isdecimal() and int(part) for part in name.split("x", 1)):
                raise ValueError(f"--batches has {name!r}, expected rows, or rows x tokens: 8x128")
        if not self.exports:
            raise ValueError("--exports is empty, expected formats with their precisions")


@dataclasses.dataclass
class Export:
    """What is found out about one export.

    Args:
        name: `format:precision`.
        megabytes: Size of its files.
        scores: The score of each metric, in percent.
        changed: Percentage of the rows whose class differs from that of the model in float32;
            `None` for a regression.
        largest_move: The largest difference of a probability, or of a predicted score, from the
            model in float32.
        milliseconds: Processor time of a row, by the name of a batch: the median of the rounds.
        speed: By the name of a batch, how many times as fast it is as the first export.
        unavailable: Why there are no results; empty if there are.
    """

    name: str
    megabytes: float = 0.0
    scores: dict[str, float] = dataclasses.field(default_factory=dict)
    changed: float | None = None
    largest_move: float = 0.0
    milliseconds: dict[str, float] = dataclasses.field(default_factory=dict)
    speed: dict[str, float] = dataclasses.field(default_factory=dict)
    unavailable: str = ""


def main(arguments: list[str]) -> None:
    program.refuse_arguments(arguments)
    config = read_flags(CompareExportsConfig)
    program.require(program.TRAINING_LIBRARIES, "training")
    # Read when TensorFlow starts
    os.environ |= dict.fromkeys(
        ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS"), str(config.threads)
    )
    for row in compare(config):
        if row.unavailable:
            logging.warning("%s: %s", row.name, row.unavailable)


def compare(config: CompareExportsConfig) -> list[Export]:
    """Prints the table, writes compare_exports.json, and returns the results, one for each export.

    Raises:
        FileNotFoundError: If a file does not exist.
        ValueError: If the model is no classifier or regression, or a file is malformed.
    """
    for name in ("model", "data_file"):
        if not Path(getattr(config, name)).is_file():
            raise FileNotFoundError(f"--{name}={getattr(config, name)} does not exist")
    calibration = None
    if "openvino:int8" in config.exports:
        if not Path(config.calibration_file).is_file():
            raise FileNotFoundError(
                f"--calibration_file={config.calibration_file} does not exist; openvino:int8 needs "
                "texts like those that will be served"
            )
        calibration = config.read_text(config.calibration_file, labelled=False).inputs
        calibration = calibration[: config.calibration_rows]
    program.import_quietly()
    import keras_bert

    task = keras_bert.load_model(config.model, compile=False)
    if not isinstance(task, keras_bert.TextClassifier):
        raise ValueError(f"{config.model} holds a {type(task).__name__}, expected a TextClassifier")
    names = None if task.is_regression else task.class_names
    data = config.read_text(config.data_file, names, task.is_regression)
    rows, networks = [], {}
    for name in config.exports:
        path = _export(task, name, data, calibration, Path(config.output_dir))
        rows.append(Export(name, megabytes=megabytes(path)))
        try:
            networks[name] = _network(name, path, config.threads)
        except ImportError as error:
            rows[-1].unavailable = str(error)
    _score(rows, networks, task, data)
    _measure(rows, networks, _timed_batches(task, data, config.batches), config)
    table = format_table(rows, config.batches)
    print(table)
    results = {
        "config": dataclasses.asdict(config),
        "exports": [dataclasses.asdict(row) for row in rows],
    }
    atomic.write_json(Path(config.output_dir, "compare_exports.json"), results)
    return rows


def format_table(rows: Sequence[Export], batches: Sequence[str]) -> str:
    """Returns the results as a Markdown table."""
    metrics = list(next((row.scores for row in rows if row.scores), {}))
    speed = f"times as fast: {' / '.join(map(_batch_title, batches))}"
    heads = ["export", "MB", speed, *metrics, "changed labels", "largest move"]
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for row in rows:
        cells = [row.name, f"{row.megabytes:.1f}"]
        if row.unavailable:
            cells += [f"not measured: {row.unavailable}", *[""] * (len(heads) - 3)]
        else:
            cells += [
                " / ".join(f"{row.speed[name]:.2f}" for name in batches),
                *(f"{row.scores[name]:.2f}" for name in metrics),
                "" if row.changed is None else f"{row.changed:.2f} %",
                f"{row.largest_move:.3f}",
            ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _batch_title(name: str) -> str:
    count, _, length = name.partition("x")
    if length:
        return f"{count} x {length} tokens"
    return "1 row" if count == "1" else f"{count} rows"


# === Exports ===


def _export(task: Any, name: str, data: LabelledText, calibration: Any, folder: Path) -> Path:
    """Writes an export unless it exists, and returns its path."""
    from keras_bert.export.exporting import SUFFIXES

    format, _, dtype = name.partition(":")
    written_as = "float32" if (format, dtype) == ("openvino", "bfloat16") else dtype
    path = folder / f"{format}_{written_as}" / f"1{SUFFIXES[format][0]}"
    if path.exists():
        logging.info("%s is there already", path)
        return path
    logging.info("exporting %s", path)
    path.parent.mkdir(parents=True, exist_ok=True)
    options: dict[str, Any] = {}
    if format == "tf_saved_model":
        options = {"warm_up": False, "pair": data.text_pairs is not None}
    if name == "openvino:int8":
        options["calibration"] = calibration
    if format == "litert":
        options["sequence_length"] = task.preprocessor.sequence_length
    task.export(path, format, dtype=written_as, **options)
    return path


def _network(name: str, path: Path, threads: int) -> Network:
    """Loads an export in its runtime.

    Raises:
        ImportError: If the runtime is not installed.
    """
    format, _, dtype = name.partition(":")
    if format == "tf_saved_model":
        import tensorflow as tf
        import tensorflow_text  # noqa: F401  # registers the tokenizer's operations

        loaded = tf.saved_model.load(str(path))
        signature = loaded.signatures["serve_ids"]

        # Those of single texts have no segment ids, and padding is known by its ids
        names = signature.structured_input_signature[1]

        def run_saved_model(features: Features, loaded: Any = loaded) -> np.ndarray[Any, Any]:
            tensors = {key: tf.constant(features[key]) for key in names}
            logits: np.ndarray[Any, Any] = signature(**tensors)["logits"].numpy()
            return logits

        return run_saved_model
    if format == "onnx":
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = threads
        session = onnxruntime.InferenceSession(path, options)
        return lambda features: session.run(["logits"], features)[0]
    if format == "openvino":
        import openvino

        settings = {"INFERENCE_NUM_THREADS": threads}
        if dtype != "int8":
            settings["INFERENCE_PRECISION_HINT"] = {"float32": "f32", "bfloat16": "bf16"}[dtype]
        model = openvino.compile_model(path, "CPU", settings)
        return lambda features: np.array(model(features)["logits"])
    import tensorflow as tf

    runner = tf.lite.Interpreter(str(path), num_threads=threads).get_signature_runner()
    length = runner.get_input_details()["token_ids"]["shape_signature"][1]

    def run_litert(features: Features) -> np.ndarray[Any, Any]:
        padded = {
            key: np.pad(value, ((0, 0), (0, length - value.shape[1])))
            for key, value in features.items()
        }
        logits: np.ndarray[Any, Any] = runner(**padded)["logits"]
        return logits

    return run_litert


# === Scores ===


def _score(
    rows: Sequence[Export], networks: Mapping[str, Network], task: Any, data: LabelledText
) -> None:
    """Scores all exports on all rows of the data, and compares them with the model in float32."""
    import keras

    batches = [
        (_ids(batch[0]), np.asarray(batch[1]))
        for batch in task.evaluation_batches(data.inputs, data.labels, batch_size=_BATCH_SIZE)
    ]
    labels = np.concatenate([labels for _, labels in batches])
    expected = _answers(
        [keras.ops.convert_to_numpy(task(features, training=False)) for features, _ in batches],
        task.is_regression,
    )
    for row in rows:
        if row.name not in networks:
            continue
        logging.info("scoring %s", row.name)
        logits = [networks[row.name](features) for features, _ in batches]
        answers = _answers(logits, task.is_regression)
        predictions = answers[:, 0] if task.is_regression else np.argmax(answers, axis=-1)
        metrics = classifier_scores.metrics_for(task.num_classes)
        row.scores = classifier_scores.score(metrics, predictions, labels)
        row.largest_move = float(np.max(np.abs(answers - expected)))
        if not task.is_regression:
            row.changed = 100 * float(np.mean(predictions != np.argmax(expected, axis=-1)))


def _ids(features: Mapping[str, Any]) -> Features:
    return {name: np.asarray(values, "int32") for name, values in features.items()}


def _answers(logits: Sequence[np.ndarray[Any, Any]], is_regression: bool) -> Any:
    """Returns probabilities `(rows, classes)`, or scores `(rows, 1)`."""
    from scipy.special import softmax

    joined = np.concatenate([np.asarray(part, "float32") for part in logits])
    return joined if is_regression else softmax(joined, axis=-1)


# === Speed ===


def _timed_batches(
    task: Any, data: LabelledText, names: Sequence[str]
) -> dict[str, list[Features]]:
    """Returns batches of token ids, by their names."""
    texts = data.inputs[:_MOST_TIMED]
    batches = {}
    for name in names:
        count, _, length = name.partition("x")
        if length:
            ids = np.concatenate(
                [
                    np.asarray(features["token_ids"]).reshape(-1)
                    for features, *_ in task.evaluation_batches(texts, batch_size=1)
                ]
            )
            shape = (int(count), int(length))
            # Real tokens without padding
            batches[name] = [
                {
                    "token_ids": np.resize(ids, shape).astype("int32"),
                    "segment_ids": np.zeros(shape, "int32"),
                    "padding_mask": np.ones(shape, "int32"),
                }
            ]
        else:
            batches[name] = [
                _ids(features)
                for features, *_ in task.evaluation_batches(texts, batch_size=int(count))
            ]
    return batches


def _measure(
    rows: Sequence[Export],
    networks: Mapping[str, Network],
    batches: Mapping[str, Sequence[Features]],
    config: CompareExportsConfig,
) -> None:
    """Times the exports in turns, and adds the medians to the rows."""
    found: dict[tuple[str, str], list[float]] = {}
    for network in networks.values():
        for batch in (features for part in batches.values() for features in part):
            network(batch)  # traces and allocates
    for number in range(config.rounds):
        logging.info("round %d of %d", number + 1, config.rounds)
        for kind, part in batches.items():
            for name, network in networks.items():
                found.setdefault((name, kind), []).append(_seconds(network, part, config.seconds))
    for row in rows:
        if row.name not in networks:
            continue
        for kind in batches:
            row.milliseconds[kind] = 1000 * statistics.median(found[row.name, kind])
    first = next(row for row in rows if row.milliseconds)
    for row in rows:
        row.speed = {
            kind: first.milliseconds[kind] / value for kind, value in row.milliseconds.items()
        }


def _seconds(network: Network, batches: Sequence[Features], least: float) -> float:
    """Returns the processor time of a row, in seconds, of runs over all batches."""
    begin, count = time.process_time(), 0
    while True:
        for batch in batches:
            network(batch)
            count += len(batch["token_ids"])
        taken = time.process_time() - begin
        if taken >= least:
            return taken / count


if __name__ == "__main__":
    define_flags(CompareExportsConfig(), flags.FLAGS)
    program.run(main)
