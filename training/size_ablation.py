# SPDX-License-Identifier: Apache-2.0
"""The paper's ablation of the model size (section 5.2, table 6), at a scale for CPUs.

    python -m training.size_ablation --data_dir=wikitext-2 --glue_dir=glue

It pre-trains encoders of several sizes on the same text, each for the same number of tokens, and
with --same_flops also each for the same number of operations as the first, fine-tunes them with
several seeds, and prints a table with the held-out perplexity and the scores. Each run is a child
process. If the program is interrupted, the same command resumes it: finished runs are not repeated.
The paper's six sizes are

    --sizes=3x768x12,6x768x3,6x768x12,12x768x12,12x1024x16,24x1024x16

and their published numbers are printed beside them.

Files written to `output_dir`: each run, `size_ablation.json` and `size_ablation.png`.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import Any, NamedTuple

from absl import flags

from keras_bert import atomic
from keras_bert.config import BertConfig
from keras_bert.tables import markdown_table

from .costs.run_cost import operations
from .engine import output_folder, program
from .engine.config_flags import define_flags, read_flags
from .engine.grid import Cell
from .plots.style import new_figure, save, style
from .pretraining.ablations import (
    AblationOptions,
    Variant,
    pretraining_cell,
    run_ablation,
    score_text,
    tasks,
)
from .recipes import wikitext2_cpu


class Size(NamedTuple):
    """The size of an encoder; the feed-forward layers are four times as wide as the hidden size.

    Args:
        num_layers: Number of layers.
        hidden_dim: Hidden size.
        num_heads: Number of attention heads.
    """

    num_layers: int
    hidden_dim: int
    num_heads: int

    def __str__(self) -> str:
        return "x".join(map(str, self))

    def config(self) -> BertConfig:
        """Returns the config of the encoder, with the vocabulary of the recipe wikitext2_cpu."""
        return BertConfig(
            vocabulary_size=wikitext2_cpu.CONFIG.vocabulary_size,
            num_layers=self.num_layers,
            hidden_dim=self.hidden_dim,
            num_heads=self.num_heads,
            intermediate_dim=4 * self.hidden_dim,
        )


# Devlin et al., 2019, table 6: the perplexity of masked tokens, and accuracies on development sets
PAPER: Mapping[Size, Mapping[str, float]] = {
    Size(3, 768, 12): {"perplexity": 5.84, "mrpc": 79.8, "sst2": 88.4},
    Size(6, 768, 3): {"perplexity": 5.24, "mrpc": 82.2, "sst2": 90.7},
    Size(6, 768, 12): {"perplexity": 4.68, "mrpc": 84.8, "sst2": 91.3},
    Size(12, 768, 12): {"perplexity": 3.99, "mrpc": 86.7, "sst2": 92.9},
    Size(12, 1024, 16): {"perplexity": 3.54, "mrpc": 86.9, "sst2": 93.3},
    Size(24, 1024, 16): {"perplexity": 3.23, "mrpc": 87.8, "sst2": 93.7},
}
_TOKENS, _FLOPS = "same tokens", "same operations"


@dataclasses.dataclass(frozen=True)
class SizeAblationConfig(AblationOptions):
    """The data, the sizes and the lengths of the runs.

    Args:
        sizes: The encoders, as layers x hidden size x attention heads.
        same_flops: Whether to train each size for the operations of the first one, too.
        output_dir: Folder for all runs, the table and the plot.
    """

    sizes: tuple[str, ...] = ("2x64x1", "2x128x2", "4x128x2", "4x256x4")
    same_flops: bool = False
    output_dir: str = "runs/size_ablation"

    def __post_init__(self) -> None:
        super().__post_init__()
        self.parsed()

    def parsed(self) -> list[Size]:
        """Returns the sizes.

        Raises:
            ValueError: If one is malformed, or occurs twice.
        """
        found = []
        for text in self.sizes:
            match = re.fullmatch(r"([1-9]\d*)x([1-9]\d*)x([1-9]\d*)", text)
            if match is None:
                raise ValueError(
                    f"--sizes has {text!r}, expected layers x hidden size x heads, such as 4x128x2"
                )
            size = Size(*map(int, match.groups()))
            if size.hidden_dim % size.num_heads:
                raise ValueError(
                    f"--sizes has {text!r}, expected a hidden size that is divisible by the heads"
                )
            found.append(size)
        if not found or len(set(found)) < len(found):
            raise ValueError(f"--sizes is {','.join(self.sizes)}, expected distinct sizes")
        return found


class Run(NamedTuple):
    """A pre-training run.

    Args:
        column: What it has in common with the other runs: the tokens, or the operations.
        size: The encoder's size.
        num_steps: The number of training steps.
    """

    column: str
    size: Size
    num_steps: int

    @property
    def name(self) -> str:
        """The name of the folder."""
        return f"{self.size}, {self.num_steps} steps"


def runs(config: SizeAblationConfig) -> list[Run]:
    """Returns the pre-training runs; a run that is in both columns is done once."""
    sizes = config.parsed()
    found = [Run(_TOKENS, size, config.num_steps) for size in sizes]
    if config.same_flops:
        budget = config.num_steps * step_flops(sizes[0])
        found += [Run(_FLOPS, size, max(1, round(budget / step_flops(size)))) for size in sizes]
    return found


def step_flops(size: Size) -> int:
    """Returns the FLOPs of a row of a training step with the recipe wikitext2_cpu."""
    from .costs import model_flops

    (phase,) = wikitext2_cpu.CONFIG.plan()
    slots = round(0.15 * phase.sequence_length)
    return model_flops.training_flops(size.config(), 1, phase.sequence_length, slots, False)


def main(arguments: list[str]) -> None:
    program.refuse_arguments(arguments)
    config = read_flags(SizeAblationConfig)
    config.check_folders()
    program.require(program.TRAINING_LIBRARIES, "training")
    program.import_quietly()
    with output_folder.claimed(config.output_dir):
        rows = size_ablation(config)
    print(format_table(rows, list(tasks(config))))


def pretraining_cells(config: SizeAblationConfig) -> dict[str, Cell]:
    """Returns the pre-training runs by name."""
    return {
        run.name: pretraining_cell(
            config,
            run.name,
            run.num_steps,
            f"--num_layers={run.size.num_layers}",
            f"--hidden_dim={run.size.hidden_dim}",
            f"--num_heads={run.size.num_heads}",
        )
        for run in runs(config)
    }


def size_ablation(config: SizeAblationConfig) -> list[dict[str, Any]]:
    """Performs the runs that are missing, and writes the table and the plot.

    Returns:
        A record for each run that did not diverge: column, size, steps, parameters, FLOPs,
        perplexity, and for each task the scores of the seeds, in percent.

    Raises:
        subprocess.CalledProcessError: If a run fails.
    """
    folder, cells = Path(config.output_dir), pretraining_cells(config)
    pretrained, scores = run_ablation(config, cells, {name: Variant(name) for name in cells})
    rows = [
        {
            "column": run.column,
            "size": str(run.size),
            "steps": run.num_steps,
            "parameters": pretrained[run.name]["parameters"],
            "flops": run.num_steps * wikitext2_cpu.CONFIG.batch_size * step_flops(run.size),
            "perplexity": pretrained[run.name]["last"]["val_perplexity"],
            "scores": scores[run.name],
        }
        for run in runs(config)
        if run.name in pretrained
    ]
    atomic.write_json(folder / "size_ablation.json", rows)
    if rows:
        plot(folder / "size_ablation.png", rows, list(tasks(config)))
    return rows


def format_table(rows: list[dict[str, Any]], tasks: Sequence[str]) -> str:
    """Formats the runs as a Markdown table, with the paper's numbers where it has the size."""
    lines = []
    for row in rows:
        paper = PAPER.get(Size(*map(int, row["size"].split("x"))), {})
        cells = {"perplexity": f"{row['perplexity']:.1f}"}
        cells |= {task: score_text(row["scores"], task) for task in tasks}
        beside = {name: f" (paper: {value})" for name, value in paper.items()}
        lines.append(
            [
                row["size"],
                row["column"],
                row["parameters"] / 1e6,
                operations(row["flops"]),
                *(text + beside.get(name, "") for name, text in cells.items()),
            ]
        )
    heads = ["layers x hidden x heads", "", "million parameters", "operations", "perplexity"]
    return markdown_table([*heads, *tasks], lines)


@style()
def plot(path: Path, rows: list[dict[str, Any]], tasks: Sequence[str]) -> None:
    """Plots perplexity and mean scores over the number of parameters, as a PNG."""
    figure, panels = new_figure(3.2 * (1 + len(tasks)), 3.0, 1 + len(tasks))
    for axes, name in zip(panels, ["perplexity", *tasks], strict=True):
        for column, line in ((_TOKENS, "o-"), (_FLOPS, "s--")):
            points = sorted(
                (
                    row["parameters"],
                    row["perplexity"] if name == "perplexity" else mean(row["scores"][name]),
                )
                for row in rows
                if row["column"] == column and (name == "perplexity" or name in row["scores"])
            )
            if points:
                axes.plot(*zip(*points, strict=True), line, label=column)
        axes.set(xscale="log", xlabel="parameters", title=name)
    panels[0].legend()
    save(figure, path)


if __name__ == "__main__":
    define_flags(SizeAblationConfig(), flags.FLAGS)
    program.run(main)
