# SPDX-License-Identifier: Apache-2.0
"""Repeats the studies in the tables of the BERT paper, at a scale for CPUs.

    python -m training.paper.ablation --study=tasks --data_dir=wikitext-2 --glue_dir=glue
    python -m training.paper.ablation --study=size --data_dir=wikitext-2 --glue_dir=glue
    python -m training.paper.ablation --study=masking --data_dir=wikitext-2 --ner_dir=ner
    python -m training.paper.ablation --study=features --ner_dir=ner
    python -m training.paper.ablation --study=steps --data_dir=wikitext-2 --glue_dir=glue \\
        --tasks=sst2,mrpc

Small encoders are pre-trained on the same text and fine-tuned on each of --tasks with multiple
seeds. The command prints a table of the scores, with the paper's scores next to them. Rows without
own scores are models that the paper compares with.

    tasks       the pre-training objectives in table 5, left-to-right and right-to-left encoders
                concatenated as in ELMo (section 5.1), and an encoder with random weights
    size        encoders of different sizes, for the same number of tokens, and with --match_flops
                also for the same number of FLOPs as the first size (section 5.2, table 6)
    masking     rates at which selected tokens are masked, kept or replaced (appendix C.2, table 8)
    features    a BiLSTM on the features of a frozen encoder, by default MiniLM, and fine-tuning
                (section 5.3, table 7)
    steps       presets along a masked LM and a left-to-right pre-training run (appendix C.1, figure
                5)

As in the paper, all sizes use the same learning rate. The paper's six sizes are

    --sizes=3x768x12,6x768x3,6x768x12,12x768x12,12x1024x16,24x1024x16

The other studies pre-train encoders of the size --encoder, in the paper 12x768x12.

Each run is a child process, with its output in `output.log` in its directory. If the command is
interrupted, run it again to resume without repeating finished runs.

The `output_dir` contains all runs, `ablation.json`, `ablation.md` and `ablation.png`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from keras_bert import atomic, tables
from keras_bert.intervals import mean_text

from ..engine import output_directory, program
from ..engine.grid import Cell, run_cells
from ..plots.style import save
from .ablation_columns import Column, column, with_existing_tasks
from .ablation_config import RECIPE, AblationConfig, Size
from .ablation_studies import STUDIES, Row, size_measures

(_PHASE,) = RECIPE.optimization.plan()


def rows(config: AblationConfig) -> list[Row]:
    """Returns the table's rows. Rows with the same `run` share a pre-trained encoder."""
    return STUDIES[config.study].rows(config)


def pretraining_cells(config: AblationConfig) -> dict[str, Cell]:
    """Returns the pre-training runs by name."""
    cells: dict[str, Cell] = {}
    first_runs: dict[str, Path] = {}
    for row in rows(config):
        directory = config.directory / row.run
        if not row.run or row.run in cells:
            continue
        # All runs use the first run's vocabulary, and the first records of the same format.
        records = first_runs.setdefault(row.sequence_format, directory)
        first = next(iter(first_runs.values()))
        text = [f"--data_dir={config.data_dir}"]
        if records != directory:
            text = [
                f"--{name}={records / f'{name}_{_PHASE.sequence_length}'}"
                for name in ("records", "dev_records")
            ]
        elif row.sequence_format:
            text.append(f"--sequence_format={row.sequence_format}")
        if first != directory:
            text.append(f"--vocabulary={first / 'vocab.txt'}")
        size = row.size or Size.parsed(config.encoder)
        command = [
            "training.pretrain",
            "--recipe=wikitext2_cpu",
            *text,
            *(f"--{field}={value}" for field, value in size._asdict().items()),
            f"--num_steps={row.num_steps}",
            f"--warmup_steps={row.num_steps // 10}",
            f"--learning_rate={config.pretraining_rate}",
            *row.pretraining,
        ]
        cells[row.run] = Cell(directory, command)
    return cells


def finetuning_cells(config: AblationConfig) -> dict[tuple[str, str], Cell]:
    """Returns the fine-tuning runs by row name and column name."""
    cells = {}
    for row in filter(lambda row: row.is_trained, rows(config)):
        for name in config.task_names:
            if (task := row.tasks.get(name, name)) is None:
                continue
            its, preset = column(config, task), row.preset_path(config)
            command = [
                row.module or its.command[0],
                *its.command[1:],
                f"--preset={preset}",
                *(its.own_encoder_flags if row.run else ()),
                *row.finetuning,
            ]
            cells[row.name, name] = Cell(config.directory / f"{name} {row.name}", command, preset)
    return cells


def main(config: AblationConfig) -> None:
    config = with_existing_tasks(config)
    if pretraining_cells(config) and not os.path.isdir(config.data_dir):
        raise FileNotFoundError(
            f"--data_dir must be an existing directory. Received: {config.data_dir}"
        )
    program.require(program.TRAINING_LIBRARIES, "training")
    program.import_quietly()
    with output_directory.lock_output_dir(config.directory, command="ablation"):
        table = format_table(config, ablation(config))
        atomic.write_text(config.directory / "ablation.md", table + "\n")
    print(table)


def ablation(config: AblationConfig) -> list[dict[str, Any]]:
    """Performs the missing runs, and writes and plots their scores.

    Returns:
        A record per table row, with `name`, `line`, `step` and `scores`. For each column, `scores`
        lists the scores of all seeds in percent, without diverged runs. With --study=size, unless
        pre-training diverged, the record also has `parameters`, `flops`, and the `perplexity` on
        the validation text.

    Raises:
        subprocess.CalledProcessError: If a run fails.
    """
    run_results = run_cells(pretraining_cells(config))
    runs = {row.name: row.run for row in rows(config)}
    task_results = run_cells(
        {
            (name, task): cell
            for (name, task), cell in finetuning_cells(config).items()
            if not runs[name] or runs[name] in run_results
        }
    )
    records = []
    for row in rows(config):
        scores = {
            task: _seeds(results, column(config, task))
            for (name, task), results in task_results.items()
            if name == row.name
        }
        record: dict[str, Any] = {"name": row.name, "line": row.line, "step": row.step}
        record["scores"] = scores
        if row.size and row.run in run_results:
            record |= size_measures(row.size, row.num_steps, run_results[row.run])
        records.append(record)
    atomic.write_json(config.directory / "ablation.json", records)
    figure = STUDIES[config.study].figure(records, list(config.task_names))
    save(figure, config.directory / "ablation.png")
    return records


def _seeds(results: Mapping[str, Any], its: Column) -> list[float]:
    """Returns each seed's score on the first validation set: for MNLI, the matched set."""
    scores = next(iter(results["summary"].values()))
    seeds: list[float] = scores[its.metric]["seeds"]
    return seeds


def format_table(config: AblationConfig, records: Sequence[Mapping[str, Any]]) -> str:
    """Formats a Markdown table with means, 95% confidence intervals and the paper's numbers."""
    study = STUDIES[config.study]
    cells = finetuning_cells(config)
    lines: list[list[tables.Cell]] = []
    for row, record in zip(rows(config), records, strict=True):
        texts = {
            key: text_of(record[key]) if key in record else "diverged" if row.run else ""
            for key, (_, text_of) in study.measures.items()
        }
        for name in config.task_names:
            is_run = (row.name, name) in cells
            values = record["scores"].get(name)
            texts[name] = mean_text(values) if values else "diverged" if is_run else ""
        published = {name: f"(paper: {value})" for name, value in row.published.items()}
        if row.is_trained or any(name in published for name in config.task_names):
            texts = {
                name: f"{text} {published.get(name, '')}".strip() for name, text in texts.items()
            }
            lines.append([*row.labels, *texts.values()])
    heads = [head for head, _ in study.measures.values()]
    return tables.markdown_table([*study.heads, *heads, *config.task_names], lines)


if __name__ == "__main__":
    program.run(main, AblationConfig)
