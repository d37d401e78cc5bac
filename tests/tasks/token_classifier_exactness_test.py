# SPDX-License-Identifier: Apache-2.0
"""A tagger's logits, losses and files are those of transformers' BertForTokenClassification."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from keras_bert import TokenClassifier  # noqa: E402
from tests.tasks.same_training import losses_here, losses_in_transformers  # noqa: E402

NAMES = ["O", "B-PER", "I-PER", "B-creative-work", "I-creative-work"]
TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"w{i}" for i in range(45))]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A small random tagger in Hugging Face's layout, without dropout."""
    folder = tmp_path_factory.mktemp("theirs")
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=50, hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
        intermediate_size=64, max_position_embeddings=32, hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0, initializer_range=0.1,
        id2label=dict(enumerate(NAMES)), label2id={name: i for i, name in enumerate(NAMES)},
    )  # fmt: skip
    transformers.BertForTokenClassification(config).save_pretrained(folder)
    (folder / "vocab.txt").write_text("\n".join(TOKENS) + "\n")
    return folder


def random_batch(generator, rows=6, length=11):
    mask = np.arange(length) < generator.integers(3, length + 1, rows)[:, None]
    ids = generator.integers(5, 50, (rows, length)) * mask
    # A learnable label, for half of the tokens
    labels = np.where(generator.random(ids.shape) < 0.5, ids % len(NAMES), -100)
    return {"token_ids": ids.astype("int32"), "padding_mask": mask}, np.where(mask, labels, -100)


def theirs(model, features, labels):
    return model(
        input_ids=torch.tensor(features["token_ids"]).long(),
        attention_mask=torch.tensor(features["padding_mask"]).long(),
        labels=torch.tensor(labels).long(),
    )


def test_logits_and_losses_over_twenty_steps(folder):
    generator = np.random.default_rng(0)
    batches = [random_batch(generator) for _ in range(20)]
    tagger = TokenClassifier.from_preset(folder, dtype="float32")
    assert tagger.class_names == tuple(NAMES)
    model = transformers.BertForTokenClassification.from_pretrained(folder)
    features, labels = batches[0]
    expected = theirs(model, features, labels)
    received = tagger.predict(features, verbose=0)
    mask = features["padding_mask"]
    np.testing.assert_allclose(received[mask], expected.logits.detach().numpy()[mask], atol=1e-4)

    tagger.compile()
    tagger.evaluate(features, labels, verbose=0)
    assert tagger.evaluate(features, labels, verbose=0, return_dict=True)["loss"] == pytest.approx(
        float(expected.loss.detach()), abs=1e-5
    )
    weighted = [
        (features, np.maximum(labels, 0), (labels >= 0).astype("float32"))
        for features, labels in batches
    ]
    received = losses_here(tagger, weighted, 2e-3, 2)
    expected = losses_in_transformers(
        model.eval(), batches, lambda *batch: theirs(model, *batch).loss, 2e-3, 2
    )
    assert expected[-1] < expected[0] - 0.01
    np.testing.assert_allclose(received, expected, rtol=1e-4)
