# SPDX-License-Identifier: Apache-2.0
"""Alters each field of each family's config.json, and compares with the transformers library.

    KERAS_BACKEND=torch python -m tests.checkpoints.altered_configs [FAMILY …]

Both libraries read a model with small random weights after one field, or two related fields, were
changed. Their outputs must be equal, or keras_bert must raise a `CheckpointError`. If only
transformers rejects a file, a field that does not affect the outputs usually has a wrong type.

A run takes many minutes, so it is done before a release (`nox -s foreign_files`).
altered_configs_test.py runs a sample.
"""

import collections
import dataclasses
import itertools
import json
import sys
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from safetensors.numpy import load_file, save_file

from keras_bert import checkpoints, progress
from keras_bert.checkpoints import CheckpointError
from keras_bert.config import BertConfig
from keras_bert.families import FAMILIES
from keras_bert.tasks import (
    MaskedLM,
    MultipleChoice,
    QuestionAnswerer,
    TextClassifier,
    TokenClassifier,
)
from tests.checkpoints.families_test import CONFIGS, PREFIX, save_with_transformers
from tests.checkpoints.small_models import compute_outputs, random_inputs

EQUAL, BOTH_REJECT, KERAS_BERT_REJECTS, TRANSFORMERS_REJECTS, DIFFER, TRACEBACK = (
    *(
        "equal",
        "both reject",
        "keras_bert rejects",
        "only transformers rejects",
        "differ",
        "traceback",
    ),
)
LENGTH = 10
TASKS = {
    "ForSequenceClassification": TextClassifier,
    "ForMaskedLM": MaskedLM,
    "ForTokenClassification": TokenClassifier,
    "ForMultipleChoice": MultipleChoice,
    "ForQuestionAnswering": QuestionAnswerer,
}
# Values of other types, for any field
JUNK = (2, True, 0.5, None, [], {}, "x", False, -1, 0, 10**400, float("nan"))
ROTARY = [
    {"rope_type": "default", "rope_theta": 5.0},
    {"type": "default", "rope_theta": 5.0},
    {"rope_theta": 5.0},
    {"rope_theta": None},
    {"rope_theta": "x"},
    {"rope_theta": 5.0, "partial_rotary_factor": 0.5},
    *(
        {name: rope_type, **parameters}
        for name in ("rope_type", "type")
        for rope_type in ("linear", "dynamic", "ntk", "yarn", "proportional", "x")
        for parameters in (
            {},
            {"factor": 2.0},
            {"factor": 2.0, "rope_theta": 5.0},
            {"factor": "2"},
            {"factor": 0},
            {"factor": 2.0, "original_max_position_embeddings": 4},
        )
    ),
    {
        "rope_type": "llama3",
        "factor": 2.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 4,
    },
    {"rope_type": "longrope", "short_factor": [1.0, 2.0], "long_factor": [2.0, 3.0]},
]
ROTARY_BY_LAYER_TYPE = [
    {"full_attention": full, "sliding_attention": sliding}
    for full, sliding in (
        *((rope, rope) for rope in ROTARY),
        ({"rope_theta": 5.0}, None),
        (None, {"rope_type": "default", "rope_theta": 5.0}),
        ({"rope_type": "linear", "factor": 2.0}, {"rope_type": "default"}),
        ({"rope_type": "linear", "factor": 2.0}, {"rope_type": "linear", "factor": 3.0}),
    )
]
TORCH = "torch.nn.modules"
ACTIVATIONS = [f"{TORCH}.linear.Identity"] + [
    f"{TORCH}.activation.{name}" for name in ("Sigmoid", "Tanh", "ReLU")
]
VALUES = {
    "_act": ["gelu", "gelu_new", "relu", "silu", "swish", "tanh", "quick_gelu", "mish", "sigmoid"],
    "activation": ["gelu_new", "tanh", "silu", "swiglu", "mish"],
    "pooling": ["cls", "bos", "mean", "late", "max"],
    "summary_type": ["last", "first", "mean", "cls_index"],
    "position_embedding_type": ["absolute", "relative_key", "rope", "sans_pos"],
    "problem_type": [
        *("regression", "single_label_classification", "multi_label_classification"),
    ],
    "layer_types": [
        ["full_attention"] * 3,
        ["sliding_attention"] * 3,
        ["full_attention", "sliding_attention", "full_attention"],
        ["sliding_attention", "full_attention", "sliding_attention"],
        ["attention", "sliding_attention", "sliding_attention"],
        ["full_attention"],
    ],
    "rope_": [*ROTARY, *ROTARY_BY_LAYER_TYPE],
    "id2label": [{"0": "a"}, {"0": "a", "1": "b", "2": "c"}, {"1": "a", "2": "b", "3": "c"}],
    "per_layer_config": [{"0": {"num_attention_heads": 1}}, {"1": {"skip": ["attention"]}}],
    "pruned_heads": [{"0": [1]}],
    "sentence_transformers": [{"activation_fn": name} for name in ACTIVATIONS],
    "sbert_ce_default_activation_function": ACTIVATIONS,
    "transformers_weights": ["other.safetensors"],
    "configuration_files": [["config.4.0.0.json"]],
}
# Fields outside the config classes that transformers reads or used to read
EXTRA_FIELDS = (
    *("rope_scaling", "rope_theta", "partial_rotary_factor", "global_rope_theta"),
    *("local_rope_theta", "global_attn_every_n_layers", "sliding_window", "layer_types"),
    *("head_dim", "num_labels", "sentence_transformers", "sbert_ce_default_activation_function"),
    *("summary_proj_to_labels", "position_embedding_type", "per_layer_config", "pruned_heads"),
    *("transformers_weights", "configuration_files", "hidden_size", "num_attention_heads"),
    *("num_hidden_layers", "rotary_emb_base", "n_embd", "prenorm", "activation_function"),
    *("clf_pooling", "original_max_position_embeddings"),
)
# Fields that affect the meaning of a classifier's outputs
OUTPUT_FIELDS = (
    *("problem_type", "id2label", "num_labels", "sentence_transformers"),
    "sbert_ce_default_activation_function",
)


def reference_fields(family: str) -> list[str]:
    """Returns the fields of a family's config class in transformers."""
    return [f.name for f in dataclasses.fields(getattr(transformers, CONFIGS[family]["config"]))]


def altered_fields(family: str) -> list[str]:
    """Returns the fields to alter, including those outside the config class."""
    # All models are compared in float32.
    names = [name for name in reference_fields(family) if name != "dtype"]
    return [*names, *(name for name in EXTRA_FIELDS if name not in names)]


def generate_changes(family: str, ending: str, num_labels: int = 3) -> Iterator[dict[str, Any]]:
    """Yields changes to a family's config.json, first of single fields, then of two together.

    The text classifier has both the encoder and its pooler, so it is tried with values of all
    types. Other classes are tried with a few values. With one output, only the fields that affect
    its meaning are changed.
    """
    is_text_classifier = ending == "ForSequenceClassification"
    if is_text_classifier:
        for problem_type, number in itertools.product(VALUES["problem_type"], (1, 3)):
            change = {"problem_type": problem_type, "id2label": _labels(number)}
            yield change
            for name in ACTIVATIONS:
                yield {**change, "sentence_transformers": {"activation_fn": name}}
    names = altered_fields(family) if num_labels > 1 else OUTPUT_FIELDS
    for name in names:
        values = [word for key, values in VALUES.items() if key in name for word in values]
        if not is_text_classifier or ("rope_parameters" not in names and name.startswith("rope_")):
            values = values[:4]
        for value in (*(JUNK if is_text_classifier else JUNK[:1]), *values):
            # transformers would loop this often, for practical purposes forever.
            if value != 10**400 or not name.endswith(("_layers", "_labels", "_groups", "_num")):
                yield {name: value}
    if not is_text_classifier or "rope_parameters" not in names:
        return
    ropes = [ROTARY[0], {"rope_type": "linear", "factor": 2.0}, {"type": "dynamic", "factor": 2.0}]
    for scaling, parameters in itertools.product(
        ropes, [*ropes, ROTARY_BY_LAYER_TYPE[0], {}, None]
    ):
        yield {"rope_scaling": scaling, "rope_parameters": parameters}
    for name, other_value in (
        ("layer_types", None),
        ("local_attention", 4),
        ("rope_parameters", None),
    ):
        for value in (2, 3):
            yield {name: other_value, "global_attn_every_n_layers": value, "sliding_window": value}
            yield {name: other_value, "global_rope_theta": value, "local_rope_theta": value}
            yield {name: other_value, "rope_theta": value}


def _labels(number: int) -> dict[str, str]:
    return {str(index): f"LABEL_{index}" for index in range(number)}


@dataclasses.dataclass
class SavedModel:
    """A model directory for both libraries, and the inputs on which they are compared.

    Args:
        family: Name of the family.
        ending: Suffix of the transformers class name.
        path: Directory of the model.
        num_labels: Number of classifier outputs.
    """

    family: str
    ending: str
    path: Path
    num_labels: int = 3

    def __post_init__(self) -> None:
        labels = {"num_labels": self.num_labels} if "Classification" in self.ending else {}
        save_with_transformers(self.family, "plain", self.ending, self.path, **labels)
        # Larger weights make the attention patterns visible in the outputs.
        path = self.path / "model.safetensors"
        tensors = {name: 2 * tensor for name, tensor in load_file(path).items()}
        save_file(tensors, path, metadata={"format": "pt"})
        self.fields = json.loads((self.path / "config.json").read_text())
        self.pad = self.fields["pad_token_id"]
        config = BertConfig(vocabulary_size=20, num_segments=self.fields.get("type_vocab_size", 0))
        inputs = random_inputs(config, length=LENGTH)
        tokens = np.where(inputs["token_ids"] == self.pad, 9, inputs["token_ids"])
        inputs["token_ids"] = np.where(inputs["padding_mask"], tokens, self.pad)
        self.inputs = inputs
        self.outputs_by_config: dict[str, list[np.ndarray]] = {}

    def alter(self, changes: dict[str, Any]) -> None:
        (self.path / "config.json").write_text(json.dumps(self.fields | changes))

    def compute_expected(self) -> list[np.ndarray]:
        """Returns the outputs of transformers. For classifiers, these are the pipeline's scores."""
        cls = getattr(transformers, PREFIX[self.family] + self.ending)
        model = cls.from_pretrained(self.path, dtype=torch.float32).eval()
        inputs = {
            "input_ids": torch.tensor(self.inputs["token_ids"]),
            "attention_mask": torch.tensor(self.inputs["padding_mask"].astype("int64")),
        }
        if "type_vocab_size" in self.fields:
            inputs["token_type_ids"] = torch.tensor(self.inputs["segment_ids"])
        if self.ending == "ForMultipleChoice":
            inputs = {name: values[None] for name, values in inputs.items()}
        with torch.no_grad():
            outputs = model(**inputs)
        if self.ending == "ForQuestionAnswering":
            return self.select_tokens(outputs.start_logits.numpy(), outputs.end_logits.numpy())
        if self.ending == "ForSequenceClassification":
            return [_scores(model.config, outputs.logits).numpy()]
        logits = outputs.logits.numpy()
        return [logits] if self.ending == "ForMultipleChoice" else self.select_tokens(logits)

    def compute_actual(self) -> list[np.ndarray]:
        """Returns the outputs of this library, computed once for files that are read equally."""
        checkpoint = checkpoints.open_checkpoint(self.path)
        fields = {name: value for name, value in vars(checkpoint).items() if "open_" not in name}
        key = repr(fields)
        if key not in self.outputs_by_config:
            self.outputs_by_config[key] = self.compute_task_outputs(checkpoint)
        return self.outputs_by_config[key]

    def compute_task_outputs(self, checkpoint: checkpoints.Checkpoint) -> list[np.ndarray]:
        options = {}
        if "Classification" in self.ending:
            head = {"Sequence": "classifier", "TokenCla": "token_classifier"}[self.ending[3:11]]
            options = {"num_classes": checkpoint.num_classes(head)}
            options |= {"class_names": checkpoint.class_names}
            options |= (checkpoint.task or {}) if head == "classifier" else {}
        task = TASKS[self.ending](checkpoint.new_backbone(), **options)
        checkpoint.load_into(task.backbone, pooler_is_used=task.uses_pooler)
        for name, layer in task.heads.items():
            if not checkpoint.load_head(name, layer):
                raise CheckpointError(f"no {name}")
        inputs = dict(self.inputs)
        if self.ending == "ForMaskedLM":
            positions = np.tile(np.arange(LENGTH), (len(inputs["token_ids"]), 1))
            return self.select_tokens(
                compute_outputs(task, {**inputs, "mask_positions": positions})
            )
        if self.ending == "ForMultipleChoice":
            return [compute_outputs(task, {name: values[None] for name, values in inputs.items()})]
        outputs = compute_outputs(task, inputs)
        if self.ending == "ForQuestionAnswering":
            return self.select_tokens(outputs["start_logits"], outputs["end_logits"])
        if self.ending == "ForTokenClassification":
            return self.select_tokens(outputs)
        if task.is_regression:
            return [outputs]
        if task.multi_label:
            return [torch.sigmoid(torch.tensor(outputs)).numpy()]
        scores = torch.softmax(torch.tensor(outputs), -1).numpy()
        # A sigmoid output is read as two classes.
        return [scores[:, 1:] if self.num_labels == 1 else scores]

    def select_tokens(self, *values: np.ndarray) -> list[np.ndarray]:
        return [value[self.inputs["padding_mask"]] for value in values]

    def compare(self, changes: dict[str, Any]) -> tuple[str, str]:
        """Returns the outcome of a change, and the details."""
        self.alter(changes)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                actual, details = self.compute_actual(), ""
            except CheckpointError as error:
                actual, details = None, str(error)
            except ValueError as error:
                # Raised for sequences longer than the positions in the file, and for class names.
                # `from_preset` raises CheckpointError for these.
                if "must have at most" not in str(error) and "class" not in str(error):
                    return TRACEBACK, repr(error)
                actual, details = None, str(error)
            except Exception as error:
                return TRACEBACK, repr(error)
            try:
                expected = self.compute_expected()
            except Exception as error:
                return (
                    BOTH_REJECT if actual is None else TRANSFORMERS_REJECTS
                ), f"{details} | {error!r}"
        if actual is None:
            return KERAS_BERT_REJECTS, details
        for output, reference in zip(actual, expected, strict=True):
            if output.shape != reference.shape:
                return DIFFER, f"{output.shape} and {reference.shape}"
            # The float32 and float64 outputs of transformers differ by 2% of this tolerance.
            scale = max(1.0, np.nan_to_num(abs(reference), posinf=0).max())
            if not np.allclose(output, reference, rtol=0, atol=5e-5 * scale, equal_nan=True):
                return DIFFER, f"by {abs(output - reference).max():.2g}"
        return EQUAL, details


def _scores(config: Any, logits: torch.Tensor) -> torch.Tensor:
    """Returns the scores of the pipeline, or of the cross-encoder if the file has an activation."""
    sentence_transformers = getattr(config, "sentence_transformers", None) or {}
    path = sentence_transformers.get("activation_fn") or getattr(
        config, "sbert_ce_default_activation_function", None
    )
    if path is not None:
        module, _, name = path.rpartition(".")
        activation = getattr(sys.modules[module], name)()
        if config.num_labels > 1 and name == "Identity":
            return torch.softmax(logits, -1)
        return activation(logits)
    if config.problem_type == "regression":
        return logits
    if config.problem_type == "multi_label_classification" or config.num_labels == 1:
        return torch.sigmoid(logits)
    return torch.softmax(logits, -1)


def save_models(families: list[str], root: Path) -> Iterator[SavedModel]:
    """Yields a saved model for each class with a task, and for a classifier with one output."""
    for family in families:
        for ending in FAMILIES[family].classes:
            if ending in TASKS:
                yield SavedModel(family, ending, root / f"{family}-{ending}")
        yield SavedModel(family, "ForSequenceClassification", root / f"{family}-one", num_labels=1)


def main(families: list[str]) -> None:
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    counts = collections.Counter()
    with tempfile.TemporaryDirectory() as root:
        cases = [
            (saved_model, changes)
            for saved_model in save_models(families or list(FAMILIES), Path(root))
            for changes in generate_changes(
                saved_model.family, saved_model.ending, saved_model.num_labels
            )
        ]
        for saved_model in {id(saved_model): saved_model for saved_model, _ in cases}.values():
            outcome, details = saved_model.compare({})
            if outcome != EQUAL:
                raise SystemExit(
                    f"{saved_model.family} {saved_model.ending}, unaltered: {outcome}: {details}"
                )
        with progress.bar("altered configs", len(cases), "files") as bar:
            for saved_model, changes in cases:
                outcome, details = saved_model.compare(changes)
                counts[outcome] += 1
                bar.update()
                if outcome in (DIFFER, TRACEBACK):
                    excerpt = json.dumps(changes)[:200]
                    print(
                        f"{outcome}: {saved_model.family} {saved_model.ending} {excerpt}: "
                        f"{details}",
                        flush=True,
                    )
    for outcome in (
        EQUAL,
        BOTH_REJECT,
        KERAS_BERT_REJECTS,
        TRANSFORMERS_REJECTS,
        DIFFER,
        TRACEBACK,
    ):
        print(f"{outcome}: {counts[outcome]}")
    if counts[DIFFER] or counts[TRACEBACK]:
        raise SystemExit(1)


if __name__ == "__main__":
    main(sys.argv[1:])
