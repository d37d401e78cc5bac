# SPDX-License-Identifier: Apache-2.0
"""Configures `pretrain`. Options are grouped, and checked across groups."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from keras_bert import checks
from keras_bert.config import BertConfig
from keras_bert.data import file_systems
from keras_bert.data.pretraining.static_masking import UNITS

from ..engine.options import (
    CommandConfig,
    CostOptions,
    DeviceOptions,
    Fraction,
    HostOptions,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveFraction,
    PositiveInt,
    ProperFraction,
    UnusedFlags,
    check_one_of,
)
from .optimization import Optimization
from .record_config import CorpusOptions, PretrainingDataConfig, RowOptions

# TensorFlow is imported only where necessary, so that `--help` works without it.
if TYPE_CHECKING:
    from keras_bert.text.tokenizer import Tokenizer

OBJECTIVES = ("masked_lm", "replaced_token", "distillation")
# Flags for creating records. `format` is not here because it also matters for a new vocabulary.
_OF_NEW_RECORDS = (
    *("document_ends", "field", "language", "short_seq_probability", "duplicate_factor"),
    *("static_masks", "whole_words", "num_shards", "independent_shards", "num_workers"),
    "keep_store",
)
# Flags for sampling masks during training, and for the number of masks
_OF_DYNAMIC_MASKS = ("masking_unit", "mask_token_rate", "random_token_rate")
_OF_DYNAMIC_MASKS += ("random_special_tokens",)
_OF_MASKS = ("masked_lm_probability", "max_predictions", "dev_masked_lm_probability")
JIT = ("auto", "on", "off")


def named_architecture(model: str) -> BertConfig:
    """Loads a config by name or from a JSON file."""
    if os.path.isfile(model):
        return BertConfig.from_json_file(model)
    return BertConfig.from_name(model)


def check_local(flag: str, directory: str) -> None:
    """Raises a ValueError if a directory is a URL."""
    if file_systems.is_url(directory):
        raise ValueError(
            f"--{flag} must be a local directory or a mounted file system. Received: {directory}"
        )


@dataclasses.dataclass(frozen=True)
class TextOptions(CommandConfig):
    """The text or records to train on, and the validation text.

    Args:
        input_files: Text files, glob patterns or directories. Records are created from them in
            output_dir. Leave empty if records are given.
        dev_files: Validation text in the same format, scored during training. Empty disables
            validation.
        data_dir: Directory of the input_files and dev_files with relative paths.
        vocabulary: The tokenizer: a vocab.txt, or a directory with the files of any tokenizer.
            Empty trains a tokenizer of the model's type on input_files.
        vocabulary_size: Size of the vocabulary if it is trained.
        records: Directory of existing records. {length} in the path is replaced by a phase's
            sequence length. Empty creates records from input_files.
        dev_records: Directory of existing validation records, with {length} as in records.
        dev_batches: Number of validation batches to score.
        dev_masked_lm_probability: Fraction of validation tokens selected for prediction. Defaults
            to masked_lm_probability. Use the same value to compare runs that differ in
            masked_lm_probability.
        packing: Whether to pack multiple sequences into one example, which reduces padding.
        file_groups: Number of record file groups. Each group provides an equal part of every batch.
            If this is a multiple of the number of hosts, each host reads only its own files. With
            1, each host reads all files. The batches depend on this number, not on the number of
            hosts.
        corpus: How files are read and tokenized.
        rows: How examples are created from documents.
    """

    input_files: tuple[str, ...] = ()
    dev_files: tuple[str, ...] = ()
    data_dir: str = ""
    vocabulary: str = ""
    vocabulary_size: PositiveInt = 30522
    records: str = ""
    dev_records: str = ""
    dev_batches: PositiveInt = 50
    dev_masked_lm_probability: Annotated[float, checks.NumberRange(above=0, below=1)] | None = None
    packing: bool = False
    file_groups: PositiveInt = 1
    corpus: CorpusOptions = dataclasses.field(default_factory=CorpusOptions)
    rows: RowOptions = dataclasses.field(default_factory=RowOptions)

    def unused_flags(self) -> UnusedFlags:
        if not (self.input_files or self.dev_files):
            yield ["data_dir"], "neither --input_files nor --dev_files is given"
        if not (self.dev_files or self.dev_records):
            names = ["dev_batches", "dev_masked_lm_probability"]
            yield names, "neither --dev_files nor --dev_records is given"
        if self.dev_records:
            yield ["dev_files"], "--dev_records is also given"
        if self.vocabulary:
            yield ["vocabulary_size"], f"--vocabulary={self.vocabulary} has a fixed size"
        if not self.records:
            return
        if self.vocabulary:
            yield ["input_files"], "--records and --vocabulary are also given"
        if not self.dev_files or self.dev_records:
            names = [*_OF_NEW_RECORDS, *([] if self.input_files else ["format", "encoding"])]
            yield names, f"--records={self.records} already exist"

    def __post_init__(self) -> None:
        super().__post_init__()
        self.data_config(128, (), Path(), Path())
        for name in ("records", "dev_records"):
            check_local(name, getattr(self, name))
        if self.packing and self.rows.static_masks:
            raise ValueError("--packing requires dynamic masking: remove --static_masks")
        if self.packing and self.rows.next_sentence:
            raise ValueError(
                "--packing does not support the pair labels of "
                f"--sequence_format={self.rows.sequence_format}. Use full_sentences, "
                "document_sentences or sentence_pairs"
            )
        if 0 < self.rows.num_shards < self.file_groups:
            raise ValueError(
                f"--num_shards must be at least --file_groups, which is {self.file_groups}. "
                f"Received: {self.rows.num_shards}"
            )

    def for_validation(self) -> TextOptions:
        """Returns the options with the masking for validation text."""
        if self.dev_masked_lm_probability is None:
            return self
        return self.replace(masked_lm_probability=self.dev_masked_lm_probability)

    def resolve_in_data_dir(self, files: tuple[str, ...]) -> tuple[str, ...]:
        """Returns the files, with relative paths resolved in `data_dir`."""
        return tuple(
            file if file_systems.is_url(file) else os.path.join(self.data_dir, file)
            for file in files
        )

    def data_config(
        self, sequence_length: int, files: tuple[str, ...], output_dir: Path, vocabulary: Path
    ) -> PretrainingDataConfig:
        """Returns the config for creating records of one sequence length from files."""
        return PretrainingDataConfig(
            input_files=self.resolve_in_data_dir(files),
            vocabulary=os.fspath(vocabulary),
            output_dir=os.fspath(output_dir),
            sequence_length=sequence_length,
            corpus=self.corpus,
            rows=self.rows,
        )


@dataclasses.dataclass(frozen=True)
class TaskOptions(CommandConfig):
    """The pre-training objective.

    Args:
        objective: One of masked_lm (also predicts pair labels if sequence_format has them),
            replaced_token (ELECTRA, with model as the discriminator) and distillation (with model
            as the student).
        generator_size: For replaced_token, ratio of the generator's hidden size to the model's
            hidden size. An init_preset's generator keeps its size.
        discriminator_weight: For replaced_token, weight of the discriminator's loss.
        embedding_sharing: For replaced_token, one of all (as in ELECTRA) and disentangled (as in
            DeBERTaV3, where the discriminator adds its own embeddings to the generator's
            embeddings).
        teacher: For distillation, the teacher's checkpoint. Its vocabulary is used. A student with
            the same hidden size starts from evenly spaced layers of the teacher.
        temperature: For distillation, the temperature. Logits are divided by it.
        masking_unit: Unit of dynamic masking, one of token, word and ngram. Does not affect static
            masks.
        mask_token_rate: Fraction of selected tokens replaced by [MASK].
        random_token_rate: Fraction of selected tokens replaced by a random token.
        random_special_tokens: Whether the random token may be a special token, as in BERT but not
            in RoBERTa.
    """

    objective: str = "masked_lm"
    generator_size: PositiveFraction = 0.25
    discriminator_weight: NonNegativeFloat = 50.0
    embedding_sharing: str = "all"
    teacher: str = ""
    temperature: PositiveFloat = 2.0
    masking_unit: str = "token"
    mask_token_rate: Fraction = 0.8
    random_token_rate: Fraction = 0.1
    random_special_tokens: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        check_one_of(
            self,
            objective=OBJECTIVES,
            masking_unit=UNITS,
            embedding_sharing=("all", "disentangled"),
        )
        if (self.objective == "distillation") != bool(self.teacher):
            raise ValueError(
                "--teacher must be given if, and only if, --objective is distillation. Received: "
                f"--objective={self.objective} and --teacher={self.teacher!r}"
            )


@dataclasses.dataclass(frozen=True)
class EncoderOptions(CommandConfig):
    """The encoder's architecture, or the checkpoint to start from.

    Args:
        model: The architecture: a name that BertConfig.from_name accepts, or a JSON file.
        num_layers: Number of layers. By default, as in model.
        hidden_dim: Hidden size. By default, as in model. If given, the size of the feed-forward
            layers changes in proportion. In BERT, it is four times the hidden size.
        num_heads: Number of attention heads. By default, as in model.
        dropout: Dropout rate for hidden states and attention. By default, as in model.
        causal: Whether attention is left-to-right and every token predicts the next. If init_preset
            is given, its model must also be causal.
        right_to_left: Whether to reverse each row, so that every token predicts the previous token.
            Requires causal. The preset is then a left-to-right model of reversed rows.
        init_preset: Checkpoint to initialize the weights from. Replaces model and vocabulary. Empty
            starts from random weights.
    """

    model: str = "bert_base_uncased"
    num_layers: PositiveInt | None = None
    hidden_dim: PositiveInt | None = None
    num_heads: PositiveInt | None = None
    dropout: ProperFraction | None = None
    causal: bool = False
    right_to_left: bool = False
    init_preset: str = ""

    def architecture(self, tokenizer: Tokenizer, longest: int) -> BertConfig:
        """Returns the encoder's config for a tokenizer, with positions for the longest sequence."""
        config = named_architecture(self.model)
        changes: dict[str, Any] = {
            "vocabulary_size": tokenizer.vocabulary_size,
            "pad_token_id": tokenizer.pad_token_id,
            "tokenizer": tokenizer.kind,
            "causal": self.causal,
        }
        if config.position_offset:  # The first position id follows the padding token's id.
            changes["position_offset"] = tokenizer.pad_token_id + 1
        for name in ("num_layers", "hidden_dim", "num_heads"):
            changes |= {} if getattr(self, name) is None else {name: getattr(self, name)}
        if self.hidden_dim is not None:
            intermediate = config.intermediate_dim * self.hidden_dim // config.hidden_dim
            changes["intermediate_dim"] = intermediate
        if self.dropout is not None:
            changes |= {"dropout": self.dropout, "attention_dropout": self.dropout}
        changes["max_sequence_length"] = max(config.max_sequence_length, longest)
        return config.replace(**changes)


@dataclasses.dataclass(frozen=True)
class ComputeOptions(DeviceOptions):
    """How the training step is computed.

    Args:
        jit: Whether to compile the training step with XLA, or with torch.compile on PyTorch: one of
            on, off and auto. auto compiles on JAX, and on TensorFlow with a GPU or TPU. Compiled
            TensorFlow is slower on a CPU. On PyTorch, compilation takes minutes and pays off only
            on a GPU.
        steps_per_execution: Number of batches per compiled function call. Always 1 on PyTorch.
        deterministic: Whether TensorFlow and PyTorch use deterministic operations on GPUs.
    """

    jit: str = "auto"
    steps_per_execution: PositiveInt = 1
    deterministic: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        check_one_of(self, jit=JIT)


@dataclasses.dataclass(frozen=True)
class PretrainConfig(CommandConfig):
    """The configuration for pre-training on raw text or records.

    Args:
        text: The text or records.
        encoder: The encoder.
        task: The pre-training objective.
        optimization: The training steps and the optimizer.
        output_dir: Directory for all outputs.
        keep_checkpoints: Number of checkpoints to keep. At least 2, in case the last is corrupted.
        preset_every: Number of training steps between two presets in presets/step_N, a multiple of
            eval_every. 0 only writes the preset at the end.
        tensorboard: Whether to write TensorBoard logs.
        compute: How the training step is computed.
        costs: The estimated energy and cost.
        hosts: Options for multi-host training.
    """

    output_dir: str = "runs/pretrain"
    keep_checkpoints: Annotated[int, checks.NumberRange(at_least=2, integer=True)] = 2
    preset_every: NonNegativeInt = 0
    tensorboard: bool = False
    text: TextOptions = dataclasses.field(default_factory=TextOptions)
    encoder: EncoderOptions = dataclasses.field(default_factory=EncoderOptions)
    task: TaskOptions = dataclasses.field(default_factory=TaskOptions)
    optimization: Optimization = dataclasses.field(default_factory=Optimization)
    compute: ComputeOptions = dataclasses.field(default_factory=ComputeOptions)
    costs: CostOptions = dataclasses.field(default_factory=CostOptions)
    hosts: HostOptions = dataclasses.field(default_factory=HostOptions)

    def unused_flags(self) -> UnusedFlags:
        objective, encoder, rows = self.task.objective, self.encoder, self.text.rows
        flags_by_objective = {
            "replaced_token": ["generator_size", "discriminator_weight", "embedding_sharing"],
            "distillation": ["temperature"],
        }
        for name, flags in flags_by_objective.items():
            if objective != name:
                yield flags, f"--objective is {objective}"
        if encoder.init_preset:
            reason = f"--init_preset={encoder.init_preset} defines the model and the vocabulary"
            yield ["model", "vocabulary", "vocabulary_size"], reason
        elif self.task.teacher:
            reason = f"--teacher={self.task.teacher} defines the vocabulary"
            yield ["vocabulary", "vocabulary_size"], reason
        if encoder.causal:
            yield (*_OF_MASKS, *_OF_DYNAMIC_MASKS), "--causal does not use masks"
        else:
            yield ["right_to_left"], "--causal is not given"
        if rows.static_masks:
            yield _OF_DYNAMIC_MASKS, "--static_masks are sampled as in the original BERT code"
        if self.compute.devices == 1 and not self.hosts.coordinator:
            yield ["shard_optimizer"], "only one device is used"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_local("output_dir", self.output_dir)
        rows, objective = self.text.rows, self.task.objective
        if self.encoder.causal and rows.static_masks:
            raise ValueError(
                "--causal predicts the next token at every position: remove --static_masks"
            )
        if self.encoder.right_to_left and self.text.packing:
            raise ValueError("--right_to_left does not support --packing: remove one")
        if self.encoder.causal and objective == "replaced_token":
            raise ValueError("--objective=replaced_token does not support --causal: remove one")
        if objective != "masked_lm" and rows.next_sentence:
            raise ValueError(
                f"--objective={objective} does not support the pair labels of "
                f"--sequence_format={rows.sequence_format}. Use full_sentences, "
                "document_sentences or sentence_pairs"
            )
        interval = self.optimization.steps_per_interval
        if self.preset_every % interval:
            raise ValueError(
                f"--preset_every must be a multiple of --eval_every, which is {interval}. "
                f"Received: {self.preset_every}"
            )
        batches = interval * self.optimization.accumulation
        if batches % self.compute.steps_per_execution:
            raise ValueError(
                "--eval_every times --accumulation must be a multiple of --steps_per_execution, "
                f"which is {self.compute.steps_per_execution}. Received: {batches} batches"
            )
        counts = {"devices": self.compute.devices, "file_groups": self.text.file_groups}
        for flag, count in counts.items():
            self.optimization.check_divisible(count, f"--{flag}, which is {count}")
