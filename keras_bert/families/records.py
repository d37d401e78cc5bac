# SPDX-License-Identifier: Apache-2.0
"""The parts of a family's record: values, by which `checkpoints` reads and writes files."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any


@dataclasses.dataclass(frozen=True)
class StoredTensor:
    """How a weight is stored in a file.

    Args:
        names: The names of its tensors. Several tensors are concatenated along the last axis, such
            as query, key and value, which are one kernel in this package.
        transposed: Whether the tensors are transposed, `(output, input)`.
        copies: Other names that the tensor has in some files. In a file with both names, the tensor
            of the usual name is the weight, and the other one may be another weight.
        widths: The sizes of the tensors along the last axis of the weight; `None` for equal ones.
        columns: For a weight of a block whose columns have another order in files: a function from
            the number of columns and `head_dim` to the index in the file of each column here.
        second_of_two: Whether it is stored for the second of two classes alone, as by a classifier
            with one output and a sigmoid, which is a softmax with the logit 0 of the first class.
        instead: The name of a tensor that is this weight in the files that have it, even if they
            have a tensor of the usual name too, which may be another weight.
    """

    names: tuple[str, ...]
    transposed: bool = False
    copies: tuple[str, ...] = ()
    instead: str | None = None
    widths: tuple[int, ...] | None = None
    columns: Callable[..., Sequence[int]] | None = None
    second_of_two: bool = False

    def found_in(self, names: Collection[str]) -> StoredTensor:
        """Replaces the name by the one of these names in a file that the weight has there."""
        if len(self.names) > 1:
            return self
        present = [name for name in self.all_names if name in names] or list(self.names)
        return dataclasses.replace(
            self, names=(present[0],), copies=tuple(present[1:]), instead=None
        )

    @property
    def all_names(self) -> tuple[str, ...]:
        """All names that the tensors have, in order of preference."""
        return (*([self.instead] if self.instead else []), *self.names, *self.copies)


# The name of a weight in this package -> how the format stores it.
Layout = Mapping[str, StoredTensor]


@dataclasses.dataclass(frozen=True)
class WeightNames:
    """How a format stores the weights of a family.

    Args:
        encoder: The weights outside the blocks.
        block: The weights of a block, without its scope.
        block_scope: The prefix of the names of a block: `{layer}` is replaced by the index of the
            block, `{group}` by the index of its group of blocks that share weights.
        heads: The weights of each head.
    """

    encoder: Layout
    block: Layout
    block_scope: str
    heads: Mapping[str, Layout]


@dataclasses.dataclass(frozen=True)
class ConfigFields:
    """The fields of the configuration file of a family.

    Args:
        required: The name in the file of each field of `BertConfig` that must be present.
        optional: The name in the file of each field that may be absent.
        defaults: Defaults of optional fields that differ from `BertConfig`'s.
        needed: The allowed values of other fields of the file that change the computation; an
            absent field, or null, is always allowed. Such fields of all families are added.
        token_ids: The role of each special token to write the id of, since the class defaults to
            the released vocabulary. When read, the tokenizer's files have them.
        fixed: Values of fields that are constant in the code of the family.
        activation: The name in the file of the activation.
        always_projects: Whether the embeddings are projected even if their dimension equals
            `hidden_dim`.
        to_flat: Function that converts the fields of a file to one value for each field of
            `BertConfig`, if some are objects, lists or words. It also gets the `BertConfig` name
            of each activation, and raises `ValueError` for unsupported fields.
        from_flat: The inverse of `to_flat`.
        positions_follow_padding: Whether positions begin with `pad_token_id + 1`, and the number of
            positions in the file includes the rows before.
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
    """The release of a family by Google, as TensorFlow 1 checkpoints.

    Args:
        config: The fields of its configuration file.
        config_file: The name of its configuration file; `None` if the architecture is inferred from
            the variables.
        prefix: The prefix of the names of the checkpoint files.
        activations: The name in `BertConfig` of each activation of the release.
    """

    config: ConfigFields
    config_file: str | None
    prefix: str
    activations: Mapping[str, str]


@dataclasses.dataclass(frozen=True)
class KerasHubModels(WeightNames):
    """The models of a family in KerasHub; the names of weights are paths of attributes.

    Args:
        config: The arguments of its encoder.
        masked_lm_activation: The activation of its masked LM head; `None` if there is no such head.
        presets: The name in `Family.sizes` of each of its presets.
    """

    config: ConfigFields
    masked_lm_activation: str | None = "gelu_erf"
    presets: Mapping[str, str] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Family:
    """A family of released models.

    Args:
        name: Its `model_type` in `transformers`.
        class_prefix: The prefix of the names of its classes in `transformers` and in KerasHub.
        config: The fields of its configuration files of Hugging Face and of the TF1 release.
        hugging_face: The names of its tensors in Hugging Face's format, for the encoder without
            their scope.
        classes: The heads of each class of `transformers`, by the suffix of the name of the class.
        sizes: For each released model, the values of `BertConfig` that differ from `values`.
        poolers: For each class that has the pooler in its head, by suffix: the pooler's dense
            layer.
        can_be_causal: Whether `transformers` supports causal attention for its classes.
        encoder_scope: The scope of the encoder's tensors in classes with a head; by default `name`.
        released_name: Another `model_type`, which released files have.
        released_scope: Another scope of the encoder's tensors, in released files.
        tokenizer: For new vocabularies, the arguments of its tokenizer that differ from the
            defaults.
        tokenizer_class: The class of its tokenizer in `transformers`, for files that do not name
            one; `None` if all do.
        keras_hub: Its models in KerasHub; `None` if there are none.
        google_tf1: Its TF1 release; `None` if there is none.
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
        """The prefix of the names of the encoder's tensors in classes with a head."""
        return f"{self.encoder_scope or self.name}."

    @property
    def scopes(self) -> tuple[str, ...]:
        """All prefixes in files: `scope`, and that of released files."""
        return (self.scope, *([f"{self.released_scope}."] if self.released_scope else []))

    @property
    def values(self) -> dict[str, Any]:
        """The values of `BertConfig` that released models have in common."""
        values = {**self.config.defaults, **self.config.fixed}
        # It is their other activation too, which `None` stands for.
        values.pop("masked_lm_activation", None)
        return values
