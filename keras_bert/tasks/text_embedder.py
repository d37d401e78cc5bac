# SPDX-License-Identifier: Apache-2.0
"""A vector for each text: near to one another where texts mean the same."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import keras
import numpy as np

from keras_bert.layers.pooling import POOLINGS, SentencePooling
from keras_bert.losses import InBatchNegatives
from keras_bert.models.backbone import Backbone
from keras_bert.models.inputs import first_positions, token_inputs
from keras_bert.tasks.rows import Batching, Rows, TextRows, is_dataset, listed, text_columns
from keras_bert.tasks.task import Task

if TYPE_CHECKING:
    from keras_bert.checkpoints import Checkpoint
    from keras_bert.data.text_batches import TextClassifierPreprocessor
    from keras_bert.export import ExportOptions


@keras.saving.register_keras_serializable(package="keras_bert")
class TextEmbedder(Task):
    """BERT whose tokens' vectors become one for the text.

    `fit` takes pairs of texts that mean the same, or answer one another, without labels: a list of
    (a, b) pairs, a tuple of two lists, or a dict of `text` and `text_pair`. Those of the other
    pairs in a batch are the negatives; `batch_size` counts pairs, and `sample_weight` has one for
    each. For features `y` is what the loss takes: for `InBatchNegatives` the number of each row's
    pair. `compile()` takes AdamW at 2e-5 and
    `keras_bert.losses.InBatchNegatives()`.

    Args:
        backbone: The encoder.
        preprocessor: Text to features, or the config of what makes them; without one the task
            takes ids.
        pooling: `mean` of the real tokens, or `cls`, the first one.
        normalize: Whether vectors have length 1, so that their products are cosines.
        name: The model's name.

    Call arguments:
        inputs: The backbone's inputs.

    Output shape:
        Vectors `(batch, hidden)`, float32.

    Example:

    >>> from keras_bert import Backbone, BertConfig, TextEmbedder
    >>> config = BertConfig(num_layers=1, hidden_dim=8, num_heads=2, intermediate_dim=16)
    >>> embedder = TextEmbedder(Backbone(config))
    >>> embedder.predict(np.array([[101, 2023, 102]]), verbose=0).shape
    (1, 8)

    Reference:
        [Sentence-BERT](https://arxiv.org/abs/1908.10084), section 3.
    """

    options = ("pooling", "normalize")
    preset_options = options
    output_name = "embedding"
    answers_whole_texts = True
    uses_pooler = False

    def __init__(
        self,
        backbone: Backbone,
        preprocessor: TextClassifierPreprocessor | dict[str, Any] | None = None,
        *,
        pooling: str = "mean",
        normalize: bool = True,
        name: str = "text_embedder",
        **kwargs: Any,
    ) -> None:
        if pooling not in POOLINGS:
            raise ValueError(f"pooling is {pooling!r}; expected one of {', '.join(POOLINGS)}.")
        if pooling == "cls" and backbone.config.causal:
            raise ValueError(
                "pooling is 'cls', but in a causal encoder the first token sees no other: take "
                "'mean'."
            )
        inputs = token_inputs()
        pool = SentencePooling(pooling, normalize, name="sentence_pooling")
        positions = first_positions(inputs["token_ids"]) if pooling == "cls" else None
        encoded = backbone.encode(inputs, positions)
        vectors = pool(encoded["sequence_output"], padding_mask=inputs["padding_mask"])
        super().__init__(
            inputs=inputs,
            outputs=vectors,
            backbone=backbone,
            preprocessor=preprocessor,
            name=name,
            **kwargs,
        )
        self.pooling = pooling
        self.normalize = normalize

    @classmethod
    def options_of_checkpoint(cls, checkpoint: Checkpoint) -> dict[str, Any]:
        from keras_bert.checkpoints import sentence_transformers

        return checkpoint.task or sentence_transformers.read_options(checkpoint.folder)

    def _default_loss(self) -> keras.losses.Loss:
        return InBatchNegatives()

    def _default_metrics(self) -> None:
        return None

    def embed(self, x: Any, batch_size: int | None = None, verbose: int | str = 0) -> np.ndarray:
        """The vectors of texts.

        Args:
            x: A string, a list of strings, or a `tf.data.Dataset` of strings.
            batch_size: Texts in a batch (32).
            verbose: 1 shows a progress bar.

        Returns:
            float32 `(texts, hidden)`, in the order of the input; `(hidden,)` of a single string.

        Raises:
            ValueError: If `x` holds pairs.

        Example:

        ```python
        vectors = embedder.embed(["A man eats.", "Someone is having lunch."])
        vectors @ vectors.T    # cosines
        ```
        """
        x = listed(x)
        if not is_dataset(x) and "text_pair" in text_columns(x):
            raise ValueError("Received pairs; each text has a vector of its own: embed them apart.")
        vectors = self.predict(x, batch_size=batch_size, verbose=verbose)
        return np.asarray(vectors[0] if isinstance(x, str) else vectors)

    def _batches(self, rows: Rows, batching: Batching) -> Any:
        if not isinstance(rows, TextRows) or "text_pair" not in rows.columns:
            raise ValueError(
                "An embedder learns from pairs of texts in memory, without labels: a list of "
                "(a, b) pairs, a tuple of two lists, or a dict of `text` and `text_pair`; received "
                f"{'single texts' if isinstance(rows, TextRows) else 'a dataset'}."
            )
        if rows.labels is not None:
            raise ValueError(
                "An embedder learns from pairs of texts without labels: leave out `y`."
            )
        from keras_bert.data.text_batches import paired_batches

        return paired_batches(
            list(rows.columns["text"]),
            list(rows.columns["text_pair"]),
            self.preprocessor,
            rows.weights,
            **batching.options(),
        )

    def serving_signatures(self, options: ExportOptions) -> dict[str, Any]:
        from keras_bert.export.signatures import embedding_signatures

        return embedding_signatures(self, options)
