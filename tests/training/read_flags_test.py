# SPDX-License-Identifier: Apache-2.0
"""Checks that a command's small run reads each flag or rejects it.

A run with default flags records which fields of the config it reads. A flag that it does not read
must be rejected if it has a different value. One run therefore tests all flags in a mode.
"""

import contextlib
import io
import json
import signal
import sys

import keras
import pytest

pytestmark = pytest.mark.skipif(
    keras.backend.backend() != "torch", reason="fastest, because it traces no graphs"
)

from keras_bert import Backbone, MaskedLM, TextClassifier, TokenClassifier  # noqa: E402
from keras_bert import data as packing  # noqa: E402
from tests.checkpoints.small_models import small_config  # noqa: E402
from tests.text.small_tokenizers import make_tokenizer  # noqa: E402
from training import (  # noqa: E402
    create_pretraining_data,
    evaluate,
    insight,
    inspect,
    pretrain,
    serve,
    tokenizer,
)
from training.engine.options import CommandConfig  # noqa: E402
from training.jobs import tasks  # noqa: E402
from training.paper import feature_tagging  # noqa: E402

TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "good", "bad", "film"]
ROWS = [("a good film", 1), ("a bad film", 0)] * 12
# A different valid value for each flag with choices
VALUES = {
    "format": "jsonl",
    "header": "yes",
    "quoting": "none",
    "separator": "tab",
    "encoding": "cp949",
    "document_ends": "files",
    "decay": "linear",
    "embedding_sharing": "disentangled",
    "masking_unit": "word",
    "label_map": ("1:x",),
}
# Flags that make a run fail before it reads them
FAILING_FLAGS = {"coordinator"}


def json_lines(rows):
    return "".join(json.dumps(row) + "\n" for row in rows)


def squad_articles():
    answers = [{"text": "good", "answer_start": 2}]
    return [
        {
            "title": title,
            "paragraphs": [
                {
                    "context": "a good film",
                    "qas": [{"id": title, "question": "a film", "answers": answers}],
                }
            ],
        }
        for title in "abcdefgh"
    ]


FILES = {
    "rows.csv": "text,label\n" + "".join(f"{text},{label}\n" for text, label in ROWS),
    "rows.jsonl": json_lines({"text": text, "label": label} for text, label in ROWS),
    "pairs.csv": "text,text_pair,label\n" + "".join(f"{t},film,{label}\n" for t, label in ROWS),
    "scores.csv": "text,label\n" + "".join(f"{text},{label}.5\n" for text, label in ROWS),
    "labels.csv": "text,label\n" + "".join(f"{text},x{';y' * label}\n" for text, label in ROWS),
    "tags.conll": "a O\ngood B-X\nfilm I-X\n\n" * 12 + "a O\nbad B-Y\n\n" * 12,
    "tags.jsonl": json_lines([{"words": ["a", "film"], "labels": ["O", "B-X"]}] * 24),
    "questions.json": json.dumps({"version": "v2.0", "data": squad_articles()}),
    "answers.json": json.dumps(dict.fromkeys("abcdefgh", "good")),
    "choices.jsonl": json_lines(
        {"text": "a film", "choices": ["good", "bad"], "label": label} for _, label in ROWS
    ),
    "corpus.txt": "a good film\na bad film\na film\n\n" * 12,
    "corpus.jsonl": json_lines([{"text": "a good film\na bad film"}] * 12),
    "beir/corpus.jsonl": json_lines(
        {"_id": f"d{index}", "title": "", "text": f"{text} film"}
        for index, text in enumerate(["good", "bad", "a good", "a bad", "good bad"])
    ),
    "beir/queries.jsonl": json_lines(
        {"_id": f"q{index}", "text": text} for index, text in enumerate(["good", "bad", "a good"])
    ),
    "beir/qrels/train.tsv": "query-id\tcorpus-id\tscore\nq0\td0\t1\nq1\td1\t1\n",
    "beir/qrels/test.tsv": "query-id\tcorpus-id\tscore\nq2\td2\t1\n",
}


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    path = tmp_path_factory.mktemp("read_flags")
    for name, content in FILES.items():
        (path / name).parent.mkdir(exist_ok=True, parents=True)
        (path / name).write_text(content)
    config = small_config(vocabulary_size=len(TOKENS), num_layers=1, max_sequence_length=32)
    (path / "model.json").write_text(json.dumps(config.to_dict()))
    backbone = Backbone(config)
    tokenizer_of_words = make_tokenizer(*TOKENS)
    preprocessor = packing.TextClassifierPreprocessor(tokenizer_of_words, sequence_length=16)
    MaskedLM(backbone, preprocessor).save_to_preset(path / "preset")
    TextClassifier(backbone, 2, preprocessor, class_names=("0", "1")).save(path / "rows.keras")
    tags = packing.TokenClassifierPreprocessor(tokenizer_of_words, sequence_length=16)
    TokenClassifier(backbone, 3, tags, class_names=("O", "B-X", "I-X")).save(path / "tags.keras")
    records = create_pretraining_data.CreatePretrainingDataConfig.from_flags(
        input_files=(str(path / "corpus.txt"),),
        vocabulary=str(path / "preset" / "vocab.txt"),
        output_dir=str(path / "records"),
        sequence_length=16,
        sequence_format="full_sentences",
        num_workers=1,
    )
    with contextlib.redirect_stdout(io.StringIO()):
        create_pretraining_data.main(records)
    return path


@pytest.fixture
def read_flags(monkeypatch, directory):
    """The names of the flags that a run reads, except to validate or write them."""
    monkeypatch.chdir(directory)
    names = set()

    def record_and_get(config, name):
        value = object.__getattribute__(config, name)
        if name in type(config).__dataclass_fields__ and not isinstance(value, CommandConfig):
            frame = sys._getframe(1)
            while frame and frame.f_code.co_name not in ("__post_init__", "test_flags_are_read"):
                if frame.f_code.co_filename.endswith(("engine/options.py", "dataclasses.py")):
                    return value
                frame = frame.f_back
            if frame and frame.f_code.co_name != "__post_init__":
                names.add(name)
        return value

    monkeypatch.setattr(CommandConfig, "__getattribute__", record_and_get, raising=False)
    return names


def different_value(name, value):
    if name in VALUES:
        return VALUES[name]
    if isinstance(value, bool):
        return not value
    return {str: "this", tuple: ("this",), float: 0.3}.get(type(value), 7)


FINETUNING = {
    "preset": "preset",
    "epochs": 1,
    "batch_size": 8,
    "sequence_length": 16,
    "precision": "float32",
    "measure_energy": False,
}
PRETRAINING = {
    "vocabulary": "preset/vocab.txt",
    "model": "model.json",
    "num_layers": 1,
    "hidden_dim": 8,
    "num_heads": 2,
    "phases": ("16:1",),
    "batch_size": 4,
    "num_steps": 2,
    "eval_every": 2,
    "num_workers": 1,
    "precision": "float32",
    "sequence_format": "full_sentences",
    "measure_energy": False,
}
CORPUS = {"input_files": ("corpus.txt",), "dev_files": ("corpus.txt",)}


def finetuning_mode(task, **options):
    flags = {**FINETUNING, **tasks.TASKS[task].settings, **options}
    if "export" in tasks.TASKS[task].options:
        flags["export"] = False
    if task == "ranking":
        del flags["measure_energy"]
    return tasks.TASKS[task].config_class, flags, tasks.TASKS[task].run


def pretraining_mode(**options):
    flags = {**PRETRAINING, **CORPUS, **options}
    flags = {name: value for name, value in flags.items() if value is not None}
    return pretrain.PretrainConfig, flags, pretrain.main


class StoppingOutput(io.StringIO):
    """Stops the server as soon as it prints that it is ready."""

    def write(self, text):
        if "http://" in text:
            signal.raise_signal(signal.SIGTERM)
        return super().write(text)


def run_server(config):
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        with contextlib.redirect_stdout(StoppingOutput()):
            serve.main(config)
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


QUESTIONS = {"train_file": "questions.json", "dev_file": "questions.json"}
MODES = {
    "classification": lambda: finetuning_mode("classification", train_file="rows.csv"),
    "classification of JSON Lines": lambda: finetuning_mode(
        "classification", train_file="rows.jsonl"
    ),
    "pairs": lambda: finetuning_mode("pairs", train_file="pairs.csv"),
    "regression": lambda: finetuning_mode("regression", train_file="scores.csv"),
    "multi_label": lambda: finetuning_mode("multi_label", train_file="labels.csv"),
    "few_shot": lambda: finetuning_mode("few_shot", train_file="rows.csv", max_pairs=20),
    "tagging": lambda: finetuning_mode("tagging", train_file="tags.conll"),
    "tagging of JSON Lines": lambda: finetuning_mode("tagging", train_file="tags.jsonl"),
    "question_answering": lambda: finetuning_mode(
        "question_answering", **QUESTIONS, max_query_length=4, doc_stride=4
    ),
    "multiple_choice": lambda: finetuning_mode("multiple_choice", train_file="choices.jsonl"),
    "ranking": lambda: finetuning_mode("ranking", data_dir="beir"),
    "feature-tagging": lambda: (
        feature_tagging.FeatureTaggingConfig,
        {**FINETUNING, "train_file": "tags.conll", "lstm_units": 4},
        feature_tagging.main,
    ),
    "masked_lm": lambda: pretraining_mode(),
    "masked_lm of JSON Lines": lambda: pretraining_mode(
        input_files=("corpus.jsonl",), dev_files=("corpus.jsonl",)
    ),
    "records": lambda: pretraining_mode(
        records="records", dev_records="records", input_files=(), dev_files=(), num_workers=0
    ),
    "static masks": lambda: pretraining_mode(static_masks=True, dev_files=()),
    "causal": lambda: pretraining_mode(causal=True, dev_files=()),
    "replaced_token": lambda: pretraining_mode(objective="replaced_token", dev_files=()),
    "distillation": lambda: pretraining_mode(
        objective="distillation", teacher="preset", vocabulary=None, dev_files=()
    ),
    "init_preset": lambda: pretraining_mode(
        init_preset="preset",
        dev_files=(),
        **dict.fromkeys(("vocabulary", "model", "num_layers", "hidden_dim", "num_heads")),
    ),
    "create-pretraining-data": lambda: (
        create_pretraining_data.CreatePretrainingDataConfig,
        {"input_files": ("corpus.txt",), "vocabulary": "preset/vocab.txt", "num_workers": 1},
        create_pretraining_data.main,
    ),
    **{
        f"tokenizer, {kind}": lambda kind=kind, size=size: (
            tokenizer.TokenizerConfig,
            {"input_files": ("corpus.txt",), "kind": kind, "vocabulary_size": size},
            tokenizer.main,
        )
        for kind, size in (("wordpiece", 40), ("byte_pair", 300), ("sentence_piece", 25))
    },
    **{
        f"evaluate, {file}": lambda file=file, flags=flags: (
            evaluate.EvaluateConfig,
            {"data_file": file, **flags},
            evaluate.evaluate,
        )
        for file, flags in {
            "rows.csv": {"model": "rows.keras"},
            "tags.conll": {"model": "tags.keras"},
            "questions.json": {"predictions": "answers.json"},
        }.items()
    },
    **{
        f"insight, {file}": lambda file=file, model=model: (
            insight.InsightConfig,
            {"data_file": file, "model": model, "examples": 1},
            insight.write_report,
        )
        for file, model in {
            "rows.csv": "rows.keras",
            "tags.conll": "tags.keras",
            "corpus.txt": "preset",
        }.items()
    },
    **{
        f"inspect, {file}": lambda file=file: (
            inspect.InspectConfig,
            {"data_file": file, "preset": "preset"},
            inspect.inspect,
        )
        for file in ("rows.csv", "rows.jsonl", "tags.conll", "choices.jsonl", "questions.json")
    },
    "serve": lambda: (
        serve.ServeConfig,
        {"model": "rows.keras", "port": 0},
        run_server,
    ),
}


# Flags whose values are always passed on, so that reading them does not show an effect
IGNORED_READS = {
    "classification of JSON Lines": {"header", "quoting"},
    "tagging of JSON Lines": {"word_column", "label_column", "separator", "comments"},
    "question_answering": {"max_document_words"},
    "multiple_choice": {"quoting"},
    "ranking": {"holdout_every"},
    "masked_lm": {"field", "language", "vocabulary_size"},
    "masked_lm of JSON Lines": {"document_ends"},
    "init_preset": {"model", "vocabulary", "vocabulary_size"},
    "distillation": {"vocabulary", "vocabulary_size"},
    "records": {"input_files", "dev_files", "data_dir", "static_masks", "duplicate_factor"},
    "create-pretraining-data": {"field", "language"},
    "evaluate, rows.csv": {"class_names", "regression", "multi_label", "quoting"},
    "inspect, choices.jsonl": {"quoting"},
    "inspect, questions.json": {"max_document_words"},
    "insight, tags.conll": {"label_column"},
    "insight, corpus.txt": {"text", "label"},
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.filterwarnings("ignore")
def test_flags_are_read(mode, read_flags, tmp_path):
    config_class, flags, run = MODES[mode]()
    output_flag = "report_dir" if config_class is insight.InsightConfig else "output_dir"
    names = config_class().to_dict()
    if output_flag in names:
        flags[output_flag] = str(tmp_path / "out")
    config = config_class.from_flags(**flags)
    with contextlib.redirect_stdout(io.StringIO()):
        run(config)
    unread = names.keys() - read_flags - flags.keys() - FAILING_FLAGS | IGNORED_READS.get(
        mode, set()
    )
    unrejected = []
    for name in sorted(unread):
        options = {**flags, name: different_value(name, config.to_dict()[name])}
        if output_flag in names:
            options[output_flag] = str(tmp_path / name)
        message = ""
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                run(config_class.from_flags(**options))
        except ValueError as error:
            message = str(error)
        if f"--{name}" not in message or "must be one of" in message:
            unrejected.append((name, message))
    assert unrejected == []
