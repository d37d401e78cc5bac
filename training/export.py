# SPDX-License-Identifier: Apache-2.0
"""Exports a trained model for serving: a SavedModel that accepts text, or another format.

    python -m training.export --model=runs/reviews/seed_1/model.keras --output=export/sst2/1
    python -m training.export --model=runs/reviews/seed_1/model.keras --deploy_to=models/sst2
    python -m training.export --model=runs/reviews/seed_1/model.keras --output=sst2_hf \\
        --export_format=hugging_face
    python -m training.export --model=runs/reviews/seed_1/model.keras --output=sst2.xml \\
        --takes_text --dtype=int8 --calibration_file=reviews.csv --text=review
    python -m training.export --model=runs/reviews/seed_1/model.keras --output=sst2.tflite \\
        --export_format=mediapipe
    python -m training.export --model='runs/reviews/seed_*/model.keras' --output=export/sst2/1

Multiple models are exported as one model, an ensemble that averages their predictions.
`--deploy_to` adds a version to a directory that a running TensorFlow Serving watches. The new
version gets the next number, and appears atomically. A directory in the Hugging Face format
includes a model card, generated from the results.json of the training run.
"""

from __future__ import annotations

import dataclasses
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from keras_bert.atomic import check_replaceable
from keras_bert.export import FORMATS
from keras_bert.export.own_files import check_exports

from .engine import example_request, output_directory, program, run_report, saved_models
from .engine.options import (
    NonNegativeInt,
    PositiveInt,
    TextFileOptions,
    check_formats,
    check_one_of,
    check_unset,
    naming_flags,
)
from .readers.data_files import exists
from .readers.labeled_text import TextColumns, read_labeled_text

_SAVED_MODEL, _HUGGING_FACE = "tf_saved_model", "hugging_face"


@dataclasses.dataclass(frozen=True)
class ExportConfig(TextFileOptions):
    """The model, and the export to write.

    Args:
        model: A task's .keras file, or a checkpoint (minilm, hf://organization/model or its
            directory), which is exported as the task whose head it contains. Multiple files,
            separated by commas or given by wildcards such as seed_*/model.keras, are exported as
            one model, an ensemble.
        output: The path to write: a directory whose name is a version number for a SavedModel, a
            file that ends in .onnx, .xml (openvino) or .tflite (litert, mediapipe), or a directory
            (hugging_face and onnx_hugging_face).
        deploy_to: A model's directory on a server. The SavedModel is added as the next version. Can
            be combined with --output.
        push_to: The model on the Hugging Face Hub, as organization/model, to upload in the format
            hugging_face. Replaces --output.
        results: For hugging_face, the results.json to use for the model card. Defaults to the
            results of the model's run.
        license: For hugging_face, the license of the weights, such as apache-2.0.
        export_format: One of auto, tf_saved_model, onnx, onnx_hugging_face (a directory for
            transformers.js and other clients), openvino, litert, mediapipe and hugging_face. auto
            infers the format from --output.
        dtype: One of float32 and int8, and for a SavedModel also bfloat16.
        pair: Whether a classifier accepts two texts. By default, it does if it was trained on
            pairs.
        takes_text: Whether an OpenVINO model accepts text instead of token IDs. A SavedModel always
            does.
        class_names: Labels in the order of the class IDs. Defaults to the model's own labels.
        sequence_length: The fixed sequence length in tokens, for litert and mediapipe. 0 uses the
            sequence length of the training.
        max_text_bytes: For a SavedModel, the maximum text length in UTF-8 bytes. Longer texts are
            truncated. 0 for no limit.
        padded_batches: Whether a SavedModel is for servers that pad requests with IDs, words or
            choices of different lengths to put them into one batch.
        calibration_file: Texts like those that will be served, in any format that training reads
            (such as .tsv, .csv, .jsonl or .parquet). Required for tf_saved_model and openvino in
            int8. For onnx_hugging_face, the int8 file is not written if it loses more than 0.5
            points on them.
        text: The column of the text in calibration_file, by name or by index from 0. If there is no
            column text, a usual name, such as review, is looked for.
        text_pair: The column of the second text, by name or by index. Empty for single texts.
        calibration_rows: Number of rows to use from calibration_file.
        overwrite: Whether to replace an existing --output that this command wrote.
    """

    model: str = ""
    output: str = ""
    deploy_to: str = ""
    push_to: str = ""
    results: str = ""
    license: str = ""
    export_format: str = "auto"
    dtype: str = "float32"
    pair: bool | None = None
    takes_text: bool = False
    class_names: tuple[str, ...] = ()
    sequence_length: NonNegativeInt = 0
    max_text_bytes: NonNegativeInt = 0
    padded_batches: bool = False
    calibration_file: str = ""
    text: str = "text"
    text_pair: str = ""
    calibration_rows: PositiveInt = 300
    overwrite: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        dtypes = dict.fromkeys(dtype for format in FORMATS.values() for dtype in format.dtypes)
        check_one_of(self, export_format=("auto", *FORMATS, _HUGGING_FACE), dtype=tuple(dtypes))


# Flags that only some formats support, and these formats
_FORMATS_OF = {
    **dict.fromkeys(("dtype", "pair", "class_names"), tuple(FORMATS)),
    **dict.fromkeys(("max_text_bytes", "padded_batches"), (_SAVED_MODEL,)),
    "sequence_length": tuple(name for name, format in FORMATS.items() if format.has_fixed_length),
    **dict.fromkeys(("results", "license"), (_HUGGING_FACE,)),
}
# The flags of the arguments of `Task.export`
_FLAG_OF = {
    **{name: name for name in ("class_names", "dtype", "max_text_bytes", "overwrite", "pair")},
    **{name: name for name in ("padded_batches", "sequence_length")},
    **{"calibration": "calibration_file", "filepath": "output", "format": "export_format"},
    "text": "takes_text",
}
_NO_TEXT = "--takes_text is only for classifiers, regressors and embedders in openvino, but"


def main(config: ExportConfig) -> None:
    print(export(config))


def export(config: ExportConfig) -> str:
    """Writes the export, and returns a report with the files and the next commands.

    Raises:
        FileNotFoundError: If the model does not exist.
        ValueError: If flags contradict each other.
        keras_bert.export.ExportError: If the model cannot be exported.
    """
    is_preset = saved_models.is_preset(config.model)
    files = [] if is_preset else saved_models.model_files(config.model)
    format = _check(config, files)
    if config.calibration_file and config.pair is not False:
        output_directory.check_pairs(files, config.text_pair)
    texts = calibration_texts(config)
    takes_text = config.takes_text or format == _SAVED_MODEL
    pair = config.pair
    if pair is None:
        pair = takes_text and output_directory.reads_pairs(files)
    program.import_quietly()
    from keras_bert.export import deploy

    start = time.perf_counter()
    if is_preset:
        task, model = saved_models.load_preset(config.model), Path(config.model, "config.json")
    else:
        task, model = saved_models.load_task(files), files[0]
    if format == _HUGGING_FACE:
        return _hugging_face(task, config, model)
    if config.takes_text and FORMATS[format].text_packages and not task.is_sequence_level:
        raise ValueError(f"{_NO_TEXT} --model={config.model} is a {type(task).__name__}")
    options = {
        "class_names": config.class_names or None,
        "dtype": config.dtype,
        "pair": pair,
        "sequence_length": config.sequence_length or None,
        "max_text_bytes": config.max_text_bytes or None,
        "padded_batches": config.padded_batches,
        "calibration": texts,
        "text": config.takes_text,
    }
    with tempfile.TemporaryDirectory() as temporary:
        path = Path(config.output or Path(temporary, "1"))
        path.parent.mkdir(parents=True, exist_ok=True)
        with naming_flags(_FLAG_OF):
            task.export(path, format, overwrite=config.overwrite, **options)
        lines = [
            f"{type(task).__name__}, {format}, {config.dtype}: {megabytes(path):.1f} MB in "
            f"{run_report.duration(time.perf_counter() - start)}"
        ]
        if config.output:
            lines.append(f"export   {path}")
        if config.deploy_to:
            lines.append(f"version  {deploy(path, config.deploy_to)}")
    if format == _SAVED_MODEL and config.output:
        fields = (*task.fields, *(task.optional_fields if pair else ()))
        example = output_directory.load_results(model).get("example")
        inputs = "pairs.csv" if pair else "texts.txt"
        lines.append(example_request.next_commands(config.output, inputs, fields, example))
    return "\n".join(lines)


def _hugging_face(task: Any, config: ExportConfig, model: Path) -> str:
    """Writes or uploads a directory in the Hugging Face format."""
    from keras_bert.checkpoints.model_card import CARD_FILE

    results = Path(config.results) if config.results else output_directory.results_file(model)
    if results and not results.is_file():
        raise FileNotFoundError(f"--results={config.results} does not exist")
    card = {"results": results, "license": config.license or None}
    if config.push_to:
        return f"uploaded {task.push_to_hub(config.push_to, **card)}"
    directory = Path(config.output)
    task.save_hugging_face(directory, **card)
    return f"export   {directory}\ncard     {directory / CARD_FILE}"


def _check(config: ExportConfig, files: Sequence[Path]) -> str:
    """Checks the flags against each other, and returns the format.

    The library would also raise errors, but they would contain its arguments instead of the flags.
    """
    if not (config.output or config.deploy_to or config.push_to):
        raise ValueError("pass --output, --deploy_to or --push_to")
    if config.push_to and (config.output or config.export_format not in ("auto", _HUGGING_FACE)):
        raise ValueError(
            f"--push_to must be used without --output and with the format {_HUGGING_FACE}. "
            f"Received: --output={config.output} --export_format={config.export_format}. Run the "
            "command a second time without --push_to"
        )
    if config.overwrite and not config.output:
        raise ValueError("--overwrite must be used with --output")
    format = _HUGGING_FACE if config.push_to else config.export_format
    if format == "auto":
        format = _infer_format(config.output)
    if config.deploy_to and format != _SAVED_MODEL:
        raise ValueError(f"--deploy_to is only supported for {_SAVED_MODEL}. Received: {format}")
    ensembles = [name for name, each in FORMATS.items() if each.supports_ensembles]
    if format not in ensembles and len(files) > 1:
        raise ValueError(
            f"--model must be a single model for the format {format}. Received: {len(files)} "
            f"models. An ensemble can be exported as {', '.join(ensembles)}"
        )
    check_formats(config, _FORMATS_OF, [format])
    if config.calibration_file and not exists(Path(config.calibration_file)):
        raise FileNotFoundError(f"--calibration_file={config.calibration_file} does not exist")
    if not config.calibration_file:
        names = ["text", "text_pair", "encoding", "calibration_rows"]
        check_unset(config, names, "--calibration_file is not given")
    known_format = FORMATS.get(format)
    if config.takes_text and (known_format is None or known_format.text_packages is None):
        raise ValueError(f"{_NO_TEXT} the format is {format}")
    is_calibrated = known_format and known_format.is_calibrated and config.dtype == "int8"
    if is_calibrated and not config.calibration_file:
        raise ValueError(
            f"--calibration_file must be given for --dtype=int8 in {format}, with about 300 texts "
            "like those that will be served"
        )
    is_checked = known_format and known_format.includes_int8
    if config.calibration_file and not (is_calibrated or is_checked):
        calibrated = [name for name, each in FORMATS.items() if each.is_calibrated]
        checked = [name for name, each in FORMATS.items() if each.includes_int8]
        raise ValueError(
            f"--calibration_file is only for {' and '.join(calibrated)} in int8, and for "
            f"{' and '.join(checked)}, but the format is {format} in {config.dtype}"
        )
    _check_destinations(config, format)
    return format


def _infer_format(output: str) -> str:
    """Infers the format from a path's suffix. It is the first format with this suffix."""
    suffixes: dict[str, str] = {}
    for name, known_format in FORMATS.items():
        suffixes.setdefault(known_format.suffixes[0], name)
    suffix = Path(output).suffix
    if suffix not in suffixes:
        names = ", ".join(f"{ending} ({name})" for ending, name in suffixes.items() if ending)
        raise ValueError(
            f"--output must end in {names}, or be a directory without a suffix "
            f"({suffixes['']}). Received: {output}. --export_format={suffixes['']} writes a "
            "directory of that name"
        )
    return suffixes[suffix]


def _check_destinations(config: ExportConfig, format: str) -> None:
    """Checks that --output can be written, and that --deploy_to can be used as a directory."""
    output, deploy_to = Path(config.output), Path(config.deploy_to)
    directories = [("output", directory) for directory in output.parents]
    directories += [("deploy_to", directory) for directory in (deploy_to, *deploy_to.parents)]
    for flag, directory in directories:
        if directory.is_file():
            raise NotADirectoryError(
                f"--{flag} must be in a directory. Received: {getattr(config, flag)}, but "
                f"{directory} is a file"
            )
    suffixes = FORMATS[format].suffixes[1:] if format in FORMATS else ()
    files = [output, *map(output.with_suffix, suffixes)] if config.output else []
    advice = "" if config.overwrite else "pass --overwrite to replace it"
    if format in FORMATS and files:
        check_exports(files, format, advice)
    elif files:
        program.import_quietly()
        from keras_bert.checkpoints.model_card import has_card

        check_replaceable(files, has_card, advice)


def calibration_texts(config: ExportConfig) -> list[str] | list[tuple[str, str]] | None:
    """Reads the texts or text pairs for calibrating an int8 export."""
    if not config.calibration_file:
        return None
    columns = TextColumns(text=config.text, text_pair=config.text_pair, encoding=config.encoding)
    columns = columns.for_file(config.calibration_file, labeled=False)
    data = read_labeled_text(config.calibration_file, columns, labeled=False)
    return data.inputs[: config.calibration_rows]


def megabytes(path: Path) -> float:
    """Returns an export's size in MB. It is a directory, or a file with its companion files."""
    suffixes = {format.suffixes[0]: format.suffixes for format in FORMATS.values()}
    files = map(path.with_suffix, suffixes[path.suffix]) if path.is_file() else path.rglob("*")
    return sum(file.stat().st_size for file in files if file.is_file()) / 1e6


if __name__ == "__main__":
    program.run(main, ExportConfig)
