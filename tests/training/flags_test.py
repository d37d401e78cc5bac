# SPDX-License-Identifier: Apache-2.0
"""Checks that each flag of each command has an effect or is rejected."""

import ast
import dataclasses
import importlib
import inspect
import json
import re

import pytest

from tests.source_imports import ROOT
from training import export, plan, predict
from training.engine import child_commands
from training.engine.options import CommandConfig
from training.export import ExportConfig
from training.jobs import tasks
from training.paper import ablation, ablation_config, glue_grid
from training.predict import PredictConfig
from training.readers import glue

pytestmark = pytest.mark.backend_independent


def config_classes():
    """Yields the configs of all commands."""
    for command in (name for group in child_commands.COMMANDS.values() for name in group):
        module = importlib.import_module(child_commands.module_name(command))
        for node in ast.walk(ast.parse(inspect.getsource(module))):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "program.run":
                names = [ast.unparse(argument) for argument in node.args[1:]]
                yield from (getattr(module, name) for name in names)
    yield from {task.config_class for task in tasks.TASKS.values()}


def test_each_flag_is_read():
    """The code reads a flag as an attribute, or by a name in a string."""
    read = set()
    for path in (ROOT / "training").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
                read.add(node.attr)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                read.add(node.value)
    classes = list(config_classes())
    assert len(classes) > 15
    for config_class in classes:
        assert set(config_class().to_dict()) <= read, config_class


def alternative_values(config):
    """Yields each flag with values that differ from the config's value."""
    examples = {
        bool: [True, False],
        int: [7],
        float: [0.3, 1.0, 1e10],
        str: ["this", "classification", "masked_lm", "column", "yes", "tsv", "tab"],
        tuple: [("a:b",), ("4x64x2",), ("rte=10",), ("rte",), ("1e-3",)],
        type(None): [True, 7, 0.3],
    }
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if not isinstance(value, CommandConfig):
            value_type = type(value)
            if value_type is tuple and value and not isinstance(value[0], str):
                yield field.name, [(7,)]
                continue
            yield field.name, [other for other in examples[value_type] if other != value]


def find_idle_flags(config, run, skipped=()):
    """Returns the flags whose alternative values have no effect and are not rejected."""
    before = run(config)
    idle_flags = []
    for name, values in alternative_values(config):
        effects = []
        for value in () if name in skipped else values:
            try:
                effects.append(run(dataclasses.replace(config, **{name: value})) != before)
            except (ValueError, FileNotFoundError, TypeError):
                effects.append(True)
        if not all(effects):
            idle_flags.append(name)
    return idle_flags


class Recorder:
    """A model that records its calls."""

    is_sequence_level = True
    fields, optional_fields, list_fields = ("text",), ("text_pair",), ()
    class_names = ("a", "b")

    def __init__(self):
        self.calls = []

    def __getattr__(self, name):
        if name in ("description", "preprocessor"):
            raise AttributeError(name)

        def record(*arguments, **keywords):
            self.calls.append((name, arguments, keywords))

        return record

    def predict_rows(self, rows):
        self.calls.append([dict(row) for row in rows])
        return [{"label": "a"} for _ in rows]


@pytest.mark.parametrize(
    "options",
    [
        {"output": "1"},
        {"output": "1", "dtype": "int8", "calibration_file": "rows.csv"},
        {"deploy_to": "models"},
        {"output": "m.onnx"},
        {"output": "m.xml"},
        {"output": "m.tflite"},
        {"output": "hub", "export_format": "hugging_face"},
        {"push_to": "organization/model"},
    ],
)
def test_export_flags_have_an_effect(options, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rows.csv").write_text("text,column\n" + "a,b\n" * 9)
    (tmp_path / "m.keras").touch()
    monkeypatch.setattr(export, "megabytes", lambda path: 1.0)
    monkeypatch.setattr("keras_bert.export.deploy", lambda *paths: paths[1])

    def run(config):
        recorder = Recorder()
        monkeypatch.setattr(export.saved_models, "load_task", lambda files: recorder)
        printed = export.export(config)
        return str(recorder.calls), printed.partition(" MB in")[2] * bool(config.deploy_to)

    # A SavedModel always accepts text, and --overwrite matters only for existing files.
    assert (
        find_idle_flags(ExportConfig("m.keras", **options), run, {"takes_text", "overwrite"}) == []
    )


ROWS = {
    "rows.txt": "a text\nanother\n",
    "rows.csv": 'text,column\n"a text",b\n',
    "rows.jsonl": json.dumps({"text": "a text", "column": "b"}) + "\n",
}


@pytest.mark.parametrize("name", list(ROWS))
def test_predict_flags_have_an_effect(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).write_text(ROWS[name])
    (tmp_path / "m.keras").touch()

    def run(config):
        model = Recorder()
        fields = predict.RowFields(("text",), (), ("text_pair",))
        monkeypatch.setattr(predict, "load_model", lambda path: (model, fields))
        predict.predict(config)
        return model.calls, (tmp_path / "answers").read_text()

    config = PredictConfig("m.keras", name, "answers", label_map=("a:c",), overwrite=True)
    # These flags matter only for invalid rows, ambiguous headers, large inputs or existing files.
    skipped = {"model", "output", "skip_invalid", "batch_size", "overwrite"}
    skipped |= {"header"} if name == "rows.csv" else set()
    assert find_idle_flags(config, run, skipped) == []


def test_grid_flags_have_an_effect(monkeypatch):
    monkeypatch.setattr(
        ablation_config.Size, "step_flops", lambda size: size.num_layers
    )  # saves time

    def commands(config):
        task = glue.find_task("rte")
        cells = glue_grid.make_grid(config, task).cells().values()
        return [(cell.directory, cell.command, cell.preset) for cell in cells]

    config = glue_grid.FinetuneGlueConfig(tasks=("RTE",))
    assert find_idle_flags(config, commands, {"tasks"}) == []
    assert config.task_epochs("rte") == (3,)
    for name in ("rte", "RTE"):
        assert dataclasses.replace(config, epochs_of=(f"{name}=10",)).task_epochs("rte") == (10,)
    with pytest.raises(
        ValueError, match=r"--epochs_of must only have tasks in --tasks=RTE.*SST-2=10"
    ):
        dataclasses.replace(config, epochs_of=("SST-2=10",))

    def runs(config):
        cells = {**ablation.pretraining_cells(config), **ablation.finetuning_cells(config)}
        return [(cell.directory, cell.command) for cell in cells.values()]

    for study in ablation_config.STUDY_SETTINGS:
        config = ablation_config.AblationConfig(study)
        assert find_idle_flags(config, runs, {"study"}) == []


def test_plan_flags_have_an_effect(monkeypatch):
    monkeypatch.setattr(plan, "parameters", lambda architecture, objective: 1e6)  # saves time
    skipped = {"measure_energy", "country", "model", "hardware", "dropout", "precision"}
    skipped |= {"vocabulary_size"}  # affects only a classifier's memory
    for objective in ("masked_lm", "classification"):
        options = {"objective": objective, "vocabulary_size": 700, "precision": "mixed_float16"}
        config = plan.PlanConfig("bert_tiny_uncased", hardware="v100", **options)
        assert find_idle_flags(config, plan.plan, skipped) == []
    hours = [
        plan.plan(plan.PlanConfig("bert_base_uncased", hardware="v100", precision=precision))
        for precision in ("mixed_float16", "float32")
    ]
    rates = [float(re.search(r"([\d,]+) tokens/s", text)[1].replace(",", "")) for text in hours]
    assert rates[0] / rates[1] == pytest.approx(125 / 15.7, rel=0.01)
