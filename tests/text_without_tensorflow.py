# SPDX-License-Identifier: Apache-2.0
"""Uses a task on text, and pre-trains. On PyTorch, it also runs other commands.

This is a separate process, because it shows the modules that such a process imports:

    python -m tests.text_without_tensorflow DIRECTORY
"""

import contextlib
import runpy
import sys
from pathlib import Path

import keras
import numpy as np
from absl import app, flags

import keras_bert
from keras_bert.ops.lazy_tensorflow import set_random_seed
from tests.task_cases import NUM_ROWS, make_task, task_case

TEXTS = ["a good film", "a bad film", "the film is good", "bad"]
LABELS = [1, 0, 1, 0]


def use_classifier(directory: Path) -> None:
    """Uses a task as users do. `tests/tasks/contract_test.py` checks the results."""
    case = task_case("classes")
    task = make_task(case)
    task.compile("sgd")
    options = {"batch_size": 11, "verbose": 0}
    task.fit(**case.data, sample_weight=np.ones(NUM_ROWS), validation_split=0.5, **options)
    task.evaluate(**case.data, **options)
    case.answers(task)
    task.save(directory / "task.keras")
    case.answers(keras_bert.load_model(directory / "task.keras"))
    task.save_to_preset(directory / "classes")
    type(task).from_preset(directory / "classes")
    tokenizer = keras_bert.Tokenizer.from_preset(directory / "classes")
    assert tokenizer.decode(tokenizer.encode(TEXTS[0]), skip_special_tokens=True)


def run_commands(directory: Path) -> None:
    """Runs `finetune`, and the commands that make its inputs or read its outputs."""
    data, texts = directory / "reviews.tsv", directory / "texts.txt"
    rows = [f"{text}\t{label}\n" for text, label in zip(TEXTS, LABELS, strict=True)]
    data.write_text("".join(["text\tlabel\n", *rows * 6]))
    texts.write_text("\n".join(TEXTS))
    tokenizer = {"vocabulary_size": 60, "output_dir": directory / "tokenizer"}
    run("tokenizer", input_files=texts, **tokenizer)
    preset, model = directory / "classes", directory / "run" / "seed_1" / "model.keras"
    columns = {"text": "text", "label": "label"}
    run("inspect", data_file=data, preset=preset, **columns)
    files = {"train_file": data, "dev_file": data, "output_dir": directory / "run"}
    sizes = {"epochs": 1, "batch_size": 12, "sequence_length": 16, "export": False}
    run("finetune", preset=preset, **files, **columns, **sizes)
    run("predict", model=model, input=texts, output=directory / "answers.jsonl")
    run("evaluate", model=model, data_file=data, report_dir=directory / "scores", **columns)
    run("insight", model=model, data_file=data, report_dir=directory / "insight", **columns)


def pretrain(directory: Path) -> None:
    """Pre-trains on records of text."""
    corpus = directory / "corpus.txt"
    document = "\n".join(f"{text} . {other} ." for text in TEXTS for other in TEXTS)
    corpus.write_text("\n\n".join([document] * 8))
    settings = {
        **{"model": "bert_tiny_uncased", "num_layers": 1, "hidden_dim": 8, "num_heads": 2},
        **{"vocabulary_size": 60, "precision": "float32", "batch_size": 4, "num_steps": 4},
        **{"warmup_steps": 1, "eval_every": 2, "duplicate_factor": 1, "num_workers": 1},
        **{"dev_batches": 1, "measure_energy": False, "phases": "16:1"},
    }
    output = directory / "pretrained"
    run("pretrain", input_files=corpus, dev_files=corpus, output_dir=output, **settings)
    assert (output / "preset" / "model.safetensors").exists()


def run(command: str, **values: object) -> None:
    """Runs a command of `training/` with the values of its flags."""
    sys.argv = [command, *(f"--{name}={value}" for name, value in values.items())]
    known_flags = set(flags.FLAGS)
    with contextlib.suppress(SystemExit):
        runpy.run_module(f"training.{command}", run_name="__main__", alter_sys=True)
    for name in set(flags.FLAGS) - known_flags:
        delattr(flags.FLAGS, name)
    flags.FLAGS.unparse_flags()


def main(directory: Path) -> None:
    set_random_seed(0)
    use_classifier(directory)
    app.define_help_flags()
    # The commands import the same modules on both backends, and JAX compiles each step they run.
    if keras.backend.backend() == "torch":
        run_commands(directory)
    pretrain(directory)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
    print("TensorFlow is", "imported" if "tensorflow" in sys.modules else "not imported")
