# SPDX-License-Identifier: Apache-2.0
"""What decides how text becomes records, and how an encoder is pre-trained on them."""

from __future__ import annotations

import dataclasses
import glob
import hashlib
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from keras_bert.config import BertConfig
from keras_bert.data import InstanceMaker, StaticMasker
from keras_bert.data.pretraining.corpus import DOCUMENT_ENDS, FORMATS
from keras_bert.data.pretraining.static_masking import default_max_predictions

from ..engine.options import check_at_least, check_one_of, optional

# What needs TensorFlow is imported where it is used: `--help` does without.
if TYPE_CHECKING:
    from keras_bert.text.tokenizer import Tokenizer


@dataclasses.dataclass(frozen=True)
class PretrainingDataConfig:
    """How files of raw text become records to pre-train on.

    Args:
        input_files: files of text, patterns such as corpus/*.txt, or folders; .gz is read too.
        vocabulary: the vocab.txt of the tokenizer, or the folder of a tokenizer of any kind.
        output_dir: where the records go, with summary.json and lengths.png.
        lowercase: whether the tokenizer lower-cases and strips accents. By default a vocab.txt says
            it by its tokens, and for a vocabulary that is made the text decides; the folder of a
            tokenizer always says it itself.
        format: sentences, one a line; paragraphs, one a line, to be split into sentences; jsonl,
            a JSON object a line; auto takes jsonl for .jsonl and .ndjson, and else sentences.
        document_ends: what ends a document besides the end of a file: blank_lines; files for
            nothing else; wikitext for the lines " = Title = " of the WikiText sets, whose headings
            are left out.
        field: the key of the text in JSON Lines.
        language: ISO code of the language, by which paragraphs are split into sentences.
        kind: next_sentence (BERT), sentence_order (ALBERT), sentence_pairs, full_sentences
            (RoBERTa) or document_sentences.
        sequence_length: the longest row in tokens, special ones counted.
        short_seq_probability: how often segments are gathered to a random, shorter length.
        duplicate_factor: how often each document is used, cut and paired anew.
        static_masks: whether to write masks, as the original script does, instead of leaving them
            to be drawn anew in training.
        whole_words: whether static masks take whole words.
        max_predictions: the most static masks in a row; 0 takes what the longest row asks for.
        masked_lm_probability: the share of tokens under static masks.
        seed: decides all that is drawn.
        num_shards: how many files to write; 0 takes one for each million tokens.
        num_workers: processes, of no influence on the records; 0 takes one for each core.
        keep_store: whether to keep the tokenized corpus, in output_dir/work, once all is done.
    """

    input_files: tuple[str, ...] = ()
    vocabulary: str = ""
    output_dir: str = "runs/pretraining_data"
    lowercase: bool | None = None
    format: str = "auto"
    document_ends: str = "blank_lines"
    field: str = "text"
    language: str = "en"
    kind: str = "next_sentence"
    sequence_length: int = 128
    short_seq_probability: float = 0.1
    duplicate_factor: int = 10
    static_masks: bool = False
    whole_words: bool = False
    max_predictions: int = 0
    masked_lm_probability: float = 0.15
    seed: int = 1
    num_shards: int = 0
    num_workers: int = 0
    keep_store: bool = False

    def __post_init__(self) -> None:
        check_one_of(self, format=FORMATS, document_ends=DOCUMENT_ENDS)
        check_at_least(self, 0, "num_shards", "num_workers", "max_predictions")
        if not 0 < self.masked_lm_probability < 1:
            raise ValueError(
                f"--masked_lm_probability is {self.masked_lm_probability}, expected between 0 and 1"
            )
        self.instance_maker(cls_token_id=0, sep_token_id=0)

    def instance_maker(self, cls_token_id: int, sep_token_id: int) -> InstanceMaker:
        """What makes the rows, without masks."""
        return InstanceMaker(
            cls_token_id,
            sep_token_id,
            kind=self.kind,
            sequence_length=self.sequence_length,
            short_seq_probability=self.short_seq_probability,
            duplicate_factor=self.duplicate_factor,
            seed=self.seed,
        )

    def masker(self, tokenizer: Tokenizer) -> StaticMasker | None:
        """What draws static masks; None where they are left to training."""
        if not self.static_masks:
            return None
        share = self.masked_lm_probability
        return StaticMasker(
            tokenizer.mask_token_id,
            tokenizer.vocabulary_size,
            self.max_predictions or default_max_predictions(self.sequence_length, share),
            share,
            self.whole_words,
        )

    def workers(self) -> int:
        """How many processes to use."""
        if self.num_workers:
            return self.num_workers
        # What this process may use, where the system tells
        affinity = getattr(os, "sched_getaffinity", None)
        return len(affinity(0)) if affinity else os.cpu_count() or 1

    def paths(self) -> list[Path]:
        """The files to read, in the order of the arguments, those of a folder by name.

        Raises:
            FileNotFoundError: if an argument stands for no file.
            ValueError: if there is no argument.
        """
        if not self.input_files:
            raise ValueError("--input_files is empty, expected files, patterns or folders of text")
        return [path for argument in self.input_files for path in files_of(argument)]

    def fingerprint(self) -> str:
        """Changes with whatever the records depend on: settings, vocabulary, sizes of the files."""
        from .tokenizer_source import content_of, is_lowercased

        settings = dataclasses.asdict(self)
        settings["lowercase"] = is_lowercased(self.vocabulary, self.lowercase)
        for name in ("output_dir", "num_workers", "keep_store", "vocabulary", "input_files"):
            del settings[name]
        files = [(path.name, path.stat().st_size) for path in self.paths()]
        content = json.dumps([settings, files], sort_keys=True).encode()
        return hashlib.sha256(content + content_of(self.vocabulary)).hexdigest()


def files_of(argument: str) -> list[Path]:
    """The files that an argument stands for: a file, a pattern or a folder, read by name."""
    if os.path.isdir(argument):
        found = sorted(path for path in Path(argument).rglob("[!.]*") if path.is_file())
    else:
        found = [Path(path) for path in sorted(glob.glob(argument)) if os.path.isfile(path)]
    if not found:
        raise FileNotFoundError(f"{argument} is not there, expected a file, pattern or folder")
    return found


PAIRED_KINDS = ("next_sentence", "sentence_order")
OBJECTIVES = ("masked_lm", "replaced_token", "distillation")
OPTIMIZERS = ("adam_weight_decay", "adamw", "lamb")
SCHEDULES = ("", "linear", "bert", "electra")
JIT = ("auto", "on", "off")


@dataclasses.dataclass(frozen=True)
class Phase:
    """A part of the training, at one length.

    Args:
        sequence_length: tokens in a row.
        first_step: updates before it.
        num_steps: updates in it.
    """

    sequence_length: int
    first_step: int
    num_steps: int


@dataclasses.dataclass(frozen=True)
class PretrainConfig(PretrainingDataConfig):
    """How text becomes records, and records a pretrained encoder.

    Args:
        input_files: files of text, patterns or folders, from which the records are made in
            output_dir; or none, where there are records already.
        dev_files: held-out text in the same form, to report on while training; none for no report.
        data_dir: the folder that input_files and dev_files are in, if they are no whole paths.
        vocabulary: the vocab.txt of the tokenizer, or the folder of a tokenizer of any kind;
            empty makes one of the model's kind from input_files.
        vocabulary_size: how many tokens to make, where a vocabulary is made.
        output_dir: where everything goes.
        sequence_length: not used: phases say it.
        records: a folder of records; {length} in it stands for a phase's length. Empty makes them
            from input_files.
        dev_records: the same for the held-out text.
        model: the architecture: a name that BertConfig.from_name knows, or a JSON file.
        num_layers: replaces the model's.
        hidden_dim: replaces the model's; the feed-forward layers are four times as wide.
        num_heads: replaces the model's.
        dropout: replaces both of the model's rates.
        causal: whether a token sees only those before it, and each is to predict the next one.
        init_preset: a checkpoint to continue from, which replaces model and vocabulary; empty
            starts with random weights.
        objective: masked_lm (with pairs where kind has labels for them), replaced_token (ELECTRA's;
            model is the discriminator) or distillation (model is the student).
        generator_size: for replaced_token, width of the generator as a share of the model's; an
            init_preset that has a generator keeps it.
        discriminator_weight: for replaced_token, what the model's loss is multiplied by.
        teacher: for distillation, the checkpoint that is learned from; its vocabulary is taken.
        teacher_layers: the teacher's layers that the student begins with, by their numbers from 0;
            none takes as many as the student has, evenly spread.
        copy_layers: whether the student begins with the teacher's weights, which needs its widths.
        temperature: for distillation, what logits are divided by.
        phases: length:share of the updates, one phase after the other, as 128:0.9,512:0.1.
        masking_unit: what is masked: token, word or ngram; static masks stay as they are.
        mask_token_rate: share of the chosen tokens that becomes [MASK].
        random_token_rate: share of them that becomes another token.
        random_special_tokens: whether that may be a special one, as with BERT and not with RoBERTa.
        packing: whether short rows share a row.
        batch_size: rows in an update.
        accumulation: batches that the gradients of an update are gathered from.
        num_steps: updates.
        optimizer: adam_weight_decay (BERT's own, no bias correction), adamw or lamb.
        learning_rate: the highest rate.
        schedule: how the rate falls: linear, bert (with its jump behind the warmup) or electra
            (without); empty takes the optimizer's own.
        warmup_steps: updates in which the rate rises.
        weight_decay: decay of all weights but biases and LayerNorms.
        beta_2: how slowly the second moments forget.
        epsilon: added to their root.
        clip_norm: gradients' global norm is cut to this; 0 leaves them alone.
        precision: Keras' dtype policy: float32, mixed_bfloat16, mixed_float16 or bfloat16.
        jit: whether XLA compiles the step: on, off, or auto: on GPU and TPU and always with JAX,
            not with TensorFlow on a CPU, where it is slower.
        steps_per_execution: batches that the accelerator does without asking; on PyTorch it is
            always one.
        interval: updates after which metrics are logged, the held-out text is scored and a
            checkpoint is written; not given, it is a hundredth of num_steps.
        keep_checkpoints: how many of the last checkpoints are kept, 2 or more: one may be torn.
        dev_batches: batches of held-out text that are scored.
        deterministic: whether TensorFlow and PyTorch have to be deterministic on GPUs too.
        tensorboard: whether to write logs for TensorBoard.
        measure_energy: whether to estimate energy and CO2 by codecarbon (the extra `energy`).
        country: ISO code of three letters, by whose electricity CO2 is estimated.
    """

    dev_files: tuple[str, ...] = ()
    data_dir: str = ""
    vocabulary_size: int = 30522
    output_dir: str = "runs/pretrain"
    records: str = ""
    dev_records: str = ""
    model: str = "bert_base_uncased"
    num_layers: int | None = optional(recorded=0)
    hidden_dim: int | None = optional(recorded=0)
    num_heads: int | None = optional(recorded=0)
    dropout: float | None = optional(recorded=-1.0)
    causal: bool = False
    init_preset: str = ""
    objective: str = "masked_lm"
    generator_size: float = 0.25
    discriminator_weight: float = 50.0
    teacher: str = ""
    teacher_layers: tuple[str, ...] = ()
    copy_layers: bool = True
    temperature: float = 2.0
    phases: tuple[str, ...] = ("128:0.9", "512:0.1")
    masking_unit: str = "token"
    mask_token_rate: float = 0.8
    random_token_rate: float = 0.1
    random_special_tokens: bool = True
    packing: bool = False
    batch_size: int = 256
    accumulation: int = 1
    num_steps: int = 1_000_000
    optimizer: str = "adam_weight_decay"
    learning_rate: float = 1e-4
    schedule: str = ""
    warmup_steps: int = 10_000
    weight_decay: float = 0.01
    beta_2: float = 0.999
    epsilon: float = 1e-6
    clip_norm: float = 1.0
    precision: str = "mixed_bfloat16"
    jit: str = "auto"
    steps_per_execution: int = 1
    interval: int | None = optional(recorded=0)
    keep_checkpoints: int = 2
    dev_batches: int = 50
    deterministic: bool = False
    tensorboard: bool = False
    measure_energy: bool = False
    country: str = "USA"

    def __post_init__(self) -> None:
        super().__post_init__()
        from keras_bert.data.pretraining.masking import UNITS

        check_one_of(self, masking_unit=UNITS, optimizer=OPTIMIZERS, jit=JIT)
        check_one_of(self, objective=OBJECTIVES, schedule=SCHEDULES)
        check_at_least(self, 0, "dropout")
        check_at_least(self, 1, "num_layers", "hidden_dim", "num_heads", "interval")
        check_at_least(self, 1, "num_steps", "batch_size", "accumulation", "steps_per_execution")
        check_at_least(self, 1, "dev_batches")
        check_at_least(self, 2, "keep_checkpoints")
        if self.batch_size % self.accumulation:
            raise ValueError(
                f"--batch_size is {self.batch_size}, expected a multiple of --accumulation, "
                f"which is {self.accumulation}"
            )
        self._check_agreement()
        self.plan()

    def _check_agreement(self) -> None:
        if not 0 <= self.warmup_steps <= self.num_steps:
            raise ValueError(
                f"--warmup_steps is {self.warmup_steps}, expected 0 to --num_steps, "
                f"{self.num_steps}"
            )
        if self.packing and self.static_masks:
            raise ValueError("--packing needs masks drawn in training: leave --static_masks out")
        if self.packing and self.next_sentence:
            raise ValueError(
                f"--packing leaves no room for labels of pairs, which --kind={self.kind} has; "
                "expected full_sentences, document_sentences or sentence_pairs"
            )
        if self.causal and self.static_masks:
            raise ValueError("a causal model predicts each next token: leave --static_masks out")
        self._check_objective()
        if self.steps_per_interval * self.accumulation % self.steps_per_execution:
            raise ValueError(
                f"the batches of an interval are {self.steps_per_interval * self.accumulation}, "
                f"expected a multiple of --steps_per_execution, which is {self.steps_per_execution}"
            )

    def _check_objective(self) -> None:
        if self.objective != "masked_lm" and self.next_sentence:
            raise ValueError(
                f"--objective={self.objective} has no use for labels of pairs, which "
                f"--kind={self.kind} has; expected full_sentences, document_sentences or "
                "sentence_pairs"
            )
        if self.objective == "replaced_token" and self.causal:
            raise ValueError("a causal model cannot detect replaced tokens: leave --causal out")
        if (self.objective == "distillation") != bool(self.teacher):
            raise ValueError(
                f"--objective is {self.objective} and --teacher is {self.teacher!r}; distillation "
                "needs a teacher, and nothing else does"
            )

    @property
    def next_sentence(self) -> bool:
        """Whether the second objective, about pairs, is there."""
        return self.kind in PAIRED_KINDS

    @property
    def micro_batch_size(self) -> int:
        """Rows that go through the model at once."""
        return self.batch_size // self.accumulation

    @property
    def steps_per_interval(self) -> int:
        """Updates between two checkpoints."""
        return self.interval or max(1, self.num_steps // 100)

    @property
    def num_intervals(self) -> int:
        """Checkpoints of the whole run; a phase ends with one."""
        return sum(-(-phase.num_steps // self.steps_per_interval) for phase in self.plan())

    def plan(self) -> list[Phase]:
        """The phases with their first and last steps.

        Raises:
            ValueError: if a phase is malformed, or the shares do not add up to 1.
        """
        parsed = [_parse_phase(text) for text in self.phases]
        if not parsed or abs(sum(share for _, share in parsed) - 1) > 1e-6:
            raise ValueError(
                f"--phases are {','.join(self.phases)}, expected shares that add up to 1"
            )
        plan, first, total = [], 0, 0.0
        for length, share in parsed:
            total += share
            end = round(total * self.num_steps)
            plan.append(Phase(length, first, end - first))
            first = end
        return plan

    def named_architecture(self) -> BertConfig:
        """The config that `model` stands for."""
        if os.path.isfile(self.model):
            return BertConfig.from_json_file(self.model)
        return BertConfig.from_name(self.model)

    def architecture(self, tokenizer: Tokenizer) -> BertConfig:
        """The encoder's config, for a tokenizer's ids and with positions for every phase."""
        config = self.named_architecture()
        changes: dict[str, Any] = {
            "vocabulary_size": tokenizer.vocabulary_size,
            "pad_token_id": tokenizer.pad_token_id,
            "tokenizer": tokenizer.kind,
            "causal": self.causal,
        }
        if config.position_offset:  # positions that follow padding's
            changes["position_offset"] = tokenizer.pad_token_id + 1
        for name in ("num_layers", "hidden_dim", "num_heads"):
            changes |= {} if getattr(self, name) is None else {name: getattr(self, name)}
        if self.hidden_dim is not None:
            changes["intermediate_dim"] = 4 * self.hidden_dim
        if self.dropout is not None:
            changes |= {"dropout": self.dropout, "attention_dropout": self.dropout}
        longest = max(phase.sequence_length for phase in self.plan())
        changes["max_sequence_length"] = max(config.max_sequence_length, longest)
        return config.replace(**changes)

    def data_config(
        self, sequence_length: int, files: tuple[str, ...], output_dir: Path, vocabulary: Path
    ) -> PretrainingDataConfig:
        """How records of one length are made from some files."""
        names = {field.name for field in dataclasses.fields(PretrainingDataConfig)}
        values = {name: getattr(self, name) for name in names}
        return PretrainingDataConfig(
            **values
            | {
                "input_files": self.in_data_dir(files),
                "sequence_length": sequence_length,
                "output_dir": os.fspath(output_dir),
                "vocabulary": os.fspath(vocabulary),
            }
        )

    def in_data_dir(self, files: tuple[str, ...]) -> tuple[str, ...]:
        """Files with the folder before their names."""
        return tuple(os.path.join(self.data_dir, file) for file in files)


def _parse_phase(text: str) -> tuple[int, float]:
    length, _, share = text.partition(":")
    try:
        return int(length), float(share)
    except ValueError:
        raise ValueError(f"a phase is {text!r}, expected length:share, as 128:0.9") from None
