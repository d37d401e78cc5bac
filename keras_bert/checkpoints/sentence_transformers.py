# SPDX-License-Identifier: Apache-2.0
"""Reads and writes the options of embedders in sentence-transformers directories."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from keras_bert.checkpoints.config_fields import check_needed
from keras_bert.checkpoints.directories import checkpoint_errors, read_json
from keras_bert.checkpoints.errors import CheckpointError
from keras_bert.checks import POSITIVE_INT, shorten_repr
from keras_bert.vocabularies.files import parse_json, read_text, write_json
from keras_bert.vocabularies.tokenizer_reader import read_tokenizer
from keras_bert.vocabularies.tokenizer_settings import SETTINGS_FILE

MODULES_FILE = "modules.json"
POOLING_FILE = "1_Pooling/config.json"
LENGTH_FILES = tuple(
    f"sentence_{name}_config.json"
    for name in ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
)
"""Possible names of the file with the maximum length, tried in this order."""
PROMPTS_FILE = "config_sentence_transformers.json"
SETFIT_HEAD, SETFIT_FILE = "model_head.pkl", "config_setfit.json"
ACTIVATION = "activation_fn"
NORMALIZE_DIRECTORY = "2_Normalize"
SPLADE_FILE = "1_SpladePooling/config.json"
ALL_FILES = (
    MODULES_FILE,
    POOLING_FILE,
    SPLADE_FILE,
    *LENGTH_FILES,
    f"{NORMALIZE_DIRECTORY}/config.json",
    PROMPTS_FILE,
)
"""The names of all files that sentence-transformers adds to a model's files."""

_TRANSFORMER, _POOLING, _NORMALIZE = "Transformer", "Pooling", "Normalize"
_MLM_TRANSFORMER, _SPLADE_POOLING = "MLMTransformer", "SpladePooling"
# The options of a sparse embedder, by their names in its pooling module
_SPLADE_OPTIONS = {"pooling_strategy": "pooling", "activation_function": "activation"}
# Names of pooling modes up to version 5. Version 6 also reads them, and writes the new `MODES`.
_OLD_MODES = {"pooling_mode_mean_tokens": "mean", "pooling_mode_cls_token": "cls"}
MODES = ("mean", "cls")


def read_options(
    directory: Path, max_sequence_length: int, *, sparse: bool = False
) -> dict[str, Any]:
    """Reads the sentence embedding options from a checkpoint directory.

    The options are `pooling` (`"mean"` or `"cls"`), `include_prompt`, `normalize`,
    `sequence_length`, `prompts` and `default_prompt_name`, if the directory specifies them. With
    `sparse`, `pooling` is `"max"` or `"sum"`, and `activation` replaces `include_prompt` and
    `normalize`. Unsupported options that change the embeddings raise an error.
    """
    options: dict[str, Any] = {}
    modules = _modules(directory, sparse)
    if modules:
        path = modules[1].path / "config.json"
        options |= _splade_pooling(path) if sparse else _pooling(path)
        if not sparse:
            options["normalize"] = len(modules) > 2
    length = read_length(directory, uses_settings=bool(modules))
    if length is not None:
        options["sequence_length"] = min(length, max_sequence_length)
    path = directory / PROMPTS_FILE
    fields = read_json(path) if path.exists() else {}
    with checkpoint_errors(path):
        check_needed(fields, {"truncate_dim": ()})
    return options | read_prompts(fields, path)


def read_length(directory: Path, *, uses_settings: bool = True) -> int | None:
    """Reads the maximum sequence length, or returns `None` if no file has it.

    Args:
        directory: The checkpoint directory.
        uses_settings: Whether to read the tokenizer settings too. Since version 6, only they
            contain the length.
    """
    length: Any = None
    paths = [directory / name for name in LENGTH_FILES if (directory / name).exists()]
    if paths:
        fields = read_json(paths[0])
        length = fields.get("max_seq_length")
        if fields.get("do_lower_case"):
            with checkpoint_errors():
                tokenizer = read_tokenizer(directory) or {}
            if not tokenizer.get("lowercase"):
                raise CheckpointError(
                    f"{paths[0]}: do_lower_case must be false for a tokenizer that does not "
                    f"lowercase text. Received: {fields['do_lower_case']!r}"
                )
    if length is None and uses_settings and (directory / SETTINGS_FILE).exists():
        length = read_json(directory / SETTINGS_FILE).get("model_max_length")
    return int(length) if POSITIVE_INT.allows(length) else None


def output_activation(directory: Path, fields: Mapping[str, Any]) -> str | None:
    """Reads the activation that sentence-transformers applies to a cross-encoder's outputs.

    Returns a PyTorch class name, for example `"Sigmoid"`, or `None` if no file has it.
    """
    path, own = directory / PROMPTS_FILE, fields.get("sentence_transformers")
    name = read_json(path).get(ACTIVATION) if path.exists() else None
    name = own.get(ACTIVATION) if name is None and isinstance(own, dict) else name
    # This field was used up to version 3 of sentence-transformers.
    name = fields.get("sbert_ce_default_activation_function") if name is None else name
    if name is None:
        return None
    if not isinstance(name, str) or not name.startswith("torch."):
        raise CheckpointError(
            f"{directory}: a cross-encoder's {ACTIVATION} must be a PyTorch class. Received: "
            f"{name!r}"
        )
    return name.rpartition(".")[2]


def other_head(directory: Path) -> str:
    """Returns a message if a directory has a SetFit head, because it is not loaded, or `""`."""
    if not (directory / SETFIT_HEAD).exists():
        return ""
    path = directory / SETFIT_FILE
    labels = read_json(path).get("labels") if path.exists() else None
    names = (
        f" with the labels {shorten_repr(labels)}" if isinstance(labels, list) and labels else ""
    )
    return (
        f" {SETFIT_HEAD} has SetFit's head{names}. It is never loaded, because it is a pickle and "
        "can execute code. Train a head with `fit`."
    )


def read_prompts(fields: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """Reads `prompts` and `default_prompt_name`, if the fields of a file specify them."""
    prompts, default_name = fields.get("prompts") or {}, fields.get("default_prompt_name")
    if not isinstance(prompts, dict):
        raise CheckpointError(
            f"{path}: prompts must be an object. Received: {shorten_repr(prompts)}"
        )
    # sentence-transformers reads null as an empty prompt. It always has these two prompts.
    texts = {name: "" if text is None else text for name, text in prompts.items()}
    if default_name in ("query", "document"):
        texts = {default_name: "", **texts}
    options = {"prompts": texts, "default_prompt_name": default_name}
    return {name: value for name, value in options.items() if value}


def _pooling(path: Path) -> dict[str, Any]:
    fields = read_json(path)
    with checkpoint_errors(path):
        check_needed(fields, {"include_prompt": (True, False)})
    modes = [name for name, value in fields.items() if "_mode_" in name and value is True]
    pooling_mode = fields.get("pooling_mode", [_OLD_MODES.get(name, name) for name in modes])
    modes = pooling_mode if isinstance(pooling_mode, list) else [pooling_mode]
    if len(modes) != 1 or modes[0] not in MODES:
        raise CheckpointError(
            f"{path}: the pooling mode must be one of {', '.join(MODES)}. Received: "
            f"{', '.join(map(str, modes)) or 'no mode'}"
        )
    return {"pooling": modes[0], "include_prompt": fields.get("include_prompt", True)}


def _splade_pooling(path: Path) -> dict[str, Any]:
    fields = read_json(path)
    options = {name: fields.get(field) for field, name in _SPLADE_OPTIONS.items()}
    return {name: value for name, value in options.items() if value is not None}


def is_sparse_encoder(directory: Path) -> bool:
    """Returns whether a directory contains a `SparseEncoder` with `SpladePooling`."""
    path = directory / MODULES_FILE
    return path.exists() and _SPLADE_POOLING in [module.name for module in listed_modules(path)]


class Module(NamedTuple):
    """A sentence-transformers module, with its class name and directory."""

    name: str
    path: Path


def listed_modules(path: Path) -> list[Module]:
    """Returns the modules in a `modules.json`."""
    with checkpoint_errors():
        text = read_text(path)
    try:
        entries = [(str(module["type"]), str(module["path"])) for module in parse_json(text)]
    except (TypeError, KeyError, ValueError) as error:
        raise CheckpointError(
            f"{path} must be a list of modules, each with a type and a path ({error!r})."
        ) from error
    for _, name in entries:
        parts = Path(name).parts
        if len(parts) > 1 or ".." in parts:
            raise CheckpointError(
                f"The paths of modules in {path} must be names of directories next to it. "
                f"Received: {name!r}"
            )
    return [Module(kind.rpartition(".")[2], path.parent / name) for kind, name in entries]


def _modules(directory: Path, sparse: bool) -> list[Module]:
    """Returns the modules in `modules.json`: Transformer, Pooling and possibly Normalize.

    With `sparse`, they are Transformer or MLMTransformer, and SpladePooling. Without this file, a
    `1_Pooling` directory is used. If the directory has neither, the list is empty.
    """
    path = directory / MODULES_FILE
    if not path.exists():
        pooling = (directory / POOLING_FILE).parent
        modules = [Module(_TRANSFORMER, directory), Module(_POOLING, pooling)]
        return modules * (pooling.exists() and not sparse)
    modules = listed_modules(path)
    names = [module.name for module in modules]
    dense = [[_TRANSFORMER, _POOLING], [_TRANSFORMER, _POOLING, _NORMALIZE]]
    splade = [[name, _SPLADE_POOLING] for name in (_TRANSFORMER, _MLM_TRANSFORMER)]
    if names not in (splade if sparse else dense) or modules[0].path != directory:
        needed = (
            f"{_MLM_TRANSFORMER} or {_TRANSFORMER} in this directory, and one {_SPLADE_POOLING}"
            if sparse
            else f"{_TRANSFORMER} in this directory, one {_POOLING} and at most one {_NORMALIZE}"
        )
        other = "TextEmbedder" if sparse else "SparseEmbedder"
        hint = f". Load it as a {other}." if names in (dense if sparse else splade) else ""
        raise CheckpointError(f"{path} must contain {needed}. Received: {', '.join(names)}{hint}")
    if not (modules[1].path / "config.json").exists():
        raise CheckpointError(
            f"{modules[1].path / 'config.json'} is missing, but {path} requires it. Copy the "
            "model's whole directory."
        )
    return modules


def write_modules(directory: Path, classes: Mapping[str, str]) -> None:
    """Writes `modules.json`, given each module's class by its directory."""
    modules = [
        {"idx": index, "name": str(index), "path": path, "type": name}
        for index, (path, name) in enumerate(classes.items())
    ]
    write_json(directory / MODULES_FILE, modules)


def model_options(model: Any) -> dict[str, Any]:
    """Returns a model's sentence embedding options. For a distiller, the student's options.

    See `read_options`. Missing options are omitted. The dict is empty if the model is not an
    embedder.
    """
    task = getattr(model, "student_task", model)
    if not hasattr(task, "pooling"):
        return {}
    if getattr(task, "dimensions", None) is not None:
        raise CheckpointError(
            "dimensions must be None to save an embedder in this format, because "
            f"sentence-transformers does not read them. Received: {task.dimensions}. Save it with "
            "`save_to_preset`."
        )
    # The config is used because the preprocessor itself requires TensorFlow.
    preprocessor = task.get_config()["preprocessor"] or {}
    names = ("pooling", "activation", "include_prompt", "normalize")
    options = {name: getattr(task, name) for name in names if hasattr(task, name)}
    prompts = {"prompts": dict(task.prompts), "default_prompt_name": task.default_prompt_name}
    options |= {name: value for name, value in prompts.items() if value}
    if "sequence_length" in preprocessor:
        options["sequence_length"] = preprocessor["sequence_length"]
    return options


def write_options(directory: Path, options: Mapping[str, Any], hidden_dim: int) -> None:
    """Writes `model_options` to files that `read_options` and sentence-transformers can read.

    The files have the format before version 6. Later versions of sentence-transformers can also
    read it.
    """
    if "activation" in options:
        fields = {field: options[name] for field, name in _SPLADE_OPTIONS.items()}
        paths = {_MLM_TRANSFORMER: "", _SPLADE_POOLING: str(Path(SPLADE_FILE).parent)}
        package = "sentence_transformers.sparse_encoder.models"
    else:
        modes = {name: mode == options["pooling"] for name, mode in _OLD_MODES.items()}
        fields = {"word_embedding_dimension": hidden_dim, **modes}
        fields["include_prompt"] = options["include_prompt"]
        paths = {_TRANSFORMER: "", _POOLING: str(Path(POOLING_FILE).parent)}
        package = "sentence_transformers.models"
    if options.get("normalize"):
        paths[_NORMALIZE] = NORMALIZE_DIRECTORY
    write_modules(directory, {path: f"{package}.{name}" for name, path in paths.items()})
    config = directory / list(paths.values())[1] / "config.json"
    config.parent.mkdir()
    write_json(config, fields)
    if "sequence_length" in options:
        length = {"max_seq_length": options["sequence_length"], "do_lower_case": False}
        write_json(directory / LENGTH_FILES[0], length)
    # Without this field, the directory is read as a dense embedder.
    kind = {"model_type": "SparseEncoder"} if "activation" in options else {}
    if kind or "prompts" in options:
        default_name = options.get("default_prompt_name")
        prompts = {"prompts": options.get("prompts", {}), "default_prompt_name": default_name}
        write_json(directory / PROMPTS_FILE, {**kind, **prompts})
