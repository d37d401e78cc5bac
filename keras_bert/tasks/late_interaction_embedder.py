# SPDX-License-Identifier: Apache-2.0
"""Late interaction (ColBERT): texts are compared by the vectors of their tokens."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import keras
import numpy as np

from keras_bert import checks
from keras_bert.checkpoints import Checkpoint, late_interaction
from keras_bert.data.adapters.base import InputAdapter
from keras_bert.data.adapters.reading import Rows
from keras_bert.data.adapters.text_batches import TextBatchesAdapter, TextDatasetAdapter
from keras_bert.data.adapters.token_vectors import TokenVectorsAdapter
from keras_bert.data.adapters.tuples import TextTupleAdapter
from keras_bert.data.batch_options import BatchOptions
from keras_bert.data.late_interaction import LateInteractionPreprocessor
from keras_bert.data.prompts import Prompts
from keras_bert.data.token_vectors import max_similarities, pool_tokens
from keras_bert.layers.heads import TokenProjection
from keras_bert.losses import InBatchNegatives, compares_scores
from keras_bert.models.backbone import Backbone
from keras_bert.models.inputs import POOLING_MASK, pooling_mask_input, token_inputs
from keras_bert.ops.annotations import Tensor
from keras_bert.tasks.prediction import warn_if_truncated
from keras_bert.tasks.prompted_task import check_single_texts, texts_with_prompt
from keras_bert.tasks.ranking import query_documents, rank_documents
from keras_bert.tasks.tuple_task import TupleTask

if TYPE_CHECKING:
    from keras_bert.export import ExportOptions
    from keras_bert.export.description import RowRequest


@keras.saving.register_keras_serializable(package="keras_bert")
class LateInteractionEmbedder(TupleTask):
    """An encoder that computes a vector for each token, for late interaction as in ColBERT.

    ```python
    embedder = keras_bert.LateInteractionEmbedder.from_preset("hf://lightonai/GTE-ModernColBERT-v1")
    embedder.rank("Who wrote Faust?", ["Faust is by Goethe.", "Rome is in Italy."])
    # [{"index": 0, "score": …}, {"index": 1, "score": …}]
    ```

    The score of a document (MaxSim) is a sum over the tokens of the query. Each of them adds its
    largest cosine similarity to a token of the document. So a document is compared with the query
    word by word, although its vectors do not depend on the query and can be computed before.

    Markers distinguish queries from documents, and queries are extended by mask tokens. See
    `keras_bert.data.LateInteractionPreprocessor` for these options, which `from_preset` also
    accepts. It reads models from PyLate, from the `MultiVectorEncoder` of sentence-transformers and
    from the original ColBERT code, with their options. Any other encoder gets a new projection,
    which has to be trained.

    `fit` accepts the same pairs and tuples as `TextEmbedder.fit`. The first text is the query, and
    the others are documents. The default loss is `keras_bert.losses.InBatchNegatives(scale=1.0)`.
    With `SoftTargetDivergence(temperature=1.0)`, `MarginMSELoss()` or `ListNetLoss()`, `y` has a
    teacher's score for each document.

    Args:
        backbone: The encoder, a `Backbone`.
        preprocessor: A `LateInteractionPreprocessor` or its config. Without it, the task only
            accepts token IDs.
        projection_dim: Number of dimensions of the vectors.
        projection_bias: Whether the projection has a bias.
        prompts: A dict from names to prompts, which `embed_queries` and `embed_documents` add in
            front of texts: the prompt `query`, and `document`, `passage` or `corpus`.
        name: Name of the model.

    Call arguments:
        inputs: The backbone's inputs, and optionally `pooling_mask`, bool `(batch, length)`, True
            for the tokens whose vectors are used. Defaults to all tokens except padding.

    Output shape:
        Vectors of unit norm `(batch, length, projection_dim)`, float32. The vectors of tokens that
        are not used are 0.

    Raises:
        ValueError: If an option is invalid.

    Example:

    >>> from keras_bert import Backbone, BertConfig, LateInteractionEmbedder
    >>> config = BertConfig(num_layers=1, hidden_dim=8, num_heads=2, intermediate_dim=16)
    >>> embedder = LateInteractionEmbedder(Backbone(config), projection_dim=4)
    >>> embedder.predict(np.array([[101, 2023, 102]]), verbose=0).shape
    (1, 3, 4)

    Reference:
        [ColBERT](https://arxiv.org/abs/2004.12832); [PyLate](https://arxiv.org/abs/2508.03555).
    """

    predict_method = "embed_documents"
    embedding_kind = "multi_vector"
    adapters = (TextTupleAdapter, TokenVectorsAdapter, TextDatasetAdapter, TextBatchesAdapter)
    preset_options = ("projection_dim", "projection_bias", "prompts")
    preprocessor_class = LateInteractionPreprocessor
    head_name = "token_projection"
    output_name = "vectors"
    uses_pooler = False
    default_learning_rate = 2e-5

    def __init__(
        self,
        backbone: Backbone,
        preprocessor: LateInteractionPreprocessor | dict[str, Any] | None = None,
        *,
        projection_dim: int = 128,
        projection_bias: bool = False,
        prompts: Mapping[str, str] | None = None,
        name: str = "late_interaction_embedder",
        **kwargs: Any,
    ) -> None:
        prompts = Prompts({} if prompts is None else prompts).texts
        if isinstance(preprocessor, dict):
            # The inputs depend on its options.
            preprocessor = self.preprocessor_class.from_config(preprocessor)
        uses_padding = preprocessor is None or preprocessor.uses_padding
        head = TokenProjection(
            projection_dim,
            projection_bias,
            initializer_range=backbone.config.output_initializer_range,
            name="token_projection",
        )
        inputs = token_inputs()
        encoded = backbone.encode(inputs, computes_padding=uses_padding)
        inputs[POOLING_MASK] = pooling_mask_input()
        masks = {name: inputs[name] for name in ("padding_mask", POOLING_MASK)}
        super().__init__(
            inputs=inputs,
            outputs=head(encoded["sequence_output"], **masks),
            backbone=backbone,
            preprocessor=preprocessor,
            name=name,
            **kwargs,
        )
        self.head = head
        self.prompts = dict(prompts)

    @property
    def projection_dim(self) -> int:
        """Number of dimensions of the vectors."""
        return self.head.dim

    @property
    def projection_bias(self) -> bool:
        """Whether the projection has a bias."""
        return self.head.use_bias

    @classmethod
    def options_of_checkpoint(cls, checkpoint: Checkpoint) -> dict[str, Any]:
        options = super().options_of_checkpoint(checkpoint)
        return {**late_interaction.read_options(checkpoint), **options}

    def save_hugging_face(
        self,
        preset_dir: str | os.PathLike[str],
        *,
        layout: late_interaction.WrittenLayout = "pylate",
        **options: Any,
    ) -> None:
        """Saves the task for PyLate or sentence-transformers, with a model card.

        Args:
            preset_dir: Path of the directory. Existing model files are replaced.
            layout: `"pylate"` for PyLate, which sentence-transformers 6 also reads, or
                `"sentence_transformers"` for its `MultiVectorEncoder`.
            **options: Other arguments of `Task.save_hugging_face`.

        Raises:
            ValueError: If `layout` is invalid.
            keras_bert.checkpoints.CheckpointError: If the format cannot represent the task.
        """
        super().save_hugging_face(preset_dir, layout=layout, **options)

    @property
    def network_inputs(self) -> tuple[str, ...]:
        return (POOLING_MASK,)

    def serving_signatures(self, options: ExportOptions) -> dict[str, Any]:
        from keras_bert.export.signatures import token_vector_signatures

        return token_vector_signatures(self, options)

    def serving_requests(self) -> tuple[RowRequest, ...]:
        from keras_bert.export.signatures import VECTORS_REQUESTS

        return VECTORS_REQUESTS

    def serving_embeddings(self, embeddings: Any) -> list[dict[str, Any]]:
        return [{"num_vectors": len(rows), "vectors": rows.tolist()} for rows in embeddings]

    # === Training ===

    def _encode(
        self, inputs: Mapping[str, Tensor], training: bool | None, mask: Tensor | None
    ) -> Tensor:
        # The parts in the base class have no padding, but vectors at padding are used here.
        return super(TupleTask, self).call(inputs, training=training, mask=mask)

    def _check_mini_batches(self, size: int) -> None:
        raise ValueError(
            f"mini_batch_size must be None for a LateInteractionEmbedder. Received: {size}. Use a "
            "smaller batch_size."
        )

    def _default_loss(self) -> keras.losses.Loss:
        return InBatchNegatives(scale=1.0)

    def _read(self, x: Any, y: Any, sample_weight: Any, options: BatchOptions) -> Rows:
        if not isinstance(self._loss, InBatchNegatives) and not compares_scores(self._loss):
            raise ValueError(
                "The loss of a LateInteractionEmbedder must be InBatchNegatives, or compare scores "
                "of tuples: SoftTargetDivergence, MarginMSELoss or ListNetLoss. Received: "
                f"{self._loss!r}"
            )
        return super()._read(x, y, sample_weight, options)

    # === Predictions ===

    def _predict_rows(
        self, rows: InputAdapter, batch_size: int | None, verbose: int | str, **kwargs: Any
    ) -> Any:
        if isinstance(rows, TextDatasetAdapter | TextBatchesAdapter):
            raise ValueError(
                "x must be texts in memory, because each has a different number of vectors. "
                "Received: batches of texts. Pass them to `embed_documents` or `embed_queries`."
            )
        return super()._predict_rows(rows, batch_size, verbose, **kwargs)

    def embed_queries(  # type: ignore[override]
        self, x: Any, batch_size: int | None = None, verbose: int | str = 0
    ) -> Any:
        """Computes the vectors of the tokens in queries.

        Args:
            x: A string, a list of strings, or a `tf.data.Dataset` of strings.
            batch_size: Number of texts per batch. Defaults to 32.
            verbose: 0 or 1. With 1, it shows a progress bar.

        Returns:
            A float32 array `(texts, query_length, projection_dim)` in the order of the input.
            Without `do_query_expansion`, a list of arrays `(tokens, projection_dim)`. For a single
            string, a single array `(tokens, projection_dim)`.

        Raises:
            ValueError: If `x` contains pairs of texts.

        Example:

        ```python
        embedder.embed_queries(["Who wrote Faust?"]).shape    # (1, 32, 128)
        ```
        """
        vectors = self._embed(x, self._all_prompts.query_name, batch_size, verbose, is_query=True)
        if isinstance(x, str):
            return vectors[0]
        if not self.preprocessor.do_query_expansion:
            return vectors
        shape = len(vectors), self.preprocessor.length_limit(is_query=True), self.projection_dim
        return np.reshape(np.asarray(vectors, "float32"), shape)

    def embed_documents(  # type: ignore[override]
        self,
        x: Any,
        batch_size: int | None = None,
        verbose: int | str = 0,
        *,
        pool_factor: int = 1,
    ) -> Any:
        """Computes the vectors of the tokens in documents, without tokens in the skip list.

        Args:
            x: See `embed_queries`.
            batch_size: See `embed_queries`.
            verbose: See `embed_queries`.
            pool_factor: Keeps about `1 / pool_factor` of the vectors, which are means over similar
                tokens of a document. Requires SciPy. See `keras_bert.data.pool_tokens`.

        Returns:
            A list of float32 arrays `(tokens, projection_dim)`, one per document. For a single
            string, a single array.

        Raises:
            ValueError: If `x` contains pairs of texts, or if `pool_factor` is not a positive
                integer.

        Example:

        ```python
        (vectors,) = embedder.embed_documents(["Faust is by Goethe."])
        vectors.shape                                                    # (7, 128)
        embedder.embed_documents("Faust is by Goethe.", pool_factor=2).shape    # (4, 128)
        ```
        """
        checks.POSITIVE_INT.check(pool_factor=pool_factor)
        name = self._all_prompts.document_name
        vectors = self._embed(x, name, batch_size, verbose, is_query=False)
        if pool_factor > 1:
            vectors = [pool_tokens(rows, pool_factor) for rows in vectors]
        return vectors[0] if isinstance(x, str) else vectors

    def score(
        self,
        query: str,
        documents: Any,
        batch_size: int | None = None,
        verbose: int | str = 0,
    ) -> np.ndarray[Any, Any]:
        """Computes the MaxSim score of each document for a query.

        Args:
            query: The query.
            documents: Single texts in memory, in any form that `fit` accepts.
            batch_size: Number of documents per batch. Defaults to 32.
            verbose: 0 or 1. With 1, it shows a progress bar.

        Returns:
            Float32 `(documents,)`. The largest possible score is the number of the query's vectors.

        Raises:
            ValueError: If `query` is not a string, or if `documents` is not a list of texts.
        """
        texts = query_documents(query, documents)
        if not texts:
            return np.zeros(0, "float32")
        vectors = self.embed_documents(texts, batch_size, verbose)
        return max_similarities(self.embed_queries(query), vectors)

    def rank(
        self,
        query: str,
        documents: Any,
        batch_size: int | None = None,
        verbose: int | str = 0,
        *,
        top_k: int | None = None,
    ) -> list[dict[str, Any]]:
        """Ranks documents by their relevance to a query.

        Args:
            query: See `score`.
            documents: See `score`.
            batch_size: See `score`.
            verbose: See `score`.
            top_k: Maximum number of documents to return. Defaults to all.

        Returns:
            A list of dicts in descending order of `score`, with `index` (the document's index in
            `documents`) and `score`, see `score`.

        Raises:
            ValueError: See `score`. Also if `top_k` is not a positive integer.

        Example:

        ```python
        embedder.rank("Who wrote Faust?", ["Rome is in Italy.", "Faust is by Goethe."], top_k=1)
        # [{"index": 1, "score": …}]
        ```
        """
        checks.POSITIVE_INT.check_optional(top_k=top_k)
        return rank_documents(self.score(query, documents, batch_size, verbose), top_k)

    @warn_if_truncated
    def _embed(
        self, x: Any, prompt_name: str, batch_size: int | None, verbose: int | str, is_query: bool
    ) -> list[np.ndarray[Any, Any]]:
        texts = texts_with_prompt(check_single_texts(x), self._all_prompts.text(prompt_name))
        rows = TokenVectorsAdapter(texts.columns, is_query=is_query)
        vectors: list[np.ndarray[Any, Any]] = self._predict_rows(rows, batch_size, verbose)
        return vectors

    def _answer_columns(self, columns: dict[str, list[Any]]) -> list[Any]:
        return [{"vectors": rows.tolist()} for rows in self.embed_documents(columns["text"])]
