# SPDX-License-Identifier: Apache-2.0
"""Defines model family records. `checkpoints` uses their values to read and write files."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any


@dataclasses.dataclass(frozen=True)
class StoredTensor:
    """Specifies how a weight is stored in a file.

    Args:
        names: Names of the tensors. Multiple tensors are concatenated along the last axis. For
            example, query, key and value form one kernel in this package.
        transposed: Whether the tensors are transposed, `(output, input)`.
        copies: The tensor's other names in some files. If a file has multiple names, the usual name
            is the weight, and the other names may be different weights.
        widths: Sizes of the tensors along the weight's last axis. `None` for equal sizes.
        columns: Function for weights with a different order of columns in files. It maps the number
            of columns and `head_dim` to each column's index in the file.
        second_of_two: Whether only the second of two classes is stored. A classifier with one
            output and a sigmoid is equal to a softmax over two classes, if the first has the logit
            0.
        instead: Name that takes precedence if a file has it. The tensor with the usual name may
            then be a different weight.
    """

    names: tuple[str, ...]
    transposed: bool = False
    copies: tuple[str, ...] = ()
    instead: str | None = None
    widths: tuple[int, ...] | None = None
    columns: Callable[..., Sequence[int]] | None = None
    second_of_two: bool = False

    def found_in(self, names: Collection[str]) -> StoredTensor:
        """Picks the name under which the weight is stored, given the names in a file."""
        if len(self.names) > 1:
            return self
        present = [name for name in self.all_names if name in names] or list(self.names)
        return dataclasses.replace(
            self, names=(present[0],), copies=tuple(present[1:]), instead=None
        )

    @property
    def all_names(self) -> tuple[str, ...]:
        """All possible names of the tensors, in order of preference."""
        return (*([self.instead] if self.instead else []), *self.names, *self.copies)


# Maps this package's weight names to their tensors in the format.
Layout = Mapping[str, StoredTensor]


@dataclasses.dataclass(frozen=True)
class WeightNames:
    """Specifies how a format stores a family's weights.

    Args:
        encoder: Weights outside the layers.
        block: A layer's weights, without the layer's scope.
        block_scope: Prefix of a layer's tensor names. `{layer}` is replaced by the layer's index,
            and `{group}` by the index of its group of layers with shared weights.
        heads: Weights of each head.
    """

    encoder: Layout
    block: Layout
    block_scope: str
    heads: Mapping[str, Layout]


@dataclasses.dataclass(frozen=True)
class ConfigFields:
    """Specifies the fields in a family's config files.

    Args:
        required: Name in the file for each required `BertConfig` field.
        optional: Name in the file for each optional `BertConfig` field.
        defaults: Defaults of optional fields that differ from `BertConfig`'s defaults.
        needed: Allowed values of other fields that change the computation. An absent field, or
            null, is always allowed. Fields that apply to all families are added.
        token_ids: Role of each special token whose id is written, because the class defaults to the
            released vocabulary. These ids are not read, because the tokenizer files contain them.
        fixed: Values of fields set to constants in the family's code.
        activation: Name in the file of the activation.
        always_projects: Whether embeddings are projected even if their dimension equals
            `hidden_dim`.
        to_flat: Function that converts the fields in a file to one value per `BertConfig` field,
            for files that contain objects, lists or other words. Its second argument is the
            `BertConfig` name for each activation. It raises `ValueError` for unsupported fields.
        from_flat: Inverse of `to_flat`.
        positions_follow_padding: Whether positions start at `pad_token_id + 1`. The number of
            positions in the file then includes the unused positions before.
    """

    required: Mapping[str, str]
    optional: Mapping[str, str] = dataclasses.field(default_factory=dict)
    defaults: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    needed: Mapping[str, tuple[Any, ...]] = dataclasses.field(default_factory=dict)
    token_ids: Mapping[str, str] = dataclasses.field(default_factory=dict)
    fixed: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    activation: str = "hidden_act"
    always_projects: bool = False
    to_flat: Callable[[Mapping[str, Any], Mapping[str, str]], Mapping[str, Any]] | None = None
    from_flat: Callable[[dict[str, Any], Mapping[str, str]], dict[str, Any]] | None = None
    positions_follow_padding: bool = False


@dataclasses.dataclass(frozen=True)
class TF1Release(WeightNames):
    """Specifies a family's TensorFlow 1 release by Google.

    Args:
        config: Fields of the configuration file.
        config_file: Name of the configuration file. `None` if the architecture is inferred from the
            variables.
        prefix: Prefix of the checkpoint files.
        activations: `BertConfig` name of each activation in the release.
    """

    config: ConfigFields
    config_file: str | None
    prefix: str
    activations: Mapping[str, str]


@dataclasses.dataclass(frozen=True)
class KerasHubModels(WeightNames):
    """Specifies a family's KerasHub models. Weight names are attribute paths.

    Args:
        config: Arguments of the encoder.
        masked_lm_activation: Activation of the masked LM head. `None` if KerasHub has no such head.
        presets: Name in `Family.sizes` of each preset.
    """

    config: ConfigFields
    masked_lm_activation: str | None = "gelu_erf"
    presets: Mapping[str, str] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Family:
    """A model family.

    Args:
        name: `model_type` in `transformers`.
        class_prefix: Prefix of the class names in `transformers` and KerasHub.
        config: Fields of the configuration files on Hugging Face and in the TF1 release.
        hugging_face: Tensor names in Hugging Face's format. The encoder's names have no scope.
        classes: Heads of each `transformers` class, by the suffix of the class name.
        sizes: The released models' `BertConfig` values, except for the common `values`.
        poolers: Name of the pooler's dense layer, for classes whose head contains the pooler, by
            suffix.
        can_be_causal: Whether the `transformers` classes support causal attention.
        encoder_scope: Scope of the encoder's tensors in classes with a head. Defaults to `name`.
        released_name: A different `model_type` in released files.
        released_scope: A different scope of the encoder's tensors in released files.
        tokenizer: Arguments of new tokenizers that differ from the defaults.
        tokenizer_class: Tokenizer class in `transformers`, for files that do not contain one.
            `None` if all files contain one.
        keras_hub: Models in KerasHub. `None` if KerasHub does not have the family.
        google_tf1: TF1 release. `None` if there was no such release.
    """

    name: str
    class_prefix: str
    config: ConfigFields
    hugging_face: WeightNames
    classes: Mapping[str, tuple[str, ...]]
    sizes: Mapping[str, Mapping[str, Any]] = dataclasses.field(default_factory=dict)
    poolers: Mapping[str, str] = dataclasses.field(default_factory=dict)
    can_be_causal: bool = False
    encoder_scope: str = ""
    released_name: str = ""
    released_scope: str = ""
    tokenizer: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    tokenizer_class: str | None = None
    keras_hub: KerasHubModels | None = None
    google_tf1: TF1Release | None = None

    @property
    def scope(self) -> str:
        """The prefix of the encoder's tensor names in classes with a head."""
        return f"{self.encoder_scope or self.name}."

    @property
    def scopes(self) -> tuple[str, ...]:
        """All prefixes in files: `scope`, and the prefix in released files."""
        return (self.scope, *([f"{self.released_scope}."] if self.released_scope else []))

    @property
    def values(self) -> dict[str, Any]:
        """The `BertConfig` values common to all released models."""
        values = {**self.config.defaults, **self.config.fixed}
        # The default, `None`, means the same activation as in the encoder.
        values.pop("masked_lm_activation", None)
        return values
