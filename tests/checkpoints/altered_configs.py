# SPDX-License-Identifier: Apache-2.0
"""Alters every field of every family's config.json, and compares with the transformers library.

    KERAS_BACKEND=torch python -m tests.checkpoints.altered_configs [FAMILY …]

A folder of small random weights is read by both libraries with one field changed at a time, or two
that act together. Their answers must be equal, or ours must refuse the file by a `CheckpointError`.
Files that theirs alone refuses are mostly of a wrong type in a field that changes no answer. It
takes many minutes, so that it runs before a release (`nox -s foreign_files`); a sample of it is in
altered_configs_test.py.
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
from tests.checkpoints.families_test import CONFIGS, PREFIX, saved_by_transformers
from tests.checkpoints.small_models import outputs_of, random_inputs

EQUAL, BOTH, OURS, THEIRS, DIFFER, TRACEBACK = (
    *("equal", "both refuse", "ours refuses", "theirs alone refuses", "differ", "traceback"),
)
LENGTH = 10
TASKS = {
    "ForSequenceClassification": TextClassifier,
    "ForMaskedLM": MaskedLM,
    "ForTokenClassification": TokenClassifier,
    "ForMultipleChoice": MultipleChoice,
    "ForQuestionAnswering": QuestionAnswerer,
}
# Of any field, whatever its type
JUNK = (2, True, 0.5, None, [], {}, "x", False, -1, 0, 10**400, float("nan"))
ROTARY = [
    {"rope_type": "default", "rope_theta": 5.0},
    {"type": "default", "rope_theta": 5.0},
    {"rope_theta": 5.0},
    {"rope_theta": None},
    {"rope_theta": "x"},
    {"rope_theta": 5.0, "partial_rotary_factor": 0.5},
    *(
        {name: kind, **more}
        for name in ("rope_type", "type")
        for kind in ("linear", "dynamic", "ntk", "yarn", "proportional", "x")
        for more in (
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
BY_KIND = [
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
WORDS = {
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
    "rope_": [*ROTARY, *BY_KIND],
    "id2label": [{"0": "a"}, {"0": "a", "1": "b", "2": "c"}, {"1": "a", "2": "b", "3": "c"}],
    "per_layer_config": [{"0": {"num_attention_heads": 1}}, {"1": {"skip": ["attention"]}}],
    "pruned_heads": [{"0": [1]}],
    "sentence_transformers": [{"activation_fn": name} for name in ACTIVATIONS],
    "sbert_ce_default_activation_function": ACTIVATIONS,
    "transformers_weights": ["other.safetensors"],
    "configuration_files": [["config.4.0.0.json"]],
}
# What the reference reads beside the fields of its classes, or did
BESIDE = (
    *("rope_scaling", "rope_theta", "partial_rotary_factor", "global_rope_theta"),
    *("local_rope_theta", "global_attn_every_n_layers", "sliding_window", "layer_types"),
    *("head_dim", "num_labels", "sentence_transformers", "sbert_ce_default_activation_function"),
    *("summary_proj_to_labels", "position_embedding_type", "per_layer_config", "pruned_heads"),
    *("transformers_weights", "configuration_files", "hidden_size", "num_attention_heads"),
    *("num_hidden_layers", "rotary_emb_base", "n_embd", "prenorm", "activation_function"),
    *("clf_pooling", "original_max_position_embeddings"),
)
# Of the meaning of the outputs of a classifier
OF_OUTPUTS = (
    *("problem_type", "id2label", "num_labels", "sentence_transformers"),
    "sbert_ce_default_activation_function",
)


def fields_of(family: str) -> list[str]:
    """The fields of the reference's config class of a family."""
    return [f.name for f in dataclasses.fields(getattr(transformers, CONFIGS[family]["config"]))]


def keys_of(family: str) -> list[str]:
    """Those, and others that the reference reads."""
    # The models are compared in float32.
    names = [name for name in fields_of(family) if name != "dtype"]
    return [*names, *(name for name in BESIDE if name not in names)]


def alterations(family: str, ending: str, num_labels: int = 3) -> Iterator[dict[str, Any]]:
    """Yields changes of a family's config.json, one field at a time, and then two together.

    Values of all types are tried with the text classifier, which has the encoder and its pooler,
    and few with the other classes; with one output, those that its meaning depends on.
    """
    is_whole = ending == "ForSequenceClassification"
    if is_whole:
        for word, number in itertools.product(WORDS["problem_type"], (1, 3)):
            change = {"problem_type": word, "id2label": _labels(number)}
            yield change
            for name in ACTIVATIONS:
                yield {**change, "sentence_transformers": {"activation_fn": name}}
    names = keys_of(family) if num_labels > 1 else OF_OUTPUTS
    for name in names:
        words = [word for key, words in WORDS.items() if key in name for word in words]
        if not is_whole or ("rope_parameters" not in names and name.startswith("rope_")):
            words = words[:4]
        for value in (*(JUNK if is_whole else JUNK[:1]), *words):
            # The reference makes as many in a loop, without end
            if value != 10**400 or not name.endswith(("_layers", "_labels", "_groups", "_num")):
                yield {name: value}
    if not is_whole or "rope_parameters" not in names:
        return
    ropes = [ROTARY[0], {"rope_type": "linear", "factor": 2.0}, {"type": "dynamic", "factor": 2.0}]
    for one, other in itertools.product(ropes, [*ropes, BY_KIND[0], {}, None]):
        yield {"rope_scaling": one, "rope_parameters": other}
    for name, beside in (("layer_types", None), ("local_attention", 4), ("rope_parameters", None)):
        for value in (2, 3):
            yield {name: beside, "global_attn_every_n_layers": value, "sliding_window": value}
            yield {name: beside, "global_rope_theta": value, "local_rope_theta": value}
            yield {name: beside, "rope_theta": value}


def _labels(number: int) -> dict[str, str]:
    return {str(index): f"LABEL_{index}" for index in range(number)}


@dataclasses.dataclass
class Folder:
    """A folder of both libraries, and the inputs that they are compared on.

    Args:
        family: The name of the family.
        ending: The suffix of the name of its class.
        path: The folder.
        num_labels: The number of outputs of a classifier.
    """

    family: str
    ending: str
    path: Path
    num_labels: int = 3

    def __post_init__(self) -> None:
        labels = {"num_labels": self.num_labels} if "Classification" in self.ending else {}
        saved_by_transformers(self.family, "plain", self.ending, self.path, **labels)
        # Larger, so that who attends to whom is seen in the answers
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
        self.answers: dict[str, list[np.ndarray]] = {}

    def alter(self, changes: dict[str, Any]) -> None:
        (self.path / "config.json").write_text(json.dumps(self.fields | changes))

    def theirs(self) -> list[np.ndarray]:
        """The answers of the transformers library; of a classifier, as its pipeline gives them."""
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
            return self.real(outputs.start_logits.numpy(), outputs.end_logits.numpy())
        if self.ending == "ForSequenceClassification":
            return [_scores(model.config, outputs.logits).numpy()]
        logits = outputs.logits.numpy()
        return [logits] if self.ending == "ForMultipleChoice" else self.real(logits)

    def ours(self) -> list[np.ndarray]:
        """The same of this library, computed once for all files that are read alike."""
        checkpoint = checkpoints.open_checkpoint(self.path)
        read = {name: value for name, value in vars(checkpoint).items() if "open_" not in name}
        key = repr(read)
        if key not in self.answers:
            self.answers[key] = self.answer(checkpoint)
        return self.answers[key]

    def answer(self, checkpoint: checkpoints.Checkpoint) -> list[np.ndarray]:
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
            return self.real(outputs_of(task, {**inputs, "mask_positions": positions}))
        if self.ending == "ForMultipleChoice":
            return [outputs_of(task, {name: values[None] for name, values in inputs.items()})]
        outputs = outputs_of(task, inputs)
        if self.ending == "ForQuestionAnswering":
            return self.real(outputs["start_logits"], outputs["end_logits"])
        if self.ending == "ForTokenClassification":
            return self.real(outputs)
        if task.is_regression:
            return [outputs]
        if task.multi_label:
            return [torch.sigmoid(torch.tensor(outputs)).numpy()]
        scores = torch.softmax(torch.tensor(outputs), -1).numpy()
        # A sigmoid is read as two classes.
        return [scores[:, 1:] if self.num_labels == 1 else scores]

    def real(self, *values: np.ndarray) -> list[np.ndarray]:
        return [value[self.inputs["padding_mask"]] for value in values]

    def compare(self, changes: dict[str, Any]) -> tuple[str, str]:
        """Returns which of the outcomes a change has, and what was said."""
        self.alter(changes)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                ours, said = self.ours(), ""
            except CheckpointError as error:
                ours, said = None, str(error)
            except ValueError as error:
                # Of rows that are longer than the positions of the file, and of names of classes,
                # for which `from_preset` raises the former
                if "must have at most" not in str(error) and "class" not in str(error):
                    return TRACEBACK, repr(error)
                ours, said = None, str(error)
            except Exception as error:
                return TRACEBACK, repr(error)
            try:
                theirs = self.theirs()
            except Exception as error:
                return (BOTH if ours is None else THEIRS), f"{said} | {error!r}"
        if ours is None:
            return OURS, said
        for one, other in zip(ours, theirs, strict=True):
            if one.shape != other.shape:
                return DIFFER, f"{one.shape} and {other.shape}"
            # Theirs in float32 and in float64 differ by a fiftieth of that.
            scale = max(1.0, np.nan_to_num(abs(other), posinf=0).max())
            if not np.allclose(one, other, rtol=0, atol=5e-5 * scale, equal_nan=True):
                return DIFFER, f"by {abs(one - other).max():.2g}"
        return EQUAL, said


def _scores(config: Any, logits: torch.Tensor) -> torch.Tensor:
    """What the pipeline makes of logits, or the cross-encoder, if the file has its activation."""
    named = getattr(config, "sentence_transformers", None) or {}
    path = named.get("activation_fn") or getattr(
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


def folders(families: list[str], root: Path) -> Iterator[Folder]:
    """Yields a folder of each class that a task has, and of a classifier with one output."""
    for family in families:
        for ending in FAMILIES[family].classes:
            if ending in TASKS:
                yield Folder(family, ending, root / f"{family}-{ending}")
        yield Folder(family, "ForSequenceClassification", root / f"{family}-one", num_labels=1)


def main(families: list[str]) -> None:
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    counts = collections.Counter()
    with tempfile.TemporaryDirectory() as root:
        work = [
            (folder, changes)
            for folder in folders(families or list(FAMILIES), Path(root))
            for changes in alterations(folder.family, folder.ending, folder.num_labels)
        ]
        for folder in {id(folder): folder for folder, _ in work}.values():
            outcome, said = folder.compare({})
            if outcome != EQUAL:
                raise SystemExit(f"{folder.family} {folder.ending}, unaltered: {outcome}: {said}")
        with progress.bar("altered configs", len(work), "files") as bar:
            for folder, changes in work:
                outcome, said = folder.compare(changes)
                counts[outcome] += 1
                bar.update()
                if outcome in (DIFFER, TRACEBACK):
                    shown = json.dumps(changes)[:200]
                    print(f"{outcome}: {folder.family} {folder.ending} {shown}: {said}", flush=True)
    for outcome in (EQUAL, BOTH, OURS, THEIRS, DIFFER, TRACEBACK):
        print(f"{outcome}: {counts[outcome]}")
    if counts[DIFFER] or counts[TRACEBACK]:
        raise SystemExit(1)


if __name__ == "__main__":
    main(sys.argv[1:])
