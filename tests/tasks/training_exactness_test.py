# SPDX-License-Identifier: Apache-2.0
"""Fine-tuning gives the losses of the same loop in transformers: same weights, same batches."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from keras_bert import TextClassifier  # noqa: E402
from tests.tasks.same_training import losses_here, losses_in_transformers  # noqa: E402

Batch = tuple[dict[str, np.ndarray], np.ndarray]


def test_losses_of_a_random_bert(tmp_path):
    folder = save_random_bert(tmp_path)
    rng = np.random.default_rng(0)
    batches = [random_batch(rng, num_rows=8, length=12) for _ in range(20)]
    expected, received = losses_of_both(folder, batches, peak=2e-3)
    assert expected[-1] < expected[0] - 0.01
    np.testing.assert_allclose(received, expected, rtol=1e-4)


@pytest.mark.release
@pytest.mark.filterwarnings("ignore:.*no classifier head:keras_bert.checkpoints.CheckpointWarning")
def test_losses_of_minilm_on_mrpc():
    from keras_bert import minilm
    from training.readers import glue

    folder = minilm.folder()
    data = glue.read_split(Path(os.environ["KERAS_BERT_DATA"]) / "glue", "mrpc", "train")
    classifier = TextClassifier.from_preset(folder, 2, sequence_length=128)
    rows = np.random.default_rng(1).permutation(len(data))[: 200 * 16].reshape(200, 16)
    batches = []
    for indices in rows:
        first = [data.texts[index] for index in indices]
        second = [data.text_pairs[index] for index in indices]
        features = classifier.preprocessor(first, second)
        # Few lengths: compilers need seconds for each
        padded = {k: np.pad(v, ((0, 0), (0, -v.shape[1] % 32))) for k, v in features.items()}
        batches.append((padded, data.labels[indices]))
    expected, received = losses_of_both(folder, batches, peak=1.5e-4)
    error = np.abs(received / expected - 1)
    print(
        f"\nlargest relative difference: {error[:20].max():.1e} in the first 20 steps, "
        f"{error.max():.1e} in all {len(error)}; loss {expected[0]:.3f} to {expected[-1]:.3f}"
    )
    assert error[:20].max() < 1e-4
    assert error.max() < 1e-2


def save_random_bert(folder: Path) -> Path:
    """A small BERT with a classifier, without dropout, in Hugging Face's layout."""
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=50, hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
        intermediate_size=64, max_position_embeddings=32, num_labels=2,
    )  # fmt: skip
    transformers.BertForSequenceClassification(config).save_pretrained(folder)
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"w{i}" for i in range(45))]
    (folder / "vocab.txt").write_text("\n".join(tokens) + "\n")
    return folder


def random_batch(rng: np.random.Generator, num_rows: int, length: int) -> Batch:
    token_ids = rng.integers(5, 50, (num_rows, length), dtype="int32")
    lengths = rng.integers(3, length + 1, num_rows)
    mask = np.arange(length) < lengths[:, None]
    segments = (np.arange(length) >= length // 2) & mask
    # A learnable label: whether the first token is in the vocabulary's upper half
    labels = (token_ids[:, 0] > 27).astype("int32")
    features = {
        "token_ids": token_ids * mask,
        "segment_ids": segments.astype("int32"),
        "padding_mask": mask,
    }
    return features, labels


def losses_of_both(
    folder: Path, batches: list[Batch], peak: float
) -> tuple[np.ndarray, np.ndarray]:
    """The losses in transformers and here, of one encoder and one head."""
    warmup = round(0.1 * len(batches))
    model = transformers.BertForSequenceClassification.from_pretrained(
        folder, num_labels=2, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0
    ).train()
    classifier = TextClassifier.from_preset(folder, 2, dropout=0.0, dtype="float32")
    classifier = without_dropout(classifier)
    head = np.random.default_rng(7).normal(0, 0.02, classifier.head.dense.kernel.shape)
    classifier.head.dense.kernel.assign(head.astype("float32"))
    classifier.head.dense.bias.assign(np.zeros(2, "float32"))
    with torch.no_grad():
        model.classifier.weight.copy_(torch.tensor(head.T.astype("float32")))
        model.classifier.bias.zero_()

    def their_loss(features: dict[str, np.ndarray], labels: np.ndarray) -> Any:
        tensors = {name: torch.tensor(np.asarray(value)) for name, value in features.items()}
        return model(
            input_ids=tensors["token_ids"].long(),
            token_type_ids=tensors["segment_ids"].long(),
            attention_mask=tensors["padding_mask"].long(),
            labels=torch.tensor(labels).long(),
        ).loss

    expected = losses_in_transformers(model, batches, their_loss, peak, warmup)
    return expected, losses_here(classifier, batches, peak, warmup)


def without_dropout(classifier: TextClassifier) -> TextClassifier:
    """The same weights in an architecture whose dropout rates are 0."""
    from keras_bert import Backbone

    config = classifier.config.replace(dropout=0.0, attention_dropout=0.0)
    same = TextClassifier(Backbone(config), 2, dropout=0.0)
    same.set_weights(classifier.get_weights())
    return same
