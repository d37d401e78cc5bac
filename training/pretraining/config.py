# SPDX-License-Identifier: Apache-2.0
"""The configs of pre-training: how records are created from text, and how an encoder is trained."""

from __future__ import annotations

import dataclasses
import glob
import hashlib
import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from keras_bert import checks
from keras_bert.config import BertConfig
from keras_bert.data import InstanceMaker, StaticMasker, file_systems
from keras_bert.data.file_systems import InputFile
from keras_bert.data.pretraining.corpus import DOCUMENT_ENDS, FORMATS
from keras_bert.data.pretraining.static_masking import UNITS, default_max_predictions

from ..engine.options import (
    Fraction,
    HostOptions,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveFraction,
    PositiveInt,
    ProgramConfig,
    ProperFraction,
    Seed,
    check_one_of,
    num_cores,
)
from ..engine.output_folder import content_of_files

# TensorFlow is imported only where it is needed, so that `--help` works without it.
if TYPE_CHECKING:
    from keras_bert.text.tokenizer import Tokenizer


@dataclasses.dataclass(frozen=True)
class PretrainingDataConfig(ProgramConfig):
    """How pre-training records are created from files of raw text.

    Args:
        input_files: Text files, glob patterns such as corpus/*.txt, or folders, or URLs of these
            such as s3://bucket/corpus/*.jsonl.gz; compressed by gzip, bzip2, xz or Zstandard, or
            not.
        vocabulary: The vocab.txt of the tokenizer, or the folder of a tokenizer of any kind.
        output_dir: Folder for the records, summary.json and lengths.png.
        lowercase: Whether the tokenizer lower-cases text and strips accents. By default, a
            vocab.txt determines it by its tokens, and a new vocabulary by the text; the folder of a
            tokenizer always specifies it.
        format: Sentences, one per line; paragraphs, one per line, which are split into sentences;
            jsonl, a JSON object per line; parquet, a document per row; auto takes jsonl for .jsonl
            and .ndjson, parquet for .parquet, or else sentences.
        document_ends: What separates documents besides the end of a file: blank_lines; files for
            nothing else; wikitext for the lines " = Title = " of the WikiText data sets, whose
            headings are removed.
        field: The key of the text in JSON Lines, or its column in Parquet.
        language: ISO code of the language, used to split paragraphs into sentences.
        kind: Kind of instances: next_sentence (BERT), sentence_order (ALBERT), sentence_pairs,
            full_sentences (RoBERTa) or document_sentences.
        sequence_length: Maximum length of a row in tokens, special tokens included.
        short_seq_probability: Probability that an instance has a random, shorter target length.
        duplicate_factor: Number of times that each document is used, each time cut and paired
            differently.
        static_masks: Whether to write masks to the records (static masking), as the original script
            does; otherwise masks are drawn during training (dynamic masking).
        whole_words: Whether static masks cover whole words.
        max_predictions: Maximum number of masks in a row; 0 derives it from the length and
            masked_lm_probability.
        masked_lm_probability: Share of the tokens that is selected for prediction.
        seed: Random seed.
        num_shards: Number of files to write; 0 takes one for each million tokens.
        independent_shards: Whether a shard depends on its own documents alone: random second
            segments are from another document of the same shard, not of the whole corpus. A Beam
            runner requires it, and its records are those of one machine with it.
        num_workers: Number of processes, which does not affect the records; 0 takes one for each
            core.
        keep_store: Whether to keep the tokenized corpus in output_dir/work at the end.
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
    sequence_length: PositiveInt = 128
    short_seq_probability: Fraction = 0.1
    duplicate_factor: PositiveInt = 10
    static_masks: bool = False
    whole_words: bool = False
    max_predictions: NonNegativeInt = 0
    masked_lm_probability: Annotated[float, checks.Numbers(above=0, below=1)] = 0.15
    seed: Seed = 1
    num_shards: NonNegativeInt = 0
    independent_shards: bool = False
    num_workers: NonNegativeInt = 0
    keep_store: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        check_one_of(self, format=FORMATS, document_ends=DOCUMENT_ENDS)
        if self.whole_words and not self.static_masks:
            raise ValueError(
                "--whole_words is for --static_masks; masks that are drawn during training cover "
                "whole words with --masking_unit=word"
            )
        self.instance_maker(cls_token_id=0, sep_token_id=0)

    def instance_maker(self, cls_token_id: int, sep_token_id: int) -> InstanceMaker:
        """Returns the object that creates instances, without masks."""
        return InstanceMaker(
            cls_token_id,
            sep_token_id,
            kind=self.kind,
            sequence_length=self.sequence_length,
            short_seq_probability=self.short_seq_probability,
            duplicate_factor=self.duplicate_factor,
            seed=self.seed,
            independent_shards=self.independent_shards,
        )

    def masker(self, tokenizer: Tokenizer) -> StaticMasker | None:
        """Returns the object that draws static masks, or `None` with dynamic masking."""
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
        """Returns the number of processes to use."""
        return self.num_workers or num_cores()

    def inputs(
        self, find_urls: Callable[[str], list[InputFile]] = file_systems.find_urls
    ) -> list[InputFile]:
        """Returns the files to read, in the order of `input_files`, those of a folder by name.

        Args:
            find_urls: Returns the files of a URL, by name; by default with fsspec.

        Raises:
            FileNotFoundError: If an entry matches no file.
            ValueError: If `input_files` is empty.
        """
        if not self.input_files:
            raise ValueError("--input_files is empty, expected files, patterns or folders of text")
        found = []
        for argument in self.input_files:
            if not file_systems.is_url(argument):
                paths = expand_files(argument)
                found += [InputFile(os.fspath(path), path.stat().st_size) for path in paths]
            elif files := find_urls(argument):
                found += files
            else:
                raise FileNotFoundError(f"{argument} matches no file")
        return found

    def fingerprint(self, inputs: Sequence[InputFile] | None = None) -> str:
        """Returns a hash of everything that determines the records.

        These are the settings, the vocabulary, and the names and contents of the files; of a URL,
        its name and size.

        Args:
            inputs: The files, if they have been found before.
        """
        from .tokenizer_source import is_lowercased, tokenizer_content

        files = content_of_inputs(self.inputs() if inputs is None else inputs)
        fields = {field.name for field in dataclasses.fields(PretrainingDataConfig)}
        fields -= {"output_dir", "num_workers", "keep_store", "vocabulary", "input_files"}
        recorded = dataclasses.asdict(self)
        settings = {name: value for name, value in recorded.items() if name in fields}
        settings["lowercase"] = is_lowercased(self.vocabulary, self.lowercase)
        content = json.dumps([settings, files], sort_keys=True).encode()
        return hashlib.sha256(content + tokenizer_content(self.vocabulary)).hexdigest()


def content_of_inputs(inputs: Sequence[InputFile]) -> str:
    """Returns a hash of the names and contents of files, and of the names and sizes of URLs."""
    remote = [(file.name, file.size) for file in inputs if file_systems.is_url(file.path)]
    local = [Path(file.path) for file in inputs if not file_systems.is_url(file.path)]
    content = content_of_files(local)
    if remote:
        content = hashlib.sha256(content + json.dumps(remote).encode()).digest()
    return content.hex()


def expand_files(argument: str) -> list[Path]:
    """Returns the files of an argument: a file, a glob pattern or a folder, sorted by name."""
    if os.path.isdir(argument):
        found = sorted(path for path in Path(argument).rglob("[!.]*") if path.is_file())
    else:
        found = [Path(path) for path in sorted(glob.glob(argument)) if os.path.isfile(path)]
    if not found:
        raise FileNotFoundError(f"{argument} does not exist, expected a file, pattern or folder")
    return found


PAIRED_KINDS = ("next_sentence", "sentence_order")
OBJECTIVES = ("masked_lm", "replaced_token", "distillation")
OPTIMIZERS = ("adam_weight_decay", "adamw", "stable_adamw", "lamb")
SCHEDULES = ("", "linear", "bert", "electra", "trapezoidal")
# As `keras_bert.optimizers.schedules` has them, which is not imported for `--help`
DECAYS = ("one_minus_sqrt", "linear")
JIT = ("auto", "on", "off")
# Minimum number of batches that are trained on for each that is scored, unless the user chooses the
# interval. Without a backward pass, scoring a batch takes a third of the time: a twelfth in total.
_TRAINED_PER_SCORED = 4


@dataclasses.dataclass(frozen=True)
class Phase:
    """A phase of the training, with one sequence length and one batch size.

    Args:
        sequence_length: Tokens in a row.
        first_step: Number of updates before this phase.
        num_steps: Number of updates in this phase.
        batch_size: Rows in an update.
        learning_rate: Peak learning rate.
    """

    sequence_length: int
    first_step: int
    num_steps: int
    batch_size: int
    learning_rate: float

    @property
    def end(self) -> int:
        """Number of updates at the end of this phase."""
        return self.first_step + self.num_steps


def named_architecture(model: str) -> BertConfig:
    """Returns the config of a name, or of the JSON file of a config."""
    if os.path.isfile(model):
        return BertConfig.from_json_file(model)
    return BertConfig.from_name(model)


@dataclasses.dataclass(frozen=True)
class PretrainConfig(PretrainingDataConfig, HostOptions):
    """How an encoder is pre-trained on raw text or on records.

    Args:
        input_files: Text files, glob patterns or folders, from which records are created in
            output_dir; empty if records are given.
        dev_files: Validation text in the same format, scored during training; empty for none.
        data_dir: Folder of the input_files and dev_files that are given by a relative path.
        vocabulary: The vocab.txt of the tokenizer, or the folder of a tokenizer of any kind; empty
            trains one of the model's kind on input_files.
        vocabulary_size: Size of the vocabulary if it is trained.
        output_dir: Folder for everything that is written.
        sequence_length: Ignored; phases gives the lengths.
        records: Folder of records; {length} in the path is replaced by a phase's length. Empty
            creates them from input_files.
        dev_records: Folder of records of the validation text, likewise.
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
        objective: Masked_lm (with a sentence pair objective if kind has labels for it),
            replaced_token (ELECTRA; model is the discriminator) or distillation (model is the
            student).
        generator_size: For replaced_token, width of the generator relative to the model's; the
            generator of an init_preset keeps its width.
        discriminator_weight: For replaced_token, weight of the discriminator's loss.
        teacher: For distillation, the checkpoint of the teacher, whose vocabulary is used.
        teacher_layers: For distillation, the indices from 0 of the teacher's layers that initialize
            the student; empty takes evenly spaced layers.
        copy_layers: For distillation, whether to initialize the student with the teacher's weights,
            which requires equal widths.
        temperature: For distillation, the temperature that logits are divided by.
        phases: The phases of the training, each length:share of the updates, as in
            128:0.9,512:0.1; where they differ, with its batch_size and learning_rate, as in
            1024:0.85,8192:0.15:batch_size=576:learning_rate=3e-4. A phase that has the length of
            one before goes on where that has stopped in the text.
        dev_masked_lm_probability: Share of the tokens of the validation text that is selected;
            masked_lm_probability by default. With the same share, the scores of runs that mask more
            or less can be compared.
        masking_unit: Unit of dynamic masking: token, word or ngram; static masks are not changed.
        mask_token_rate: Share of the selected tokens that is replaced by [MASK].
        random_token_rate: Share of the selected tokens that is replaced by a random token.
        random_special_tokens: Whether the random token may be a special one, as in BERT but not in
            RoBERTa.
        packing: Whether to pack several sequences into a row.
        file_groups: Number of groups that the files of records are divided into, of which each
            fills an equal share of the rows of each batch. With a multiple of the number of hosts,
            each host reads the files of its own rows only, and with 1 all of them. The batches
            depend on it, and not on the number of hosts.
        batch_size: Rows in an update.
        initial_batch_size: For a warm-up of the batch size, the rows in the first updates, of which
            batch_size is a multiple; the batch grows by as many rows at a time.
        batch_warmup_steps: Number of updates before the batch has batch_size rows, all in the first
            phase; each smaller size has as many of them.
        accumulation: Number of micro-batches whose gradients are accumulated for an update.
        num_steps: Number of updates.
        optimizer: Adam_weight_decay (BERT's own, without bias correction), adamw, stable_adamw
            (AdamW that divides the learning rate of a tensor whose gradient suddenly grows; usually
            with clip_norm=0) or lamb.
        learning_rate: Peak learning rate.
        schedule: Learning rate schedule: linear, bert (which jumps after the warm-up), electra
            (which does not) or trapezoidal (constant between warm-up and decay); empty takes the
            optimizer's own.
        decay_steps: For trapezoidal, number of updates in which the learning rate falls to 0; a
            tenth of num_steps by default, and 0 for none.
        decay: For trapezoidal, how it falls: one_minus_sqrt or linear.
        warmup_steps: Number of updates in which the learning rate rises; a hundredth of num_steps
            by default, as in the paper.
        weight_decay: Weight decay, applied to all weights except biases and LayerNorms.
        beta_2: Decay rate of the second moments.
        epsilon: Small constant added to the denominator of the update.
        clip_norm: Global norm that gradients are clipped to; 0 for no clipping.
        precision: Float32, bfloat16, mixed_bfloat16 or mixed_float16; auto takes mixed_bfloat16 on
            an accelerator and on CPUs that compute it faster, which is measured at the start.
        devices: Number of devices of this machine, such as GPUs, that share each batch; 1 with
            PyTorch.
        shard_optimizer: Whether the devices that share a batch also share the moments of the
            optimizer and the accumulated gradients, instead of having a copy each; on JAX.
        rematerialize: Whether to compute each block of the encoder again in the backward pass
            instead of storing its results: less memory, for up to a third more time.
        jit: Whether to compile the training step, by XLA or PyTorch's compiler: on, off or auto.
            auto compiles on JAX, and with TensorFlow on a GPU or TPU; on a CPU it is slower with
            TensorFlow. With PyTorch it takes minutes at the start, and is worth it on a GPU.
        steps_per_execution: Batches in a call of the compiled function; always 1 on PyTorch.
        interval: Number of updates after which metrics are logged, the validation text is scored
            and a checkpoint is written; by default a hundredth of num_steps, and the text is
            scored less often if that would take more than a tenth of the time of training.
        keep_checkpoints: Number of checkpoints to keep, at least 2, in case the last one is
            corrupted.
        dev_batches: Number of batches of validation text to score.
        deterministic: Whether to make TensorFlow and PyTorch deterministic on GPUs too.
        tensorboard: Whether to write logs for TensorBoard.
        measure_energy: Whether to meter energy and CO2, if codecarbon is installed (the extra
            energy), of each host.
        country: ISO code of the country, three letters, for the CO2 of its electricity.
        price_per_hour: The price of the machine, or of all hosts, in any currency, for the cost of
            the run; 0 if it is unknown.
    """

    dev_files: tuple[str, ...] = ()
    data_dir: str = ""
    vocabulary_size: PositiveInt = 30522
    output_dir: str = "runs/pretrain"
    records: str = ""
    dev_records: str = ""
    model: str = "bert_base_uncased"
    num_layers: PositiveInt | None = None
    hidden_dim: PositiveInt | None = None
    num_heads: PositiveInt | None = None
    dropout: ProperFraction | None = None
    causal: bool = False
    init_preset: str = ""
    objective: str = "masked_lm"
    generator_size: PositiveFraction = 0.25
    discriminator_weight: NonNegativeFloat = 50.0
    teacher: str = ""
    teacher_layers: tuple[str, ...] = ()
    copy_layers: bool = True
    temperature: PositiveFloat = 2.0
    phases: tuple[str, ...] = ("128:0.9", "512:0.1")
    dev_masked_lm_probability: Annotated[float, checks.Numbers(above=0, below=1)] | None = None
    masking_unit: str = "token"
    mask_token_rate: Fraction = 0.8
    random_token_rate: Fraction = 0.1
    random_special_tokens: bool = True
    packing: bool = False
    file_groups: PositiveInt = 1
    batch_size: PositiveInt = 256
    initial_batch_size: PositiveInt | None = None
    batch_warmup_steps: NonNegativeInt = 0
    accumulation: PositiveInt = 1
    num_steps: PositiveInt = 1_000_000
    optimizer: str = "adam_weight_decay"
    learning_rate: NonNegativeFloat = 1e-4
    schedule: str = ""
    decay_steps: NonNegativeInt | None = None
    decay: str = "one_minus_sqrt"
    warmup_steps: NonNegativeInt | None = None
    weight_decay: NonNegativeFloat = 0.01
    beta_2: ProperFraction = 0.999
    epsilon: NonNegativeFloat = 1e-6
    clip_norm: NonNegativeFloat = 1.0
    precision: str = "auto"
    devices: PositiveInt = 1
    shard_optimizer: bool = False
    rematerialize: bool = False
    jit: str = "auto"
    steps_per_execution: PositiveInt = 1
    interval: PositiveInt | None = None
    keep_checkpoints: Annotated[int, checks.Numbers(at_least=2, integer=True)] = 2
    dev_batches: PositiveInt = 50
    deterministic: bool = False
    tensorboard: bool = False
    measure_energy: bool = True
    country: str = "USA"
    price_per_hour: NonNegativeFloat = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_one_of(self, masking_unit=UNITS, optimizer=OPTIMIZERS, jit=JIT)
        check_one_of(self, objective=OBJECTIVES, schedule=SCHEDULES, decay=DECAYS)
        for name in ("output_dir", "records", "dev_records"):
            if file_systems.is_url(getattr(self, name)):
                raise ValueError(
                    f"--{name} is {getattr(self, name)}, expected a folder of this machine, such "
                    "as a copy, or one of a file system that is mounted"
                )
        self._check_agreement()
        self._check_batch_sizes()

    def _check_agreement(self) -> None:
        if self.num_warmup_steps > self.num_steps:
            raise ValueError(
                f"--warmup_steps is {self.warmup_steps}, expected 0 to --num_steps, "
                f"{self.num_steps}"
            )
        if self.schedule != "trapezoidal" and self.decay_steps is not None:
            raise ValueError(
                f"--decay_steps is {self.decay_steps}, expected --schedule=trapezoidal with it"
            )
        if self.schedule == "trapezoidal" and (
            self.num_warmup_steps + self.num_decay_steps > self.num_steps
        ):
            raise ValueError(
                f"--warmup_steps is {self.num_warmup_steps} and --decay_steps "
                f"{self.num_decay_steps}, expected at most --num_steps together, {self.num_steps}"
            )
        if self.packing and self.static_masks:
            raise ValueError("--packing requires dynamic masking: remove --static_masks")
        if self.packing and self.next_sentence:
            raise ValueError(
                f"--packing does not support the labels of pairs that --kind={self.kind} has; "
                "expected full_sentences, document_sentences or sentence_pairs"
            )
        if self.causal and self.static_masks:
            raise ValueError(
                "--causal predicts the next token at every position: remove --static_masks"
            )
        self._check_objective()
        if self.steps_per_interval * self.accumulation % self.steps_per_execution:
            raise ValueError(
                f"an interval has {self.steps_per_interval * self.accumulation} batches "
                "(--interval times --accumulation), expected a multiple of --steps_per_execution, "
                f"which is {self.steps_per_execution}"
            )

    def _check_batch_sizes(self) -> None:
        if (self.initial_batch_size is None) != (not self.batch_warmup_steps):
            raise ValueError(
                f"--initial_batch_size is {self.initial_batch_size} and --batch_warmup_steps "
                f"{self.batch_warmup_steps}, expected both or neither"
            )
        for phase in self.plan():
            if phase.batch_size % self.accumulation:
                raise ValueError(
                    f"an update has {phase.batch_size} rows after {phase.first_step} updates, "
                    f"expected a multiple of --accumulation, which is {self.accumulation}"
                )
            for flag in ("devices", "file_groups"):
                if self.micro_batch_size(phase) % getattr(self, flag):
                    raise ValueError(
                        f"a batch has {self.micro_batch_size(phase)} rows after "
                        f"{phase.first_step} updates, expected a multiple of --{flag}, which is "
                        f"{getattr(self, flag)}"
                    )
        if 0 < self.num_shards < self.file_groups:
            raise ValueError(
                f"--num_shards is {self.num_shards}, expected at least --file_groups, which is "
                f"{self.file_groups}"
            )

    def _check_objective(self) -> None:
        if self.objective != "masked_lm" and self.next_sentence:
            raise ValueError(
                f"--objective={self.objective} does not support the labels of pairs that "
                f"--kind={self.kind} has; expected full_sentences, document_sentences or "
                "sentence_pairs"
            )
        if self.objective == "replaced_token" and self.causal:
            raise ValueError("--objective=replaced_token does not support --causal: remove one")
        if (self.objective == "distillation") != bool(self.teacher):
            raise ValueError(
                f"--objective is {self.objective} and --teacher is {self.teacher!r}, expected "
                "--teacher with --objective=distillation, and only with it"
            )

    @property
    def next_sentence(self) -> bool:
        """Whether there is a second objective, about sentence pairs."""
        return self.kind in PAIRED_KINDS

    def micro_batch_size(self, phase: Phase) -> int:
        """Returns the rows in a micro-batch of a phase."""
        return phase.batch_size // self.accumulation

    def dev_batch_size(self, sequence_length: int) -> int:
        """Returns the rows in a batch of validation text: those of the largest micro-batch.

        They are the same for all phases with this length, whose scores can be compared.
        """
        phases = [phase for phase in self.plan() if phase.sequence_length == sequence_length]
        return max(map(self.micro_batch_size, phases))

    def of_validation_text(self) -> PretrainConfig:
        """Returns the config with the masking of the validation text."""
        if self.dev_masked_lm_probability is None:
            return self
        return dataclasses.replace(self, masked_lm_probability=self.dev_masked_lm_probability)

    @property
    def num_decay_steps(self) -> int:
        """Updates in which the learning rate falls, with a trapezoidal schedule."""
        if self.decay_steps is not None:
            return self.decay_steps
        return min(self.num_steps // 10, self.num_steps - self.num_warmup_steps)

    @property
    def num_warmup_steps(self) -> int:
        """Updates in which the learning rate rises."""
        return self.num_steps // 100 if self.warmup_steps is None else self.warmup_steps

    @property
    def steps_per_interval(self) -> int:
        """Updates between two checkpoints."""
        return self.interval or max(1, self.num_steps // 100)

    def steps_between_scores(self, num_batches: int) -> int:
        """Returns the updates between two scorings of the validation text.

        Args:
            num_batches: Number of batches of that text.
        """
        if self.interval is not None:
            return self.interval
        num_trained = _TRAINED_PER_SCORED * num_batches
        return max(self.steps_per_interval, -(-num_trained // self.accumulation))

    @property
    def num_intervals(self) -> int:
        """Number of checkpoints of the whole run; each phase ends with one."""
        return sum(-(-phase.num_steps // self.steps_per_interval) for phase in self.plan())

    def plan(self) -> list[Phase]:
        """Returns the phases with their steps; each size of a batch warm-up is a phase of its own.

        Raises:
            ValueError: If a phase is malformed, the shares do not sum to 1, or the batch warm-up
                does not fit into the first phase.
        """
        parsed = [_parse_phase(text) for text in self.phases]
        if not parsed or abs(sum(share for _, share, _ in parsed) - 1) > 1e-6:
            raise ValueError(f"--phases is {','.join(self.phases)}, expected shares that sum to 1")
        plan, first, total = [], 0, 0.0
        for length, share, options in parsed:
            total += share
            end = round(total * self.num_steps)
            values = {"batch_size": self.batch_size, "learning_rate": self.learning_rate, **options}
            plan.append(Phase(length, first, end - first, **values))
            first = end
        if self.initial_batch_size is None:
            return plan
        return [*self._batch_warmup(self.initial_batch_size, plan[0]), *plan[1:]]

    def _batch_warmup(self, initial: int, phase: Phase) -> list[Phase]:
        """Returns the parts of the first phase with smaller batches, and what is left of it."""
        smaller = range(initial, phase.batch_size, initial)
        if phase.batch_size % initial or not smaller:
            raise ValueError(
                f"--initial_batch_size is {initial}, expected a divisor of the batch size of the "
                f"first phase, {phase.batch_size}, below it"
            )
        if not len(smaller) <= self.batch_warmup_steps < phase.num_steps:
            raise ValueError(
                f"--batch_warmup_steps is {self.batch_warmup_steps}, expected at least "
                f"{len(smaller)}, one for each smaller batch size, and fewer than the first phase "
                f"has, {phase.num_steps}"
            )
        steps = [
            round(number * self.batch_warmup_steps / len(smaller))
            for number in range(len(smaller) + 1)
        ]
        parts = [
            dataclasses.replace(phase, first_step=first, num_steps=end - first, batch_size=size)
            for size, first, end in zip(smaller, steps, steps[1:], strict=False)
        ]
        left = phase.num_steps - steps[-1]
        return [*parts, dataclasses.replace(phase, first_step=steps[-1], num_steps=left)]

    def named_architecture(self) -> BertConfig:
        """Returns the config that `model` names."""
        return named_architecture(self.model)

    def architecture(self, tokenizer: Tokenizer) -> BertConfig:
        """Returns the encoder's config for a tokenizer, with positions for the longest phase."""
        config = self.named_architecture()
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
        longest = max(phase.sequence_length for phase in self.plan())
        changes["max_sequence_length"] = max(config.max_sequence_length, longest)
        return config.replace(**changes)

    def data_config(
        self, sequence_length: int, files: tuple[str, ...], output_dir: Path, vocabulary: Path
    ) -> PretrainingDataConfig:
        """Returns the config for creating records of one length from some files."""
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
        """Returns files joined with `data_dir`."""
        return tuple(
            file if file_systems.is_url(file) else os.path.join(self.data_dir, file)
            for file in files
        )


# What a phase may have of its own, and how it is read
_OF_PHASE: dict[str, tuple[type, checks.Numbers]] = {
    "batch_size": (int, checks.POSITIVE_INT),
    "learning_rate": (float, checks.NON_NEGATIVE),
}


def _parse_phase(text: str) -> tuple[int, float, dict[str, Any]]:
    """Returns the length, the share and the options of a phase, `length:share[:name=value…]`."""
    length, _, rest = text.partition(":")
    share, *options = rest.split(":")
    try:
        phase = int(length), float(share)
        values = {}
        for option in options:
            name, _, value = option.partition("=")
            values[name] = _OF_PHASE[name][0](value)
    except (ValueError, KeyError):
        raise ValueError(
            f"--phases has {text!r}, expected length:share, as in 128:0.9, and what it has of its "
            f"own of {' and '.join(_OF_PHASE)}, as in 128:0.9:batch_size=64"
        ) from None
    checks.POSITIVE_INT.check(**{f"The length of --phases={text}": phase[0]})
    checks.POSITIVE_FRACTION.check(**{f"The share of --phases={text}": phase[1]})
    for name, value in values.items():
        _OF_PHASE[name][1].check(**{f"The {name} of --phases={text}": value})
    return *phase, values
