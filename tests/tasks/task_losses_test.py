# SPDX-License-Identifier: Apache-2.0
"""Two hundred steps on real questions and entities give the losses of transformers."""

from __future__ import annotations

import itertools
import os
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

pytestmark = [
    pytest.mark.release,
    pytest.mark.filterwarnings("ignore:.*has no pooler:keras_bert.checkpoints.CheckpointWarning"),
    pytest.mark.filterwarnings("ignore:.*head:keras_bert.checkpoints.CheckpointWarning"),
]

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from keras_bert import Backbone, QuestionAnswerer, TokenClassifier  # noqa: E402
from keras_bert.data.loader import BatchOptions  # noqa: E402
from tests.tasks.same_training import losses_here, losses_in_transformers  # noqa: E402

STEPS, WARMUP, PEAK = 200, 20, 1.5e-4
Features = dict[str, np.ndarray]


def test_losses_of_minilm_on_questions():
    from keras_bert.data.squad import read_squad

    examples = read_squad(data_folder() / "squad" / "squadshifts-new_wiki-v1.0.json").examples
    task = QuestionAnswerer.from_preset(
        minilm(), sequence_length=128, doc_stride=64, dtype="float32"
    )
    rows = task._read(examples[:: len(examples) // 700], None, None, BatchOptions())
    batches = task._batches(rows, BatchOptions(4, compiles=True, shuffle_seed=1))
    batches = list(itertools.islice(batches, STEPS))
    task = without_dropout(task, lambda backbone: QuestionAnswerer(backbone))
    model = their_model(transformers.BertForQuestionAnswering)
    # [PAD] gets no gradient in transformers. In the released code its logits are in the loss.
    model.bert.embeddings.word_embeddings.padding_idx = None
    same_head(task.head.dense, model.qa_outputs)

    def their_loss(features: Features, targets: Any) -> Any:
        return model(
            **their_features(features),
            start_positions=torch.tensor(targets["start_logits"]).long(),
            end_positions=torch.tensor(targets["end_logits"]).long(),
        ).loss

    compare(task, model, [(x, y) for x, y, _ in batches], their_loss)


def test_losses_of_minilm_on_entities():
    from keras_bert.data.conll import read_conll
    from training.readers.tagged_words import label_names

    text = read_conll(data_folder() / "ner" / "wnut17train.conll")
    names = label_names(text)
    task = TokenClassifier.from_preset(
        minilm(), class_names=names, sequence_length=128, dtype="float32"
    )
    rows = task._read(text.words, text.labels, None, BatchOptions())
    batches = task._batches(rows, BatchOptions(16, compiles=True, shuffle_seed=1))
    batches = list(itertools.islice(batches, STEPS))
    task = without_dropout(task, lambda backbone: TokenClassifier(backbone, len(names), dropout=0))
    model = their_model(transformers.BertForTokenClassification, num_labels=len(names))
    same_head(task.head.dense, model.classifier)

    def their_loss(features: Features, labels: np.ndarray, weights: np.ndarray) -> Any:
        targets = torch.tensor(np.where(weights > 0, labels, -100)).long()
        return model(**their_features(features), labels=targets).loss

    compare(task, model, batches, their_loss)


def data_folder() -> Path:
    return Path(os.environ["KERAS_BERT_DATA"])


def minilm() -> Path:
    from keras_bert import minilm

    return minilm.folder()


def without_dropout(task: Any, make: Any) -> Any:
    """The same weights in an architecture whose dropout rates are 0."""
    config = task.config.replace(dropout=0.0, attention_dropout=0.0)
    same = make(Backbone(config, dtype="float32"))
    same.set_weights(task.get_weights())
    return same


def their_model(kind: Any, **options: Any) -> Any:
    torch.set_num_threads(2)
    return kind.from_pretrained(
        minilm(), hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, **options
    ).train()


def same_head(ours: Any, theirs: Any) -> None:
    """Gives both heads the same weights; neither is in the checkpoint."""
    kernel = np.random.default_rng(7).normal(0, 0.02, ours.kernel.shape).astype("float32")
    ours.kernel.assign(kernel)
    ours.bias.assign(np.zeros(ours.bias.shape, "float32"))
    with torch.no_grad():
        theirs.weight.copy_(torch.tensor(kernel.T))
        theirs.bias.zero_()


def their_features(features: Features) -> dict[str, Any]:
    names = {
        "token_ids": "input_ids",
        "segment_ids": "token_type_ids",
        "padding_mask": "attention_mask",
    }
    return {theirs: torch.tensor(features[ours]).long() for ours, theirs in names.items()}


def compare(task: keras.Model, model: Any, batches: list[Any], their_loss: Any) -> None:
    assert len(batches) == STEPS
    expected = losses_in_transformers(model, batches, their_loss, PEAK, WARMUP)
    received = losses_here(task, batches, PEAK, WARMUP)
    error = np.abs(received / expected - 1)
    print(
        f"\nlargest relative difference: {error[:20].max():.1e} in the first 20 steps, "
        f"{error.max():.1e} in all {STEPS}; loss {expected[0]:.3f} to {expected[-1]:.3f}"
    )
    assert error[:20].max() < 1e-4
    assert error.max() < 1e-2
