# SPDX-License-Identifier: Apache-2.0
"""ELECTRA pre-training: replaced token detection with a small generator."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Self

import keras
from keras import ops

from keras_bert import checkpoints, checks
from keras_bert.config import BertConfig, ConfigError
from keras_bert.data.adapters.texts import single_texts
from keras_bert.data.labels import sigmoid
from keras_bert.data.packing import truncate_tokens
from keras_bert.data.texts import TextClassifierPreprocessor
from keras_bert.layers import ReplacedTokenHead, TokenReplacer, TokenSampler, spread_slots
from keras_bert.layers.encoder_layers import check_same_embeddings
from keras_bert.models.backbone import Backbone
from keras_bert.models.pretraining import encode_masked, masked_lm_logits, pretraining_inputs
from keras_bert.ops.annotations import Tensor
from keras_bert.ops.reference import length_of
from keras_bert.tasks.custom_objective import CustomObjective, slot_targets, token_weights
from keras_bert.tasks.masked_lm import MaskedTokenTask, token_batches
from keras_bert.tasks.presets import task_of_preset, with_encoder_dropout

GENERATOR_DIRECTORY = "generator"
# Default options of the mask generator
_MASKING = {"mask_token_rate": 0.85, "random_token_rate": 0.0}
_SHARING = ("all", "disentangled")
_METRICS = (
    "masked_lm_loss",
    "generator_accuracy",
    "replaced_token_loss",
    "discriminator_accuracy",
    "discriminator_precision",
    "discriminator_recall",
)


@keras.saving.register_keras_serializable(package="keras_bert")
class ReplacedTokenDetector(CustomObjective, MaskedTokenTask):
    """ELECTRA: a discriminator that detects which tokens in a text were replaced by a generator.

    The generator, a second and smaller encoder, is trained at the same time to predict masked
    tokens. Samples from its predictions replace the masked tokens in the discriminator's input.
    Both encoders share the token, segment and position embeddings and their LayerNorm, or only the
    token embeddings (see `embedding_sharing`). Gradients of the discriminator's loss do not flow
    through the samples to the generator. If a sample equals the original token, the token counts as
    unchanged.

    `fit` and `evaluate` accept the same data as `MaskedLM`: text without labels, or token IDs with
    `mask_positions`, the original IDs as `y`, and sample weights. For text, 85% of the selected
    tokens are masked, and the rest are unchanged.

    `compile()` defaults to AdamW with a learning rate of 1e-4. The losses and metrics are fixed.

    Args:
        backbone: The discriminator, a `Backbone`. It is the encoder to use after pre-training.
        preprocessor: A `TextClassifierPreprocessor` or its config. Without it, the task only
            accepts token IDs.
        generator: Architecture of the generator, a `BertConfig` or its `to_dict()`. It must have
            the same embeddings: `vocabulary_size`, `max_sequence_length`, `num_segments`, embedding
            dimension, norm and type of positions. Defaults to the discriminator's architecture,
            scaled by `generator_size`.
        generator_size: The generator's hidden dimension, number of heads and intermediate
            dimension, as a fraction of the discriminator's values. The number of layers is the
            same. Defaults to 0.25.
        discriminator_weight: Loss weight of the discriminator. Defaults to 50.
        embedding_sharing: `"all"`, as in ELECTRA, or `"disentangled"`, as in DeBERTaV3. With
            `"disentangled"`, the discriminator's token embeddings are the generator's embeddings
            plus a separate table, initialized to 0. The discriminator's loss does not change the
            generator's embeddings. Defaults to `"all"`.
        masking: A dict of masking options, the arguments of
            `keras_bert.data.MaskedLMMaskGenerator.from_tokenizer`, for example
            `{"mask_selection_rate": 0.25}`.
        seed: Integer seed for sampling in training. `None` for a random seed.
        name: Name of the model.

    Call arguments:
        inputs: A dict with the backbone's inputs and `mask_positions`, int `(batch, slots)`, the
            positions that the generator predicts. Unused positions are 0.

    Returns:
        A dict with the generator's `masked_lm_logits`, float32 `(batch, slots, vocabulary)`, the
        `sampled_ids`, int32 `(batch, slots)`, and the discriminator's `replaced_token_logits`,
        float32 `(batch, length)`. These logits are positive for tokens predicted as replaced.

    Raises:
        ConfigError: If the generator's dimensions are invalid.
        ValueError: If the encoder is causal, if the generator cannot share its embeddings, or if
            `embedding_sharing` is unknown.

    Example:

    >>> from keras_bert import Backbone, BertConfig, ReplacedTokenDetector
    >>> config = BertConfig(num_layers=1, hidden_dim=8, num_heads=2, intermediate_dim=16)
    >>> detector = ReplacedTokenDetector(Backbone(config), generator_size=0.5)
    >>> detector.compile()
    >>> x = {"token_ids": np.array([[101, 103, 102]]), "mask_positions": np.array([[1]])}
    >>> history = detector.fit(x, np.array([[7]]), sample_weight=np.ones((1, 1)), verbose=0)
    >>> detector.generator.config.hidden_dim, detector.discriminator.config.hidden_dim
    (4, 8)

    Reference:
        [ELECTRA](https://arxiv.org/abs/2003.10555), sections 2 and 3.1, and the original ELECTRA
        code;
        [DeBERTaV3](https://arxiv.org/abs/2111.09543), section 3.3.
    """

    preset_options = ("discriminator_weight", "embedding_sharing")
    head_name = "replaced_token"
    predict_method = "detect"

    def __init__(
        self,
        backbone: Backbone,
        preprocessor: TextClassifierPreprocessor | dict[str, Any] | None = None,
        *,
        generator: BertConfig | dict[str, Any] | None = None,
        generator_size: float = 0.25,
        discriminator_weight: float = 50.0,
        embedding_sharing: str = "all",
        masking: dict[str, Any] | None = None,
        seed: int | None = None,
        name: str = "replaced_token_detector",
        **kwargs: Any,
    ) -> None:
        checks.NON_NEGATIVE.check(discriminator_weight=discriminator_weight)
        if embedding_sharing not in _SHARING:
            raise ValueError(
                f"embedding_sharing must be one of {', '.join(_SHARING)}. Received: "
                f"{embedding_sharing!r}"
            )
        config = backbone.config
        if config.causal:
            raise ValueError(
                "The encoder must have causal=False, because replaced tokens are also detected "
                "with the tokens after them. Received: a causal encoder"
            )
        if generator is None:
            generator = generator_config(config, generator_size)
        elif isinstance(generator, dict):
            generator = BertConfig.from_dict(generator)
        check_same_embeddings(generator, config)

        # === Layers ===
        generator_encoder = Backbone(
            generator.replace(pooler=False),
            packed=backbone.packed,
            rematerialize=backbone.rematerialize,
            unpadded=backbone.unpadded,
            embeddings_of=backbone if embedding_sharing == "all" else None,
            dtype=backbone.dtype_policy,
            name="generator",
        )
        if embedding_sharing == "disentangled":
            generator_encoder.token_embedding_table.assign(backbone.token_embedding_table)
            backbone.token_embedding.add_base_table(generator_encoder.token_embedding)
        head = ReplacedTokenHead(
            config.activation,
            initializer_range=config.initializer_range,
            dtype=backbone.dtype_policy,
            name="replaced_token",
        )

        # === Functional graph ===
        inputs = pretraining_inputs(backbone)
        positions = inputs["mask_positions"]
        hidden, _ = encode_masked(generator_encoder, inputs)
        logits = masked_lm_logits(generator_encoder, hidden)
        samples = TokenSampler(seed, name="sampled_tokens")(logits, inputs["token_ids"], positions)
        with_samples = TokenReplacer(name="placed_tokens")(inputs["token_ids"], positions, samples)
        outputs = {
            "masked_lm_logits": logits,
            "sampled_ids": samples,
            "replaced_token_logits": head(
                backbone.encode({**inputs, "token_ids": with_samples})["sequence_output"]
            ),
        }
        super().__init__(
            inputs=inputs,
            outputs=outputs,
            backbone=backbone,
            preprocessor=preprocessor,
            name=name,
            **kwargs,
        )
        self.generator = generator_encoder
        self.generator_size = generator_size
        self.head = head
        self.discriminator_weight = discriminator_weight
        self.embedding_sharing = embedding_sharing
        self.masking = {**_MASKING, **(masking or {})}
        self.seed = seed
        self._report(_METRICS)

    @property
    def discriminator(self) -> Backbone:
        """The encoder to use after pre-training."""
        return self.backbone

    @property
    def heads(self) -> dict[str, Any]:
        """The discriminator's head by its name in checkpoints."""
        return {"replaced_token": self.head}

    @property
    def generator_heads(self) -> dict[str, Any]:
        """The generator's head by its name in checkpoints."""
        return super().heads

    @classmethod
    def from_preset(  # type: ignore[override]  # has no classes
        cls,
        preset: str | os.PathLike[str],
        *,
        generator_preset: str | os.PathLike[str] | None = None,
        load_weights: bool = True,
        **options: Any,
    ) -> Self:
        """Creates a detector from checkpoints of its discriminator and its generator.

        Weights missing from the checkpoints are initialized randomly, with a warning.

        Args:
            preset: The discriminator's checkpoint, see `Task.from_preset`. A preset saved by a
                detector also contains the generator.
            generator_preset: The generator's checkpoint. Shared embeddings are loaded from the
                discriminator's checkpoint.
            load_weights: Whether to load the weights. Otherwise they are initialized randomly.
            **options: See `Task.from_preset`.

        Returns:
            A `ReplacedTokenDetector`.

        Raises:
            keras_bert.checkpoints.CheckpointError: If files are missing or invalid, or if weights
                do not match the architecture. The message includes the file and the tensor.
            ValueError: If the generator cannot share the discriminator's embeddings.
        """
        checkpoint = checkpoints.open_checkpoint(preset, weights=load_weights)
        saved_by_a_detector = "discriminator_weight" in (checkpoint.task or {})
        if generator_preset is None and saved_by_a_detector:
            generator_preset = checkpoint.directory / GENERATOR_DIRECTORY
        second = None
        if generator_preset is not None:
            second = checkpoints.open_checkpoint(generator_preset, weights=load_weights)
            if load_weights:
                second.check_encoder()
            rate = options.get("encoder_dropout")
            options.setdefault("generator", with_encoder_dropout(second.config, rate))
        task: Self
        task, load = task_of_preset(cls, checkpoint, load_weights=load_weights, **options)
        if not load_weights:
            return task
        table, is_shared = task.backbone.token_embedding, task.embedding_sharing == "all"
        if not is_shared:
            table.add_base_table(None)
        if second is None:
            checkpoints.errors.warn(
                f"{preset} has no generator. It is initialized randomly, except its embeddings.",
            )
        else:
            # Load the generator first, so that shared embeddings are loaded from the discriminator.
            second.load_into(task.generator, pooler_is_used=False)
            for name, head in task.generator_heads.items():
                second.load_head(name, head)
            second.warn_unused()
        load()
        if not is_shared:
            if second is None:
                task.generator.token_embedding_table.assign(table.embeddings)
                task.generator.embeddings.set_weights(task.backbone.embeddings.get_weights())
            table.add_base_table(task.generator.token_embedding)
        return task

    def save_to_preset(self, preset_dir: str | os.PathLike[str]) -> None:
        """Saves the discriminator to a directory that every task's `from_preset` can load.

        The generator is saved in the subdirectory `generator`. `MaskedLM.from_preset` can load it.

        Args:
            preset_dir: Path of the directory. An existing preset is replaced.
        """
        super().save_to_preset(preset_dir)
        self._save_encoder(
            self.generator,
            self.generator_heads,
            Path(preset_dir) / GENERATOR_DIRECTORY,
            preset_options=(),
        )

    def _loss_parts(self) -> dict[str, float]:
        return {"masked_lm_loss": 1.0, "replaced_token_loss": self.discriminator_weight}

    def _loss_targets(self, x: Any, y: Any, sample_weight: Any) -> tuple[Any, dict[str, Any]]:
        # The generator's loss is over the masked tokens. The discriminator's loss is over all
        # non-padding tokens in examples with a masked token whose weight is not 0.
        ids, weights = slot_targets(x, y, sample_weight)
        # The original token is unknown if its weight is 0.
        target_weights = spread_slots(
            weights, x["mask_positions"], length_of(x["token_ids"]), empty=-1
        )
        tokens = token_weights(x, weights) * ops.cast(ops.not_equal(target_weights, 0), "float32")
        return ids, {"masked_lm_loss": weights, "replaced_token_loss": tokens}

    def _values(
        self, x: Any, y: Any, y_pred: Tensor, sample_weight: Any
    ) -> dict[str, tuple[Any, Any]]:
        ids, loss_weights = self._loss_targets(x, y, sample_weight)
        weights, weights_of_tokens = (loss_weights[name] for name in self._loss_parts())
        replaced = _replaced(x, ids, y_pred["sampled_ids"])
        masked_logits = y_pred["masked_lm_logits"]
        logits = y_pred["replaced_token_logits"]
        best = ops.cast(ops.argmax(masked_logits, axis=-1), ids.dtype)
        predicted = ops.cast(logits > 0, "float32")
        return {
            "masked_lm_loss": (
                ops.sparse_categorical_crossentropy(ids, masked_logits, from_logits=True),
                weights,
            ),
            "generator_accuracy": (ops.cast(ops.equal(best, ids), "float32"), weights),
            "replaced_token_loss": (
                ops.binary_crossentropy(replaced, logits, from_logits=True),
                weights_of_tokens,
            ),
            "discriminator_accuracy": (
                ops.cast(ops.equal(predicted, replaced), "float32"),
                weights_of_tokens,
            ),
            "discriminator_precision": (replaced, weights_of_tokens * predicted),
            "discriminator_recall": (predicted, weights_of_tokens * replaced),
        }

    def detect(
        self,
        x: Any,
        batch_size: int | None = None,
        verbose: int | str = 0,
        *,
        threshold: float = 0.5,
    ) -> Any:
        """Detects replaced tokens in texts.

        Args:
            x: A string or a list of strings. They are truncated to `sequence_length`.
            batch_size: Number of texts per batch. Defaults to 32.
            verbose: 0 or 1. With 1, it shows a progress bar.
            threshold: Minimum probability of the tokens to return. With 0, all tokens are returned.

        Returns:
            For each text, a list of dicts in token order, with `token`, its character offsets
            `start` and `end`, and `score` (the probability that it was replaced). `end` is the
            offset after the last character. For a single string, a single list.

        Raises:
            ValueError: If an input is not text.

        Example:

        ```python
        detector = ReplacedTokenDetector.from_preset("hf://google/electra-small-discriminator")
        detector.detect("the chef ate the meal")
        # [{"token": "ate", "start": 9, "end": 12, "score": ...}]
        ```
        """
        texts = single_texts(x)
        if not texts:
            return []
        tokenizer = self.preprocessor.tokenizer
        ids, starts, ends = truncate_tokens(
            tokenizer, tokenizer.tokenize_with_offsets(texts), self.preprocessor.max_tokens(1)
        )
        rows = [[tokenizer.cls_token_id, *row, tokenizer.sep_token_id] for row in ids]
        batches = token_batches(rows, self.preprocessor, self._options(batch_size))
        answers: list[Any] = [None] * len(texts)
        for _, index, encoded in self._outputs_of_batches(batches, verbose, self.backbone):
            logits = ops.convert_to_numpy(self.head(encoded["sequence_output"]))
            probabilities = sigmoid(logits.astype("float64"))
            for row, scores in zip(index.tolist(), probabilities, strict=True):
                answers[row] = [
                    {
                        "token": tokenizer.vocabulary[token],
                        "start": start,
                        "end": end,
                        "score": float(score),
                    }
                    for token, start, end, score in zip(
                        ids[row], starts[row], ends[row], scores[1:], strict=False
                    )
                    if score >= threshold
                ]
        return answers[0] if isinstance(x, str) else answers

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "generator": self.generator.config.to_dict()}


def generator_config(config: BertConfig, size: float) -> BertConfig:
    """Scales a discriminator's architecture down to a generator's architecture.

    `size` is the fraction of the discriminator's dimensions.

    Reference:
        [ELECTRA](https://arxiv.org/abs/2003.10555), section 3.2 and appendix A.
    """
    checks.POSITIVE_FRACTION.check(generator_size=size)
    hidden_dim = round(config.hidden_dim * size)
    num_heads = max(1, round(config.num_heads * size))
    if hidden_dim < 1 or hidden_dim % num_heads:
        raise ConfigError(
            "generator_size must give a hidden_dim that is a multiple of the number of heads. "
            f"Received: {size}, which gives hidden_dim {hidden_dim} and {num_heads} heads. Pass "
            "the generator's config as `generator`."
        )
    width = config.embedding_width
    return config.replace(
        hidden_dim=hidden_dim,
        num_heads=num_heads,
        heads_by_layer=None,
        intermediate_dim=max(1, round(config.intermediate_dim * size)),
        # If their dimension differs, the shared embeddings need a projection.
        embedding_dim=None if width == hidden_dim else width,
        pooler=False,
    )


def _replaced(x: Any, ids: Any, sampled: Any) -> Any:
    """Returns which tokens were replaced, float32 `(batch, length)`."""
    is_wrong = ops.cast(ops.not_equal(ops.cast(sampled, "int32"), ids), "float32")
    return spread_slots(is_wrong, x["mask_positions"], length_of(x["token_ids"]), empty=0)
