# SPDX-License-Identifier: Apache-2.0
"""What decides a run of re-ranking: one typed, frozen record."""

from __future__ import annotations

import dataclasses

LOSSES = ("pointwise", "pairwise")


@dataclasses.dataclass(frozen=True)
class RerankConfig:
    """Re-ranking what BM25 finds, by an encoder that reads query and document together.

    Args:
        data_dir: the folder of the Cranfield collection: cran.all.1400, cran.qry and cranqrel.
        loss: pointwise tells relevant documents from others, each on its own; pairwise makes the
            score of a relevant one higher than that of another for the same query.
        candidates: how many documents of BM25's are re-ranked.
        negatives: for each relevant document, how many others of BM25's it is trained against.
        test_every: every so many queries one is held out to be scored.
        preset: a checkpoint: a folder, hf://organisation/model, or a name KerasHub knows; empty
            takes the MiniLM of the extra `quickstart`.
        epochs: passes over the training data.
        batch_size: pairs of documents, or single ones, in an optimizer step.
        accumulation: micro-batches that make up an optimizer step, for large batches.
        learning_rate: the peak, reached at the end of the warm-up.
        warmup: share of the steps in which the learning rate rises.
        weight_decay: decoupled decay, of all but biases and LayerNorms.
        layer_decay: factor on the learning rate from each layer to the one below it.
        sequence_length: the longest query with a document in tokens; longer ones are cut.
        precision: float32, bfloat16, mixed_bfloat16 or mixed_float16; auto takes mixed_bfloat16,
            and float32 for JAX on a CPU, where bfloat16 is the slower.
        seed: it decides the head's weights, dropout, and which others a document is trained
            against.
        output_dir: where rankings, scores and the model go.
        tensorboard: whether to log for TensorBoard, into output_dir.
    """

    data_dir: str = ""
    loss: str = "pairwise"
    candidates: int = 50
    negatives: int = 4
    test_every: int = 5
    preset: str = ""
    epochs: int = 2
    batch_size: int = 16
    accumulation: int = 1
    learning_rate: float = 5e-5
    warmup: float = 0.1
    weight_decay: float = 0.01
    layer_decay: float = 1.0
    sequence_length: int = 192
    precision: str = "auto"
    seed: int = 1
    output_dir: str = "runs/rerank"
    tensorboard: bool = False

    def __post_init__(self) -> None:
        if self.loss not in LOSSES:
            raise ValueError(f"loss is {self.loss!r}, expected one of {', '.join(LOSSES)}")
        for name in ("candidates", "negatives", "epochs", "batch_size", "accumulation"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}, expected at least 1")
        if self.test_every < 2:
            raise ValueError(f"test_every is {self.test_every}, expected at least 2")
        if self.batch_size % self.accumulation:
            raise ValueError(
                f"accumulation is {self.accumulation}, expected a divisor of the batch size, "
                f"{self.batch_size}"
            )
