# SPDX-License-Identifier: Apache-2.0
"""Reads and writes the options of late interaction models (ColBERT) in their three layouts.

- `"pylate"`: the directories of PyLate, which sentence-transformers 6 also reads
- `"sentence_transformers"`: the directories of `MultiVectorEncoder` in sentence-transformers 6
- `"colbert"`: the directories of the original ColBERT code, which are only read
"""

from __future__ import annotations

import string
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from keras_bert.checkpoints import sentence_transformers
from keras_bert.checkpoints.config_fields import check_needed
from keras_bert.checkpoints.directories import checkpoint_errors, read_json
from keras_bert.checkpoints.errors import CheckpointError
from keras_bert.checkpoints.layouts import disassemble
from keras_bert.checkpoints.tensors import write_safetensors
from keras_bert.checkpoints.weights import to_numpy
from keras_bert.checks import check_choice
from keras_bert.families.weight_names import hf_dense
from keras_bert.vocabularies.files import write_json
from keras_bert.vocabularies.tokenizer_config import list_tokens
from keras_bert.vocabularies.tokenizer_writer import special_token_names

if TYPE_CHECKING:
    from keras_bert.checkpoints.checkpoint import Checkpoint

HEAD = "token_projection"
"""The name of the projection in checkpoints."""
HEAD_LAYOUT = hf_dense("linear")
WrittenLayout = Literal["pylate", "sentence_transformers"]
LAYOUTS: tuple[WrittenLayout, ...] = get_args(WrittenLayout)

_DENSE, _MASK, _NORMALIZE = "1_Dense", "2_MultiVectorMask", "3_Normalize"
_WEIGHTS_FILE = "model.safetensors"
ALL_FILES = (
    f"{_DENSE}/config.json",
    f"{_DENSE}/{_WEIGHTS_FILE}",
    f"{_MASK}/config.json",
    f"{_NORMALIZE}/config.json",
)
"""The names of the files that are not in `sentence_transformers.ALL_FILES`."""
_METADATA_FILE = "artifact.metadata"  # of the original ColBERT code
_TRANSFORMER_FILE = sentence_transformers.LENGTH_FILES[0]
# The class of each module in sentence-transformers 6, by its directory
_CLASSES = {
    "": "base.modules.transformer.Transformer",
    _DENSE: "base.modules.dense.Dense",
    _MASK: "multi_vector_encoder.modules.multi_vector_mask.MultiVectorMask",
    _NORMALIZE: "base.modules.normalize.Normalize",
}
_IDENTITY = "torch.nn.modules.linear.Identity"
_TOKENS = {"module_input_name": "token_embeddings", "module_output_name": "token_embeddings"}
# The options with the same name in PyLate, and their defaults
_PYLATE_DEFAULTS = {
    "query_prefix": "[Q] ",
    "document_prefix": "[D] ",
    "query_length": 32,
    "document_length": 180,
    "skiplist_words": list(string.punctuation),
    "do_query_expansion": True,
    "attend_to_expansion_tokens": False,
}
_DOCUMENT_PROMPTS = ("document", "passage", "corpus")


def detect_layout(directory: Path, fields: Mapping[str, Any]) -> str:
    """Returns the layout of a Hugging Face directory, or `""` if it is no late interaction model.

    Args:
        directory: The directory.
        fields: The content of its `config.json`.
    """
    if "HF_ColBERT" in (fields.get("architectures") or []):
        return "colbert"
    path = directory / sentence_transformers.PROMPTS_FILE
    options = read_json(path) if path.exists() else {}
    if options.get("model_type") == "MultiVectorEncoder":
        return "sentence_transformers"
    # The first versions of PyLate did not write a model type.
    return "pylate" if options.get("model_type") == "ColBERT" or "query_prefix" in options else ""


def projection_directory(directory: Path) -> Path:
    """Returns the directory of the projection's weights in the first two layouts."""
    return _module_paths(directory)["Dense"]


def read_options(checkpoint: Checkpoint) -> dict[str, Any]:
    """Reads the options of a `LateInteractionEmbedder` and its preprocessor.

    The dict is empty if the checkpoint has none of the layouts. Unsupported options that change the
    vectors raise an error.
    """
    directory = checkpoint.directory
    if checkpoint.format != "hugging_face":
        return {}
    layout = detect_layout(directory, read_json(directory / "config.json"))
    if layout == "colbert":
        return _read_colbert(checkpoint)
    if not layout:
        return {}
    path = directory / sentence_transformers.PROMPTS_FILE
    fields = read_json(path)
    with checkpoint_errors(path):
        check_needed(fields, {"truncate_dim": (), "default_prompt_name": ()})
        if fields.get("similarity_fn_name") == "meanmaxsim":
            raise ValueError("similarity_fn_name must be 'maxsim'. Received: 'meanmaxsim'")
    prompts = sentence_transformers.read_prompts(fields, path).get("prompts", {})
    prompts = {name: text for name, text in prompts.items() if text}
    options = _read_dense(directory) | ({"prompts": prompts} if prompts else {})
    if layout == "sentence_transformers":
        return options | _read_sentence_transformers(checkpoint)
    values = {name: fields.get(name) for name in _PYLATE_DEFAULTS}
    given = {name: value for name, value in values.items() if value is not None}
    return options | _with_known_words(checkpoint, {**_PYLATE_DEFAULTS, **given})


def _read_colbert(checkpoint: Checkpoint) -> dict[str, Any]:
    path = checkpoint.directory / _METADATA_FILE
    fields = read_json(path) if path.exists() else {}
    with checkpoint_errors(path):
        check_needed(fields, {"similarity": ("cosine",)})
    options = {
        "query_prefix": fields.get("query_token_id") or "[unused0]",
        "document_prefix": fields.get("doc_token_id") or "[unused1]",
        "query_length": fields.get("query_maxlen") or 32,
        "document_length": fields.get("doc_maxlen") or 180,
        "do_query_expansion": True,
        "attend_to_expansion_tokens": bool(fields.get("attend_to_mask_tokens")),
        "skiplist_words": list(string.punctuation) if fields.get("mask_punctuation", True) else [],
    }
    return {
        "projection_dim": checkpoint.num_classes(HEAD),
        "projection_bias": False,
        **_with_known_words(checkpoint, options),
    }


def _with_known_words(checkpoint: Checkpoint, options: Mapping[str, Any]) -> dict[str, Any]:
    """Replaces words in PyLate's skip list that are not in the vocabulary by the unknown token.

    PyLate looks up their ids, so it leaves out the vectors of all unknown tokens.
    """
    tokenizer, words = checkpoint.tokenizer, options["skiplist_words"]
    if tokenizer is None or not isinstance(words, list):
        return dict(options)
    tokens = {*list_tokens(tokenizer)}
    unknown = special_token_names(tokenizer)["unk"]
    known = [word for word in words if word in tokens]
    if len(known) < len(words) and unknown in tokens and unknown not in known:
        known.append(unknown)
    return {**options, "skiplist_words": known}


def _read_sentence_transformers(checkpoint: Checkpoint) -> dict[str, Any]:
    directory = checkpoint.directory
    path = directory / _TRANSFORMER_FILE
    fields = read_json(path) if path.exists() else {}
    mask_path = _module_paths(directory)["MultiVectorMask"] / "config.json"
    mask = read_json(mask_path)
    with checkpoint_errors(mask_path):
        check_needed(mask, {"skiplist_tasks": (["document"],), "keep_only_token_ids": ([],)})
    longest = sentence_transformers.read_length(directory)
    longest = checkpoint.config.max_sequence_length if longest is None else longest
    expansion = fields.get("query_expansion")
    options = {
        "query_prefix": "",  # The prompts contain the markers.
        "document_prefix": "",
        "skiplist_words": mask.get("skiplist_words") or [],
        "document_length": fields.get("document_length") or longest,
        "query_length": fields.get("query_length") or longest,
        "do_query_expansion": bool(expansion),
        "attend_to_expansion_tokens": False,
    }
    if not expansion:
        return options
    token = special_token_names(checkpoint.require_tokenizer())["mask"]
    with checkpoint_errors(path):
        if not isinstance(expansion, dict):
            raise ValueError(f"query_expansion must be an object. Received: {expansion!r}")
        check_needed(expansion, {"strategy": ("fixed",), "token": (token,)})
    return {
        **options,
        "query_length": expansion.get("length"),
        "attend_to_expansion_tokens": bool(expansion.get("attend")),
    }


def _read_dense(directory: Path) -> dict[str, Any]:
    path = _module_paths(directory)["Dense"] / "config.json"
    fields = read_json(path)
    needed = {
        "activation_function": (_IDENTITY,),
        "use_residual": (False,),
        **{name: (value,) for name, value in _TOKENS.items()},
    }
    with checkpoint_errors(path):
        check_needed(fields, needed)
    return {
        "projection_dim": fields.get("out_features"),
        "projection_bias": fields.get("bias", True),
    }


def _module_paths(directory: Path) -> dict[str, Path]:
    """Returns the directory of each module, by the name of its class."""
    modules = sentence_transformers.listed_modules(directory / sentence_transformers.MODULES_FILE)
    names = [module.name for module in modules]
    allowed = (
        ["Transformer", "Dense"],
        ["Transformer", "Dense", "MultiVectorMask", "Normalize"],
        ["Transformer", "Dense", "Normalize", "MultiVectorMask"],
    )
    if names not in allowed or modules[0].path != directory:
        raise CheckpointError(
            f"{directory / sentence_transformers.MODULES_FILE} must contain Transformer in this "
            "directory and one Dense, in sentence-transformers 6 followed by MultiVectorMask and "
            f"Normalize. Received: {', '.join(names)}"
        )
    return {module.name: module.path for module in modules}


def written_options(task: Any, layout: WrittenLayout) -> dict[str, Any]:
    """Returns a task's options in the form that `read_options` reads from a layout.

    In the layout of sentence-transformers, the prompts contain the markers.
    """
    check_choice(LAYOUTS, layout=layout)
    preprocessor = task.preprocessor
    tokens = {*preprocessor.tokenizer.vocabulary}
    options = {name: getattr(preprocessor, name) for name in _PYLATE_DEFAULTS}
    options |= {
        "projection_dim": task.projection_dim,
        "projection_bias": task.projection_bias,
        "query_length": preprocessor.length_limit(is_query=True),
        "document_length": preprocessor.length_limit(is_query=False),
        "skiplist_words": [word for word in preprocessor.skiplist_words if word in tokens],
    }
    options["attend_to_expansion_tokens"] &= options["do_query_expansion"]
    prompts = dict(task.prompts)
    if layout == "sentence_transformers":
        names = {name: name for name in ("query", "document")}
        names["document"] = next(filter(prompts.__contains__, _DOCUMENT_PROMPTS), "document")
        for kind, name in names.items():
            prompts[name] = options[f"{kind}_prefix"] + prompts.get(name, "")
            options[f"{kind}_prefix"] = ""
    prompts = {name: text for name, text in prompts.items() if text}
    return options | ({"prompts": prompts} if prompts else {})


def written_tokenizer(
    task: Any, tokenizer: Mapping[str, Any] | None, layout: WrittenLayout
) -> Mapping[str, Any] | None:
    """Returns the tokenizer config to write to a layout.

    In the layout of sentence-transformers, prompts contain the markers, so the tokenizer has to
    find them in texts.
    """
    markers: Sequence[str] = [
        marker
        for marker in (task.preprocessor.query_prefix, task.preprocessor.document_prefix)
        if marker
    ]
    if layout == "pylate" or tokenizer is None or not markers:
        return tokenizer
    names = ("added_tokens", "special_added_tokens")
    changed = {
        name: list(dict.fromkeys([*(tokenizer.get(name) or []), *markers])) for name in names
    }
    if normalized := tokenizer.get("normalized_tokens"):
        changed["normalized_tokens"] = [token for token in normalized if token not in markers]
    return {**tokenizer, **changed}


def write_options(
    directory: Path,
    options: Mapping[str, Any],
    head: Mapping[str, Any],
    hidden_dim: int,
    layout: WrittenLayout,
) -> None:
    """Writes `written_options` and the projection's weights, given by name."""
    (directory / _DENSE).mkdir()
    tensors: dict[str, np.ndarray[Any, Any]] = {}
    for name, weight in head.items():
        tensors |= disassemble(HEAD_LAYOUT[name], to_numpy(weight))
    write_safetensors(directory / _DENSE / _WEIGHTS_FILE, tensors)
    is_pylate = layout == "pylate"
    dense = {
        "in_features": hidden_dim,
        "out_features": options["projection_dim"],
        "bias": options["projection_bias"],
        "activation_function": _IDENTITY,
    }
    write_json(directory / _DENSE / "config.json", dense | ({} if is_pylate else _TOKENS))
    classes = {path: f"sentence_transformers.{name}" for path, name in _CLASSES.items()}
    if is_pylate:
        classes = {
            "": "sentence_transformers.models.Transformer",
            _DENSE: "pylate.models.Dense.Dense",
        }
    sentence_transformers.write_modules(directory, classes)
    fields = {
        "model_type": "ColBERT" if is_pylate else "MultiVectorEncoder",
        "prompts": {"query": "", "document": "", **options.get("prompts", {})},
        "default_prompt_name": None,
        "similarity_fn_name": "MaxSim" if is_pylate else "maxsim",
    }
    lengths = {name: options[name] for name in ("query_length", "document_length")}
    if is_pylate:
        fields |= {name: options[name] for name in _PYLATE_DEFAULTS}
        transformer = {"max_seq_length": max(lengths.values()), "do_lower_case": False}
    else:
        expansion = None
        if options["do_query_expansion"]:
            expansion = {
                "strategy": "fixed",
                "attend": options["attend_to_expansion_tokens"],
                "length": lengths["query_length"],
            }
        transformer = {
            "transformer_task": "feature-extraction",
            "modality_config": {
                "text": {"method": "forward", "method_output_name": "last_hidden_state"}
            },
            "module_output_name": _TOKENS["module_output_name"],
            **lengths,
            "query_expansion": expansion,
        }
        for path, module in (
            (_MASK, {"skiplist_words": options["skiplist_words"], "skiplist_tasks": ["document"]}),
            (_NORMALIZE, _TOKENS),
        ):
            (directory / path).mkdir()
            write_json(directory / path / "config.json", module)
    write_json(directory / sentence_transformers.PROMPTS_FILE, fields)
    write_json(directory / _TRANSFORMER_FILE, transformer)
