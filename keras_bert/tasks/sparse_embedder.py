# SPDX-License-Identifier: Apache-2.0
"""Sparse embeddings: each text has a weight for every token in the vocabulary, mostly 0."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import keras
import numpy as np

from keras_bert import checks
from keras_bert.checkpoints import Checkpoint, sentence_transformers
from keras_bert.data.batches import Batches, WrappedBatches
from keras_bert.data.prompts import Prompts
from keras_bert.data.texts import TextClassifierPreprocessor
from keras_bert.layers.pooling import SpladePooling
from keras_bert.losses import SpladeLoss
from keras_bert.models.backbone import Backbone
from keras_bert.models.inputs import token_inputs
from keras_bert.models.pretraining import masked_lm_head, masked_lm_logits
from keras_bert.tasks.prediction import warn_if_truncated
from keras_bert.tasks.prompted_task import check_single_texts, texts_with_prompt
from keras_bert.tasks.ranking import query_documents, rank_documents
from keras_bert.tasks.tuple_task import TupleTask

if TYPE_CHECKING:
    from scipy.sparse import csr_array

    from keras_bert.export import ExportOptions
    from keras_bert.export.description import RowRequest

# Maximum number of logits in a batch of `embed`, 512 MB. There is one per position and token.
_MAX_LOGITS = 1 << 27


@keras.saving.register_keras_serializable(package="keras_bert")
class SparseEmbedder(TupleTask):
    """A masked LM that computes a sparse embedding for each text (SPLADE).

    ```python
    embedder = keras_bert.SparseEmbedder.from_preset("hf://naver/splade-v3")
    documents = embedder.embed_documents(["Paris is the capital of France.", "Rome is in Italy."])
    scores = documents @ embedder.embed_queries("What is the capital of France?").T
    embedder.decode(documents, top_k=3)  # [{"paris": 2.6, "france": 2.2, "capital": 1.9}, …]
    ```

    An embedding has one weight for each token in the vocabulary. Most weights are 0. A text also
    has weights for related tokens that it does not contain. A query's relevance score is the dot
    product of both embeddings. Search engines with an inverted index store the embeddings as tokens
    with weights, see `decode`.

    The weights are pooled from the logits of the masked LM's head. A masked LM that was not trained
    for sparse embeddings has few weights of 0.

    `fit` accepts pairs of a query and a relevant text, or tuples with hard negatives, in the forms
    that `TextEmbedder.fit` accepts. The other texts in the batch are also negatives. Each batch
    has logits for every position and every token in the vocabulary, so small batches and a small
    `sequence_length` save much memory. `compile()` defaults to AdamW with a learning rate of 2e-5
    and `keras_bert.losses.SpladeLoss()`, which increases the number of weights that are 0. `fit`
    adds no prompts.

    A SavedModel from `export` maps texts to tokens with weights, see
    `keras_bert.export.signatures.embedding_signatures`. It adds the default prompt.

    `embed` requires SciPy: `pip install scipy`, or the extra `training`.

    Args:
        backbone: The encoder, a `Backbone`.
        preprocessor: A `TextClassifierPreprocessor` or its config. Without it, the task only
            accepts token IDs.
        pooling: `"max"` or `"sum"` over the positions of a text, see
            `keras_bert.layers.SpladePooling`. From a sentence-transformers directory, defaults to
            its option.
        activation: `"relu"` or `"log1p_relu"`, see `keras_bert.layers.SpladePooling`. From a
            sentence-transformers directory, defaults to its option.
        prompts: A dict from names to prompts, see `TextEmbedder`. From a sentence-transformers
            directory, defaults to its prompts.
        default_prompt_name: The name of the prompt that `embed` adds by default. `None` for no
            prompt.
        name: Name of the model.

    Call arguments:
        inputs: The backbone's inputs.

    Output shape:
        Weights `(batch, vocabulary)`, float32.

    Raises:
        ValueError: If `pooling` or `activation` has an unsupported value, or if `prompts` is
            invalid or has no prompt called `default_prompt_name`.

    Example:

    >>> from keras_bert import Backbone, BertConfig, SparseEmbedder
    >>> config = BertConfig(num_layers=1, hidden_dim=8, num_heads=2, intermediate_dim=16)
    >>> embedder = SparseEmbedder(Backbone(config))
    >>> embedder.predict(np.array([[101, 2023, 102]]), verbose=0).shape
    (1, 30522)

    Reference:
        [SPLADE v2](https://arxiv.org/abs/2109.10086), section 3.
    """

    predict_method = "embed"
    embedding_kind = "sparse"
    default_learning_rate = 2e-5
    preset_options = ("pooling", "activation", "prompts", "default_prompt_name")
    output_name = "embedding"
    uses_pooler = False
    # One output per token in the vocabulary is no class.
    has_row_logits = False

    def __init__(
        self,
        backbone: Backbone,
        preprocessor: TextClassifierPreprocessor | dict[str, Any] | None = None,
        *,
        pooling: str = "max",
        activation: str = "relu",
        prompts: Mapping[str, str] | None = None,
        default_prompt_name: str | None = None,
        name: str = "sparse_embedder",
        **kwargs: Any,
    ) -> None:
        all_prompts = Prompts({} if prompts is None else prompts, default_prompt_name)
        pool = SpladePooling(pooling, activation, name="splade_pooling")
        inputs = token_inputs()
        hidden = backbone.encode(inputs)["sequence_output"]
        super().__init__(
            inputs=inputs,
            outputs=pool(masked_lm_logits(backbone, hidden), inputs["padding_mask"]),
            backbone=backbone,
            preprocessor=preprocessor,
            name=name,
            **kwargs,
        )
        self.pooling = pooling
        self.activation = activation
        self.prompts = dict(all_prompts.texts)
        self.default_prompt_name = default_prompt_name

    @property
    def heads(self) -> dict[str, Any]:
        return {"masked_lm": masked_lm_head(self)}

    @classmethod
    def options_of_checkpoint(cls, checkpoint: Checkpoint) -> dict[str, Any]:
        options = sentence_transformers.read_options(
            checkpoint.directory, checkpoint.config.max_sequence_length, sparse=True
        )
        return options | super().options_of_checkpoint(checkpoint)

    def _default_loss(self) -> keras.losses.Loss:
        return SpladeLoss()

    @warn_if_truncated
    def embed(
        self,
        x: Any,
        batch_size: int | None = None,
        verbose: int | str = 0,
        *,
        prompt_name: str | None = None,
        prompt: str | None = None,
        max_active_dims: int | None = None,
    ) -> csr_array:
        """Computes the sparse embeddings of texts.

        Args:
            x: A string, a list of strings, or a `tf.data.Dataset` of strings.
            batch_size: Maximum number of texts per batch. Batches are smaller if texts are long,
                because a batch has logits for every position and every token in the vocabulary.
                Defaults to 32.
            verbose: 0 or 1. With 1, it shows a progress bar.
            prompt_name: See `TextEmbedder.embed`.
            prompt: See `TextEmbedder.embed`.
            max_active_dims: Maximum number of tokens per text with a weight above 0. Only the
                largest weights are kept, which makes an index smaller and faster. Defaults to all.

        Returns:
            A `scipy.sparse.csr_array` `(texts, vocabulary)`, float32, in the order of the input.
            For a single string, it has one row.

        Raises:
            ImportError: If SciPy is not installed.
            ValueError: If `x` contains pairs of texts, if the model has no prompt called
                `prompt_name`, if `prompt` is the name of a prompt, or if `max_active_dims` is not
                positive.
        """
        sparse = _scipy_sparse()
        checks.POSITIVE_INT.check_optional(max_active_dims=max_active_dims)
        rows = texts_with_prompt(check_single_texts(x), self._prompt(prompt_name, prompt))
        batches, _ = rows.prediction_batches(self.preprocessor, self._options(batch_size))
        size = self.config.vocabulary_size
        # Dense embeddings of all texts would not fit in memory.
        index, parts = [np.zeros(0, "int64")], [sparse.csr_array((0, size), dtype="float32")]
        for _, row, weights in self._outputs_of_batches(_SmallBatches(batches, size), verbose):
            if max_active_dims is not None and max_active_dims < size:
                zeroed = np.argpartition(-weights, max_active_dims - 1)[:, max_active_dims:]
                np.put_along_axis(weights, zeroed, 0, axis=1)
            index.append(row)
            parts.append(sparse.csr_array(weights))
        return sparse.vstack(parts, format="csr")[np.argsort(np.concatenate(index))]

    def decode(self, embeddings: csr_array, top_k: int | None = None) -> list[dict[str, float]]:
        """Converts sparse embeddings to the weights of their tokens.

        Elasticsearch, OpenSearch and Vespa store a text in this form.

        Args:
            embeddings: Sparse embeddings `(texts, vocabulary)` from `embed`.
            top_k: Maximum number of tokens per text. Defaults to all tokens with a weight above 0.

        Returns:
            For each text, a dict from tokens, as they are in the vocabulary, to weights, in
            descending order of weight. Embeddings beyond the vocabulary have no token, and are left
            out.

        Raises:
            ValueError: If `embeddings` has another number of columns, or if `top_k` is not
                positive.

        Example:

        ```python
        embedder.decode(embedder.embed("what is the capital of france"), top_k=3)
        # [{"capital": 2.79, "france": 2.36, "french": 1.84}]
        ```
        """
        checks.POSITIVE_INT.check_optional(top_k=top_k)
        size = self.config.vocabulary_size
        if getattr(embeddings, "shape", ())[1:] != (size,):
            raise ValueError(
                f"embeddings must be a matrix with the {size} columns of `embed`. Received: "
                f"{checks.shorten_repr(embeddings)}"
            )
        vocabulary = self.preprocessor.tokenizer.vocabulary
        return [
            {
                vocabulary[token]: weight
                for token, weight in zip(ids.tolist(), weights.tolist(), strict=True)
            }
            for ids, weights in _rows_by_weight(embeddings, len(vocabulary), top_k)
        ]

    def rank(
        self,
        query: str,
        documents: Any,
        batch_size: int | None = None,
        verbose: int | str = 0,
        *,
        top_k: int | None = None,
    ) -> list[dict[str, Any]]:
        """Ranks documents by the dot products of their embeddings with the query's.

        Args:
            query: The query.
            documents: Single texts in memory, in any form that `embed` accepts.
            batch_size: See `embed`.
            verbose: See `embed`.
            top_k: Maximum number of documents to return. Defaults to all.

        Returns:
            A list of dicts in descending order of `score`, with `index` (the document's index in
            `documents`) and `score`.

        Raises:
            ImportError: See `embed`.
            ValueError: If an argument is invalid.

        Example:

        ```python
        embedder.rank("What is the capital of Italy?", ["Paris is in France.", "Rome."], top_k=1)
        # [{"index": 1, "score": 7.5}]
        ```
        """
        checks.POSITIVE_INT.check_optional(top_k=top_k)
        texts = query_documents(query, documents)
        if not texts:
            return []
        embeddings = self.embed_documents(texts, batch_size, verbose)
        scores = (embeddings @ self.embed_queries(query).T).toarray()[:, 0]
        return rank_documents(scores, top_k)

    def _answer_columns(self, columns: dict[str, list[Any]]) -> list[Any]:
        return [{"embedding": weights} for weights in self.decode(self.embed(columns["text"]))]

    def serving_embeddings(self, embeddings: Any) -> list[dict[str, Any]]:
        size = self.config.vocabulary_size
        vocabulary = self.preprocessor.tokenizer.vocabulary
        names = [*vocabulary, *[""] * (size - len(vocabulary))]
        return [
            {
                "tokens": [names[token] for token in ids],
                "token_ids": ids.tolist(),
                "weights": weights.tolist(),
                "num_weights": len(ids),
            }
            for ids, weights in _rows_by_weight(embeddings, size)
        ]

    def serving_signatures(self, options: ExportOptions) -> dict[str, Any]:
        from keras_bert.export.signatures import embedding_signatures, sparse_outputs

        vocabulary = self.preprocessor.tokenizer.vocabulary
        answers = sparse_outputs(vocabulary, self.config.vocabulary_size)
        return embedding_signatures(self, options, answers)

    def serving_requests(self) -> tuple[RowRequest, ...]:
        from keras_bert.export.signatures import SPARSE_REQUESTS

        return SPARSE_REQUESTS


class _SmallBatches(WrappedBatches):
    """Splits batches of `(features, index)` whose logits would need too much memory."""

    def __init__(self, batches: Batches, vocabulary_size: int) -> None:
        super().__init__(batches)
        self._max_tokens = _MAX_LOGITS // vocabulary_size

    @property
    def num_batches(self) -> None:
        return None

    def _epoch(self, number: int, first: int) -> Generator[Any, None, None]:
        for features, index in self._batches._epoch(number, first):
            num_rows, length = features["token_ids"].shape
            step = max(1, self._max_tokens // length)
            for start in range(0, num_rows, step):
                part = slice(start, start + step)
                yield {name: values[part] for name, values in features.items()}, index[part]


def _rows_by_weight(
    embeddings: Any, num_columns: int, top_k: int | None = None
) -> Iterator[tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]]:
    """Yields each embedding's columns and weights, in descending order of weight."""
    rows = _scipy_sparse().csr_array(embeddings)[:, :num_columns]
    for start, stop in zip(rows.indptr, rows.indptr[1:], strict=False):
        columns, weights = rows.indices[start:stop], rows.data[start:stop]
        order = np.argsort(-weights, kind="stable")[:top_k]
        yield columns[order], weights[order]


def _scipy_sparse() -> Any:
    with checks.importing("training", "SparseEmbedder"):
        from scipy import sparse
    return sparse
