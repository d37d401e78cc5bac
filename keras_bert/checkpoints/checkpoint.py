# SPDX-License-Identifier: Apache-2.0
"""An opened checkpoint. Its weights and its tokenizer are read lazily."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import keras

from keras_bert.checkpoints import layouts, sentence_transformers, weights
from keras_bert.checkpoints.config_fields import differing_fields
from keras_bert.checkpoints.directories import checkpoint_errors
from keras_bert.checkpoints.errors import CheckpointError, check_same, warn
from keras_bert.checkpoints.tensors import TensorSource, are_equal
from keras_bert.checkpoints.weights import POOLER_WEIGHTS, Encoder, Head
from keras_bert.config import BertConfig
from keras_bert.families.records import Layout
from keras_bert.vocabularies.tokenizer_config import list_tokens, with_defaults

EncoderT = TypeVar("EncoderT", bound=Encoder)


def registered_backbone(config: BertConfig, **arguments: Any) -> Any:
    """Creates a `keras_bert.Backbone`. The class comes from Keras' registry."""
    cls = keras.saving.get_registered_object("keras_bert>Backbone")
    if cls is None:
        raise TypeError("cls must be given. Pass cls=keras_bert.Backbone.")
    return cls(config, **arguments)


# Maximum number of tensors listed in an error message
_NAMES_SHOWN = 10


@dataclasses.dataclass(eq=False)
class Checkpoint:
    """A checkpoint directory in any format, as returned by `open_checkpoint`.

    Opening a checkpoint only reads its configuration. The vocabulary and each tensor are read when
    they are needed.

    Args:
        format: `"keras_bert"`, `"hugging_face"`, `"google_tf1"` or `"keras_hub"`.
        directory: Directory of the checkpoint.
        config: Architecture of the encoder.
        backbone_layout: How the encoder's weights are stored.
        head_layouts: How each head's weights are stored, for the heads that the format supports.
        open_tensors: Function that opens the tensors.
        open_tokenizer: Function that reads the tokenizer config. It returns `None` if the directory
            has no tokenizer.
        unsupported_heads: Error messages for heads that no task in this package supports.
        num_tokens: Number of tokens when the tokenizer was saved, or `None` if it is unknown.
        class_names: A classifier's class names in the order of its outputs, or `None` if no file
            contains them.
        task: Task settings, or `None` if no file contains them.
        decoder_is_tied: Whether a masked LM without a stored decoder uses the token embeddings as
            its decoder.

    Example:

    ```python
    checkpoint = checkpoints.open_checkpoint("hf://google-bert/bert-base-uncased")
    backbone = Backbone(checkpoint.config)
    checkpoint.load_into(backbone)
    head = ClassificationHead(2)
    head.build((None, checkpoint.config.hidden_dim))
    checkpoint.load_head("classifier", head)    # warns: the checkpoint has no classifier
    checkpoint.warn_unused()                    # lists the tensors of the masked LM head
    ```
    """

    format: str
    directory: Path
    config: BertConfig
    backbone_layout: Layout
    head_layouts: Mapping[str, Layout]
    open_tensors: Callable[[], TensorSource]
    open_tokenizer: Callable[[], dict[str, Any] | None]
    unsupported_heads: Mapping[str, str] = dataclasses.field(default_factory=dict)
    num_tokens: int | None = None
    class_names: tuple[str, ...] | None = None
    task: dict[str, Any] | None = None
    decoder_is_tied: bool = True

    def __post_init__(self) -> None:
        self._used_names: set[str] = set()

    @functools.cached_property
    def _tensors(self) -> TensorSource:
        return self.open_tensors()

    @functools.cached_property
    def tokenizer(self) -> dict[str, Any] | None:
        """The tokenizer config, or `None` if the directory has no tokenizer."""
        with checkpoint_errors():
            tokenizer = self.open_tokenizer()
        if tokenizer is None:
            return None
        if self.config.num_segments == 1 and with_defaults(tokenizer).get("num_segments", 1) > 1:
            # For example, KLUE-RoBERTa has BERT's tokenizer, but no segment for a second text.
            tokenizer = {**tokenizer, "num_segments": 1}
        size = self._check_size(tokenizer)
        if self.num_tokens is not None and size != self.num_tokens:
            raise CheckpointError(
                f"{self.directory}: the vocabulary must have {self.num_tokens} tokens, as when it "
                f"was saved. Received: {size}"
            )
        if self.num_tokens is None and size < self.config.vocabulary_size:
            self._warn(
                f"has {size} tokens in its vocabulary but {self.config.vocabulary_size} embeddings "
                "(vocabulary_size). Either the embedding table is padded, or the vocabulary file "
                "is truncated."
            )
        return tokenizer

    def _check_size(self, tokenizer: Mapping[str, Any]) -> int:
        """Returns the number of tokens. It must not exceed the number of embeddings."""
        size = len(list_tokens(tokenizer))
        if size > self.config.vocabulary_size:
            raise CheckpointError(
                f"{self.directory}: the vocabulary must have at most {self.config.vocabulary_size} "
                f"tokens, the number of embeddings (vocabulary_size). Received: {size}"
            )
        return size

    @property
    def vocabulary(self) -> list[str] | None:
        """The tokens in the order of their ids, or `None` if the directory has no tokenizer."""
        return list_tokens(self.tokenizer) if self.tokenizer else None

    def require_tokenizer(self) -> dict[str, Any]:
        """Returns the tokenizer config.

        Raises:
            CheckpointError: If the directory has no tokenizer.
        """
        if self.tokenizer is None:
            raise CheckpointError(
                f"{self.directory} has no vocabulary. It must contain vocab.txt, spiece.model, "
                "vocab.json with merges.txt, or tokenizer.json. A KerasHub preset must contain "
                "vocabulary.txt, vocabulary.spm, or vocabulary.json with merges.txt in "
                "assets/tokenizer."
            )
        return self.tokenizer

    @property
    def heads(self) -> tuple[str, ...]:
        """The names of the heads with weights in the checkpoint."""
        names = self._tensors.names()
        return tuple(
            head
            for head, layout in self.head_layouts.items()
            if not _names(layout).isdisjoint(names)
        )

    def num_classes(self, head: str = "classifier") -> int | None:
        """Returns a head's number of outputs, or `None` if the checkpoint lacks the head."""
        if head not in self.heads:
            return None
        stored = self._resolve(self.head_layouts[head])["kernel"]
        self._reject_missing({"kernel": stored}, f"{head} head")
        shape = self._tensors.shape(stored.names[0])
        return stored.second_of_two + (shape[0] if stored.transposed else shape[-1])

    def as_regression(self) -> Checkpoint:
        """Returns the checkpoint for a regression that predicts the classifier's logit.

        Otherwise, a classifier with a single output and a sigmoid is loaded as a classifier with
        two classes.
        """
        head_layouts = {
            head: {
                weight_name: dataclasses.replace(stored, second_of_two=False)
                for weight_name, stored in layout.items()
            }
            for head, layout in self.head_layouts.items()
        }
        return dataclasses.replace(self, head_layouts=head_layouts)

    def new_backbone(
        self,
        config: BertConfig | None = None,
        *,
        cls: Callable[..., EncoderT] = registered_backbone,
        weights_fit: bool = True,
        **arguments: Any,
    ) -> EncoderT:
        """Creates a randomly initialized encoder with this architecture.

        Args:
            config: Architecture. It may only differ from the checkpoint's architecture in fields
                that do not affect weights. Defaults to the checkpoint's architecture.
            cls: Encoder class. Defaults to `keras_bert.Backbone`.
            weights_fit: Whether to check that the stored tensors have the right shapes, before
                memory is allocated. Pass `False` if you do not load the weights.
            **arguments: Other arguments of `cls`.

        Returns:
            An encoder.

        Raises:
            CheckpointError: If tensors are missing or have the wrong shapes.
        """
        if weights_fit:
            self.check_encoder()
        return cls(config or self.config, **arguments)

    def check_encoder(self) -> None:
        """Checks that the encoder's tensors match the architecture. The pooler is optional.

        Raises:
            CheckpointError: If tensors are missing or have the wrong shapes.
        """
        layout = self._resolve(self.backbone_layout)
        shapes = weights.backbone_weight_shapes(self.config)
        if self._lacks_pooler(layout):
            shapes = {
                weight_name: shapes[weight_name]
                for weight_name in shapes
                if weight_name not in POOLER_WEIGHTS
            }
        self._check({weight_name: layout[weight_name] for weight_name in shapes}, shapes, "encoder")

    def _lacks_pooler(self, layout: Layout) -> bool:
        pooler = _names({name: layout[name] for name in POOLER_WEIGHTS if name in layout})
        return pooler.isdisjoint(self._tensors.names())

    def load_into(self, backbone: Encoder, *, pooler_is_used: bool = True) -> None:
        """Loads an encoder's weights.

        If the checkpoint has no pooler, for example because the model was only trained on token
        labels, the encoder's pooler is not changed. This method then warns about it.

        Args:
            backbone: Encoder to load the weights into.
            pooler_is_used: Whether to warn about a missing pooler. Pass `False` for token-level
                tasks.

        Raises:
            CheckpointError: If weights are missing or have the wrong shapes, or if a tensor cannot
                be read. Missing weights and wrong shapes are found before any weight is changed.
        """
        targets = weights.backbone_weights(backbone)
        layout = self._resolve(self.backbone_layout)
        if backbone.pooler is not None and self._lacks_pooler(layout):
            for name in POOLER_WEIGHTS:
                del targets[name]
            if pooler_is_used:
                names = ", ".join(POOLER_WEIGHTS)
                self._warn(f"has no pooler; it is initialized randomly: {names}.")
        self._load(targets, layout, "encoder")

    def load_head(self, name: str, head: Head, outputs: Sequence[int] | None = None) -> bool:
        """Loads a head's weights. Warns if the checkpoint does not have the head.

        Args:
            name: Name of the head, for example `"classifier"`, `"masked_lm"` or `"next_sentence"`.
                See `heads`.
            head: Layer or layers of the head, built. See `head_weights`.
            outputs: The index of the stored output to load for each of the classifier's outputs.
                `None` keeps the stored order.

        Returns:
            Whether the weights were loaded. `True` if the head has no weights.

        Raises:
            CheckpointError: If the checkpoint only has a part of the head, weights have the wrong
                shapes, or no task in this package supports the head.
        """
        targets = weights.head_weights(head)
        if not targets:
            return True
        if name not in self.heads:
            self._warn(
                f"has no {name} head; it is initialized randomly: {', '.join(sorted(targets))}."
                + sentence_transformers.other_head(self.directory)
            )
            return False
        self._reject_unsupported(name)
        self._load(targets, self._resolve(self.head_layouts[name]), f"{name} head", outputs)
        return True

    def check_written(
        self,
        config: BertConfig,
        heads: Mapping[str, Head],
        tokenizer: Mapping[str, Any] | None,
        class_names: Sequence[str] | None = None,
    ) -> None:
        """Checks that newly written files are read as the saved model.

        Args:
            config: Saved architecture.
            heads: Saved heads, built.
            tokenizer: Saved tokenizer config. Its writer has already compared the files.
            class_names: A classifier's saved class names.

        Raises:
            CheckpointError: If an architecture field that affects the outputs differs, or if
                tensors are missing, superfluous or have the wrong shapes.
        """
        for name, value in differing_fields(config, self.config, "masked_lm" in heads).items():
            check_same(f"{name} of the architecture", getattr(config, name), value)
        check_same("causal of the architecture", config.causal, self.config.causal)
        if tokenizer is not None:
            self._check_size(tokenizer)
        if any(names := (class_names or (), self.class_names or ())):
            check_same("class_names", *map(list, names))
        self.check_encoder()
        expected = _names(self._resolve(self.backbone_layout))
        for name, targets in weights.all_head_weights(heads).items():
            self._reject_unsupported(name)
            layout = self._resolve(self.head_layouts.get(name, {}))
            self._check_targets(targets, layout, f"{name} head")
            expected |= _names({weight_name: layout[weight_name] for weight_name in targets})
        check_same("the tensors", [], sorted(set(self._tensors.names()) - expected))

    def ignore_head(self, name: str) -> None:
        """Excludes an intentionally ignored head from `unused`."""
        self._used_names |= _names(self._resolve(self.head_layouts[name]))

    def unused(self) -> list[str]:
        """Returns the unused tensors, with their names in the files."""
        rest = set(self._tensors.names()) - self._used_names
        return sorted(self._tensors.label(name) for name in rest)

    def warn_unused(self) -> None:
        """Warns if tensors are unused."""
        unused = self.unused()
        if unused:
            self._warn(f"has unused weights: {', '.join(unused)}.")

    def _reject_unsupported(self, head: str) -> None:
        if head in self.unsupported_heads:
            raise CheckpointError(f"{self.directory}: {self.unsupported_heads[head]}")
        if head != "masked_lm" or self.config.masked_lm_head != "tied":
            return
        # In this package, a masked LM's decoder is always the token embeddings.
        table = self._resolve(self.backbone_layout)["token_embedding.embeddings"]
        differing = [
            self._tensors.label(name)
            for name in table.copies
            if not are_equal(table.names[0], name, self._tensors)
        ]
        if not differing and (self.decoder_is_tied or table.copies):
            return
        difference = (
            f"{differing[0]} differs from {self._tensors.label(table.names[0])}"
            if differing
            else "tie_word_embeddings is false"
        )
        raise CheckpointError(
            f"{self.directory}: a masked LM's decoder must be the token embeddings. Received: a "
            f"separate decoder ({difference}). `MaskedLM(Backbone.from_preset(directory))` creates "
            "a new head that uses the token embeddings."
        )

    def _resolve(self, layout: Layout) -> Layout:
        names = self._tensors.names()
        return {weight_name: stored.found_in(names) for weight_name, stored in layout.items()}

    def _load(
        self,
        targets: Mapping[str, Any],
        layout: Layout,
        owner: str,
        outputs: Sequence[int] | None = None,
    ) -> None:
        self._check_targets(targets, layout, owner)
        for weight_name in targets:
            stored = layout[weight_name]
            value = layouts.assemble(stored, self._tensors)
            if outputs is not None:
                value = value[..., list(outputs)]
            weights.assign(weight_name, targets[weight_name], value)
            copies = (
                name for name in stored.copies if are_equal(stored.names[0], name, self._tensors)
            )
            self._used_names.update(stored.names, copies)

    def _check_targets(self, targets: Mapping[str, Any], layout: Layout, owner: str) -> None:
        """Checks that all weights are stored with the shapes of the variables."""
        unknown = sorted(set(targets) - set(layout))
        if unknown:
            raise CheckpointError(
                f"{self.directory}: the {owner} does not have {', '.join(unknown)}. Its weights "
                f"are: {', '.join(layout) or 'none'}."
            )
        shapes = {weight_name: tuple(targets[weight_name].shape) for weight_name in targets}
        self._check({weight_name: layout[weight_name] for weight_name in targets}, shapes, owner)

    def _check(self, layout: Layout, shapes: Mapping[str, tuple[int, ...]], owner: str) -> None:
        """Checks that all weights are stored with the right shapes."""
        self._reject_missing(layout, owner)
        for weight_name, stored in layout.items():
            layouts.check_shape(stored, shapes[weight_name], self._tensors)

    def _reject_missing(self, layout: Layout, owner: str) -> None:
        names = self._tensors.names()
        required = [name for stored in layout.values() for name in stored.names]
        absent_names = [name for name in required if name not in names]
        if absent_names:
            rest = len(absent_names) - _NAMES_SHOWN
            raise CheckpointError(
                f"{self.directory} lacks {len(absent_names)} of the {len(required)} {owner} "
                f"tensors: {', '.join(absent_names[:_NAMES_SHOWN])}"
                + (f" and {rest} more." if rest > 0 else ".")
            )

    def _warn(self, message: str) -> None:
        warn(f"{self.directory} {message}")


def _names(layout: Layout) -> set[str]:
    """Returns the names of all tensors in a layout, including copies."""
    return {name for stored in layout.values() for name in stored.all_names}
