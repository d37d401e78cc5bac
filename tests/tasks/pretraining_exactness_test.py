# SPDX-License-Identifier: Apache-2.0
"""Pre-training losses are those of transformers on the same weights and batches."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from keras_bert import MaskedLM, Pretrainer  # noqa: E402
from keras_bert.checkpoints import CheckpointWarning  # noqa: E402

BATCH, LENGTH, SLOTS, VOCABULARY = 6, 12, 4, 50
IGNORED = -100


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    """A random BERT with both heads, and the folder it is saved in."""
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=VOCABULARY, hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
        intermediate_size=64, max_position_embeddings=32, initializer_range=0.3,
    )  # fmt: skip
    model = transformers.BertForPreTraining(config).eval()
    with torch.no_grad():  # with a zero bias, a missing bias would not be noticed
        model.cls.predictions.bias.normal_()
    folder = tmp_path_factory.mktemp("reference")
    model.save_pretrained(folder)
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"w{i}" for i in range(45))]
    (folder / "vocab.txt").write_text("\n".join(tokens) + "\n")
    return model, folder


def batch():
    """Features, targets and weights; rows with one masked token to `SLOTS`."""
    rng = np.random.default_rng(0)
    lengths = np.array([12, 12, 9, 7, 12, 5])
    mask = np.arange(LENGTH) < lengths[:, None]
    positions = np.array([np.sort(rng.permutation(4)[:SLOTS]) + 1 for _ in range(BATCH)])
    num_masked = np.array([4, 1, 3, 2, 4, 1])
    weights = (np.arange(SLOTS) < num_masked[:, None]).astype("float32")
    features = {
        "token_ids": (rng.integers(5, VOCABULARY, (BATCH, LENGTH)) * mask).astype("int32"),
        "segment_ids": ((np.arange(LENGTH) > 5) & mask).astype("int32"),
        "padding_mask": mask,
        "mask_positions": (positions * (weights > 0)).astype("int32"),
    }
    labels = (rng.integers(5, VOCABULARY, (BATCH, SLOTS)) * (weights > 0)).astype("int32")
    return features, labels, weights, rng.integers(0, 2, BATCH).astype("int32")


def losses_in_transformers(model, features, labels, weights, is_random_next):
    token_labels = np.full((BATCH, LENGTH), IGNORED)
    for row, slot in zip(*np.nonzero(weights), strict=True):
        token_labels[row, features["mask_positions"][row, slot]] = labels[row, slot]
    with torch.no_grad():
        outputs = model(
            torch.tensor(features["token_ids"]).long(),
            torch.tensor(features["padding_mask"]).long(),
            torch.tensor(features["segment_ids"]).long(),
            labels=torch.tensor(token_labels),
            next_sentence_label=torch.tensor(is_random_next).long(),
        )
        masked = torch.nn.functional.cross_entropy(
            outputs.prediction_logits.flatten(0, 1), torch.tensor(token_labels).flatten()
        )
    return float(outputs.loss), float(masked)


def test_both_losses(reference):
    model, folder = reference
    features, labels, weights, is_random_next = batch()
    total, masked = losses_in_transformers(model, features, labels, weights, is_random_next)
    pretrainer = Pretrainer.from_preset(folder, dtype="float32")
    pretrainer.compile()
    received = pretrainer.evaluate(
        features,
        {"masked_lm_logits": labels, "next_sentence_logits": is_random_next},
        sample_weight={"masked_lm_logits": weights, "next_sentence_logits": np.ones(BATCH)},
        batch_size=BATCH,
        return_dict=True,
        verbose=0,
    )
    np.testing.assert_allclose(received["loss"], total, rtol=1e-4)
    np.testing.assert_allclose(received["masked_lm_logits_loss"], masked, rtol=1e-4)
    np.testing.assert_allclose(received["next_sentence_logits_loss"], total - masked, rtol=1e-4)
    np.testing.assert_allclose(received["masked_lm_logits_perplexity"], np.exp(masked), rtol=1e-3)


def test_masked_tokens_alone(reference):
    model, folder = reference
    features, labels, weights, is_random_next = batch()
    _, masked = losses_in_transformers(model, features, labels, weights, is_random_next)
    with pytest.warns(CheckpointWarning, match="not used: cls.seq_relationship.bias"):
        masked_lm = MaskedLM.from_preset(folder, dtype="float32")
    masked_lm.compile()
    loss, accuracy, perplexity = masked_lm.evaluate(
        features, labels, sample_weight=weights, batch_size=BATCH, verbose=0
    )
    np.testing.assert_allclose(loss, masked, rtol=1e-4)
    np.testing.assert_allclose(perplexity, np.exp(masked), rtol=1e-3)
    logits = masked_lm.predict(features, verbose=0)
    hits = (logits.argmax(-1) == labels)[weights > 0]
    np.testing.assert_allclose(accuracy, hits.mean(), rtol=1e-6)
