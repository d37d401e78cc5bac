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
from training.engine import config_flags  # noqa: E402
from training.jobs.tasks import define_flags, task_from_flags  # noqa: E402
from training.paper.ablation import (  # noqa: E402
    ablation,
    finetuning_cells,
    format_table,
    pretraining_cells,
    rows,
)
from training.paper.ablation_columns import column, with_existing_tasks  # noqa: E402
from training.paper.ablation_config import STUDY_SETTINGS, AblationConfig, Size  # noqa: E402
from training.paper.ablation_studies import SIZES  # noqa: E402
from training.paper.directional_finetuning import DirectionalConfig  # noqa: E402
from training.paper.feature_tagging_job import FeatureTaggingConfig  # noqa: E402


def finish_all(config, pretrained):
    """Writes the results of all runs in an ablation study."""
    for cell, results in zip(pretraining_cells(config).values(), pretrained, strict=True):
        finish(cell, results)
    for (_, task), cell in finetuning_cells(config).items():
        metric = column(config, task).metric
        finish(cell, {"summary": {"dev": {metric: {"seeds": [70.0, 72.0]}}}})


def test_shared_encoder_is_pretrained_once():
    cells = pretraining_cells(AblationConfig())
    assert list(cells) == ["bert", "no_nsp", "ltr", "rtl"]
    assert "--causal" in cells["ltr"].command
    # The records are the same, except for sentence pairs.
    records = "--records=runs/tasks_ablation/no_nsp/records_64"
    assert [records in cell.command for cell in cells.values()] == [False, False, True, True]


def test_finished_runs_are_tabulated_not_repeated(tmp_path):
    tasks = ("sst2", "mrpc", "squad")
    config = AblationConfig(output_dir=str(tmp_path), num_seeds=2, squad_dir="squad", tasks=tasks)
    finish_all(config, [{}] * 4)
    records = ablation(config)
    assert json.loads((tmp_path / "ablation.json").read_text()) == records
    assert (tmp_path / "ablation.png").stat().st_size > 1000
    lines = format_table(config, records).splitlines()
    assert lines[0] == "|  | sst2 | mrpc | squad |"
    scores = "71.0 ± 12.7 (paper: 92.7) | 71.0 ± 12.7 (paper: 86.7) | 71.0 ± 12.7 (paper: 88.5)"
    assert lines[2] == f"| BERT | {scores} |"
    assert lines[7] == "| LTR and RTL, concatenated | 71.0 ± 12.7 | 71.0 ± 12.7 |  |"
    assert lines[9] == "| OpenAI GPT, GLUE test | (paper: 91.3) | (paper: 82.3 F1) |  |"
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


@pytest.mark.parametrize(
    ("study", "first", "last"),
    [
        (
            "masking",
            "| 80% | 10% | 10% | 71.0 ± 12.7 (paper: 95.4) | 71.0 ± 12.7 (paper: 94.9) |",
            "| 0% | 0% | 100% | 71.0 ± 12.7 (paper: 94.9) | 71.0 ± 12.7 (paper: 94.6) |",
        ),
        (
            "features",
            "| Fine-tuning | 71.0 ± 12.7 (paper: 96.4) |",
            "| CSE | (paper: 93.1 on test) |",
        ),
        ("steps", "| MLM | 500 | 71.0 ± 12.7 |", "| LTR | 2,500 | 71.0 ± 12.7 |"),
    ],
)
def test_tasks_with_files_are_the_columns(study, first, last, tmp_path):
    for name in ("wnut17train.conll", "emerging.dev.conll"):
        (tmp_path / name).touch()
    options = {"tasks": ("ner",)} if study == "steps" else {}
    config = AblationConfig(study, output_dir=str(tmp_path), ner_dir=str(tmp_path), **options)
    config = with_existing_tasks(config)
    assert "mnli" not in config.task_names
    finish_all(config, [{}] * len(pretraining_cells(config)))
    lines = format_table(config, ablation(config)).splitlines()
    assert [lines[2], lines[-1]] == [first, last]
    assert (tmp_path / "ablation.png").stat().st_size > 1000


def test_each_point_has_its_preset():
    cells = finetuning_cells(AblationConfig("steps", num_steps=100, num_points=2))
    presets = [cell.preset.removeprefix("runs/steps_ablation/") for cell in cells.values()]
    assert presets == [
        f"{run}/presets/step_{step:09}" for run in ("mlm", "ltr") for step in (50, 100)
    ]
    commands = pretraining_cells(AblationConfig("steps", num_steps=100, num_points=2)).values()
    assert all("--preset_every=50" in cell.command for cell in commands)


def test_diverged_sizes_are_in_the_table(tmp_path):
    sizes = ("2x64x1", "3x768x12", "2x128x2")
    tasks = ("sst2", "mrpc")
    config = AblationConfig("size", tasks, output_dir=str(tmp_path), sizes=sizes, num_steps=100)
    last = {"last": {"val_perplexity": 12.34}}
    pretrained = [{"parameters": 10**6, **last}, {"parameters": 2 * 10**6, **last}]
    finish_all(config, [*pretrained, {"runs": [], "diverged": ["the loss is nan"]}])
    records = ablation(config)
    assert (tmp_path / "ablation.png").stat().st_size > 1000
    lines = format_table(config, records).splitlines()
    assert lines[2].startswith("| 2x64x1 | same tokens | 100 | 1.00 |")
    assert "| 12.3 | 71.0 ± 12.7 | 71.0 ± 12.7 |" in lines[2]
    assert "12.3 (paper: 5.84) | 71.0 ± 12.7 (paper: 88.4) | 71.0 ± 12.7 (paper: 79.8)" in lines[3]
    assert (
        lines[4]
        == "| 2x128x2 | same tokens | 100 | diverged | diverged | diverged | diverged | diverged |"
    )


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
        assert size in SIZES


@pytest.mark.parametrize("study", list(STUDY_SETTINGS))
def test_finetuning_commands_have_valid_flags(study):
    for cell in finetuning_cells(AblationConfig(study)).values():
        values = flags.FlagValues()
        if cell.command[0] == "training.finetune":
            define_flags(values)
            values(cell.command)
            task_from_flags(values)
        else:
            configs = {
                "training.paper.feature_tagging": FeatureTaggingConfig,
                "training.paper.directional_finetuning": DirectionalConfig,
            }
            config_class = configs[cell.command[0]]
            config_flags.define_flags(config_class, values)
            values(cell.command)
            config_flags.configuration(config_class, values)


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


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tasks": ("qnli",)}, "--glue_dir must contain QNLI/train.tsv, QNLI/dev.tsv"),
        ({"study": "steps"}, "--glue_dir must contain MNLI/train.tsv.*for example --tasks=sst2"),
        ({"tasks": ("sst-2",)}, "--tasks must be distinct names in .*ner_last.* Received: sst-2"),
        ({"study": "features", "num_steps": 9}, "does not apply to --study=features"),
        ({"study": "steps", "num_steps": 9}, "must be a multiple of --num_points, which is 5"),
    ],
)
def test_invalid_tasks_and_flags_raise(options, message):
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        with_existing_tasks(AblationConfig(**options))


def test_missing_data_raises_before_output_is_written(tmp_path):
    command = [sys.executable, "-m", "training.paper.ablation", f"--glue_dir={tmp_path / 'glue'}"]
    command.append(f"--output_dir={tmp_path / 'runs'}")
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1
    assert "error: --glue_dir must contain MNLI/train.tsv" in done.stderr
    assert not list(tmp_path.iterdir())
