# SPDX-License-Identifier: Apache-2.0
"""Runs the code in each row of the migration tables, and parses the flags for their commands."""

import ast
import dataclasses
import gc
import importlib
import json
import re
import shlex
import warnings
from pathlib import Path

import numpy as np
import pytest
from absl import flags

pytestmark = [pytest.mark.needs_tensorflow, pytest.mark.on_tensorflow]

tf = pytest.importorskip("tensorflow")

import keras  # noqa: E402

import keras_bert  # noqa: E402
from keras_bert import checkpoints  # noqa: E402
from tests.checkpoints.small_models import randomize  # noqa: E402
from tests.docs import pages  # noqa: E402
from training.engine import config_flags  # noqa: E402
from training.jobs import tasks  # noqa: E402

PAGES = {page.stem: page for page in sorted((pages.DOCS / "migrate").glob("*.md"))}
ROWS = {name: pages.table_rows(page) for name, page in PAGES.items()}
TEXTS, LABELS = ["a gripping film", "two hours", "a film .", "two films"], [1, 0, 1, 0]
VOCABULARY = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "film", "##s", "gripping", "two")
VOCABULARY += ("hours", "how", "long", ".")
TINY = {
    "vocabulary_size": len(VOCABULARY),
    "num_layers": 1,
    "num_heads": 2,
    "hidden_dim": 8,
    "intermediate_dim": 16,
}
# The flags of the original scripts. Each flag must be in a row.
_TPU = {"use_tpu", "tpu_name", "tpu_zone", "gcp_project", "master", "num_tpu_cores"}
_MODEL = {"bert_config_file", "init_checkpoint", "vocab_file", "do_lower_case", "max_seq_length"}
_LOOP = {"learning_rate", "train_batch_size", "save_checkpoints_steps", "iterations_per_loop"}
ORIGINAL_FLAGS = {
    "run_classifier.py": {
        *(_TPU | _MODEL | _LOOP),
        *("data_dir", "task_name", "output_dir", "do_train", "do_eval", "do_predict"),
        *("eval_batch_size", "predict_batch_size", "num_train_epochs", "warmup_proportion"),
    },
    "run_squad.py": {
        *(_TPU | _MODEL | _LOOP),
        *("output_dir", "train_file", "predict_file", "doc_stride", "max_query_length"),
        *("do_train", "do_predict", "predict_batch_size", "num_train_epochs", "n_best_size"),
        *("warmup_proportion", "max_answer_length", "verbose_logging", "version_2_with_negative"),
        "null_score_diff_threshold",
    },
    "create_pretraining_data.py": {
        *("input_file", "output_file", "vocab_file", "do_lower_case", "do_whole_word_mask"),
        *("max_seq_length", "max_predictions_per_seq", "random_seed", "dupe_factor"),
        *("masked_lm_prob", "short_seq_prob"),
    },
    "run_pretraining.py": {
        *(_TPU | _LOOP | _MODEL - {"vocab_file", "do_lower_case"}),
        *("input_file", "output_dir", "max_predictions_per_seq", "do_train", "do_eval"),
        *("eval_batch_size", "num_train_steps", "num_warmup_steps", "max_eval_steps"),
    },
    "extract_features.py": {
        *_MODEL,
        *("input_file", "output_file", "layers", "batch_size", "use_tpu", "master"),
        *("num_tpu_cores", "use_one_hot_embeddings"),
    },
}


# The imports from `transformers` in the left columns
TRANSFORMERS_NAMES = (
    *("AutoConfig", "AutoTokenizer", "DataCollatorWithPadding", "Trainer", "TrainingArguments"),
    *("AutoModel", "AutoModelForSequenceClassification", "AutoModelForTokenClassification"),
    *("AutoModelForQuestionAnswering", "get_linear_schedule_with_warmup", "pipeline"),
)


# === Flags and files of commands ===


def parse_flags(command: str, arguments: list[str]) -> object:
    """Returns the config that a command creates from flags. Invalid flags raise an error."""
    command, *task = command.split()
    values = flags.FlagValues()
    if command == "finetune":
        tasks.define_flags(values)
        values([command, *(task or ["--task=classification"]), *arguments])
        return tasks.task_from_flags(values)[1]
    module = importlib.import_module(f"training.{command.replace('-', '_')}")
    (call,) = [
        node
        for node in ast.walk(ast.parse(Path(module.__file__).read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "program.run"
    ]
    config_class = eval(ast.unparse(call.args[1]), vars(module))
    config_flags.define_recipe_flag(values)
    config_flags.define_flags(config_class, values)
    values([command, *arguments])
    return config_flags.configuration(config_class, values)


FLAG_ROWS = [
    row
    for rows in ROWS.values()
    for row in rows
    if re.fullmatch(r"`keras-bert [\w-]+( --task=\w+)?`", row.header[1])
]
FILE_ROWS = [row for rows in ROWS.values() for row in rows if row.header[1].endswith(" writes")]


@pytest.mark.parametrize("row", FLAG_ROWS, ids=str)
def test_row_flags_exist(row):
    command = row.header[1].strip("`").removeprefix("keras-bert ")
    for code in row.code(1):
        if code.startswith("--"):
            parse_flags(command, shlex.split(code))
    assert row.cells[1]


@pytest.mark.parametrize("script", ORIGINAL_FLAGS)
def test_original_flags_are_in_rows(script):
    rows = [row for row in ROWS["from_google_bert"] if row.header[0] == script]
    flag_names = [
        name for row in rows for code in row.code(0) for name in re.findall(r"--(\w+)", code)
    ]
    assert set(flag_names) == ORIGINAL_FLAGS[script]
    assert len(flag_names) == len(set(flag_names)) or script == "extract_features.py"


def test_training_arguments_rows_match_fields():
    """Also allows former fields, and arguments of the `Trainer`."""
    import transformers

    known = {field.name for field in dataclasses.fields(transformers.TrainingArguments)}
    known |= {"warmup_ratio", "group_by_length", "Trainer", "compute_metrics"}
    known |= {"EarlyStoppingCallback", "accelerate", "torchrun"}
    rows = [row for row in ROWS["from_transformers"] if row.header[0] == "`TrainingArguments`"]
    field_names = [re.match(r"\w+", code)[0] for row in rows for code in row.code(0)]
    assert len(rows) > 30
    assert set(field_names) <= known


@pytest.mark.parametrize("row", FILE_ROWS, ids=str)
def test_row_files_are_in_command_docstring(row):
    command = re.search(r"keras-bert ([\w-]+)", row.header[1])[1]
    module = importlib.import_module(f"training.{command.replace('-', '_')}")
    for name in row.code(1):
        assert f"`{name}`" in module.__doc__


@pytest.mark.parametrize(
    ("page", "command"),
    [(name, command) for name, page in PAGES.items() for command in pages.commands(page)],
)
def test_page_commands_are_parsed(page, command):
    _, name, *arguments = shlex.split(command)
    parse_flags(name, arguments)


# === Python ===


@pytest.fixture(scope="module")
def models_directory(tmp_path_factory):
    """A directory with small models under the names on the pages, and a Hub cache."""
    directory = tmp_path_factory.mktemp("models")
    keras.utils.set_random_seed(1)
    config = keras_bert.BertConfig(**TINY, dropout=0.0, attention_dropout=0.0)
    text = keras_bert.data.TextClassifierPreprocessor(keras_bert.WordPieceTokenizer(VOCABULARY))

    def save(task, name):
        randomize(task)
        snapshot = directory / "hub" / f"models--{name.replace('/', '--')}" / "snapshots" / "1"
        checkpoints.save_hugging_face(task, snapshot)
        refs = snapshot.parents[1] / "refs"
        refs.mkdir()
        (refs / "main").write_text("1")
        return snapshot

    def backbone(**changes):
        return keras_bert.Backbone(config.replace(**changes))

    pretrainer = keras_bert.Pretrainer(backbone(), text)
    save(pretrainer, "google-bert/bert-base-uncased")
    classifier = keras_bert.TextClassifier(
        backbone(), preprocessor=text, class_names=["negative", "positive"]
    )
    (directory / "mine").symlink_to(save(classifier, "you/sentiment"))
    names = ["O", "B-PER", "I-PER"]
    words = keras_bert.data.TokenClassifierPreprocessor(text.tokenizer)
    save(
        keras_bert.TokenClassifier(backbone(), preprocessor=words, class_names=names),
        "you/entities",
    )
    questions = keras_bert.data.QuestionAnswererPreprocessor(text.tokenizer)
    save(keras_bert.QuestionAnswerer(backbone(), questions), "you/squad")
    detector = keras_bert.ReplacedTokenDetector(
        backbone(pooler=False, pooler_activation="gelu_erf"), text, generator_size=0.5
    )
    save(detector, "google/electra-small-discriminator")
    embedder_snapshot = save(classifier, "you/vectors")
    _make_sentence_transformer(embedder_snapshot)
    (directory / "my_vectors").symlink_to(embedder_snapshot)

    original_directory = directory / "uncased_L-12_H-768_A-12"
    tf1 = keras_bert.Pretrainer(backbone(activation="gelu_tanh"), text)
    checkpoints.save_google_tf1(tf1, original_directory)
    (directory / "uncased_L-2_H-128_A-2").symlink_to(original_directory)
    (directory / "vocab.txt").write_text("\n".join(VOCABULARY) + "\n")
    _save_keras_hub_model(directory)
    return directory


def _make_sentence_transformer(directory):
    """Adds the files that define the pooling of a sentence-transformers model."""
    kinds = ("Transformer", "Pooling", "Normalize")
    modules = [
        {
            "idx": index,
            "name": str(index),
            "path": f"{index}_{kind}" if index else "",
            "type": f"sentence_transformers.models.{kind}",
        }
        for index, kind in enumerate(kinds)
    ]
    (directory / "modules.json").write_text(json.dumps(modules))
    (directory / "1_Pooling").mkdir()
    pooling = {"word_embedding_dimension": 8, "pooling_mode_mean_tokens": True}
    (directory / "1_Pooling" / "config.json").write_text(json.dumps(pooling))


def _save_keras_hub_model(directory):
    import keras_hub

    tokenizer = keras_hub.tokenizers.BertTokenizer(vocabulary=list(VOCABULARY), lowercase=True)
    preprocessor = keras_hub.models.BertTextClassifierPreprocessor(tokenizer)
    backbone = keras_hub.models.BertBackbone(**TINY, dropout=0.0)
    classifier = keras_hub.models.BertTextClassifier(
        backbone, num_classes=2, preprocessor=preprocessor
    )
    randomize(classifier)
    classifier.save_to_preset(str(directory / "my_bert"))


@pytest.fixture
def namespaces(models_directory, tmp_path, monkeypatch):
    """Two namespaces, for the old and the new code, in a directory with models."""
    import datasets
    import huggingface_hub
    import keras_hub
    import sklearn.metrics
    import torch
    import transformers

    for path in models_directory.iterdir():
        (tmp_path / path.name).symlink_to(path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(models_directory / "hub"))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(
        transformers.utils.hub.constants, "HF_HUB_CACHE", str(models_directory / "hub")
    )
    common = {
        "datasets": datasets,
        "directory": "uncased_L-12_H-768_A-12",
        "keras": keras,
        "labels": LABELS,
        "np": np,
        "sklearn": sklearn,
        "tf": tf,
        "texts": TEXTS,
    }
    transformers_names = {name: getattr(transformers, name) for name in TRANSFORMERS_NAMES}
    old = {**common, **transformers_names, "keras_hub": keras_hub, "torch": torch}
    return old, {**common, "keras_bert": keras_bert}


def run(code: list[str], namespace: dict) -> object:
    """Runs pieces of code and returns the value of the last piece if it is an expression."""
    *first_pieces, last_piece = code
    for piece in first_pieces:
        exec(piece, namespace)
    if isinstance(ast.parse(last_piece).body[-1], ast.Expr):
        return eval(last_piece, namespace)
    exec(last_piece, namespace)
    return None


def to_comparable(value: object) -> object:
    """Converts tensors to arrays so that values can be compared."""
    if isinstance(value, tf.RaggedTensor):
        return value.to_list()
    if hasattr(value, "detach"):  # a PyTorch tensor
        return value.detach().numpy()
    if keras.ops.is_tensor(value) or isinstance(value, tf.Tensor):
        value = value.numpy() if isinstance(value, tf.Tensor) else keras.ops.convert_to_numpy(value)
    return value


def assert_same(old: object, new: object, location: str) -> None:
    """Checks that both sides of a row have the same value."""
    old, new = to_comparable(old), to_comparable(new)
    if isinstance(old, dict):
        for name in old:
            assert_same(old[name], new[name], location)
    elif isinstance(old, list) and old and isinstance(old[0], dict | list):
        for first, second in zip(old, new, strict=True):
            assert_same(first, second, location)
    else:
        old, new = np.asarray(old), np.asarray(new)
        if old.dtype.kind in "SUO" or new.dtype.kind in "SUO":
            assert old.astype(str).tolist() == new.astype(str).tolist(), location
        else:
            np.testing.assert_allclose(new, old, atol=2e-5, err_msg=location)


@pytest.mark.parametrize("page", PAGES)
def test_python_rows_run(page, namespaces):
    old, new = namespaces
    with warnings.catch_warnings():
        # New heads and other libraries cause warnings.
        warnings.simplefilter("ignore")
        for block in pages.code_blocks(PAGES[page], "python"):
            exec(block, new)
        for block in pages.code_blocks(PAGES[page], "py"):  # the old code
            exec(block, old)
        for row in ROWS[page]:
            if row in FLAG_ROWS or row in FILE_ROWS:
                continue
            location = f"{row}: {row.cells}"
            code = [piece for piece in row.code(len(row.cells) - 1) if is_python(piece)]
            assert code or row.cells[-1], location
            if "quantize" in row.cells[0]:
                # Keras collects the garbage of the whole process for each quantized weight.
                gc.freeze()
            try:
                values = [run([piece], new) for piece in code]
                if row.both_sides:
                    old_value = run([row.code(0)[0]], old)
                    if old_value is not None:
                        assert_same(old_value, values[0], location)
                sizes = re.search(r"L-(\d+)_H-(\d+)_A-(\d+)", row.cells[0])
                if sizes and isinstance(values[0], keras_bert.BertConfig):
                    new_sizes = values[0].num_layers, values[0].hidden_dim, values[0].num_heads
                    assert new_sizes == tuple(map(int, sizes.groups())), location
            except Exception as error:
                error.add_note(location)
                raise


def is_python(piece: str) -> bool:
    """Returns whether a piece of code can be run, unlike commands, names and abbreviations."""
    if piece.startswith(("keras-bert", "--", ".")) or "…" in piece:
        return False
    return not re.fullmatch(r"\w+", piece)
