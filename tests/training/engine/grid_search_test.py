# SPDX-License-Identifier: Apache-2.0

import dataclasses

import pytest

from tests.training.engine.finished_cells import finish
from training.engine.grid_search import Grid, run_grid
from training.engine.output_directory import NotFiniteError
from training.jobs.classification import FinetuneConfig

pytestmark = pytest.mark.backend_independent


@pytest.fixture
def grid(tmp_path):
    config = FinetuneConfig(train_file="train.tsv", output_dir=str(tmp_path), num_seeds=2)
    return Grid("classification", config, {"batch_size": (16, 32), "epochs": (2, 3)})


def write_results(cell, scores, diverged=()):
    runs = [{"best": {"dev": {"accuracy": score, "f1": score - 1}}} for score in scores]
    results = {"selection_scores": scores, "seconds": {"training": 60.0}}
    finish(cell, {"runs": runs, "diverged": list(diverged), **results})


def test_setting_with_the_best_mean_is_selected(grid, capsys):
    cells = grid.cells()
    write_results(cells[16, 2], [80.0, 82.0])
    write_results(cells[16, 3], [99.0], ["seed 2 diverged"])
    write_results(cells[32, 2], [81.5, 80.5])
    write_results(cells[32, 3], [], ["seed 1 diverged", "seed 2 diverged"])
    setting, results = run_grid(grid)
    assert (setting, results["selection_scores"]) == ((16, 2), [80.0, 82.0])
    output = capsys.readouterr().out
    assert output.startswith(
        "grid: 4 runs (2 values of --batch_size, 2 values of --epochs, 2 seeds each), 4 finished\n"
    )
    table = (grid.directory / "grid.md").read_text().splitlines()
    assert table[2:] == [
        "| 16 | 2 | 81.00 ± 12.71 | 80.00 ± 12.71 | 1 min 00 s |  |",
        "| 32 | 2 | 81.00 ± 6.35 | 80.00 ± 6.35 | 1 min 00 s |  |",
        "| 16 | 3 | 99.00 | 98.00 | 1 min 00 s | 1 |",
        "| 32 | 3 | diverged | diverged |  | 2 |",
    ]
    assert "Best of 4 settings: --batch_size=16 --epochs=2\n1 other setting has the same" in output


def test_grid_of_diverged_runs_raises(grid):
    one = dataclasses.replace(grid, values={"epochs": (2,)})
    write_results(one.cells()[2,], [], ["seed 1 diverged"])
    with pytest.raises(NotFiniteError, match=r"every run in .*grid diverged"):
        run_grid(one)
