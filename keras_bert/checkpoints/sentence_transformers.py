# SPDX-License-Identifier: Apache-2.0
"""The options of sentence embeddings in checkpoint folders of sentence-transformers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from keras_bert.checkpoints.config_fields import check_needed
from keras_bert.checkpoints.errors import CheckpointError, warn
from keras_bert.checkpoints.folders import checkpoint_errors, read_json
from keras_bert.checks import POSITIVE_INT
from keras_bert.vocabularies.files import parse_json, read_text, write_json
from keras_bert.vocabularies.tokenizer_reader import read_tokenizer
from keras_bert.vocabularies.tokenizer_settings import SETTINGS_FILE

MODULES_FILE = "modules.json"
POOLING_FILE = "1_Pooling/config.json"
LENGTH_FILE = "sentence_bert_config.json"
PROMPTS_FILE = "config_sentence_transformers.json"
ACTIVATION = "activation_fn"
NORMALIZE_FOLDER = "2_Normalize"
ALL_FILES = (
    MODULES_FILE,
    POOLING_FILE,
    LENGTH_FILE,
    f"{NORMALIZE_FOLDER}/config.json",
    PROMPTS_FILE,
)
"""The names of all files that sentence-transformers adds to a model's."""

_TRANSFORMER, _POOLING, _NORMALIZE = "Transformer", "Pooling", "Normalize"
# The names up to version 5, which version 6 reads too, and the names since then.
_OLD_MODES = {"pooling_mode_mean_tokens": "mean", "pooling_mode_cls_token": "cls"}
MODES = ("mean", "cls")


def read_options(folder: Path, max_sequence_length: int) -> dict[str, Any]:
    """Reads the options of sentence embeddings from a checkpoint folder.

    They are `pooling` (`"mean"` or `"cls"`), `normalize` and `sequence_length`, as far as the
    folder specifies them. It warns about a text that sentence-transformers adds in front of each
    text by default. Options that would give other embeddings are an error.
    """
    options: dict[str, Any] = {}
    length: Any = None
    if (folder / LENGTH_FILE).exists():
        fields = read_json(folder / LENGTH_FILE)
        length = fields.get("max_seq_length")
        if fields.get("do_lower_case"):
            with checkpoint_errors():
                tokenizer = read_tokenizer(folder) or {}
            if not tokenizer.get("lowercase"):
                raise CheckpointError(
                    f"{folder / LENGTH_FILE}: do_lower_case is {fields['do_lower_case']!r}, but "
                    "the tokenizer does not lowercase text; expected false, or such a tokenizer."
                )
    if (folder / POOLING_FILE).exists():
        options["pooling"] = _pooling(folder / POOLING_FILE)
        options["normalize"] = _NORMALIZE in _modules(folder)
        # Since version 6, the length is only in the settings of the tokenizer.
        if length is None and (folder / SETTINGS_FILE).exists():
            length = read_json(folder / SETTINGS_FILE).get("model_max_length")
    if POSITIVE_INT.allows(length):
        options["sequence_length"] = min(length, max_sequence_length)
    path = folder / PROMPTS_FILE
    fields = read_json(path) if path.exists() else {}
    check_needed(fields, {"truncate_dim": ()}, path)
    _warn_of_prompt(fields, path)
    return options


def output_activation(folder: Path, fields: Mapping[str, Any]) -> str | None:
    """Reads the activation that sentence-transformers applies to a cross-encoder's outputs.

    It is the name of a class of PyTorch, such as `"Sigmoid"`; `None` if the files do not have it.
    """
    path, own = folder / PROMPTS_FILE, fields.get("sentence_transformers")
    name = read_json(path).get(ACTIVATION) if path.exists() else None
    name = own.get(ACTIVATION) if name is None and isinstance(own, dict) else name
    # Up to version 3 of sentence-transformers
    name = fields.get("sbert_ce_default_activation_function") if name is None else name
    if name is None:
        return None
    if not isinstance(name, str) or not name.startswith("torch."):
        raise CheckpointError(
            f"{folder}: {ACTIVATION} of a cross-encoder is {name!r}; it must be a class of PyTorch."
        )
    return name.rpartition(".")[2]


def _warn_of_prompt(fields: Mapping[str, Any], path: Path) -> None:
    prompts, name = fields.get("prompts"), fields.get("default_prompt_name")
    prompt = prompts.get(str(name)) if isinstance(prompts, dict) else None
    if prompt:
        warn(
            f"{path}: sentence-transformers adds the prompt {prompt!r} in front of each text by "
            "default (default_prompt_name); add it to your texts."
        )


def _pooling(path: Path) -> str:
    fields = read_json(path)
    # Without the tokens of a prompt, if there is one
    check_needed(fields, {"include_prompt": (True,)}, path)
    modes = [name for name, value in fields.items() if "_mode_" in name and value is True]
    pooling_mode = fields.get("pooling_mode", [_OLD_MODES.get(name, name) for name in modes])
    modes = pooling_mode if isinstance(pooling_mode, list) else [pooling_mode]
    if len(modes) != 1 or modes[0] not in MODES:
        raise CheckpointError(
            f"{path}: the modes are {', '.join(map(str, modes)) or 'none'}; expected one of "
            f"{', '.join(MODES)}."
        )
    return str(modes[0])


def _modules(folder: Path) -> list[str]:
    """Returns the names of the classes of the modules, in their order."""
    path = folder / MODULES_FILE
    if not path.exists():
        return [_TRANSFORMER, _POOLING]
    with checkpoint_errors():
        text = read_text(path)
    try:
        modules = parse_json(text)
        names = [str(module["type"]).rpartition(".")[2] for module in modules]
    except (TypeError, KeyError, ValueError) as error:
        raise CheckpointError(
            f"{path} must be a list of modules, each with a type ({error!r})."
        ) from error
    unknown = sorted(set(names) - {_TRANSFORMER, _POOLING, _NORMALIZE})
    if unknown:
        raise CheckpointError(
            f"{path} has the module {unknown[0]}, which is not supported; the modules must be "
            f"{_TRANSFORMER}, {_POOLING} and {_NORMALIZE}."
        )
    return names


def model_options(model: Any) -> dict[str, Any]:
    """Returns the options of sentence embeddings of a model (of a distiller, of the student).

    See `read_options`; the dict lacks what the model lacks, and is empty for another model.
    """
    task = getattr(model, "student_task", model)
    if not hasattr(task, "pooling"):
        return {}
    # The config, since the preprocessor itself needs TensorFlow.
    preprocessor = task.get_config()["preprocessor"] or {}
    options = {"pooling": task.pooling, "normalize": task.normalize}
    if "sequence_length" in preprocessor:
        options["sequence_length"] = preprocessor["sequence_length"]
    return options


def write_options(folder: Path, options: Mapping[str, Any], hidden_dim: int) -> None:
    """Writes the files from which `read_options` and sentence-transformers read `model_options`.

    They are in the format before version 6 of sentence-transformers, which later versions read.
    """
    paths = {_TRANSFORMER: "", _POOLING: str(Path(POOLING_FILE).parent)}
    if options["normalize"]:
        paths[_NORMALIZE] = NORMALIZE_FOLDER
    modules = [
        {
            "idx": index,
            "name": str(index),
            "path": path,
            "type": f"sentence_transformers.models.{name}",
        }
        for index, (name, path) in enumerate(paths.items())
    ]
    write_json(folder / MODULES_FILE, modules)
    modes = {name: mode == options["pooling"] for name, mode in _OLD_MODES.items()}
    (folder / POOLING_FILE).parent.mkdir()
    write_json(folder / POOLING_FILE, {"word_embedding_dimension": hidden_dim, **modes})
    if "sequence_length" in options:
        length = {"max_seq_length": options["sequence_length"], "do_lower_case": False}
        write_json(folder / LENGTH_FILE, length)
