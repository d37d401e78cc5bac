# SPDX-License-Identifier: Apache-2.0
"""Estimates a training run's time, energy, cost and memory before you start it.

    python -m training.plan --model=bert_small_uncased --tokens=1e9
    python -m training.plan --model=bert_base_uncased --tokens=137e9 --hardware=a100 --devices=8 \\
        --cost_per_device_hour=1.5
    python -m training.plan --objective=classification --model=minilm_l6_h384_uncased \\
        --tokens=6e5 --sequence_length=53

With --hardware=this, the default, a few steps of the model are timed on this machine, and their
energy is measured if codecarbon is installed. For other hardware, the estimate uses the published
peak FLOP/s and power of the hardware, and --mfu. The estimate only covers training.
Scoring, reading text and creating records take additional time.
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
    EnergyOptions,
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

# MFU (model FLOPs utilization) that well-tuned encoder training is assumed to reach on hardware
# without measurements
_ASSUMED_SHARE = 0.4


class Accelerator(NamedTuple):
    """An accelerator's published specifications.

    Args:
        flops: Peak FLOP/s of dense 16-bit matmuls, without sparsity.
        float32_flops: Peak FLOP/s of float32 matmuls. If the hardware supports TF32, peak FLOP/s of
            TF32 matmuls, because TensorFlow and JAX use this mode.
        watts: Nominal power in W.
        gigabytes: Memory in GB.
    """

    flops: float
    float32_flops: float
    watts: float
    gigabytes: float


# From the manufacturers' data sheets. TPUs: Jouppi et al., 2023, https://arxiv.org/abs/2304.01433,
# table 4
ACCELERATORS = {
    "t4": Accelerator(65e12, 8.1e12, 70, 16),
    "l4": Accelerator(121e12, 60e12, 72, 24),
    "a10": Accelerator(125e12, 62.5e12, 150, 24),
    "v100": Accelerator(125e12, 15.7e12, 300, 32),
    "rtx4090": Accelerator(165e12, 82.6e12, 450, 24),
    "a100": Accelerator(312e12, 156e12, 400, 80),
    "h100": Accelerator(989e12, 494e12, 700, 80),
    "h200": Accelerator(989e12, 494e12, 700, 141),
    # For float32 matmuls, TPUs round the factors to bfloat16 by default.
    "tpu_v3": Accelerator(123e12, 123e12, 262, 32),
    "tpu_v4": Accelerator(275e12, 275e12, 192, 32),
}

_THIS = "this"
_MASKED_LM, _CLASSIFICATION = "masked_lm", "classification"
_WARM_UP_STEPS = 3
_PROBE_STEPS = 5
_PROBE_SECONDS = 15.0
# Bytes per parameter in training, for the weight, its gradient and AdamW's two moments in float32
_BYTES_OF_PARAMETER = 16
# Bytes per parameter in a checkpoint, for the weight and AdamW's two moments
_BYTES_IN_CHECKPOINT = 12
# The measured padding is 0.20 to 0.41 in batches of 32 from the training files of five GLUE tasks.
_CLASSIFICATION_PADDING = 0.25
# From this length, attention scores are not stored but recomputed in the backward pass.
_LONG = 2048
# Fraction of the cores that other processes may use before the report mentions them
_BUSY = 0.5


@dataclasses.dataclass(frozen=True)
class PlanConfig(EnergyOptions):
    """The run to estimate, and the hardware.

    Args:
        model: A standard configuration, such as bert_base_uncased, or the path to a JSON config.
        vocabulary_size: Size of the vocabulary. 0 uses the model's size.
        dropout: Dropout rate of hidden states and attention. Defaults to the model's rate.
        objective: One of masked_lm (pretraining) and classification (fine-tuning on the output of
            the first token).
        tokens: Number of tokens to train on: optimizer steps x batch size x sequence length. For
            classification, the tokens of all examples times the number of epochs.
        sequence_length: Sequence length in tokens. For classification, the mean over the examples.
        padding: Number of padding tokens per token. Defaults to 0, or to 0.25 for classification,
            where batches contain examples of similar lengths (0.20 for MRPC, 0.22 for RTE, 0.29 for
            SST-2 and STS-B, 0.41 for CoLA).
        batch_size: Number of sequences per optimizer step.
        masked: Fraction of the tokens that a masked LM predicts.
        next_sentence: Whether to add the next sentence prediction objective.
        precision: Keras' dtype policy. auto uses float32 or mixed_bfloat16, whichever is faster.
            With float32, the published peak is for float32, or for TF32 on GPUs with TF32 support.
        hardware: One of this (this machine), t4, l4, a10, v100, rtx4090, a100, h100, h200, tpu_v3
            and tpu_v4.
        devices: Number of accelerators over which each batch is split.
        mfu: MFU (model FLOPs utilization), the fraction of the published peak FLOP/s that
            training reaches. 0 assumes 0.4. Cannot be used with --hardware=this, where the speed is
            measured.
        measure_energy: Whether to measure the energy of the timed steps. Requires codecarbon.
        cost_per_device_hour: Price per hour of one device, in any currency. 0 if unknown.
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
    cost_per_device_hour: NonNegativeFloat = 0.0

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
        """Returns the encoder's config. Pretraining adds positions up to `sequence_length`.

        Raises:
            ValueError: If the model is unknown, or has too few positions for fine-tuning.
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
        # Pretraining also adds the missing positions.
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
        """The number of masked positions per sequence."""
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
        """Whether the objective uses the output of the first token."""
        return self.next_sentence or self.objective == _CLASSIFICATION


@dataclasses.dataclass(frozen=True)
class Rate:
    """Training speed and power of the hardware.

    Args:
        tokens_per_second: Tokens per second on all devices together.
        watts: Power of all devices together in W. `None` if unknown.
        origin: A description of how the numbers were obtained, for the report.
        startup: Additional seconds for the first step, because it traces the model.
        peak_bytes: Peak memory of the process. 0 if unknown, or with an accelerator.
    """

    tokens_per_second: float
    watts: float | None
    origin: str
    startup: float = 0.0
    peak_bytes: int = 0


def busy_note(load: float, cores: int) -> str:
    """Returns a line about other processes on the machine, or `""` if their load is low.

    Example:

    >>> busy_note(0.3, cores=2)
    ''
    """
    if load < _BUSY * cores:
        return ""
    return (
        f"note        other processes were running, with a load of {load:.1f} on {cores} cores. "
        "The time assumes the same load during training"
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
    first = f", {run_report.duration(rate.startup)} of it for the first step"
    lines = [
        f"{config.model}: {count / 1e6:.1f} million parameters",
        f"FLOPs       {run_cost.format_flops(flops)}, {flops_of_token / 1e6:.3g} MFLOP per token",
        f"speed       {rate.tokens_per_second:,.0f} tokens/s, {rate.origin}",
        f"time        {run_report.duration(3600 * hours)}{first if rate.startup else ''}",
    ]
    positions = named_architecture(config.model).max_sequence_length
    if positions < config.sequence_length:
        lines.insert(
            1,
            f"positions   {config.sequence_length:,}, as in pretraining, instead of {positions:,}",
        )
    if rate.watts is not None:
        kwh = rate.watts * hours / 1000
        if energy.is_installed():
            grams = energy.grams_per_kwh(config.country)
            emissions = f", {run_cost.format_mass(kwh * grams / 1000)} of CO2 ({config.country})"
        else:
            emissions = f" (for CO2: {checks.install('energy')})"
        lines.append(f"energy      {run_cost.kilowatt_hours(kwh)} at {rate.watts:.0f} W{emissions}")
    if config.cost_per_device_hour:
        lines.append(f"cost        {config.devices * config.cost_per_device_hour * hours:,.2f}")
    if not rate.peak_bytes:
        lines.append(_memory(config, architecture))
    else:
        copies, what = 1, "a checkpoint"
        if config.objective == _CLASSIFICATION:
            # For predictions, the best epoch's model is loaded while the trained one is in memory.
            copies, what = 2, "a checkpoint and the saved model"
        total = rate.peak_bytes + copies * _BYTES_IN_CHECKPOINT * count
        lines.append(
            f"memory      {total / 1e9:.3g} GB with the libraries: {rate.peak_bytes / 1e9:.3g} GB "
            f"for the timed steps, plus {what}"
        )
    if config.hardware == _THIS and (note := busy_note(load, os.cpu_count() or 1)):
        lines.append(note)
    return "\n".join(lines)


def parameters(config: BertConfig, objective: str = _MASKED_LM) -> int:
    """Counts an encoder's parameters, including the head for an objective."""
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
    """Times a few training steps on random tokens."""
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
            # The first steps trace, compile and warm up, so they are not timed.
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
            # The generator is expected to stop, so ignore Keras' warning about it.
            warnings.filterwarnings("ignore", "Your input ran out of data")
            model.fit(batches(), epochs=1, verbose=0, callbacks=[end_of_epoch])
        steps = np.diff(ends[_WARM_UP_STEPS:])
        # The metered time covers one step more than the timed steps.
        metered_seconds = time.perf_counter() - metered_from
        watts = None if meter is None else 3.6e6 * meter().kwh / metered_seconds
    tokens = config.batch_size * config.sequence_length
    how = f"measured on this machine, mean of {len(steps)} steps"
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
    """Returns the inputs and labels of one training step, without padding."""
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
    """Describes the memory per device for weights, optimizer state and activations."""
    state_bytes = _BYTES_OF_PARAMETER * parameters(architecture, config.objective)
    rows = -(-config.batch_size // config.devices)
    tokens = rows * config.sequence_length
    width = 4 if config.precision == "float32" else 2
    # Korthikanti et al., 2022, https://arxiv.org/abs/2205.05198, equation 1: in 16 bits, a layer
    # needs 34 bytes per token and hidden unit, and 5 bytes per attention score.
    layer_bytes = 17 * width * tokens * architecture.hidden_dim
    scores = 5 * width // 2 * tokens * architecture.num_heads * _stored_keys(config, architecture)
    logits = 4 * rows * config.slots * architecture.vocabulary_size
    total = (state_bytes + architecture.num_layers * layer_bytes + scores + logits) / 1e9
    line = (
        f"memory      about {total:.2g} GB: {state_bytes / 1e9:.2g} GB of weights and optimizer, "
        f"the rest for the activations of {rows} sequences"
    )
    if config.hardware != _THIS and total > ACCELERATORS[config.hardware].gigabytes:
        available = ACCELERATORS[config.hardware].gigabytes
        line += f". {config.hardware} has {available:g} GB, so use gradient accumulation"
    return line


def _stored_keys(config: PlanConfig, architecture: BertConfig) -> int:
    """Returns the number of stored attention scores per query, summed over the layers."""
    length, total = config.sequence_length, 0
    for window in architecture.attention_windows:
        if window is not None:
            # A block of local attention has 2 x window queries and 4 x window keys.
            total += min(length, 4 * window)
        elif length < _LONG:
            total += length
    return total


if __name__ == "__main__":
    program.run(main, PlanConfig)
