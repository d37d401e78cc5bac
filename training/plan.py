# SPDX-License-Identifier: Apache-2.0
"""Estimates what a training run costs before it is started: time, energy, money, memory.

    python -m training.plan --model=bert_small_uncased --tokens=1e9
    python -m training.plan --model=bert_base_uncased --tokens=137e9 --hardware=a100 --devices=8 \\
        --cost_per_hour=1.5
    python -m training.plan --objective=classification --model=minilm_l6_h384_uncased \\
        --tokens=6e5 --sequence_length=53

With --hardware=this, the default, a few steps of the model are timed on this machine, and their
energy is metered if codecarbon is installed. For other hardware, the estimate rests on the peak and
the power that its maker publishes, and on --mfu. The estimate covers only training:
scoring, reading text and creating records take additional time.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import time
import warnings
from collections.abc import Iterator
from typing import Any, NamedTuple

from keras_bert import checks
from keras_bert.config import BertConfig
from keras_bert.data.pretraining.static_masking import default_max_predictions

from .costs import energy, run_cost
from .engine import program, run_report
from .engine.options import (
    CostOptions,
    Fraction,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveFraction,
    PositiveInt,
    ProperFraction,
    UnusedFlags,
    check_one_of,
)
from .pretraining.config import named_architecture

# Share of the peak that well-tuned training of encoders is assumed to reach, for hardware without
# measurements
_ASSUMED_SHARE = 0.4


class Accelerator(NamedTuple):
    """Published figures of an accelerator.

    Args:
        flops: Peak FLOP/s of dense matrix products in 16 bits, without sparsity.
        float32_flops: Likewise in float32; in TF32 where there is such a mode, which TensorFlow and
            JAX use.
        watts: Nominal power in W.
        gigabytes: Memory in GB.
    """

    flops: float
    float32_flops: float
    watts: float
    gigabytes: float


# From the makers' data sheets; TPUs: Jouppi et al., 2023, https://arxiv.org/abs/2304.01433, table 4
ACCELERATORS = {
    "t4": Accelerator(65e12, 8.1e12, 70, 16),
    "l4": Accelerator(121e12, 60e12, 72, 24),
    "a10": Accelerator(125e12, 62.5e12, 150, 24),
    "v100": Accelerator(125e12, 15.7e12, 300, 32),
    "rtx4090": Accelerator(165e12, 82.6e12, 450, 24),
    "a100": Accelerator(312e12, 156e12, 400, 80),
    "h100": Accelerator(989e12, 494e12, 700, 80),
    "h200": Accelerator(989e12, 494e12, 700, 141),
    # In float32, TPUs round the factors to bfloat16 by default.
    "tpu_v3": Accelerator(123e12, 123e12, 262, 32),
    "tpu_v4": Accelerator(275e12, 275e12, 192, 32),
}

_THIS = "this"
_MASKED_LM, _CLASSIFICATION = "masked_lm", "classification"
_WARM_UP_STEPS = 3
_PROBE_STEPS = 5
_PROBE_SECONDS = 15.0
# Bytes for each parameter: the weight, its gradient, and AdamW's two moments, in float32
_BYTES_OF_PARAMETER = 16
# In a checkpoint: the weight, and AdamW's two moments
_BYTES_IN_CHECKPOINT = 12
# Batches of 32 rows from the training files of five GLUE tasks have 0.20 to 0.41.
_CLASSIFICATION_PADDING = 0.25
# From this row length, attention scores are not stored but recomputed in the backward pass.
_LONG = 2048
# Share of the cores that other programs may use before the report mentions them
_BUSY = 0.5


@dataclasses.dataclass(frozen=True)
class PlanConfig(CostOptions):
    """The run to estimate, and the hardware.

    Args:
        model: A named architecture, such as bert_base_uncased, or the path of its JSON config.
        vocabulary_size: Size of the vocabulary; 0 takes the model's.
        dropout: Dropout rate of hidden states and attention; the model's by default.
        objective: Masked_lm (pre-training) or classification (fine-tuning), which uses only the
            output of each row's first token.
        tokens: Number of tokens to train on: updates x rows x length, or for classification the
            tokens of all rows, times the epochs.
        sequence_length: Tokens in a row; for classification the mean over the rows.
        padding: Padding tokens to compute per token; by default 0, or 0.25 for classification,
            which batches rows of similar lengths (0.20 for MRPC, 0.22 for RTE, 0.29 for SST-2 and
            STS-B, 0.41 for CoLA).
        batch_size: Rows in an update.
        masked: Share of the tokens that a masked LM predicts.
        next_sentence: Whether to add the sentence pair objective.
        precision: Keras' dtype policy; auto takes the faster one of float32 and mixed_bfloat16. In
            float32, the published peak is that of float32, or of TF32 on GPUs that have it.
        hardware: This machine (this), or an accelerator: t4, l4, a10, v100, rtx4090, a100, h100,
            h200, tpu_v3 or tpu_v4.
        devices: Number of accelerators, which share each batch.
        mfu: Share of the published peak that training reaches; 0 assumes 0.4. Not with
            --hardware=this, whose speed is measured.
        measure_energy: Whether to meter the energy of the timed steps, if codecarbon is installed.
        cost_per_hour: The price of one device in any currency; 0 if it is unknown.
    """

    model: str = "bert_base_uncased"
    vocabulary_size: NonNegativeInt = 0
    dropout: ProperFraction | None = None
    objective: str = _MASKED_LM
    tokens: PositiveFloat = 1e9
    sequence_length: PositiveInt = 128
    padding: NonNegativeFloat | None = None
    batch_size: PositiveInt = 32
    masked: PositiveFraction = 0.15
    next_sentence: bool = False
    precision: str = "auto"
    hardware: str = _THIS
    devices: PositiveInt = 1
    mfu: Fraction = 0.0

    def unused_flags(self) -> UnusedFlags:
        if self.hardware == _THIS:
            yield from super().unused_flags()
            yield ["mfu"], "the speed of this machine is measured"
        if self.objective != _MASKED_LM:
            yield ["masked", "next_sentence"], f"the objective is {self.objective}"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_one_of(self, hardware=(_THIS, *ACCELERATORS))
        check_one_of(self, objective=(_MASKED_LM, _CLASSIFICATION))
        if self.hardware == _THIS and self.devices > 1:
            raise ValueError(f"--devices must be 1 with --hardware=this. Received: {self.devices}")

    def architecture(self) -> BertConfig:
        """Returns the encoder's config; pre-training adds positions up to `sequence_length`.

        Raises:
            ValueError: If the architecture is unknown, or has too few positions for fine-tuning.
        """
        architecture = named_architecture(self.model)
        if (
            self.objective == _CLASSIFICATION
            and self.sequence_length > architecture.max_sequence_length
        ):
            raise ValueError(
                f"--sequence_length must be at most {architecture.max_sequence_length}, the "
                f"positions of {self.model}. Received: {self.sequence_length}"
            )
        # As pre-training does
        changes: dict[str, Any] = {
            "max_sequence_length": max(architecture.max_sequence_length, self.sequence_length)
        }
        if self.vocabulary_size:
            changes["vocabulary_size"] = self.vocabulary_size
        if self.dropout is not None:
            changes |= {"dropout": self.dropout, "attention_dropout": self.dropout}
        return architecture.replace(**changes)

    @property
    def slots(self) -> int:
        """The number of masked tokens in a row."""
        if self.objective != _MASKED_LM:
            return 0
        return default_max_predictions(self.sequence_length, self.masked)

    @property
    def computed_tokens(self) -> float:
        """The number of tokens, including padding."""
        default = _CLASSIFICATION_PADDING if self.objective == _CLASSIFICATION else 0.0
        return self.tokens * (1 + (default if self.padding is None else self.padding))

    @property
    def reads_first(self) -> bool:
        """Whether the output of each row's first token is used."""
        return self.next_sentence or self.objective == _CLASSIFICATION


@dataclasses.dataclass(frozen=True)
class Rate:
    """How fast the hardware trains, and at what power.

    Args:
        tokens_per_second: Tokens in a second, on all devices together.
        watts: The power of all devices together; `None` if unknown.
        origin: How the numbers were obtained, for the report.
        startup: Additional seconds of the first update, which traces the model.
        peak_bytes: Peak memory of the process; 0 if unknown, or with an accelerator.
    """

    tokens_per_second: float
    watts: float | None
    origin: str
    startup: float = 0.0
    peak_bytes: int = 0


def busy_note(load: float, cores: int) -> str:
    """Returns a line about other work on the machine, empty if there was little.

    Example:

    >>> busy_note(0.3, cores=2)
    ''
    """
    if load < _BUSY * cores:
        return ""
    return (
        f"note        other programs were running, with a load of {load:.1f} on {cores} cores: the "
        "time is that of a run that has as many beside it"
    )


def main(config: PlanConfig) -> None:
    print(plan(config))


def plan(config: PlanConfig) -> str:
    """Returns the estimate as text."""
    program.import_quietly()
    from .costs import model_flops
    from .engine import precision

    if config.hardware == _THIS:
        config = dataclasses.replace(config, precision=precision.resolve(config.precision))
    architecture = config.architecture()
    row_flops = model_flops.training_flops(
        architecture, 1, config.sequence_length, config.slots, config.reads_first
    )
    flops = row_flops * config.tokens / config.sequence_length
    flops_of_token = row_flops / config.sequence_length
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    rate = _measured(config) if config.hardware == _THIS else _published(config, flops_of_token)
    count = parameters(architecture, config.objective)
    hours = (rate.startup + config.computed_tokens / rate.tokens_per_second) / 3600
    first = f", {run_report.duration(rate.startup)} of it for the first update"
    lines = [
        f"{config.model}: {count / 1e6:.1f} million parameters",
        f"operations  {run_cost.format_flops(flops)}, {flops_of_token / 1e6:.3g} MFLOP a token",
        f"speed       {rate.tokens_per_second:,.0f} tokens/s, {rate.origin}",
        f"time        {run_report.duration(3600 * hours)}{first if rate.startup else ''}",
    ]
    positions = named_architecture(config.model).max_sequence_length
    if positions < config.sequence_length:
        lines.insert(
            1,
            f"positions   {config.sequence_length:,} as pre-training makes them, instead of "
            f"{positions:,}",
        )
    if rate.watts is not None:
        kwh = rate.watts * hours / 1000
        if energy.is_installed():
            grams = energy.grams_per_kwh(config.country)
            emissions = f", {run_cost.format_mass(kwh * grams / 1000)} of CO2 ({config.country})"
        else:
            emissions = f" (for CO2: {checks.install('energy')})"
        lines.append(f"energy      {run_cost.kilowatt_hours(kwh)} at {rate.watts:.0f} W{emissions}")
    if config.cost_per_hour:
        lines.append(f"cost        {config.devices * config.cost_per_hour * hours:,.2f}")
    if not rate.peak_bytes:
        lines.append(_memory(config, architecture))
    else:
        copies, what = 1, "a checkpoint"
        if config.objective == _CLASSIFICATION:
            # To predict, the best epoch's model is loaded while the trained one is in memory.
            copies, what = 2, "a checkpoint, and the kept model"
        total = rate.peak_bytes + copies * _BYTES_IN_CHECKPOINT * count
        lines.append(
            f"memory      {total / 1e9:.3g} GB with the libraries: the "
            f"{rate.peak_bytes / 1e9:.3g} GB that these updates needed, {what}"
        )
    if config.hardware == _THIS and (note := busy_note(load, os.cpu_count() or 1)):
        lines.append(note)
    return "\n".join(lines)


def parameters(config: BertConfig, objective: str = _MASKED_LM) -> int:
    """Returns the number of parameters of an encoder with the objective's head."""
    from keras_bert import Backbone, MaskedLM, TextClassifier

    from .costs import model_flops

    def task() -> Any:
        backbone = Backbone(config)
        return MaskedLM(backbone) if objective == _MASKED_LM else TextClassifier(backbone, 2)

    return model_flops.num_parameters(task)


def _published(config: PlanConfig, flops_of_token: float) -> Rate:
    device = ACCELERATORS[config.hardware]
    share = config.mfu or _ASSUMED_SHARE
    peak = device.float32_flops if config.precision == "float32" else device.flops
    is_assumed = "" if config.mfu else " (an assumption)"
    return Rate(
        config.devices * share * peak / flops_of_token,
        config.devices * device.watts,
        f"at {share:.0%}{is_assumed} of the published peak of {config.devices} x {config.hardware}",
    )


def _measured(config: PlanConfig) -> Rate:
    """Times a few updates on random tokens."""
    import keras
    import numpy as np

    from keras_bert.ops.dispatch import has_accelerator
    from keras_bert.ops.lazy_tensorflow import set_random_seed
    from keras_bert.optimizers import AdamW

    set_random_seed(0)
    model = _task(config)
    model.compile(AdamW(1e-4, num_train_steps=1000, num_warmup_steps=10))
    batch, labels = _random_batch(config)
    batch = {name: values for name, values in batch.items() if name in model.input}
    start, ends = time.perf_counter(), list[float]()
    metered_from = start
    end_of_epoch = keras.callbacks.LambdaCallback(
        on_train_batch_end=lambda batch, logs=None: ends.append(time.perf_counter())
    )
    with contextlib.ExitStack() as stack:
        meter = None
        if config.measure_energy and energy.is_installed():
            meter = stack.enter_context(energy.energy_meter(config.country))

        def batches() -> Iterator[tuple[dict[str, Any], Any]]:
            nonlocal metered_from
            # The first steps trace, compile and warm up, and do not count.
            while len(ends) < _WARM_UP_STEPS:
                yield batch, labels
            if meter is not None:
                meter()
                metered_from = time.perf_counter()
            while len(ends) < _WARM_UP_STEPS + _PROBE_STEPS or (
                ends[-1] - ends[_WARM_UP_STEPS] < _PROBE_SECONDS
            ):
                yield batch, labels

        with warnings.catch_warnings():
            # Keras warns when the generator ends, as it does here after enough steps.
            warnings.filterwarnings("ignore", "Your input ran out of data")
            model.fit(batches(), epochs=1, verbose=0, callbacks=[end_of_epoch])
        steps = np.diff(ends[_WARM_UP_STEPS:])
        # The metered time covers one update more than the timed steps.
        metered_seconds = time.perf_counter() - metered_from
        watts = None if meter is None else 3.6e6 * meter().kwh / metered_seconds
    tokens = config.batch_size * config.sequence_length
    how = f"measured on this machine, mean of {len(steps)} updates"
    seconds = float(np.mean(steps))
    startup = max(0.0, ends[0] - start - seconds)
    peak_bytes = 0 if has_accelerator() else run_cost.process_peak_bytes()
    return Rate(tokens / seconds, watts, how, startup, peak_bytes)


def _task(config: PlanConfig) -> Any:
    from keras_bert import Backbone, Pretrainer, TextClassifier

    backbone = Backbone(config.architecture(), dtype=config.precision)
    if config.objective == _CLASSIFICATION:
        return TextClassifier(backbone, 2)
    return Pretrainer(backbone, next_sentence=config.next_sentence)


def _random_batch(config: PlanConfig) -> tuple[dict[str, Any], Any]:
    """Returns the inputs and the labels of one update; the rows have no padding."""
    import numpy as np

    generator = np.random.default_rng(0)
    num_tokens = config.architecture().vocabulary_size
    shape = (config.batch_size, config.sequence_length)
    inputs: dict[str, Any] = {
        "token_ids": generator.integers(0, num_tokens, shape, "int32"),
        "segment_ids": np.zeros(shape, "int32"),
        "padding_mask": np.ones(shape, "int32"),
    }
    pair_labels = generator.integers(0, 2, config.batch_size)
    if config.objective == _CLASSIFICATION:
        return inputs, pair_labels
    slots = (config.batch_size, config.slots)
    inputs["mask_positions"] = np.sort(generator.integers(0, shape[1], slots, "int32"))
    labels = {"masked_lm_logits": generator.integers(0, num_tokens, slots)}
    if config.next_sentence:
        labels["next_sentence_logits"] = pair_labels
    return inputs, labels


def _memory(config: PlanConfig, architecture: BertConfig) -> str:
    """Describes the memory that weights, optimizer and activations take on a device."""
    state_bytes = _BYTES_OF_PARAMETER * parameters(architecture, config.objective)
    rows = -(-config.batch_size // config.devices)
    tokens = rows * config.sequence_length
    width = 4 if config.precision == "float32" else 2
    # Korthikanti et al., 2022, https://arxiv.org/abs/2205.05198, equation 1: 34 bytes for each
    # token and hidden unit of a layer in 16 bits, and 5 for each attention score.
    layer_bytes = 17 * width * tokens * architecture.hidden_dim
    scores = 5 * width // 2 * tokens * architecture.num_heads * _stored_keys(config, architecture)
    logits = 4 * rows * config.slots * architecture.vocabulary_size
    total = (state_bytes + architecture.num_layers * layer_bytes + scores + logits) / 1e9
    line = (
        f"memory      about {total:.2g} GB: {state_bytes / 1e9:.2g} GB of weights and optimizer, "
        f"the rest for activations of {rows} rows"
    )
    if config.hardware != _THIS and total > ACCELERATORS[config.hardware].gigabytes:
        available = ACCELERATORS[config.hardware].gigabytes
        line += f"; {config.hardware} has {available:g} GB: use gradient accumulation"
    return line


def _stored_keys(config: PlanConfig, architecture: BertConfig) -> int:
    """Returns how many attention scores are stored for a query, summed over the layers."""
    length, total = config.sequence_length, 0
    for window in architecture.attention_windows:
        if window is not None:
            # A block of local attention has 2 x window queries, and 4 x window keys.
            total += min(length, 4 * window)
        elif length < _LONG:
            total += length
    return total


if __name__ == "__main__":
    program.run(main, PlanConfig)
