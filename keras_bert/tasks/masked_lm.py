# SPDX-License-Identifier: Apache-2.0
"""Predicting masked tokens."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any, ClassVar

import keras
import numpy as np

from keras_bert.metrics import Perplexity
from keras_bert.models.backbone import Backbone
from keras_bert.models.pretraining import encode_masked, masked_lm_logits, pretraining_inputs
from keras_bert.tasks.class_labels import softmax
from keras_bert.tasks.objective import class_accuracy
from keras_bert.tasks.rows import (
    DEFAULT_BATCH_SIZE,
    Batching,
    Rows,
    TextDataset,
    is_text,
    single_texts,
)
from keras_bert.tasks.task import Task

if TYPE_CHECKING:
    from keras_bert.data.text_batches import TextClassifierPreprocessor

# Masked tokens, filler included, in a batch of `fill`: each has a logit for every token there is.
_MOST_SLOTS = 512


class MaskedTokenTask(Task):
    """An objective with masked tokens: its inputs, its head, and how it masks text."""

    default_learning_rate = 1e-4
    uses_pooler = False
    needs_vocabulary = False
    warns_of_fresh_pooler = True
    masking: dict[str, Any]
    # What the masker does where `masking` does not say otherwise
    usual_masking: ClassVar[dict[str, Any]] = {}

    def _num_targets(self, x: Any) -> dict[str, int]:
        names = self.output if isinstance(self.output, dict) else [""]
        return {
            name: self.config.vocabulary_size for name in names if name in ("", "masked_lm_logits")
        }

    @property
    def heads(self) -> dict[str, Any]:
        return {
            "masked_lm": (self.get_layer("masked_lm_transform"), self.get_layer("masked_lm_bias"))
        }

    def _read(self, x: Any, y: Any, sample_weight: Any, batching: Batching) -> Rows | None:
        rows = super()._read(x, None, None, batching)
        has_labels = isinstance(rows, TextDataset) and rows.has_labels
        if rows is not None and (y is not None or sample_weight is not None or has_labels):
            raise ValueError("Text for a masked LM has neither labels nor weights: leave them out.")
        return rows

    def _batches(self, rows: Rows, batching: Batching) -> Any:
        from keras_bert.data import MaskedLMMasker, NextTokenTargets, text_batches

        batches = super()._batches(rows, batching)
        tokenizer = self.preprocessor.tokenizer
        masker = (
            NextTokenTargets(pad_token_id=tokenizer.pad_token_id)
            if self.config.causal
            else MaskedLMMasker.from_tokenizer(tokenizer, **{**self.usual_masking, **self.masking})
        )
        seed = random.getrandbits(31) if batching.training else None
        return text_batches.masked_batches(batches, masker, seed)


@keras.saving.register_keras_serializable(package="keras_bert")
class MaskedLM(MaskedTokenTask):
    """BERT that predicts masked tokens.

    `fit` and `evaluate` take text without labels: tokens are masked anew in each epoch, and alike
    in each evaluation. On a causal encoder they train and measure a left-to-right language model
    instead: nothing is masked, and every token predicts the next one.
    `compile()` takes AdamW at 1e-4, the cross-entropy of the masked tokens divided by their number
    (the sum of the sample weights, and not the number of slots), accuracy and perplexity.

    Args:
        backbone: The encoder.
        preprocessor: Text to features, or the config of what makes them; without one the task
            takes ids.
        masking: How the tokens of text are masked: options of
            `keras_bert.data.MaskedLMMasker.from_tokenizer`, such as `{"unit": "word"}`; none
            for a causal encoder.
        name: The model's name.

    Call arguments:
        inputs: The backbone's inputs, and `mask_positions`: int `(batch, slots)`, the positions
            to predict.

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
    >>> weights = np.array([[1.0]])  # 0 for slots that only fill a row up
    >>> history = masked_lm.fit(x, np.array([[2023]]), sample_weight=weights, verbose=0)

    Reference:
        [BERT](https://arxiv.org/abs/1810.04805), section 3.1, task 1.
    """

    options = ("masking",)

    def __init__(
        self,
        backbone: Backbone,
        preprocessor: TextClassifierPreprocessor | dict[str, Any] | None = None,
        *,
        masking: dict[str, Any] | None = None,
        name: str = "masked_lm",
        **kwargs: Any,
    ) -> None:
        if masking and backbone.config.causal:
            raise ValueError(
                f"masking is {masking!r}, but on a causal encoder nothing is masked: leave it out."
            )
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
        self.masking = dict(masking or {})

    def _default_metrics(self) -> list[keras.metrics.Metric]:
        return masked_token_metrics()

    def fill(self, text: Any, top_k: int = 5, batch_size: int | None = None) -> Any:
        """The likeliest tokens for each `[MASK]` (RoBERTa's `<mask>`) that is typed in a text.

        A causal model knows what stands before a mask alone.

        Args:
            text: A string or a list of strings, each with one `[MASK]` or more.
            top_k: How many tokens for each mask.
            batch_size: Texts in a batch (32; fewer where texts have very many masks).

        Returns:
            For each mask a list of `top_k` dicts, the likeliest first: `token`, `score` (its
            probability) and `text` (the text with the token instead of this mask). A text with
            one mask gives that list, a text with more gives a list of such lists; a list of
            texts gives a list of these.

        Raises:
            ValueError: If a row is no text, or a text has no `[MASK]`, or none within the longest
                row.
        """
        tokenizer = self.preprocessor.tokenizer
        vocabulary_size = len(tokenizer.vocabulary)
        if not 1 <= top_k <= vocabulary_size:
            raise ValueError(f"top_k is {top_k}; expected 1 to {vocabulary_size}.")
        texts = single_texts(text)
        if not texts:
            return []
        from keras_bert.data import text_batches

        rows, positions, spans = self._masked_rows(texts)
        # Logits of a batch are (rows, slots, vocabulary).
        most_rows = max(1, _MOST_SLOTS // max(map(len, positions)))
        batching = self._batching(min(batch_size or DEFAULT_BATCH_SIZE, most_rows))
        batches = text_batches.token_batches(
            rows, self.preprocessor, positions, **batching.options()
        )
        answers: list[Any] = [None] * len(texts)
        for _, (index,), logits in self._outputs_of_batches(batches, verbose=0):
            for row, row_logits in zip(index.tolist(), logits, strict=True):
                scores = softmax(row_logits[: len(spans[row]), :vocabulary_size])
                answers[row] = [
                    self._best_tokens(texts[row], span, of_mask, top_k)
                    for span, of_mask in zip(spans[row], scores, strict=True)
                ]
        answers = [masks[0] if len(masks) == 1 else masks for masks in answers]
        return answers[0] if isinstance(text, str) else answers

    def _best_tokens(
        self, text: str, span: tuple[int, int], scores: np.ndarray, top_k: int
    ) -> list[dict[str, Any]]:
        tokenizer = self.preprocessor.tokenizer
        return [
            {
                "token": tokenizer.vocabulary[index],
                "score": float(scores[index]),
                "text": _put(text, span, tokenizer.token_text(index), tokenizer.mask_takes_space),
            }
            for index in np.argsort(-scores, kind="stable")[:top_k]
        ]

    def predict(
        self, x: Any, batch_size: int | None = None, verbose: int | str = "auto", **kwargs: Any
    ) -> Any:
        """Logits `(rows, slots, vocabulary)` of ids with `mask_positions`; for text, see `fill`."""
        if is_text(x):
            raise ValueError("`predict` of a masked LM takes ids; `fill` takes text.")
        return super().predict(x, batch_size=batch_size, verbose=verbose, **kwargs)

    def _masked_rows(
        self, texts: list[str]
    ) -> tuple[list[list[int]], list[list[int]], list[list[tuple[int, int]]]]:
        """Rows of tokens, what to ask of each, and which characters of the text each mask is."""
        own = self.preprocessor.tokenizer
        room = self.preprocessor.sequence_length - 2
        parts = own.reading_special_tokens.tokenize_with_offsets(texts)
        rows, positions, spans = [], [], []
        for number, (ids, starts, ends) in enumerate(
            zip(*(part.to_list() for part in parts), strict=True)
        ):
            masks = [index for index, token in enumerate(ids[:room]) if token == own.mask_token_id]
            if not masks:
                which = "The text" if len(texts) == 1 else f"Text {number}"
                where = f" in its first {room} tokens" if own.mask_token_id in ids else ""
                raise ValueError(
                    f"{which} has no {own.mask_token} to fill{where}: {texts[number]!r}."
                )
            rows.append([own.cls_token_id, *ids[:room], own.sep_token_id])
            # Behind [CLS]; the token before it is what predicts it from left to right.
            positions.append([mask + (0 if self.config.causal else 1) for mask in masks])
            spans.append([(starts[mask], ends[mask]) for mask in masks])
        return rows, positions, spans


def _put(text: str, span: tuple[int, int], token: str, takes_space: bool) -> str:
    """The text with a token for a span, and for the space before it where it brings its own.

    No text begins with the space before its first word.
    """
    before = text[: span[0]].rstrip() if takes_space else text[: span[0]]
    return before + (token if before else token.removeprefix(" ")) + text[span[1] :]


def masked_token_metrics() -> list[keras.metrics.Metric]:
    """Accuracy and perplexity, each token by its weight."""
    return [class_accuracy(), Perplexity()]
