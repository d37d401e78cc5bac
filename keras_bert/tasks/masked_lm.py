# SPDX-License-Identifier: Apache-2.0
"""Masked language modeling."""

from __future__ import annotations

import functools
import random
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import keras
import numpy as np

from keras_bert import checks
from keras_bert.config import BertConfig
from keras_bert.data.adapters.base import InputAdapter
from keras_bert.data.adapters.reading import Features, Rows, adapter_class
from keras_bert.data.adapters.texts import TextAdapter, any_characters, single_texts
from keras_bert.data.batch_options import DEFAULT_BATCH_SIZE, BatchOptions
from keras_bert.data.batches import Batches, MappedBatches
from keras_bert.data.labels import softmax
from keras_bert.data.loader import Batch, Loader, RowsInMemory, to_indexed_batch
from keras_bert.data.packing import truncate_tokens
from keras_bert.data.texts import TextClassifierPreprocessor, rows_of_ids
from keras_bert.metrics import Perplexity
from keras_bert.models.backbone import Backbone
from keras_bert.models.pretraining import (
    encode_masked,
    masked_lm_head,
    masked_lm_logits,
    pretraining_inputs,
)
from keras_bert.ops.dispatch import compiles_each_shape
from keras_bert.tasks.explained_row import ExplainedRow, Span, check_length
from keras_bert.tasks.objective import class_accuracy
from keras_bert.tasks.task import Task

if TYPE_CHECKING:
    from keras_bert.data.pretraining.masking import MaskedLMMaskGenerator

# Maximum number of masked positions per batch in `fill`. Each one has a logit for every token.
_MOST_SLOTS = 512


class MaskedRows(NamedTuple):
    """Texts with masks in the form that a masked LM reads.

    Attributes:
        token_ids: The token IDs of each text, with special tokens.
        positions: For each text, the positions that predict its masks. These are the masks
            themselves, or in a causal model the tokens before them.
        spans: For each text, the start and end of each mask as character offsets.
    """

    token_ids: list[list[int]]
    positions: list[list[int]]
    spans: list[list[tuple[int, int]]]


class MaskedTokenTask(Task):
    """Base class of tasks with masked tokens, with their targets, head, and text masking."""

    needs_labels = False

    default_learning_rate = 1e-4
    uses_pooler = False
    needs_vocabulary = False
    masking: dict[str, Any]

    def _num_targets(self, x: Any) -> dict[str, int | None]:
        name = "masked_lm_logits" if isinstance(self.output, dict) else ""
        return {name: self.config.vocabulary_size}

    @property
    def heads(self) -> dict[str, Any]:
        return {"masked_lm": masked_lm_head(self)}

    def _read(self, x: Any, y: Any, sample_weight: Any, options: BatchOptions) -> Rows:
        is_labeled = y is not None or sample_weight is not None
        is_labeled &= adapter_class(self.adapters, x) is not None
        rows = None if is_labeled else super()._read(x, y, sample_weight, options)
        if rows is None or (rows.has_labels and not isinstance(rows, Features)):
            raise ValueError("Text for a masked LM must not have labels or sample weights.")
        if isinstance(rows, TextAdapter) and not (
            self.config.causal or any_characters(rows.columns)
        ):
            raise ValueError("At least one text must have tokens to mask. Received: empty texts")
        return rows

    def _predict_rows(self, *args: Any, **kwargs: Any) -> Any:
        # The model requires `mask_positions`, but text has none.
        text_hint = (
            f"For text, use `{self.predict_method}`."
            if self.predict_method
            else "Save it to a preset, and load that as a MaskedLM or a NextSentencePredictor."
        )
        raise ValueError(
            f"`predict` of a {type(self).__name__} requires token IDs. Received: text. {text_hint}"
        )

    def _batches(self, rows: InputAdapter, options: BatchOptions) -> Batches:
        from keras_bert.data import MaskedLMMaskGenerator, NextTokenTargets

        tokenizer = self.preprocessor.tokenizer
        masking = dict(self.masking)
        if options.training:
            masking.setdefault("seed", random.getrandbits(31))
        masker: Any = (
            NextTokenTargets(pad_token_id=tokenizer.pad_token_id)
            if self.config.causal
            else MaskedLMMaskGenerator.from_tokenizer(tokenizer, **masking)
        )
        function = mask_batch if options.training or self.config.causal else masked_by_rows
        return MappedBatches(
            self._packed_batches(rows, options, self.preprocessor),
            functools.partial(function, masker),
            targets_have_length=True,
        )


@keras.saving.register_keras_serializable(package="keras_bert")
class MaskedLM(MaskedTokenTask):
    """An encoder with a masked language modeling (MLM) head.

    ```python
    masked_lm = keras_bert.MaskedLM.from_preset("hf://google-bert/bert-base-uncased")
    masked_lm.fill("a [MASK] film", top_k=2)  # [{"token": "short", "score": 0.2, …}, …]
    masked_lm.compile()
    masked_lm.fit(["a gripping film", "a moving film"])  # continues pre-training
    ```

    `fit` and `evaluate` accept text without labels. In training, the masks differ in each epoch. In
    evaluation, they are always the same. A causal encoder is trained and evaluated as a
    left-to-right language model instead, where every token predicts the next token.

    `compile()` defaults to AdamW with a learning rate of 1e-4, the cross-entropy of the masked
    tokens (divided by the sum of the sample weights), accuracy and perplexity.

    Args:
        backbone: The encoder, a `Backbone`.
        preprocessor: A `TextClassifierPreprocessor` or its config. Without it, the task only
            accepts token IDs.
        masking: A dict of masking options, the arguments of
            `keras_bert.data.MaskedLMMaskGenerator.from_tokenizer`, for example `{"unit": "word"}`.
            Not supported with a causal encoder.
        name: Name of the model.

    Call arguments:
        inputs: A dict with the backbone's inputs and `mask_positions`, int `(batch, slots)`, the
            positions to predict.

    Output shape:
        Logits `(batch, slots, vocabulary)`, float32.

    Example:

    >>> from keras_bert import Backbone, BertConfig, MaskedLM
    >>> config = BertConfig(num_layers=1, hidden_dim=8, num_heads=2, intermediate_dim=16)
    >>> masked_lm = MaskedLM(Backbone(config))
    >>> x = {"token_ids": np.array([[101, 103, 102]]), "mask_positions": np.array([[1]])}
    >>> masked_lm.predict(x, verbose=0).shape
    (1, 1, 30522)
    >>> masked_lm.compile()
    >>> weights = np.array([[1.0]])  # 0 for unused positions
    >>> history = masked_lm.fit(x, np.array([[2023]]), sample_weight=weights, verbose=0)

    Reference:
        [BERT](https://arxiv.org/abs/1810.04805), section 3.1, task 1.
    """

    has_row_logits = True
    predict_method = "fill"

    def __init__(
        self,
        backbone: Backbone,
        preprocessor: TextClassifierPreprocessor | dict[str, Any] | None = None,
        *,
        masking: dict[str, Any] | None = None,
        name: str = "masked_lm",
        **kwargs: Any,
    ) -> None:
        masking = masking_options(masking, backbone.config)
        inputs = pretraining_inputs(backbone)
        hidden, _ = encode_masked(backbone, inputs)
        super().__init__(
            inputs=inputs,
            outputs=masked_lm_logits(backbone, hidden),
            backbone=backbone,
            preprocessor=preprocessor,
            name=name,
            **kwargs,
        )
        self.masking = masking

    def _default_metrics(self) -> list[keras.metrics.Metric]:
        return masked_token_metrics()

    def fill(
        self,
        x: Any,
        batch_size: int | None = None,
        verbose: int | str = 0,
        *,
        top_k: int = 5,
        targets: str | Sequence[str] | None = None,
    ) -> Any:
        """Predicts the most likely tokens for each `[MASK]` (RoBERTa: `<mask>`) in a text.

        A causal model only uses the text before a mask.

        Args:
            x: A string or a list of strings, each with at least one `[MASK]`.
            batch_size: Maximum number of texts per batch. Batches are smaller if texts have very
                many masks. Defaults to 32.
            verbose: 0 or 1. With 1, it shows a progress bar.
            top_k: Number of tokens to return for each mask.
            targets: A token, or a list of tokens, to choose from, as they are in the vocabulary
                (RoBERTa: `"Ġfilm"` with a space before it). Defaults to all tokens.

        Returns:
            For each mask, a list of `top_k` dicts in descending order of `score`, with `token`,
            `score` (its probability) and `text` (the text with this mask replaced by the token).
            For a text with multiple masks, a list of such lists. For a list of texts, a list of the
            results. With `targets`, a mask has at most one dict per target, and `score` is still
            the probability among all tokens.

        Raises:
            ValueError: If an input is not text or has no `[MASK]` within `sequence_length`, if
                `targets` is empty or contains tokens outside the vocabulary, or if `top_k` is not
                between 1 and the vocabulary size.

        Example:

        ```python
        masked_lm.fill("a [MASK] film", targets=["good", "bad"])
        # [{"token": "good", "score": 0.03, "text": "a good film"},
        #  {"token": "bad", "score": 0.02, "text": "a bad film"}]
        ```
        """
        tokenizer = self.preprocessor.tokenizer
        vocabulary_size = len(tokenizer.vocabulary)
        checks.NumberRange(at_least=1, at_most=vocabulary_size, integer=True).check(top_k=top_k)
        allowed = np.arange(vocabulary_size) if targets is None else self._target_ids(targets)
        texts = single_texts(x)
        if not texts:
            return []
        rows, positions, spans = self.masked_rows(texts)
        # A batch has logits (batch, slots, vocabulary).
        most_rows = max(1, _MOST_SLOTS // max(map(len, positions)))
        options = self._options(min(batch_size or DEFAULT_BATCH_SIZE, most_rows))
        batches = token_batches(rows, self.preprocessor, options, positions)
        answers: list[Any] = [None] * len(texts)
        for _, index, logits in self._outputs_of_batches(batches, verbose):
            for row, row_logits in zip(index.tolist(), logits, strict=True):
                scores = softmax(row_logits[: len(spans[row]), :vocabulary_size])
                answers[row] = [
                    self._best_tokens(texts[row], span, mask_scores, allowed, top_k)
                    for span, mask_scores in zip(spans[row], scores, strict=True)
                ]
        answers = [masks[0] if len(masks) == 1 else masks for masks in answers]
        return answers[0] if isinstance(x, str) else answers

    def _target_ids(self, targets: str | Sequence[str]) -> np.ndarray:
        """Returns token IDs in ascending order without duplicates."""
        tokenizer = self.preprocessor.tokenizer
        tokens = [targets] if isinstance(targets, str) else list(targets)
        vocabulary = set(tokenizer.vocabulary)
        unknown = [token for token in tokens if token not in vocabulary]
        if unknown or not tokens:
            problem = f"{unknown}" if unknown else "no tokens"
            raise ValueError(f"targets must be tokens of the vocabulary. Received: {problem}")
        return np.unique([tokenizer.token_to_id(token) for token in tokens])

    def _best_tokens(
        self,
        text: str,
        span: tuple[int, int],
        scores: np.ndarray,
        allowed: np.ndarray,
        top_k: int,
    ) -> list[dict[str, Any]]:
        tokenizer = self.preprocessor.tokenizer
        return [
            {
                "token": tokenizer.vocabulary[index],
                "score": float(scores[index]),
                "text": _replace_span(
                    text, span, tokenizer.token_text(index), tokenizer.mask_takes_space
                ),
            }
            for index in allowed[np.argsort(-scores[allowed], kind="stable")[:top_k]]
        ]

    def explained_row(self, x: Any, target: Any) -> ExplainedRow:
        if not isinstance(x, str):
            raise ValueError(f"x must be a text. Received: {checks.shorten_repr(x)}")
        check_length(self.preprocessor, (x,), special_tokens_in_text=True)
        (ids,), (positions,), _ = self.masked_rows([x])
        tokenizer = self.preprocessor.tokenizer
        if len(positions) != 1:
            raise ValueError(
                f"x must have one {tokenizer.mask_token}. Received: a text with {len(positions)}"
            )
        if target is None:
            target = self.fill(x, top_k=1)[0]["token"]
        if target not in tokenizer.vocabulary:
            raise ValueError(f"target must be a token of the vocabulary. Received: {target!r}")
        token = tokenizer.token_to_id(target)
        _, starts, ends = tokenizer.with_special_tokens_in_text.tokenize_with_offsets(x)
        bounds = zip(starts, ends, strict=True)
        spans: list[Span] = [None] * len(ids)
        for position, (start, end) in enumerate(bounds, start=1):
            # `[MASK]` is the predicted token, so it gets no score.
            if ids[position] != tokenizer.mask_token_id:
                spans[position] = (0, start, end)
        options = BatchOptions(1, compiles=compiles_each_shape())
        ((features, _),) = token_batches([ids], self.preprocessor, options, [positions])
        name = f"{target!r} at {tokenizer.mask_token}"
        return ExplainedRow(features, (x,), tuple(spans), {"": (0, token)}, name)

    def masked_rows(self, texts: list[str]) -> MaskedRows:
        """Converts texts with `[MASK]` (RoBERTa: `<mask>`) to IDs and the positions to predict.

        Args:
            texts: Texts. They are truncated to `sequence_length`.

        Returns:
            A `MaskedRows`, a tuple of `token_ids`, `positions` and `spans`.

        Raises:
            ValueError: If a text has no mask within `sequence_length`.
        """
        own = self.preprocessor.tokenizer
        max_tokens = self.preprocessor.max_tokens(1)
        columns = own.with_special_tokens_in_text.tokenize_with_offsets(texts)
        rows, positions, spans = [], [], []
        for number, (ids, starts, ends) in enumerate(
            zip(*truncate_tokens(own, columns, max_tokens), strict=True)
        ):
            masks = [index for index, token in enumerate(ids) if token == own.mask_token_id]
            if not masks:
                which = "The text" if len(texts) == 1 else f"Text {number}"
                kept = "last" if own.truncation_side == "left" else "first"
                is_truncated = own.mask_token_id in columns[0][number]
                where = f" in its {kept} {max_tokens} tokens" if is_truncated else ""
                raise ValueError(
                    f"{which} must have a {own.mask_token} to fill{where}. Received: "
                    f"{texts[number]!r}"
                )
            rows.append([own.cls_token_id, *ids, own.sep_token_id])
            # Positions are after [CLS]. In a causal model, the token before a mask predicts it.
            positions.append([mask + (0 if self.config.causal else 1) for mask in masks])
            spans.append([(starts[mask], ends[mask]) for mask in masks])
        return MaskedRows(rows, positions, spans)


def masking_options(masking: dict[str, Any] | None, config: BertConfig) -> dict[str, Any]:
    """Returns the `masking` argument of a task. It must be `None` with a causal encoder."""
    if masking and config.causal:
        raise ValueError(
            "masking must be None with a causal encoder, which is trained without masks. "
            f"Received: {masking!r}"
        )
    return dict(masking or {})


def mask_batch(masker: Any, batch: tuple[Any, ...], step: int | None) -> tuple[Any, Any, Any]:
    """Masks a batch without labels. Returns features, mask IDs and mask weights.

    The masks depend on the step, or if the step is `None`, on the batch's token IDs.
    """
    features, _, row_weights = keras.utils.unpack_x_y_sample_weight(batch)
    features = masker(features, step)
    ids, weights = features.pop("mask_ids"), features.pop("mask_weights")
    if row_weights is not None:
        weights = weights * row_weights[:, np.newaxis]
    return features, ids, weights


def masked_by_rows(
    masker: MaskedLMMaskGenerator, batch: tuple[Any, ...], _: int
) -> tuple[Any, Any, Any]:
    """Masks a batch like `mask_batch`, but each example separately, independent of its batch."""
    features, _, row_weights = keras.utils.unpack_x_y_sample_weight(batch)
    ids, mask = features["token_ids"], features["padding_mask"]
    rows, slots = len(ids), masker.num_predictions(ids.shape[1])
    token_ids = ids.copy()
    positions, mask_ids = (np.zeros((rows, slots), "int32") for _ in range(2))
    weights = np.zeros((rows, slots), "float32")
    for row, length in enumerate(mask.sum(axis=1)):
        part, *targets = mask_batch(masker, ({"token_ids": ids[row : row + 1, :length]},), None)
        token_ids[row, :length] = part["token_ids"][0]
        targets = [part["mask_positions"], *targets]
        for values, own in zip((positions, mask_ids, weights), targets, strict=True):
            values[row, : own.shape[1]] = own[0]
    if row_weights is not None:
        weights *= row_weights[:, np.newaxis]
    features = {**features, "token_ids": token_ids, "mask_positions": positions}
    return features, mask_ids, weights


def token_batches(
    token_ids: Sequence[Sequence[int]],
    preprocessor: Any,
    options: BatchOptions,
    mask_positions: Sequence[Sequence[int]] | None = None,
) -> Loader:
    """Groups tokenized examples into length-bucketed batches of `(features, index)`.

    `index` contains the indices of the examples, int64 `(batch,)`. The positions to predict are
    padded with 0 to a power of two, so that few shapes are compiled.
    """

    def with_positions(batch: Batch) -> tuple[Any, ...]:
        if mask_positions is None:
            return to_indexed_batch(batch)
        asked = [mask_positions[row] for row in batch.rows]
        width = 1 << (max(1, *map(len, asked)) - 1).bit_length()
        positions = np.zeros((len(asked), width), "int32")
        for row, own in enumerate(asked):
            positions[row, : len(own)] = own
        return {**batch.features, "mask_positions": positions}, batch.rows

    return Loader(RowsInMemory(rows_of_ids(token_ids)), preprocessor, options, with_positions)


def _replace_span(text: str, span: tuple[int, int], token: str, takes_space: bool) -> str:
    """Replaces a span in a text with a token, and with `takes_space` also the space before it.

    At the start of the text, the token is inserted without its space.
    """
    before = text[: span[0]].rstrip() if takes_space else text[: span[0]]
    return before + (token if before else token.removeprefix(" ")) + text[span[1] :]


def masked_token_metrics() -> list[keras.metrics.Metric]:
    """Returns the metrics for masked tokens: weighted accuracy and perplexity."""
    return [class_accuracy(), Perplexity()]
