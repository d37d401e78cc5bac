# SPDX-License-Identifier: Apache-2.0
"""Sentence embeddings: texts with similar meanings have similar embeddings."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import keras
import numpy as np

from keras_bert import checks
from keras_bert.checkpoints import Checkpoint, sentence_transformers
from keras_bert.data.adapters.reading import Rows, read_input
from keras_bert.data.adapters.texts import TextAdapter, single_texts
from keras_bert.data.arrays import unit_rows
from keras_bert.data.batch_options import BatchOptions
from keras_bert.data.columns import match_input_type, materialize
from keras_bert.data.labels import rank_labels
from keras_bert.data.prompts import Prompts, num_prompt_tokens
from keras_bert.data.texts import TextClassifierPreprocessor
from keras_bert.layers.pooling import SentencePooling, unit_vectors
from keras_bert.losses import InBatchNegatives
from keras_bert.models.backbone import Backbone
from keras_bert.models.inputs import (
    POOLING_MASK,
    first_positions,
    pooling_mask_input,
    token_inputs,
)
from keras_bert.tasks.prediction import warn_if_truncated
from keras_bert.tasks.prompted_task import check_single_texts, texts_with_prompt
from keras_bert.tasks.tuple_task import TupleTask
from keras_bert.tasks.zero_shot import (
    SIMILARITY_HYPOTHESIS,
    cosine_similarities,
    label_hypotheses,
)

if TYPE_CHECKING:
    from keras_bert.export import ExportOptions


@keras.saving.register_keras_serializable(package="keras_bert")
class TextEmbedder(TupleTask):
    """An encoder with pooling that computes an embedding for each text.

    ```python
    embedder = keras_bert.TextEmbedder.from_preset("minilm")
    vectors = embedder.embed(["a gripping film", "a moving film"])  # (2, 384)
    similarities = vectors @ vectors.T
    ```

    `fit` accepts pairs of texts without labels. The two texts have the same meaning, or are a
    question and its answer. Pass a list of (a, b) pairs, a tuple of two lists, or a dict with
    `text` and `text_pair`. The texts of the other pairs in a batch are the negatives. Pairs that
    share a text are not negatives of each other, and are in different batches if possible.
    `batch_size` counts pairs, and `sample_weight` has one weight per pair.

    A pair may be followed by any number of hard negatives: texts that are similar to the first
    text, but not relevant. Pass a list of (a, b, negative, …) tuples, a tuple of lists, or the
    column `negatives` with a text or a list of texts for each pair. `fit` also accepts batches from
    a generator, a `PyDataset`, a `DataLoader` or a batched `tf.data.Dataset`, as lists of tuples or
    dicts.

    The loss determines what `x` and `y` contain:

    | loss (in `keras_bert.losses`) | `x` | `y` |
    |---|---|---|
    | `InBatchNegatives()`, the default | pairs or tuples | `None` |
    | `TripletLoss()` | tuples | `None` |
    | `CosineSimilarityLoss()` | pairs | the similarity of each pair, from -1 to 1 |
    | `MarginMSELoss()`, `ListNetLoss()`, `SoftTargetDivergence()` | tuples | scores, see below |
    | `MatryoshkaLoss(loss, dimensions)` | as for `loss` | as for `loss` |
    | `"mse"`, `CosineDistance()` or another Keras loss | single texts | embeddings of a teacher |

    Scores are a list of numbers for each tuple, usually from a cross-encoder: the score of the
    first text with each of the others. The embedder learns to compute the same scores as dot
    products.

    A text in multiple tuples is only encoded once per batch, unless this would require another
    compilation. If a pair has two identical texts, they are encoded separately, with different
    dropout. For features, `token_ids` have the shape `(batch, texts, length)`, and `y` is the
    target of the loss.

    `compile()` defaults to AdamW with a learning rate of 2e-5 and
    `keras_bert.losses.InBatchNegatives()`.

    Some models are trained with prompts, such as `"query: "` in front of each query.
    `embed_queries` and `embed_documents` add the model's prompts. `fit` and `evaluate` only add
    them with `add_prompts=True`, and `predict` adds none.

    Args:
        backbone: The encoder, a `Backbone`.
        preprocessor: A `TextClassifierPreprocessor` or its config. Without it, the task only
            accepts token IDs.
        pooling: `"mean"` for the mean over the non-padding tokens, or `"cls"` for the first token's
            vector.
        normalize: Whether to scale embeddings to unit L2 norm, so that dot products are cosine
            similarities.
        prompts: A dict from names to prompts, for example `{"query": "query: ", "document":
            "passage: "}`. From a sentence-transformers directory, defaults to its prompts.
        default_prompt_name: The name of the prompt that `embed` adds by default. `None` for no
            prompt.
        include_prompt: Whether to pool the tokens of the prompts that `embed` adds. If false,
            `[CLS]` is also left out for texts with a prompt, as in sentence-transformers. From a
            sentence-transformers directory, defaults to its option of this name. Models for token
            IDs, and texts in `fit`, have no prompts, so all their tokens are pooled.
        dimensions: Number of leading elements of each embedding to use, for models that are trained
            for it (Matryoshka embeddings). They are scaled afterwards. Defaults to all.
        name: Name of the model.

    Call arguments:
        inputs: The backbone's inputs.

    Output shape:
        Embeddings `(batch, hidden)` or `(batch, dimensions)`, float32.

    Raises:
        ValueError: If `pooling` is neither `"mean"` nor `"cls"`, or is `"cls"` with a causal
            encoder. Also if `prompts` is invalid or has no prompt called `default_prompt_name`, or
            if `dimensions` is larger than the encoder's hidden dimension.

    Example:

    >>> from keras_bert import Backbone, BertConfig, TextEmbedder
    >>> config = BertConfig(num_layers=1, hidden_dim=8, num_heads=2, intermediate_dim=16)
    >>> embedder = TextEmbedder(Backbone(config))
    >>> embedder.predict(np.array([[101, 2023, 102]]), verbose=0).shape
    (1, 8)

    Reference:
        [Sentence-BERT](https://arxiv.org/abs/1908.10084), section 3;
        [Matryoshka representation learning](https://arxiv.org/abs/2205.13147), `dimensions`.
    """

    predict_method = "embed"
    embedding_kind = "dense"
    supports_windows = True
    default_learning_rate = 2e-5
    preset_options = (
        *("pooling", "normalize", "prompts", "default_prompt_name", "include_prompt"),
        "dimensions",
    )
    output_name = "embedding"
    uses_pooler = False

    def __init__(
        self,
        backbone: Backbone,
        preprocessor: TextClassifierPreprocessor | dict[str, Any] | None = None,
        *,
        pooling: str = "mean",
        normalize: bool = True,
        prompts: Mapping[str, str] | None = None,
        default_prompt_name: str | None = None,
        include_prompt: bool = True,
        dimensions: int | None = None,
        name: str = "text_embedder",
        **kwargs: Any,
    ) -> None:
        all_prompts = Prompts({} if prompts is None else prompts, default_prompt_name)
        _check_dimensions(dimensions, backbone.config.hidden_dim)
        is_cut = dimensions is not None and dimensions < backbone.config.hidden_dim
        pool = SentencePooling(pooling, normalize and not is_cut, name="sentence_pooling")
        if pooling == "cls" and backbone.config.causal:
            raise ValueError(
                "pooling must be 'mean' with a causal encoder, in which the first token attends to "
                "no other token. Received: 'cls'"
            )
        inputs = token_inputs()
        masks = {"padding_mask": inputs["padding_mask"]}
        pools_first = pooling == "cls" and include_prompt
        positions = first_positions(inputs["token_ids"]) if pools_first else None
        encoded = backbone.encode(inputs, positions)
        if not include_prompt:
            inputs[POOLING_MASK] = masks[POOLING_MASK] = pooling_mask_input()
        vectors = pool(encoded["sequence_output"], **masks)
        if is_cut:
            vectors = vectors[:, :dimensions]
            vectors = unit_vectors(vectors) if normalize else vectors
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
        self.prompts = dict(all_prompts.texts)
        self.default_prompt_name = default_prompt_name
        self.include_prompt = include_prompt
        self.dimensions = dimensions

    @classmethod
    def options_of_checkpoint(cls, checkpoint: Checkpoint) -> dict[str, Any]:
        length = checkpoint.config.max_sequence_length
        options = sentence_transformers.read_options(checkpoint.directory, length)
        return options | super().options_of_checkpoint(checkpoint)

    def _default_loss(self) -> keras.losses.Loss:
        return InBatchNegatives()

    @warn_if_truncated
    def embed(
        self,
        x: Any,
        batch_size: int | None = None,
        verbose: int | str = 0,
        *,
        prompt_name: str | None = None,
        prompt: str | None = None,
        dimensions: int | None = None,
    ) -> np.ndarray:
        """Computes the embeddings of texts.

        Args:
            x: A string, a list of strings, or a `tf.data.Dataset` of strings.
            batch_size: Number of texts per batch. Defaults to 32.
            verbose: 0 or 1. With 1, it shows a progress bar.
            prompt_name: The name of the prompt to add in front of each text, a key of `prompts`.
                Defaults to `default_prompt_name`. `""` adds nothing.
            prompt: The text to add in front of each text, instead of a prompt in `prompts`. An
                empty string adds nothing.
            dimensions: Number of leading elements of each embedding to return, for Matryoshka
                models. With `normalize`, they are scaled to unit norm afterwards. Defaults to all.

        Returns:
            A float32 array `(texts, hidden)` or `(texts, dimensions)` in the order of the input.
            For a single string, the array has no first axis.

        Raises:
            ValueError: If `x` contains pairs of texts, if the model has no prompt called
                `prompt_name`, if `prompt` is the name of a prompt, or if `dimensions` is too large.

        Example:

        ```python
        vectors = embedder.embed(["A man eats.", "Someone is having lunch."])
        vectors @ vectors.T    # cosine similarities
        embedder.embed("What is BERT?", prompt_name="query")
        embedder.embed("What is BERT?", prompt="Represent this question for searching: ")
        ```
        """
        prompt = self._prompt(prompt_name, prompt)
        _check_dimensions(dimensions, self.output.shape[-1])
        x = check_single_texts(x)
        if prompt:
            vectors = self._predict_rows(self._prompted_rows(x, prompt), batch_size, verbose)
        else:
            vectors = self.predict(x, batch_size=batch_size, verbose=verbose)
        if dimensions is not None:
            vectors = self._scale(vectors[:, :dimensions])
        return np.asarray(vectors[0] if isinstance(x, str) else vectors)

    def _prompted_rows(self, x: Any, prompt: str) -> TextAdapter:
        """Reads single texts, with a prompt in front of each."""
        return dataclasses.replace(
            texts_with_prompt(x, prompt),
            num_prompt_tokens=num_prompt_tokens(self.preprocessor, prompt),
            pools_prompt=self.include_prompt,
        )

    def num_windows(
        self, x: Any, *, prompt_name: str | None = None, prompt: str | None = None
    ) -> np.ndarray:
        """Counts the windows in which `embed` reads long texts. Each window contains the prompt.

        Args:
            x: See `embed`.
            prompt_name: See `embed`.
            prompt: See `embed`.

        Returns:
            The number of windows of each text, int64 `(texts,)`. All are 1 if `long_texts` is
            `"truncate"`.

        Raises:
            ValueError: See `embed`.
        """
        prompt = self._prompt(prompt_name, prompt)
        x = check_single_texts(x)
        rows = self._prompted_rows(x, prompt) if prompt else read_input(self.adapters, x)
        return self._num_windows(rows)

    def classify_zero_shot(
        self,
        x: Any,
        labels: Sequence[str] | Mapping[str, str],
        batch_size: int | None = None,
        verbose: int | str = 0,
        *,
        hypothesis: str = SIMILARITY_HYPOTHESIS,
    ) -> Any:
        """Classifies texts by the most similar label, without training examples.

        There may be any number of labels, in any order.

        Args:
            x: Texts in any form that `embed` accepts, except a `tf.data.Dataset`.
            labels: The labels, or a dict from each label to a description, for example `{"sport":
                "games and athletes"}`. We recommend descriptions. Otherwise, underscores in labels
                become spaces.
            batch_size: Number of texts per batch. Defaults to 32.
            verbose: 0 or 1. With 1, it shows a progress bar.
            hypothesis: The text to compare with, with `{}` in place of the description.

        Returns:
            For each text, a list of dicts with `label` and `score`, one per label, in descending
            order of `score`, the cosine similarity of text and hypothesis. For a single string, a
            single list.

        Raises:
            ValueError: If `x` contains pairs of texts, if `labels` is empty or has duplicates, or
                if `hypothesis` has no `{}`.

        Example:

        ```python
        embedder.classify_zero_shot("The court fined the company.", ["law", "sport"])
        # [{"label": "law", "score": 0.31}, {"label": "sport", "score": 0.12}]
        ```
        """
        hypotheses, x = label_hypotheses(labels, hypothesis), materialize(x)
        parts = single_texts(x), list(hypotheses.values())
        vectors = [self.embed(part, batch_size=batch_size, verbose=verbose) for part in parts]
        scores = cosine_similarities(*vectors)
        return match_input_type(x, [rank_labels(list(hypotheses), row) for row in scores])

    def merge_windows(self, outputs: Any, counts: Any) -> Any:
        return self._scale(super().merge_windows(outputs, counts))

    def _scale(self, vectors: Any) -> Any:
        """Scales vectors, in a NumPy array or a tensor, to unit length if the task does."""
        if not self.normalize:
            return vectors
        return unit_rows(vectors) if isinstance(vectors, np.ndarray) else unit_vectors(vectors)

    def _answer_columns(self, columns: dict[str, list[Any]]) -> list[Any]:
        return self.serving_embeddings(self.embed(columns["text"]))

    def _read(self, x: Any, y: Any, sample_weight: Any, options: BatchOptions) -> Rows:
        rows = super()._read(x, y, sample_weight, options)
        labels = getattr(rows, "labels", None)
        if labels is None or self._learns_tuples:
            return rows
        if labels.shape[1:] != self.output.shape[1:]:
            raise ValueError(
                f"y must have an embedding of {self.output.shape[-1]} numbers for each text. "
                f"Received: shape {labels.shape}"
            )
        return rows

    def export(
        self,
        filepath: str | os.PathLike[str],
        format: str = "tf_saved_model",
        *,
        dimensions: int | None = None,
        **options: Any,
    ) -> None:
        """Exports the task for serving, by default as a SavedModel that accepts text.

        A SavedModel adds the default prompt to texts. It also has a signature `serve_with_prompt`,
        if the task has prompts. Models that accept token ids add no prompt.

        Args:
            filepath: See `Task.export`.
            format: See `Task.export`.
            dimensions: Number of leading elements in the exported embeddings, for Matryoshka
                models. Defaults to all.
            **options: See `Task.export`.

        Raises:
            ValueError: If an argument is invalid.
            keras_bert.export.ExportError: See `Task.export`.
        """
        task = self
        if dimensions is not None:
            _check_dimensions(dimensions, self.output.shape[-1])
            arguments = {name: getattr(self, name) for name in type(self).options}
            arguments |= {"dimensions": dimensions, "name": self.name}
            task = type(self)(self.backbone, self._preprocessor, **arguments)
        super(TextEmbedder, task).export(filepath, format, **options)

    def serving_signatures(self, options: ExportOptions) -> dict[str, Any]:
        from keras_bert.export.signatures import embedding_signatures

        return embedding_signatures(self, options)


def _check_dimensions(dimensions: int | None, largest: int) -> None:
    dimension_range = checks.NumberRange(at_least=1, at_most=largest, integer=True)
    dimension_range.check_optional(dimensions=dimensions)
