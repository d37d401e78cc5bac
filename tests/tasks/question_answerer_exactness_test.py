# SPDX-License-Identifier: Apache-2.0
"""Question answering gives the logits, the loss and the training of transformers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from keras import ops

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from keras_bert import QuestionAnswerer  # noqa: E402
from tests.tasks.same_training import losses_here, losses_in_transformers  # noqa: E402

pytestmark = pytest.mark.filterwarnings(
    "ignore:.*has no pooler:keras_bert.checkpoints.CheckpointWarning"
)

Batch = tuple[dict[str, np.ndarray], dict[str, np.ndarray]]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A small BERT with a head for spans, without dropout, in Hugging Face's layout."""
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=50, hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
        intermediate_size=64, max_position_embeddings=32,
        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    model = transformers.BertForQuestionAnswering(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    model.save_pretrained(tmp_path)
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"w{i}" for i in range(45))]
    (tmp_path / "vocab.txt").write_text("\n".join(tokens) + "\n")
    return tmp_path


def random_batch(seed: int, num_rows: int = 8, length: int = 14) -> Batch:
    generator = np.random.default_rng(seed)
    mask = np.arange(length) < generator.integers(6, length + 1, (num_rows, 1))
    positions = generator.integers(0, 6, (2, num_rows))
    token_ids = generator.integers(5, 50, (num_rows, length)) * mask
    # A learnable task: answers begin at one token, and end at another.
    token_ids[np.arange(num_rows), positions.max(axis=0)] = 6
    token_ids[np.arange(num_rows), positions.min(axis=0)] = 5
    features = {
        "token_ids": token_ids.astype("int32"),
        "segment_ids": ((np.arange(length) >= 4) & mask).astype("int32"),
        "padding_mask": mask,
    }
    targets = {
        "start_logits": positions.min(axis=0).astype("int32"),
        "end_logits": positions.max(axis=0).astype("int32"),
    }
    return features, targets


def their_outputs(model, features, targets):
    return model(
        input_ids=torch.tensor(features["token_ids"]).long(),
        token_type_ids=torch.tensor(features["segment_ids"]).long(),
        attention_mask=torch.tensor(features["padding_mask"]).long(),
        start_positions=torch.tensor(targets["start_logits"]).long(),
        end_positions=torch.tensor(targets["end_logits"]).long(),
    )


def test_logits_and_loss(folder):
    features, targets = random_batch(0)
    model = transformers.BertForQuestionAnswering.from_pretrained(folder).eval()
    with torch.no_grad():
        theirs = their_outputs(model, features, targets)
    # Of padding too, which answers may begin at in training
    ours = QuestionAnswerer.from_preset(folder, unpadded=False, dtype="float32")
    logits = ours.predict(features, verbose=0)
    for name in ("start_logits", "end_logits"):
        np.testing.assert_allclose(logits[name], theirs[name].numpy(), atol=1e-5)
    ours.compile()
    results = ours.evaluate(features, targets, verbose=0, return_dict=True)
    # In transformers an answer may begin at padding, as in our training loss.
    y_pred = {name: ops.convert_to_tensor(value) for name, value in logits.items()}
    in_training = ours.compute_loss(features, targets, y_pred)
    assert float(in_training) == pytest.approx(float(theirs.loss), rel=1e-5)
    mask = torch.tensor(features["padding_mask"]).bool()
    expected = [
        torch.nn.functional.cross_entropy(
            theirs[name].masked_fill(~mask, -1e9), torch.tensor(targets[name]).long()
        )
        for name in ("start_logits", "end_logits")
    ]
    assert results["loss"] == pytest.approx(float(sum(expected)) / 2, rel=1e-5)
    parts = results["start_logits_loss"] + results["end_logits_loss"]
    assert results["loss"] == pytest.approx(parts / 2, rel=1e-5)


def test_the_losses_of_training(folder):
    batches = [random_batch(seed) for seed in range(20)]
    model = transformers.BertForQuestionAnswering.from_pretrained(folder).train()
    # [PAD] gets no gradient in transformers. In the released code its logits are in the loss.
    model.bert.embeddings.word_embeddings.padding_idx = None
    expected = losses_in_transformers(
        model, batches, lambda *batch: their_outputs(model, *batch).loss, 2e-3, 2
    )
    received = losses_here(QuestionAnswerer.from_preset(folder, dtype="float32"), batches, 2e-3, 2)
    assert expected[-1] < expected[0] - 0.1
    np.testing.assert_allclose(received, expected, rtol=1e-4)
