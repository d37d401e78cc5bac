# SPDX-License-Identifier: Apache-2.0

import json
import subprocess
import sys

import pytest

pytest.importorskip("tensorflow")
pytestmark = pytest.mark.backend_independent

from tests.training.engine.finished_cells import finish  # noqa: E402
from training.pretraining.ablations import Variant, finetuning_cells, tasks  # noqa: E402
from training.size_ablation import (  # noqa: E402
    PAPER,
    Size,
    SizeAblationConfig,
    format_table,
    pretraining_cells,
    runs,
    size_ablation,
    step_flops,
)


def test_same_operations_are_other_numbers_of_steps():
    config = SizeAblationConfig(sizes=("2x64x1", "4x128x2"), num_steps=1000, same_flops=True)
    tokens, operations = runs(config)[:2], runs(config)[2:]
    assert [run.num_steps for run in tokens] == [1000, 1000]
    assert operations[0].name == tokens[0].name
    budget = [run.num_steps * step_flops(run.size) for run in operations]
    assert budget[1] == pytest.approx(budget[0], rel=0.01)
    assert operations[1].num_steps < 1000


def test_the_papers_sizes_are_those_of_its_models():
    """Without embeddings, BERT-base has 85.1 million parameters, BERT-large 302.3."""
    for size, weights in ((Size(12, 768, 12), 85.1e6), (Size(24, 1024, 16), 302.3e6)):
        config = size.config()
        hidden, inside = config.hidden_dim, config.intermediate_dim
        of_layer = 4 * hidden * (hidden + 1) + hidden * (2 * inside + 1) + inside + 4 * hidden
        assert config.num_layers * of_layer == pytest.approx(weights, rel=0.001)
        assert size in PAPER


def test_what_is_done_is_not_done_again_and_becomes_a_table(tmp_path):
    config = SizeAblationConfig(
        sizes=("2x64x1", "3x768x12"), output_dir=str(tmp_path), num_seeds=2, num_steps=100
    )

    cells = pretraining_cells(config)
    for cell, parameters in zip(cells.values(), (10**6, 2 * 10**6), strict=True):
        finish(cell, {"parameters": parameters, "last": {"val_perplexity": 12.34}})
    for cell in finetuning_cells(config, {name: Variant(name) for name in cells}).values():
        finish(cell, {"summary": {"dev": {"accuracy": {"seeds": [70.0, 72.0]}}}})
    rows = size_ablation(config)
    assert json.loads((tmp_path / "size_ablation.json").read_text()) == rows
    assert (tmp_path / "size_ablation.png").stat().st_size > 1000
    lines = format_table(rows, list(tasks(config))).splitlines()
    assert lines[2].startswith("| 2x64x1 | same tokens | 1.00 |")
    assert "| 12.3 | 71.0 ± 12.7 | 71.0 ± 12.7 |" in lines[2]
    assert "12.3 (paper: 5.84) | 71.0 ± 12.7 (paper: 88.4) | 71.0 ± 12.7 (paper: 79.8)" in lines[3]


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        (("4x128",), "'4x128', expected layers x hidden size x heads"),
        (("4x128x3",), "'4x128x3', expected a hidden size that is divisible"),
        (("4x128x2", "4x128x2"), "expected distinct sizes"),
        ((), "expected distinct sizes"),
    ],
)
def test_malformed_sizes(sizes, message):
    with pytest.raises(ValueError, match=message):
        SizeAblationConfig(sizes=sizes)


def test_missing_data_is_told_before_anything_is_made(tmp_path):
    command = [sys.executable, "-m", "training.size_ablation", f"--data_dir={tmp_path / 'text'}"]
    command.append(f"--output_dir={tmp_path / 'runs'}")
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1
    assert "expected an existing folder" in done.stderr
    assert not list(tmp_path.iterdir())
