# SPDX-License-Identifier: Apache-2.0

import dataclasses
import json
import subprocess
import sys

import pytest
from absl import flags

pytest.importorskip("tensorflow")  # keras_bert.data needs it to read the questions.
pytestmark = pytest.mark.backend_independent

from tests.training.engine.finished_cells import finish  # noqa: E402
from training.jobs.tasks import define_flags, task_from_flags  # noqa: E402
from training.paper.ablation import (  # noqa: E402
    PAPER,
    AblationConfig,
    Size,
    ablation,
    finetuning_cells,
    format_table,
    pretraining_cells,
    rows,
    tasks,
)


def finish_all(config, pretrained):
    """Writes the results of all runs in an ablation study."""
    for cell, results in zip(pretraining_cells(config).values(), pretrained, strict=True):
        finish(cell, results)
    for (_, task), cell in finetuning_cells(config).items():
        metric = tasks(config)[task].metric
        finish(cell, {"summary": {"dev": {metric: {"seeds": [70.0, 72.0]}}}})


def test_shared_encoder_is_pretrained_once():
    names = [row.name for row in rows(AblationConfig())]
    assert names == ["BERT", "No NSP", "LTR & No NSP", "LTR + BiLSTM", "random weights"]
    assert list(pretraining_cells(AblationConfig())) == ["bert", "no_nsp", "ltr"]
    assert "--causal" in pretraining_cells(AblationConfig())["ltr"].command


def test_finished_runs_are_tabulated_not_repeated(tmp_path):
    config = AblationConfig(output_dir=str(tmp_path), num_seeds=2, squad_dir="squad")
    finish_all(config, [{}] * 3)
    records = ablation(config)
    assert json.loads((tmp_path / "ablation.json").read_text()) == records
    lines = format_table(config, records).splitlines()
    assert lines[0] == "|  | sst2 | mrpc | squad |"
    scores = "71.0 ± 12.7 (paper: 92.7) | 71.0 ± 12.7 (paper: 86.7) | 71.0 ± 12.7 (paper: 88.5)"
    assert lines[2] == f"| BERT | {scores} |"
    assert lines[-1] == "| random weights | 71.0 ± 12.7 | 71.0 ± 12.7 | 71.0 ± 12.7 |"
    assert "squad" not in tasks(AblationConfig())
    for changes, directory in ({"num_steps": 9}, "bert"), ({"epochs": 9}, "sst2 BERT"):
        with pytest.raises(ValueError, match=f"{directory} contains a run with different settings"):
            ablation(dataclasses.replace(config, **changes))
    (tmp_path / "bert" / "preset").mkdir()
    (tmp_path / "bert" / "preset" / "vocab.txt").write_text("new")
    with pytest.raises(
        ValueError,
        match=r"sst2 BERT contains a run with different settings \(other files in .*preset\)",
    ):
        ablation(config)


def test_diverged_sizes_are_in_the_table(tmp_path):
    sizes = ("2x64x1", "3x768x12", "2x128x2")
    config = AblationConfig("size", output_dir=str(tmp_path), sizes=sizes, num_steps=100)
    last = {"last": {"val_perplexity": 12.34}}
    pretrained = [{"parameters": 10**6, **last}, {"parameters": 2 * 10**6, **last}]
    finish_all(config, [*pretrained, {"runs": [], "diverged": ["the loss is nan"]}])
    records = ablation(config)
    assert (tmp_path / "ablation.png").stat().st_size > 1000
    lines = format_table(config, records).splitlines()
    assert lines[2].startswith("| 2x64x1 | same tokens | 1.00 |")
    assert "| 12.3 | 71.0 ± 12.7 | 71.0 ± 12.7 |" in lines[2]
    assert "12.3 (paper: 5.84) | 71.0 ± 12.7 (paper: 88.4) | 71.0 ± 12.7 (paper: 79.8)" in lines[3]
    assert lines[4] == "| 2x128x2 | same tokens |  |  | diverged | diverged | diverged |"


def test_match_flops_changes_the_number_of_steps():
    sizes = ("2x64x1", "4x128x2")
    size_rows = rows(AblationConfig("size", sizes=sizes, num_steps=1000, match_flops=True))
    equal_tokens, equal_flops = size_rows[:2], size_rows[2:]
    assert [row.num_steps for row in equal_tokens] == [1000, 1000]
    assert equal_flops[0].run == equal_tokens[0].run
    budget = [row.num_steps * row.size.step_flops() for row in equal_flops]
    assert budget[1] == pytest.approx(budget[0], rel=0.01)
    assert equal_flops[1].num_steps < 1000


@pytest.mark.parametrize(
    ("options", "rate"),
    [
        ({}, 2e-3),
        ({"study": "size"}, 1e-3),
        ({"study": "size", "pretraining_learning_rate": 5e-4}, 5e-4),
    ],
)
def test_all_encoders_share_one_learning_rate(options, rate):
    cells = pretraining_cells(AblationConfig(**options)).values()
    assert all(f"--learning_rate={rate}" in cell.command for cell in cells)


def test_paper_sizes_match_bert_base_and_large():
    """Without embeddings, BERT-base has 85.1 million parameters and BERT-large 302.3 million."""
    for size, weights in ((Size(12, 768, 12), 85.1e6), (Size(24, 1024, 16), 302.3e6)):
        config = size.config()
        hidden, inside = config.hidden_dim, config.intermediate_dim
        layer_weights = 4 * hidden * (hidden + 1) + hidden * (2 * inside + 1) + inside + 4 * hidden
        assert config.num_layers * layer_weights == pytest.approx(weights, rel=0.001)
        assert size in PAPER


def test_finetuning_commands_have_valid_flags():
    for cell in finetuning_cells(AblationConfig(squad_dir="squad")).values():
        values = flags.FlagValues()
        define_flags(values)
        values(cell.command)
        task_from_flags(values)


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        (("4x128",), "layers x hidden size x heads.* Received: '4x128'"),
        (("4x128x3",), "divisible by the number of heads. Received: '4x128x3'"),
        (("4x128x2", "4x128x2"), "must be distinct sizes"),
        ((), "must be distinct sizes"),
    ],
)
def test_invalid_sizes_raise(sizes, message):
    with pytest.raises(ValueError, match=message):
        AblationConfig(study="size", sizes=sizes)


def test_missing_data_raises_before_output_is_written(tmp_path):
    command = [sys.executable, "-m", "training.paper.ablation", f"--data_dir={tmp_path / 'text'}"]
    command.append(f"--output_dir={tmp_path / 'runs'}")
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1
    assert "must be an existing directory" in done.stderr
    assert not list(tmp_path.iterdir())
