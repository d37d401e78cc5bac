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
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from absl import flags

from keras_bert import atomic
from keras_bert.config import BertConfig
from keras_bert.intervals import mean_text
from keras_bert.tables import markdown_table

from .costs.run_cost import operations
from .engine import child_programs, output_folder, program
from .engine.config_flags import define_flags, read_flags
from .pretraining.ablations import (
    AblationOptions,
    finetuned_scores,
    finetuning_command,
    pretraining_command,
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
    print(format_table(rows))


def size_ablation(config: SizeAblationConfig) -> list[dict[str, Any]]:
    """Performs the runs that are missing, and writes the table and the plot.

    Returns:
        A record for each run: column, size, steps, parameters, FLOPs, perplexity, and for each task
        the scores of the seeds, in percent.

    Raises:
        subprocess.CalledProcessError: If a run fails.
    """
    folder, rows = Path(config.output_dir), []
    for run in runs(config):
        flags_of_size = (
            f"--num_layers={run.size.num_layers}",
            f"--hidden_dim={run.size.hidden_dim}",
            f"--num_heads={run.size.num_heads}",
        )
        command = pretraining_command(config, run.num_steps, *flags_of_size)
        pretrained = child_programs.run_once(folder / run.name, command)
        scores = {
            name: finetuned_scores(
                config,
                folder / f"{name} {run.name}",
                task,
                run.name,
                finetuning_command(config, task, run.name),
            )
            for name, task in tasks(config).items()
        }
        batch_size = wikitext2_cpu.CONFIG.batch_size
        rows.append(
            {
                "column": run.column,
                "size": str(run.size),
                "steps": run.num_steps,
                "parameters": pretrained["parameters"],
                "flops": run.num_steps * batch_size * step_flops(run.size),
                "perplexity": pretrained["last"]["val_perplexity"],
                "scores": scores,
            }
        )
    atomic.write_json(folder / "size_ablation.json", rows)
    plot(folder / "size_ablation.png", rows)
    return rows


def format_table(rows: list[dict[str, Any]]) -> str:
    """Formats the runs as a Markdown table, with the paper's numbers where it has the size."""
    columns = list(rows[0]["scores"])
    heads = [
        "layers x hidden x heads",
        "",
        "million parameters",
        "operations",
        "perplexity",
        *columns,
    ]
    cells = []
    for row in rows:
        paper = PAPER.get(Size(*map(int, row["size"].split("x"))), {})

        def beside(text: str, name: str, paper: Mapping[str, float] = paper) -> str:
            return f"{text} (paper: {paper[name]})" if name in paper else text

        cells.append(
            [
                row["size"],
                row["column"],
                row["parameters"] / 1e6,
                operations(row["flops"]),
                beside(f"{row['perplexity']:.1f}", "perplexity"),
                *(beside(mean_text(values), name) for name, values in row["scores"].items()),
            ]
        )
    return markdown_table(heads, cells)


def plot(path: Path, rows: list[dict[str, Any]]) -> None:
    """Plots perplexity and mean scores over the number of parameters, as a PNG."""
    import numpy as np
    from matplotlib.figure import Figure

    names = list(rows[0]["scores"])
    figure = Figure(figsize=(3.2 * (1 + len(names)), 3.0), dpi=150, layout="constrained")
    panels = figure.subplots(1, 1 + len(names), squeeze=False)[0]
    for axes, name in zip(panels, ["perplexity", *names], strict=True):
        for column, style in ((_TOKENS, "o-"), (_FLOPS, "s--")):
            found = sorted(
                (row for row in rows if row["column"] == column), key=lambda row: row["parameters"]
            )
            if not found:
                continue
            values = [
                row["perplexity"] if name == "perplexity" else np.mean(row["scores"][name])
                for row in found
            ]
            axes.plot([row["parameters"] for row in found], values, style, label=column)
        axes.set_xscale("log")
        axes.set_xlabel("parameters", fontsize=8)
        axes.set_title(name, loc="left", fontsize=9)
        axes.tick_params(labelsize=8)
        axes.spines[["top", "right"]].set_visible(False)
    panels[0].legend(fontsize=8, frameon=False)
    with atomic.atomic_path(path) as temporary:
        figure.savefig(temporary, format="png")


if __name__ == "__main__":
    define_flags(SizeAblationConfig(), flags.FLAGS)
    program.run(main)
