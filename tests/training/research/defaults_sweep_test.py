# SPDX-License-Identifier: Apache-2.0

import dataclasses

import pytest

pytest.importorskip("tensorflow")
pytestmark = pytest.mark.backend_independent

from tests.training.engine.finished_cells import finish  # noqa: E402
from training.engine.grid import run_cells  # noqa: E402
from training.jobs.classification import FinetuneConfig  # noqa: E402
from training.research.defaults_sweep import (  # noqa: E402
    DefaultsSweepConfig,
    cells,
    format_table,
    run_cell,
)


def test_scores_of_finished_runs_become_a_table_and_their_models_are_deleted(tmp_path):
    config = DefaultsSweepConfig(
        tasks=("mrpc",),
        rows=("100",),
        learning_rates=("1e-4", "1e30"),
        epochs=("3",),
        output_dir=str(tmp_path),
    )
    grid = cells(config)
    trained, diverged = grid.values()
    runs = [{"final": {"dev": {"f1": f1, "accuracy": 70.0}}} for f1 in (70.0, 74.0)]
    baselines = {"dev": {"bag_of_words": {"f1": 60.0, "accuracy": 64.0}}}
    finish(trained, {"runs": runs, "baselines": baselines, "kept": {"by": "dev"}})
    finish(diverged, {"runs": [], "diverged": ["seed 1 diverged"]})
    model = trained.folder / "seed_1" / "model.keras"
    model.parent.mkdir()
    model.touch()
    run_cell(trained)
    assert not model.exists()
    assert format_table(config, run_cells(grid)).splitlines() == [
        "| task | rows | setting | score |",
        "|---|---|---|---|",
        "| mrpc | 100 | bag of words | 62.0 |",
        "| mrpc | 100 | 1e-4, 3 epochs | 71.0 ± 12.7 |",
        "| mrpc | 100 | 1e30, 3 epochs | diverged |",
    ]


def test_a_grid_is_every_combination_of_flags_of_the_program():
    grid = cells(DefaultsSweepConfig())
    assert len(grid) == len({cell.folder for cell in grid.values()}) == 5 * 3 * 4 * 3
    fields = {field.name for field in dataclasses.fields(FinetuneConfig)} | {"noexport"}
    for flag in next(iter(grid.values())).command[1:]:
        assert flag.lstrip("-").partition("=")[0] in fields


def test_an_unknown_task_is_told_before_anything_is_run():
    with pytest.raises(ValueError, match="'squad'"):
        cells(DefaultsSweepConfig(tasks=("sst2", "squad")))
