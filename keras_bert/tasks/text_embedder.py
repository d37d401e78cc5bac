# SPDX-License-Identifier: Apache-2.0
"""A vector for each text: near to one another where texts mean the same."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Self

import keras
import numpy as np

from keras_bert.layers.pooling import POOLINGS, SentencePooling
from keras_bert.losses import InBatchNegatives
from keras_bert.models.backbone import Backbone
from keras_bert.models.inputs import first_positions, token_inputs
from keras_bert.tasks.presets import preprocessor_config
from keras_bert.tasks.task import Batching, Task
from keras_bert.tasks.text_arguments import is_dataset, is_text, listed, text_columns

if TYPE_CHECKING:
    from keras_bert.data.text_batches import TextClassifierPreprocessor


@keras.saving.register_keras_serializable(package="keras_bert")
class TextEmbedder(Task):
    """BERT whose tokens' vectors become one for the text.

    `fit` takes pairs of texts that mean the same, or answer one another: those of the other pairs
    in a batch are what they are told from. `compile()` takes AdamW at 2e-5 and
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

    @property
    def uses_pooler(self) -> bool:
        return False

    @classmethod
    def from_preset(
        cls,
        preset: str | os.PathLike[str],
        *,
        pooling: str | None = None,
        normalize: bool | None = None,
        sequence_length: int | None = None,
        load_weights: bool = True,
        dtype: Any = None,
    ) -> Self:
        """An embedder on a pretrained encoder, with the checkpoint's vocabulary.

        Args:
            preset: A folder (our own preset, Hugging Face's layout, also as sentence-transformers
                extends it, the TF1 release's, told by its files), `hf://organisation/model`, or a
                name that KerasHub knows.
            pooling: `mean` or `cls`; `None` takes what the preset says, otherwise `mean`.
            normalize: Whether vectors have length 1; `None` takes what the preset says, otherwise
                `True`.
            sequence_length: The longest row in tokens; `None` takes what the preset says,
                otherwise the encoder's maximum.
            load_weights: `False` gives the architecture with fresh weights.
            dtype: A Keras dtype policy or its name.

        Raises:
            keras_bert.checkpoints.CheckpointError: If the files are missing, malformed, or do
                not fit; the message names the file and the tensor.
        """
        from keras_bert import checkpoints
        from keras_bert.checkpoints import sentence_transformers

        checkpoint = checkpoints.open_checkpoint(preset, weights=load_weights)
        said = checkpoint.task or sentence_transformers.read_options(checkpoint.folder)
        task = cls(
            checkpoint.new_backbone(weights_fit=load_weights, dtype=dtype),
            preprocessor_config(checkpoint, sequence_length or said.get("sequence_length")),
            pooling=pooling or said.get("pooling", "mean"),
            normalize=said.get("normalize", True) if normalize is None else normalize,
        )
        if load_weights:
            checkpoint.load_into(task.backbone, pooler_is_used=False)
            checkpoint.warn_unused()
        return task

    def save_to_preset(self, folder: str | os.PathLike[str]) -> None:
        """Writes architecture, weights and vocabulary to a folder that `from_preset` reads."""
        from keras_bert import checkpoints

        preprocessor = self.preprocessor
        checkpoints.save_preset(
            self.backbone,
            folder,
            tokenizer=preprocessor.tokenizer.get_config(),
            task={
                "sequence_length": preprocessor.sequence_length,
                "pooling": self.pooling,
                "normalize": self.normalize,
            },
        )

    def _default_loss(self) -> keras.losses.Loss:
        return InBatchNegatives()

    def _default_metrics(self) -> None:
        return None

    def fit(self, x: Any = None, y: Any = None, *args: Any, **kwargs: Any) -> Any:
        """`keras.Model.fit`, which also takes pairs of texts.

        Args:
            x: A list of (a, b) pairs, a tuple of two lists, or a dict of `text` and `text_pair`.
                Or features, as `keras.Model.fit` takes them.
            y: Nothing for text. For features what the loss takes: for `InBatchNegatives` the
                number of each row's pair.
            *args, **kwargs: As in `TextClassifier.fit`; `batch_size` counts pairs, and
                `sample_weight` has one for each.

        Returns:
            Keras' history of losses and metrics.
        """
        return super().fit(x, y, *args, **kwargs)

    def embed(self, x: Any, batch_size: int | None = None, verbose: Any = 0) -> np.ndarray:
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

    def _model_data(
        self, x: Any, y: Any, sample_weight: Any, batching: Batching
    ) -> tuple[Any, Any, Any]:
        if not is_text(x):
            return super()._model_data(x, y, sample_weight, batching)
        if is_dataset(x) or y is not None:
            raise ValueError(
                "An embedder learns from pairs of texts in memory, without labels: a list of "
                "(a, b) pairs, a tuple of two lists, or a dict of `text` and `text_pair`."
            )
        from keras_bert.data.text_batches import paired_batches

        columns = text_columns(x)
        if "text_pair" not in columns:
            raise ValueError("An embedder learns from pairs of texts; received single ones.")
        batches = paired_batches(
            list(columns["text"]),
            list(columns["text_pair"]),
            self.preprocessor,
            None if sample_weight is None else np.asarray(sample_weight, "float32"),
            **batching.options(),
        )
        return batches, None, None

    def export(
        self,
        filepath: str | os.PathLike[str],
        format: str = "tf_saved_model",
        *,
        dtype: str = "float32",
        **kwargs: Any,
    ) -> None:
        """Writes a model for serving: by default a SavedModel that takes text.

        See `keras_bert.export.export_text_embedder`.
        """
        from keras_bert import export

        export.export_text_embedder(self, filepath, format, dtype=dtype, **kwargs)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "pooling": self.pooling,
            "normalize": self.normalize,
        }
