# SPDX-License-Identifier: Apache-2.0
"""Compares encoders: parameters, operations, size, and the scores and energy of your own runs.

    python -m training.compare_models
    python -m training.compare_models --models=bert_base_uncased,electra_small_discriminator \\
        --runs=bert_base_uncased=runs/bert,electra_small_discriminator=runs/electra

Parameters, operations and sizes are computed from the architectures. Scores, energy and hours are
those of the fine-tuning runs given by --runs, folders with a results.json. Published figures are
marked as such.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from absl import logging

from keras_bert.config import BertConfig
from keras_bert.tables import markdown_table
from keras_bert.vocabularies.files import read_json

from .costs import run_cost
from .engine import program
from .engine.options import ENCODER_SIZES, PositiveInt, ProgramConfig

# Floating-point operations of the pre-training, and the mean score on GLUE's development sets
# without WNLI: Clark et al., 2020, https://arxiv.org/abs/2003.10555, tables 1 and 2
PUBLISHED = {
    "bert_base_uncased": (6.4e19, 82.2),
    "bert_large_uncased": (1.9e20, 84.0),
    "roberta_large": (3.2e21, 88.9),
    "electra_small_discriminator": (1.4e18, 79.9),
    "electra_base_discriminator": (6.4e19, 85.1),
}
_HEADS = (
    *("model", "million parameters", "MB in float32", "GFLOP a text"),
    *("published: pre-training", "published: GLUE dev"),
)
_OWN_HEADS = ("own score", "own hours", "own kWh")


@dataclasses.dataclass(frozen=True)
class CompareModelsConfig(ProgramConfig):
    """The encoders, and the runs that are shown beside them.

    Args:
        models: Named architectures.
        runs: Fine-tuning runs, each model=folder; their results.json fills the own columns.
        sequence_length: Tokens in the text whose operations are counted.
    """

    models: tuple[str, ...] = (
        "bert_base_uncased",
        "roberta_base",
        "albert_base_v2",
        "distilbert_base_uncased",
        "electra_small_discriminator",
        "electra_base_discriminator",
        "minilm_l6_h384_uncased",
    )
    runs: tuple[str, ...] = ()
    sequence_length: PositiveInt = 128

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, _ in self.run_folders():
            if name not in self.models:
                raise ValueError(
                    f"--runs has a run of {name!r}, expected one of --models: "
                    f"{', '.join(self.models)}"
                )

    def run_folders(self) -> list[tuple[str, Path]]:
        """Returns the model and the folder of each run.

        Raises:
            ValueError: If a run is not of the form model=folder.
        """
        found = []
        for text in self.runs:
            name, separator, folder = text.partition("=")
            if not separator or not folder:
                raise ValueError(f"--runs has {text!r}, expected model=folder")
            found.append((name, Path(folder)))
        return found


def main(config: CompareModelsConfig) -> None:
    program.import_quietly()
    print(compare(config))


def compare(config: CompareModelsConfig) -> str:
    """Returns the comparison as a Markdown table.

    Raises:
        FileNotFoundError: If a run has no results.json.
        ValueError: If an architecture is unknown, a file is malformed, or a run is of another
            encoder.
    """
    own = {name: _of_run(name, folder) for name, folder in config.run_folders()}
    heads = [*_HEADS, *(_OWN_HEADS if own else ())]
    rows = []
    for name in config.models:
        cells = [name, *_of_architecture(name, config.sequence_length)]
        flops, glue = PUBLISHED.get(name, (None, None))
        cells.append("" if flops is None else run_cost.operations(flops))
        cells.append("" if glue is None else f"{glue:.1f}")
        if own:
            cells += own.get(name, [""] * len(_OWN_HEADS))
        rows.append(cells)
    return markdown_table(heads, rows)


def _of_architecture(name: str, sequence_length: int) -> list[str]:
    from keras_bert import Backbone

    from .costs import model_flops

    config = BertConfig.from_name(name)
    parameters = model_flops.num_parameters(lambda: Backbone(config))
    training = model_flops.training_flops(config, 1, sequence_length, 0, False, reads_all=True)
    # The forward pass is a third of a training step.
    return [f"{parameters / 1e6:.1f}", f"{4 * parameters / 1e6:.0f}", f"{training / 3e9:.2f}"]


def _of_run(name: str, folder: Path) -> list[str]:
    results: dict[str, Any] = read_json(folder / "results.json")
    try:
        kept, cost = results["kept"], results.get("cost", {})
        metric, value = next(iter(kept["scores"][kept["by"]].items()))
    except (KeyError, StopIteration, TypeError) as error:
        raise ValueError(
            f"{folder / 'results.json'} has no scores, expected that of a fine-tuning run"
        ) from error
    _check_encoder(name, folder / "results.json", results.get("encoder"))
    kwh = cost.get("energy_kwh")
    energy = "" if kwh is None else f"{kwh:.3g} ({cost['energy_is']})"
    hours = cost.get("hours", sum(results.get("seconds", {}).values()) / 3600)
    return [f"{metric} {value:.2f}", f"{hours:.2f}", energy]


def _check_encoder(name: str, path: Path, encoder: dict[str, int] | None) -> None:
    """Raises a ValueError if a run's encoder has other sizes than the named one."""
    if encoder is None:
        logging.warning("%s does not tell of which encoder it is, taken for %s", path, name)
        return
    named = BertConfig.from_name(name)
    other = {size: encoder[size] for size in ENCODER_SIZES if encoder[size] != getattr(named, size)}
    if other:
        found = ", ".join(f"{size} {value:,}" for size, value in other.items())
        expected = ", ".join(f"{getattr(named, size):,}" for size in other)
        raise ValueError(f"{path} is of an encoder of {found}, expected {expected} as in {name}")


if __name__ == "__main__":
    program.run(main, CompareModelsConfig)
