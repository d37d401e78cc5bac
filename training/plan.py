# SPDX-License-Identifier: Apache-2.0
"""Estimates what a pre-training run costs before it is started: time, energy, money, memory.

    python -m training.plan --model=bert_small_uncased --tokens=1e9
    python -m training.plan --model=bert_base_uncased --tokens=137e9 --hardware=a100 --devices=8 \\
        --price_per_hour=1.5

With --hardware=this, the default, a few steps of the model are timed on this machine, and their
energy is metered if codecarbon is installed. For other hardware, the estimate rests on the peak and
the power that its maker publishes, and on --share_of_peak. Fine-tuning costs as much for each
token; its programs report their cost at the end.
"""

from __future__ import annotations

import contextlib
import dataclasses
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from absl import flags

from keras_bert.config import BertConfig

from .costs import energy, run_cost
from .costs.hardware import ACCELERATORS, ASSUMED_SHARE
from .engine import program, run_report
from .engine.config_flags import define_flags, read_flags
from .engine.options import check_at_least, check_one_of

_THIS = "this"
_WARM_UP_STEPS = 3
_PROBE_STEPS = 5
_PROBE_SECONDS = 5.0
# Bytes for each parameter: the weight, its gradient, and AdamW's two moments, in float32
_BYTES_OF_PARAMETER = 16


@dataclasses.dataclass(frozen=True)
class PlanConfig:
    """The run to estimate, and the hardware.

    Args:
        model: A named architecture, such as bert_base_uncased, or the path of its JSON config.
        tokens: Number of tokens to train on, padding included: updates x rows x length.
        sequence_length: Tokens in a row.
        batch_size: Rows in an update.
        masked: Share of the tokens that are predicted.
        next_sentence: Whether there is a sentence pair objective.
        precision: Keras' dtype policy.
        hardware: This machine (this), or an accelerator: t4, l4, a10, v100, rtx4090, a100, h100,
            h200, tpu_v3 or tpu_v4.
        devices: Number of accelerators, which share each batch.
        share_of_peak: Share of the published peak that training reaches; 0 assumes 0.4, or measures
            it with --hardware=this.
        measure_energy: Whether to meter the energy of the timed steps, if codecarbon is installed.
        country: ISO code of the country, three letters, for the CO2 of its electricity.
        price_per_hour: The price of one device in any currency; 0 if it is unknown.
    """

    model: str = "bert_base_uncased"
    tokens: float = 1e9
    sequence_length: int = 128
    batch_size: int = 32
    masked: float = 0.15
    next_sentence: bool = False
    precision: str = "mixed_bfloat16"
    hardware: str = _THIS
    devices: int = 1
    share_of_peak: float = 0.0
    measure_energy: bool = True
    country: str = "USA"
    price_per_hour: float = 0.0

    def __post_init__(self) -> None:
        check_one_of(self, hardware=(_THIS, *ACCELERATORS))
        check_at_least(self, 1, "tokens", "sequence_length", "batch_size", "devices")
        check_at_least(self, 0, "share_of_peak", "price_per_hour")
        if self.share_of_peak > 1 or not 0 < self.masked < 1:
            raise ValueError(
                f"--share_of_peak is {self.share_of_peak} and --masked is {self.masked}, expected "
                "shares of 1"
            )
        if self.hardware == _THIS and self.devices > 1:
            raise ValueError(f"--devices is {self.devices}, expected 1 with --hardware=this")

    def architecture(self) -> BertConfig:
        """Returns the encoder's config, with positions for `sequence_length`."""
        path = Path(self.model)
        found = (
            BertConfig.from_json_file(path) if path.is_file() else BertConfig.from_name(self.model)
        )
        longest = max(found.max_sequence_length, self.sequence_length)
        return found.replace(max_sequence_length=longest)

    @property
    def slots(self) -> int:
        """The number of masked tokens in a row."""
        return max(1, round(self.masked * self.sequence_length))


@dataclasses.dataclass(frozen=True)
class Rate:
    """How fast the hardware trains, and at what power.

    Args:
        tokens_per_second: Tokens in a second, on all devices.
        watts: The power of all devices; `None` if unknown.
        origin: What the numbers rest on.
    """

    tokens_per_second: float
    watts: float | None
    origin: str


def main(arguments: list[str]) -> None:
    program.refuse_arguments(arguments)
    print(plan(read_flags(PlanConfig)))


def plan(config: PlanConfig) -> str:
    """Returns the estimate as text."""
    program.import_quietly("keras")
    from .costs import model_flops

    architecture = config.architecture()
    of_row = model_flops.training_flops(
        architecture, 1, config.sequence_length, config.slots, config.next_sentence
    )
    flops = of_row * config.tokens / config.sequence_length
    flops_of_token = of_row / config.sequence_length
    rate = _measured(config) if config.hardware == _THIS else _published(config, flops_of_token)
    hours = config.tokens / rate.tokens_per_second / 3600
    lines = [
        f"{config.model}: {parameters(architecture) / 1e6:.1f} million parameters",
        f"operations  {run_cost.operations(flops)}, {flops_of_token / 1e6:.3g} MFLOP a token",
        f"speed       {rate.tokens_per_second:,.0f} tokens/s, {rate.origin}",
        f"time        {run_report.duration(3600 * hours)}",
    ]
    if rate.watts is not None:
        kwh = rate.watts * hours / 1000
        emitted = ""
        if energy.is_installed():
            grams = energy.grams_per_kwh(config.country)
            emitted = f", {run_cost.mass(kwh * grams / 1000)} of CO2 ({config.country})"
        lines.append(f"energy      {run_cost.kilowatt_hours(kwh)} at {rate.watts:.0f} W{emitted}")
    if config.price_per_hour:
        lines.append(f"price       {config.devices * config.price_per_hour * hours:,.2f}")
    lines.append(_memory(config, architecture))
    return "\n".join(lines)


def parameters(config: BertConfig) -> int:
    """Returns the number of parameters of an encoder with a masked LM head."""
    import keras

    from keras_bert import Backbone, MaskedLM

    # Without values: a plan for a large model needs no memory.
    with keras.StatelessScope():
        return int(MaskedLM(Backbone(config)).count_params())


def _published(config: PlanConfig, flops_of_token: float) -> Rate:
    device = ACCELERATORS[config.hardware]
    share = config.share_of_peak or ASSUMED_SHARE
    is_assumed = "" if config.share_of_peak else " (an assumption)"
    return Rate(
        config.devices * share * device.flops / flops_of_token,
        config.devices * device.watts,
        f"at {share:.0%}{is_assumed} of the published peak of {config.devices} x {config.hardware}",
    )


def _measured(config: PlanConfig) -> Rate:
    """Times a few updates on random tokens."""
    import keras
    import numpy as np

    from keras_bert import Backbone, Pretrainer
    from keras_bert.optimizers import AdamW

    keras.utils.set_random_seed(0)
    architecture = config.architecture()
    model = Pretrainer(
        Backbone(architecture, dtype=config.precision), next_sentence=config.next_sentence
    )
    model.compile(AdamW(1e-4, num_train_steps=1000, num_warmup_steps=10))
    shape = (config.batch_size, config.sequence_length)
    slots = (config.batch_size, config.slots)
    generator = np.random.default_rng(0)
    batch: dict[str, Any] = {
        "token_ids": generator.integers(0, architecture.vocabulary_size, shape, "int32"),
        "segment_ids": np.zeros(shape, "int32"),
        "padding_mask": np.ones(shape, "int32"),
        "mask_positions": np.sort(generator.integers(0, shape[1], slots, "int32")),
    }
    labels = {"masked_lm_logits": generator.integers(0, architecture.vocabulary_size, slots)}
    if config.next_sentence:
        labels["next_sentence_logits"] = generator.integers(0, 2, config.batch_size)
    ends: list[float] = []
    ended = keras.callbacks.LambdaCallback(
        on_train_batch_end=lambda batch, logs=None: ends.append(time.perf_counter())
    )
    with contextlib.ExitStack() as stack:
        meter = None
        if config.measure_energy and energy.is_installed():
            meter = stack.enter_context(energy.energy_meter(config.country))

        def batches() -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
            # Traced, compiled and warmed up before the first step that counts
            while len(ends) < _WARM_UP_STEPS:
                yield batch, labels
            if meter is not None:
                meter()
            while len(ends) < _WARM_UP_STEPS + _PROBE_STEPS or (
                ends[-1] - ends[_WARM_UP_STEPS] < _PROBE_SECONDS
            ):
                yield batch, labels

        with warnings.catch_warnings():
            # The generator ends when there are enough steps, of which Keras warns.
            warnings.filterwarnings("ignore", "Your input ran out of data")
            model.fit(batches(), epochs=1, verbose=0, callbacks=[ended])
        steps = np.diff(ends[_WARM_UP_STEPS:])
        watts = None if meter is None else 3.6e6 * meter().kwh / (ends[-1] - ends[_WARM_UP_STEPS])
    tokens = config.batch_size * config.sequence_length
    how = f"measured on this machine, median of {len(steps)} updates"
    return Rate(tokens / float(np.median(steps)), watts, how)


def _memory(config: PlanConfig, architecture: BertConfig) -> str:
    """Describes the memory of weights, optimizer and activations of a device."""
    fixed = _BYTES_OF_PARAMETER * parameters(architecture)
    rows = -(-config.batch_size // config.devices)
    tokens = rows * config.sequence_length
    width = 2 if "16" in config.precision else 4
    # Korthikanti et al., 2022, https://arxiv.org/abs/2205.05198, equation 1: 34 bytes for each
    # token and hidden unit of a layer in 16 bits, and 5 for each attention score.
    of_layer = 17 * width * tokens * architecture.hidden_dim
    of_layer += 5 * width // 2 * tokens * config.sequence_length * architecture.num_heads
    logits = 4 * rows * config.slots * architecture.vocabulary_size
    total = (fixed + architecture.num_layers * of_layer + logits) / 1e9
    line = (
        f"memory      {total:.2g} GB at most: {fixed / 1e9:.2g} GB of weights and optimizer, the "
        f"rest for activations of {rows} rows"
    )
    if config.hardware != _THIS and total > ACCELERATORS[config.hardware].gigabytes:
        available = ACCELERATORS[config.hardware].gigabytes
        line += f"; {config.hardware} has {available:g} GB: use gradient accumulation"
    return line


if __name__ == "__main__":
    define_flags(PlanConfig(), flags.FLAGS)
    program.run(main)
