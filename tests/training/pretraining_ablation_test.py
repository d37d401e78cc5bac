# SPDX-License-Identifier: Apache-2.0

import json

import pytest

pytest.importorskip("tensorflow")  # the questions are read by keras_bert.data
pytestmark = pytest.mark.backend_independent

from training.finetune_config import FinetuneConfig  # noqa: E402
from training.pretraining_ablation import (  # noqa: E402
    PRETRAINING,
    AblationConfig,
    ablation,
    format_table,
    tasks,
    variants,
)
from training.squad_config import SquadConfig  # noqa: E402


def test_every_row_starts_from_a_run_that_there_is():
    rows = variants(AblationConfig())
    assert {row.run for row in rows.values()} == set(PRETRAINING)
    assert "causal" in str(PRETRAINING["ltr"])


def test_what_is_done_is_not_done_again_and_becomes_a_table(tmp_path):
    config = AblationConfig(output_dir=str(tmp_path), num_seeds=2, squad_dir="squad")
    for name in PRETRAINING:
        (tmp_path / name).mkdir()
        (tmp_path / name / "results.json").write_text("{}")
    for name in variants(config):
        for task_name, task in tasks(config).items():
            folder = tmp_path / f"{task_name} {name}"
            folder.mkdir()
            summary = {"dev": {task.metric: {"seeds": [70.0, 72.0]}}}
            (folder / "results.json").write_text(json.dumps({"summary": summary}))
    table = ablation(config)
    assert json.loads((tmp_path / "ablation.json").read_text()) == table
    lines = format_table(config, table).splitlines()
    assert lines[0] == "| | sst2 | paper's | mrpc | paper's | squad | paper's |"
    assert lines[2] == "| BERT | 71.0 ± 12.7 | 92.7 | 71.0 ± 12.7 | 86.7 | 71.0 ± 12.7 | 88.5 |"
    assert lines[-1] == "| random weights | 71.0 ± 12.7 |  | 71.0 ± 12.7 |  | 71.0 ± 12.7 |  |"
    assert "squad" not in tasks(AblationConfig())


def test_flags_are_fields_of_the_programs():
    configs = {"training.finetune": FinetuneConfig, "training.finetune_squad": SquadConfig}
    ablation_config = AblationConfig(squad_dir="squad")
    for row in variants(ablation_config).values():
        for task in tasks(ablation_config).values():
            fields = configs[task.program].__dataclass_fields__.keys() | {"recipe"}
            for flag in (*task.flags, *row.finetune_flags):
                assert flag.lstrip("-").partition("=")[0].removeprefix("no") in fields
