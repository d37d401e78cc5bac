# SPDX-License-Identifier: Apache-2.0
"""The config of pre-training: groups of options, and what they must agree on."""

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
    PositiveFloat,
    PositiveFraction,
    PositiveInt,
    ProperFraction,
    UnusedFlags,
    check_one_of,
)
from .optimization import Optimization
from .record_config import CorpusOptions, PretrainingDataConfig, RowOptions

# TensorFlow is imported only where it is needed, so that `--help` works without it.
if TYPE_CHECKING:
    from keras_bert.text.tokenizer import Tokenizer

OBJECTIVES = ("masked_lm", "replaced_token", "distillation")
# Flags of records that a run makes; the format of text also matters for a new vocabulary
_OF_NEW_RECORDS = (
    *("document_ends", "field", "language", "short_seq_probability", "duplicate_factor"),
    *("static_masks", "whole_words", "num_shards", "independent_shards", "num_workers"),
    "keep_store",
)
# Flags of how masks are drawn during training, and of how many
_OF_DYNAMIC_MASKS = ("masking_unit", "mask_token_rate", "random_token_rate")
_OF_DYNAMIC_MASKS += ("random_special_tokens",)
_OF_MASKS = ("masked_lm_probability", "max_predictions", "dev_masked_lm_probability")
JIT = ("auto", "on", "off")


def named_architecture(model: str) -> BertConfig:
    """Returns the config of a name, or of the JSON file of a config."""
    if os.path.isfile(model):
        return BertConfig.from_json_file(model)
    return BertConfig.from_name(model)


def check_local(flag: str, folder: str) -> None:
    """Raises a ValueError if a folder is a URL."""
    if file_systems.is_url(folder):
        raise ValueError(
            f"--{flag} must be a folder of this machine, such as a copy, or one of a file system "
            f"that is mounted. Received: {folder}"
        )


@dataclasses.dataclass(frozen=True)
class TextOptions(CommandConfig):
    """The text, or the records of it, that a run learns from and is scored on.

    Args:
        input_files: Text files, glob patterns or folders, from which records are created in
            output_dir; empty if records are given.
        dev_files: Validation text in the same format, scored during training; empty for none.
        data_dir: Folder of the input_files and dev_files that are given by a relative path.
        vocabulary: The vocab.txt of the tokenizer, or the folder of a tokenizer of any kind; empty
            trains one of the model's kind on input_files.
        vocabulary_size: Size of the vocabulary if it is trained.
        records: Folder of records; {length} in the path is replaced by a phase's length. Empty
            creates them from input_files.
        dev_records: Folder of records of the validation text, likewise.
        dev_batches: Number of batches of validation text to score.
        dev_masked_lm_probability: Share of the tokens of the validation text that is selected;
            masked_lm_probability by default. With the same share, the scores of runs that mask more
            or less can be compared.
        packing: Whether to pack several sequences into a row.
        file_groups: Number of groups that the files of records are divided into, of which each
            fills an equal share of the rows of each batch. With a multiple of the number of hosts,
            each host reads the files of its own rows only, and with 1 all of them. The batches
            depend on it, and not on the number of hosts.
        corpus: How the files are read and tokenized.
        rows: How rows are made of their documents.
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
            yield ["data_dir"], "there are no --input_files and --dev_files"
        if not (self.dev_files or self.dev_records):
            names = ["dev_batches", "dev_masked_lm_probability"]
            yield names, "there are neither --dev_files nor --dev_records"
        if self.dev_records:
            yield ["dev_files"], "--dev_records are given"
        if self.vocabulary:
            yield ["vocabulary_size"], f"--vocabulary={self.vocabulary} has its own"
        if not self.records:
            return
        if self.vocabulary:
            yield ["input_files"], "--records and --vocabulary are given"
        if not self.dev_files or self.dev_records:
            names = [*_OF_NEW_RECORDS, *([] if self.input_files else ["format"])]
            yield names, f"--records={self.records} are read as they are"

    def __post_init__(self) -> None:
        super().__post_init__()
        self.data_config(128, (), Path(), Path())
        for name in ("records", "dev_records"):
            check_local(name, getattr(self, name))
        if self.packing and self.rows.static_masks:
            raise ValueError("--packing requires dynamic masking: remove --static_masks")
        if self.packing and self.rows.next_sentence:
            raise ValueError(
                "--packing does not support the labels of pairs that "
                f"--sequence_format={self.rows.sequence_format} has; expected full_sentences, "
                "document_sentences or sentence_pairs"
            )
        if 0 < self.rows.num_shards < self.file_groups:
            raise ValueError(
                f"--num_shards must be at least --file_groups, which is {self.file_groups}. "
                f"Received: {self.rows.num_shards}"
            )

    def for_validation(self) -> TextOptions:
        """Returns the options with the masking of the validation text."""
        if self.dev_masked_lm_probability is None:
            return self
        return self.replace(masked_lm_probability=self.dev_masked_lm_probability)

    def resolve_in_data_dir(self, files: tuple[str, ...]) -> tuple[str, ...]:
        """Returns files as they are found: those that are given by a relative path in data_dir."""
        return tuple(
            file if file_systems.is_url(file) else os.path.join(self.data_dir, file)
            for file in files
        )

    def data_config(
        self, sequence_length: int, files: tuple[str, ...], output_dir: Path, vocabulary: Path
    ) -> PretrainingDataConfig:
        """Returns the config for creating records of one length from some files."""
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
    """What the model learns: the tokens to predict, and from whom.

    Args:
        objective: Masked_lm (with a sentence pair objective if kind has labels for it),
            replaced_token (ELECTRA; model is the discriminator) or distillation (model is the
            student).
        generator_size: For replaced_token, width of the generator relative to the model's; the
            generator of an init_preset keeps its width.
        discriminator_weight: For replaced_token, weight of the discriminator's loss.
        embedding_sharing: For replaced_token, all as in ELECTRA, or disentangled as in DeBERTaV3,
            whose discriminator adds to the token embeddings of the generator.
        teacher: For distillation, the checkpoint of the teacher, whose vocabulary is used. A
            student as wide as it starts from evenly spaced layers of it.
        temperature: For distillation, the temperature that logits are divided by.
        masking_unit: Unit of dynamic masking: token, word or ngram; static masks are not changed.
        mask_token_rate: Share of the selected tokens that is replaced by [MASK].
        random_token_rate: Share of the selected tokens that is replaced by a random token.
        random_special_tokens: Whether the random token may be a special one, as in BERT but not in
            RoBERTa.
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
                f"--objective is {self.objective} and --teacher is {self.teacher!r}, expected "
                "--teacher with --objective=distillation, and only with it"
            )


@dataclasses.dataclass(frozen=True)
class EncoderOptions(CommandConfig):
    """The encoder: its architecture, or the checkpoint that it starts from.

    Args:
        model: The architecture: a name that BertConfig.from_name knows, or a JSON file.
        num_layers: Number of layers; the model's by default.
        hidden_dim: Hidden size; the model's by default. If given, the feed-forward layers keep
            their width relative to it, which is four times in BERT.
        num_heads: Number of attention heads; the model's by default.
        dropout: Dropout rate of hidden states and attention; the model's by default.
        causal: Whether attention is left-to-right, and every token predicts the next one. An
            init_preset must be of the same kind.
        init_preset: Checkpoint to initialize the weights with, which replaces model and vocabulary;
            empty starts from random weights.
    """

    model: str = "bert_base_uncased"
    num_layers: PositiveInt | None = None
    hidden_dim: PositiveInt | None = None
    num_heads: PositiveInt | None = None
    dropout: ProperFraction | None = None
    causal: bool = False
    init_preset: str = ""

    def architecture(self, tokenizer: Tokenizer, longest: int) -> BertConfig:
        """Returns the encoder's config for a tokenizer, with positions for the longest row."""
        config = named_architecture(self.model)
        changes: dict[str, Any] = {
            "vocabulary_size": tokenizer.vocabulary_size,
            "pad_token_id": tokenizer.pad_token_id,
            "tokenizer": tokenizer.kind,
            "causal": self.causal,
        }
        if config.position_offset:  # the first position id follows that of padding
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
        jit: Whether to compile the training step, by XLA or PyTorch's compiler: on, off or auto.
            auto compiles on JAX, and with TensorFlow on a GPU or TPU; on a CPU it is slower with
            TensorFlow. With PyTorch it takes minutes at the start, and is worth it on a GPU.
        steps_per_execution: Batches in a call of the compiled function; always 1 on PyTorch.
        deterministic: Whether to make TensorFlow and PyTorch deterministic on GPUs too.
    """

    jit: str = "auto"
    steps_per_execution: PositiveInt = 1
    deterministic: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        check_one_of(self, jit=JIT)


@dataclasses.dataclass(frozen=True)
class PretrainConfig(CommandConfig):
    """How an encoder is pre-trained on raw text or on records.

    Args:
        text: The text.
        encoder: The encoder.
        task: What it learns.
        optimization: The updates.
        output_dir: Folder for everything that is written.
        keep_checkpoints: Number of checkpoints to keep, at least 2, in case the last one is
            corrupted.
        tensorboard: Whether to write logs for TensorBoard.
        compute: How it computes.
        costs: What it costs.
        hosts: The place of this process among those of the run.
    """

    output_dir: str = "runs/pretrain"
    keep_checkpoints: Annotated[int, checks.NumberRange(at_least=2, integer=True)] = 2
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
                yield flags, f"the objective is {objective}"
        if encoder.init_preset:
            reason = (
                f"the model and the vocabulary are those of --init_preset={encoder.init_preset}"
            )
            yield ["model", "vocabulary", "vocabulary_size"], reason
        elif self.task.teacher:
            reason = f"the vocabulary is that of --teacher={self.task.teacher}"
            yield ["vocabulary", "vocabulary_size"], reason
        if encoder.causal:
            yield (*_OF_MASKS, *_OF_DYNAMIC_MASKS), "--causal predicts every token, without masks"
        if rows.static_masks:
            yield _OF_DYNAMIC_MASKS, "--static_masks are drawn as in BERT's released code"
        if self.compute.devices == 1 and not self.hosts.coordinator:
            yield ["shard_optimizer"], "there is only one device"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_local("output_dir", self.output_dir)
        rows, objective = self.text.rows, self.task.objective
        if self.encoder.causal and rows.static_masks:
            raise ValueError(
                "--causal predicts the next token at every position: remove --static_masks"
            )
        if self.encoder.causal and objective == "replaced_token":
            raise ValueError("--objective=replaced_token does not support --causal: remove one")
        if objective != "masked_lm" and rows.next_sentence:
            raise ValueError(
                f"--objective={objective} does not support the labels of pairs that "
                f"--sequence_format={rows.sequence_format} has; expected full_sentences, "
                "document_sentences or sentence_pairs"
            )
        batches = self.optimization.steps_per_interval * self.optimization.accumulation
        if batches % self.compute.steps_per_execution:
            raise ValueError(
                f"an interval has {batches} batches (--eval_every times --accumulation), expected "
                f"a multiple of --steps_per_execution, which is {self.compute.steps_per_execution}"
            )
        counts = {"devices": self.compute.devices, "file_groups": self.text.file_groups}
        for flag, count in counts.items():
            self.optimization.check_divisible(count, f"--{flag}, which is {count}")
