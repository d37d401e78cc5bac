# SPDX-License-Identifier: Apache-2.0

import dataclasses
import json

import pytest
from absl import flags

pytest.importorskip("tensorflow")  # the questions are read by keras_bert.data
pytestmark = pytest.mark.backend_independent

from tests.training.engine.finished_cells import finish  # noqa: E402
from training.jobs.tasks import configured, define_flags  # noqa: E402
from training.pretraining.ablations import finetuning_cells, tasks  # noqa: E402
from training.pretraining_ablation import (  # noqa: E402
    PRETRAINING,
    AblationConfig,
    ablation,
    format_table,
    pretraining_cells,
    variants,
)


def test_every_row_starts_from_a_run_that_there_is():
    rows = variants(AblationConfig())
    assert {row.run for row in rows.values()} == set(PRETRAINING)
    assert "causal" in str(PRETRAINING["ltr"])


def test_what_is_done_is_not_done_again_and_becomes_a_table(tmp_path):
    config = AblationConfig(output_dir=str(tmp_path), num_seeds=2, squad_dir="squad")

    for cell in pretraining_cells(config).values():
        finish(cell, {})
    for (_, task), cell in finetuning_cells(config, variants(config)).items():
        metric = tasks(config)[task].metric
        finish(cell, {"summary": {"dev": {metric: {"seeds": [70.0, 72.0]}}}})
    table = ablation(config)
    assert json.loads((tmp_path / "ablation.json").read_text()) == table
    lines = format_table(config, table).splitlines()
    assert lines[0] == "|  | sst2 | paper's | mrpc | paper's | squad | paper's |"
    assert lines[2] == "| BERT | 71.0 ± 12.7 | 92.7 | 71.0 ± 12.7 | 86.7 | 71.0 ± 12.7 | 88.5 |"
    assert lines[-1] == "| random weights | 71.0 ± 12.7 |  | 71.0 ± 12.7 |  | 71.0 ± 12.7 |  |"
    assert "squad" not in tasks(AblationConfig())
    for changes, folder in ({"num_steps": 9}, "bert"), ({"epochs": 9}, "sst2 BERT"):
        with pytest.raises(ValueError, match=f"{folder} contains a run of other settings"):
            ablation(dataclasses.replace(config, **changes))
    (tmp_path / "bert" / "preset").mkdir()
    (tmp_path / "bert" / "preset" / "vocab.txt").write_text("new")
    with pytest.raises(ValueError, match=r"sst2 BERT contains a run of .*other files in .*preset"):
        ablation(config)


def test_flags_are_fields_of_the_programs():
    ablation_config = AblationConfig(squad_dir="squad")
    for row in variants(ablation_config).values():
        for task in tasks(ablation_config).values():
            values = flags.FlagValues()
            define_flags(values)
            values(["training.finetune", *task.flags, *row.flags])
            configured(values)
