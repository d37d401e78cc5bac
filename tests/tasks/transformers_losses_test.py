# SPDX-License-Identifier: Apache-2.0
"""Training losses match the same loop in transformers, with equal weights and batches."""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

import keras_bert  # noqa: E402
from keras_bert import minilm  # noqa: E402
from keras_bert.data.batch_options import BatchOptions  # noqa: E402
from keras_bert.optimizers import AdamW  # noqa: E402

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*has no pooler:keras_bert.checkpoints.CheckpointWarning"),
    pytest.mark.filterwarnings("ignore:.*head:keras_bert.checkpoints.CheckpointWarning"),
]

ROWS, LENGTH, NUM_MASKED, VOCABULARY = 8, 12, 4, 50
TAGS = ["O", "B-PER", "I-PER", "B-creative-work", "I-creative-work"]
WEIGHT_DECAY = 0.01
IGNORED = -100  # PyTorch's cross-entropy ignores this label.
Batch = tuple[Any, ...]
INPUTS = {
    "token_ids": "input_ids",
    "segment_ids": "token_type_ids",
    "padding_mask": "attention_mask",
}


@dataclasses.dataclass(frozen=True)
class LossCase:
    """A task in both libraries.

    Args:
        task: The task class in keras_bert.
        model: The model class in transformers.
        learnable: Returns random rows for `train_on_batch`. The labels depend on the tokens.
        labels: Returns arguments of the transformers model for a batch.
        fields: Fields of the transformers config.
    """

    task: Any
    model: Any
    learnable: Callable[[np.random.Generator], Batch]
    labels: Callable[..., dict[str, Any]]
    fields: dict[str, Any] = dataclasses.field(default_factory=dict)

    def outputs(self, model: Any, features: dict[str, Any], *rest: Any) -> Any:
        """Computes the output of the transformers model for a batch."""
        inputs = {INPUTS[name]: value for name, value in features.items() if name in INPUTS}
        arrays = inputs | self.labels(features, *rest)
        return model(**{name: torch.tensor(array).long() for name, array in arrays.items()})


def random_features(generator: np.random.Generator) -> dict[str, np.ndarray]:
    mask = np.arange(LENGTH) < generator.integers(6, LENGTH + 1, (ROWS, 1))
    return {
        "token_ids": (generator.integers(7, VOCABULARY, (ROWS, LENGTH)) * mask).astype("int32"),
        "segment_ids": ((np.arange(LENGTH) >= 5) & mask).astype("int32"),
        "padding_mask": mask,
    }


def classes(generator: np.random.Generator) -> Batch:
    features = random_features(generator)
    return features, (features["token_ids"][:, 0] > 27).astype("int32")


def tags(generator: np.random.Generator) -> Batch:
    features = random_features(generator)
    weights = features["padding_mask"] * (generator.random((ROWS, LENGTH)) < 0.5)
    return features, features["token_ids"] % len(TAGS), weights.astype("float32")


def spans(generator: np.random.Generator) -> Batch:
    """Answers start at token 5 and end at token 6."""
    features = random_features(generator)
    start, end = np.sort(generator.integers(0, 6, (2, ROWS)), axis=0).astype("int32")
    features["token_ids"][np.arange(ROWS), end] = 6
    features["token_ids"][np.arange(ROWS), start] = 5
    return features, {"start_logits": start, "end_logits": end}


def masked(generator: np.random.Generator) -> Batch:
    """Rows with 1 to `NUM_MASKED` masked tokens."""
    features = random_features(generator)
    weights = np.arange(NUM_MASKED) < generator.integers(1, NUM_MASKED + 1, (ROWS, 1))
    positions = np.arange(1, NUM_MASKED + 1, dtype="int32") * weights
    labels = features["token_ids"][:, 1 : NUM_MASKED + 1] * weights
    return {**features, "mask_positions": positions}, labels, weights.astype("float32")


def pretraining(generator: np.random.Generator) -> Batch:
    features, labels, weights = masked(generator)
    is_random_next = (features["token_ids"][:, 5] > 27).astype("int32")
    names = "masked_lm_logits", "next_sentence_logits"
    return (
        features,
        dict(zip(names, (labels, is_random_next), strict=True)),
        dict(zip(names, (weights, np.ones(ROWS, "float32")), strict=True)),
    )


def token_labels(features: Any, labels: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Returns the labels of masked tokens at their positions in the rows."""
    placed = np.full((ROWS, LENGTH), IGNORED)
    row, slot = np.nonzero(weights)
    placed[row, features["mask_positions"][row, slot]] = labels[row, slot]
    return placed


CASES = {
    "classes": LossCase(
        keras_bert.TextClassifier,
        transformers.BertForSequenceClassification,
        classes,
        lambda features, labels, *_: {"labels": labels},
    ),
    "tags": LossCase(
        keras_bert.TokenClassifier,
        transformers.BertForTokenClassification,
        tags,
        lambda features, labels, weights: {"labels": np.where(weights > 0, labels, IGNORED)},
        {"id2label": dict(enumerate(TAGS)), "label2id": {tag: i for i, tag in enumerate(TAGS)}},
    ),
    "spans": LossCase(
        keras_bert.QuestionAnswerer,
        transformers.BertForQuestionAnswering,
        spans,
        lambda features, spans, *_: {
            "start_positions": spans["start_logits"],
            "end_positions": spans["end_logits"],
        },
    ),
    "masked_lm": LossCase(
        keras_bert.MaskedLM,
        transformers.BertForMaskedLM,
        masked,
        lambda *batch: {"labels": token_labels(*batch)},
    ),
    "pretraining": LossCase(
        keras_bert.Pretrainer,
        transformers.BertForPreTraining,
        pretraining,
        lambda features, labels, weights: {
            "labels": token_labels(
                features, labels["masked_lm_logits"], weights["masked_lm_logits"]
            ),
            "next_sentence_label": labels["next_sentence_logits"],
        },
    ),
}


def save_random_bert(case: LossCase, directory: Path) -> Any:
    """Saves a small model without dropout in the Hugging Face format, and returns it."""
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=VOCABULARY, hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
        intermediate_size=64, max_position_embeddings=32, hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0, initializer_range=0.1, **case.fields,
    )  # fmt: skip
    model = case.model(config)
    with torch.no_grad():  # With zero biases, a missing bias would not be noticed.
        for parameter in model.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    model.save_pretrained(directory)
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"w{i}" for i in range(45))]
    (directory / "vocab.txt").write_text("\n".join(tokens) + "\n")
    return model


def train_in_keras_bert(task: Any, batches: list[Batch], peak: float) -> list[dict[str, float]]:
    """Returns the logs of each step."""
    steps = len(batches)
    task.compile(AdamW(peak, steps, steps // 10, weight_decay=WEIGHT_DECAY, global_clipnorm=1.0))
    logs = []
    for batch in batches:
        # Keras reports running means, so they are reset before each step.
        task.reset_metrics()
        logs.append(task.train_on_batch(*batch, return_dict=True))
    return logs


def train_in_transformers(
    case: LossCase, model: Any, batches: list[Batch], peak: float
) -> np.ndarray:
    """Returns the loss of each step with AdamW, linear warm-up and decay, and clipped gradients."""
    torch.set_num_threads(2)
    # In transformers, [PAD] gets no gradient. In the original BERT code, the loss includes its
    # logits.
    model.bert.embeddings.word_embeddings.padding_idx = None
    decayed, undecayed = [], []
    for name, parameter in model.train().named_parameters():
        excluded = name.endswith("bias") or "LayerNorm" in name
        (undecayed if excluded else decayed).append(parameter)
    groups = [{"params": decayed}, {"params": undecayed, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=peak, weight_decay=WEIGHT_DECAY)
    steps, warmup = len(batches), len(batches) // 10
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda s: min((s + 1) / warmup, (steps - s) / (steps - warmup))
    )
    losses = []
    for batch in batches:
        loss = case.outputs(model, *batch).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        losses.append(float(loss.detach()))
    return np.array(losses)


# It has the losses of masked tokens and of classes. PyTorch runs all cases.
CASE_ON_EACH_BACKEND = "pretraining"


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name == CASE_ON_EACH_BACKEND else pytest.mark.on_torch)
        for name in CASES
    ],
)
def test_losses_match_transformers(name, tmp_path):
    case = CASES[name]
    model = save_random_bert(case, tmp_path)
    generator = np.random.default_rng(0)
    batches = [case.learnable(generator) for _ in range(20)]
    with torch.no_grad():
        outputs = case.outputs(model.eval(), *batches[0])
    expected = train_in_transformers(case, model, batches, peak=2e-3)
    logs = train_in_keras_bert(case.task.from_preset(tmp_path, dtype="float32"), batches, peak=2e-3)
    assert expected[-1] < expected[0] - 0.01
    np.testing.assert_allclose([log["loss"] for log in logs], expected, rtol=1e-4)
    if name in ("masked_lm", "pretraining"):
        logits = outputs["logits" if name == "masked_lm" else "prediction_logits"]
        labels = torch.tensor(case.labels(*batches[0])["labels"])
        part = float(torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten()))
        hits = (logits.argmax(-1) == labels)[labels != IGNORED]
        prefix = "" if name == "masked_lm" else "masked_lm_logits_"
        assert logs[0][f"{prefix}loss"] == pytest.approx(part, rel=1e-4)
        assert logs[0][f"{prefix}perplexity"] == pytest.approx(np.exp(part), rel=1e-3)
        assert logs[0][f"{prefix}accuracy"] == pytest.approx(float(hits.float().mean()), rel=1e-6)


@pytest.mark.on_torch
def test_span_loss_with_padding(tmp_path):
    """Answers can start at padding in training, as in transformers, but not in `evaluate`."""
    case = CASES["spans"]
    model = save_random_bert(case, tmp_path)
    features, targets = case.learnable(np.random.default_rng(0))
    with torch.no_grad():
        reference = case.outputs(model.eval(), features, targets)
    task = keras_bert.QuestionAnswerer.from_preset(tmp_path, unpadded=False, dtype="float32")
    logits = task.predict(features, verbose=0)
    task.compile("sgd")
    received = task.evaluate(features, targets, verbose=0, return_dict=True)
    padding = torch.tensor(~features["padding_mask"])
    expected = []
    for name, positions in targets.items():
        np.testing.assert_allclose(logits[name], reference[name].numpy(), atol=1e-5)
        masked_logits = reference[name].masked_fill(padding, -1e9)
        expected.append(
            torch.nn.functional.cross_entropy(masked_logits, torch.tensor(positions).long())
        )
        assert received[f"{name}_loss"] == pytest.approx(float(expected[-1]), rel=1e-5)
    assert received["loss"] == pytest.approx(float(sum(expected)) / 2, rel=1e-5)
    assert received["loss"] < float(reference.loss) - 0.01


# === 200 steps on real data ===


def mrpc(directory: Path, data: Path) -> tuple[Any, Any]:
    from training.readers import glue

    rows = glue.read_split(data / "glue", "mrpc", "train")
    task = keras_bert.TextClassifier.from_preset(directory, 2, sequence_length=128, dtype="float32")
    return task, ((rows.texts, rows.text_pairs), rows.labels)


def entities(directory: Path, data: Path) -> tuple[Any, Any]:
    from keras_bert.data.conll import read_conll
    from training.readers.tagged_words import label_names

    text = read_conll(data / "ner" / "wnut17train.conll")
    task = keras_bert.TokenClassifier.from_preset(
        directory, class_names=label_names(text), sequence_length=128, dtype="float32"
    )
    return task, (text.words, text.labels)


def questions(directory: Path, data: Path) -> tuple[Any, Any]:
    from keras_bert.data.squad import read_squad

    examples = read_squad(data / "squad" / "squadshifts-new_wiki-v1.0.json").examples
    task = keras_bert.QuestionAnswerer.from_preset(
        directory, sequence_length=128, doc_stride=64, dtype="float32"
    )
    return task, (examples[:: len(examples) // 700], None)


@pytest.mark.release
@pytest.mark.parametrize(
    ("name", "read", "batch_size"),
    [("classes", mrpc, 16), ("tags", entities, 16), ("spans", questions, 4)],
)
def test_minilm_losses_match_transformers(name, read, batch_size, tmp_path):
    case, directory = CASES[name], tmp_path / "minilm"
    shutil.copytree(minilm.directory(), directory)
    config = json.loads((directory / "config.json").read_text())
    config |= {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    (directory / "config.json").write_text(json.dumps(config))
    task, rows = read(directory, Path(os.environ["KERAS_BERT_DATA"]))
    batches = task._batches(
        task._read(*rows, None, BatchOptions()),
        BatchOptions(batch_size, compiles=True, shuffle_seed=1),
    )
    # For spans, keep only the features and the positions.
    batches = [batch[: 2 if name == "spans" else 3] for batch in itertools.islice(batches, 200)]
    assert len(batches) == 200
    num_labels = 2 if name == "spans" else task.head.dense.units
    model = case.model.from_pretrained(directory, num_labels=num_labels)
    # The checkpoint has no heads.
    head, reference = task.head.dense, getattr(model, "classifier", None) or model.qa_outputs
    kernel = np.random.default_rng(7).normal(0, 0.02, head.kernel.shape).astype("float32")
    head.kernel.assign(kernel)
    head.bias.assign(np.zeros(head.bias.shape, "float32"))
    with torch.no_grad():
        reference.weight.copy_(torch.tensor(kernel.T))
        reference.bias.zero_()
    expected = train_in_transformers(case, model, batches, peak=1.5e-4)
    received = [log["loss"] for log in train_in_keras_bert(task, batches, peak=1.5e-4)]
    error = np.abs(received / expected - 1)
    print(
        f"\nlargest relative difference: {error[:20].max():.1e} in the first 20 steps, "
        f"{error.max():.1e} in all {len(error)}; loss {expected[0]:.3f} to {expected[-1]:.3f}"
    )
    assert error[:20].max() < 1e-4
    assert error.max() < 1e-2
