# SPDX-License-Identifier: Apache-2.0
"""All that users do with text on JAX and PyTorch but exports, and the programs that do it.

A process of its own, since what it shows is what such a process imports:

    python -m tests.text_without_tensorflow FOLDER [tensorflow_is_blocked]
"""

import contextlib
import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from absl import app, flags

from tests import tensorflow_blocker

if __name__ == "__main__" and sys.argv[2:]:
    tensorflow_blocker.install()

import keras_bert
from keras_bert.ops.lazy_tensorflow import set_random_seed
from keras_bert.text import train_vocabulary

TEXTS = ["a good film", "a bad film", "the film is good", "bad"]
LABELS = [1, 0, 1, 0]
WORDS = [text.split() for text in TEXTS]
TAGS = [[len(word) % 2 for word in words] for words in WORDS]
ANSWERS = {"text": ["film"], "answer_start": [2]}
QUESTIONS = [{"question": "what", "context": "a film", "answers": ANSWERS}] * 4
CHOICES = [(text, ["good", "bad"]) for text in TEXTS]
# The rows that `fit` takes of each task, and its verb
TASKS: dict[str, tuple[tuple[Any, ...], Callable[[Any], Any]]] = {
    "TextClassifier": ((TEXTS, LABELS), lambda task: task.classify(TEXTS)),
    "TokenClassifier": (
        (WORDS, TAGS),
        lambda task: task.tag(WORDS),
    ),
    "QuestionAnswerer": ((QUESTIONS,), lambda task: task.answer("what", "a film")),
    "MultipleChoice": ((CHOICES, LABELS), lambda task: task.choose(CHOICES)),
    "TextEmbedder": (([(text, "film") for text in TEXTS],), lambda task: task.embed(TEXTS)),
    "MaskedLM": ((TEXTS,), lambda task: task.fill("a [MASK] film")),
    "ReplacedTokenDetector": ((TEXTS,), lambda task: task.detect(TEXTS)),
}


def make(name: str, vocabulary: list[str]) -> Any:
    config = keras_bert.BertConfig(
        vocabulary_size=len(vocabulary),
        num_layers=1,
        num_heads=2,
        hidden_dim=8,
        intermediate_dim=8,
        max_sequence_length=16,
    )
    task = getattr(keras_bert, name)
    options = {"class_names": ["bad", "good"]} if name.endswith("Classifier") else {}
    preprocessor = {"tokenizer": {"vocabulary": vocabulary}, "sequence_length": 16}
    if name == "QuestionAnswerer":
        preprocessor |= {"doc_stride": 4, "max_query_length": 4}
    if name == "ReplacedTokenDetector":
        options = {"generator_size": 0.5}
    return task(keras_bert.Backbone(config), preprocessor=preprocessor, **options)


def use_task(name: str, vocabulary: list[str], folder: Path) -> None:
    rows, ask = TASKS[name]
    task = make(name, vocabulary)
    task.compile("sgd")
    weights = {"sample_weight": np.ones(4)} if name == "TextClassifier" else {}
    task.fit(*rows, batch_size=2, validation_split=0.5, verbose=0, **weights)
    if task.supports_class_weight:
        task.fit(
            *rows, batch_size=2, validation_data=rows, class_weight={0: 1.0, 1: 2.0}, verbose=0
        )
    task.evaluate(*rows, batch_size=2, verbose=0)
    if name not in ("TextEmbedder", "MaskedLM", "ReplacedTokenDetector"):
        task.predict(rows[0], batch_size=2, verbose=0)
    ask(task)
    assert task.num_steps(rows[0], batch_size=2) == 2
    assert len(task.sequence_lengths(rows[0])) >= 4
    task.save(folder / "task.keras")
    ask(keras_bert.load_model(folder / "task.keras"))
    task.save_to_preset(folder / name)
    type(task).from_preset(folder / name)


def use_programs(folder: Path) -> None:
    """Runs `finetune`, and the programs that make what it reads or read what it writes."""
    data, texts = folder / "reviews.tsv", folder / "texts.txt"
    rows = [f"{text}\t{label}\n" for text, label in zip(TEXTS, LABELS, strict=True)]
    data.write_text("".join(["text\tlabel\n", *rows * 6]))
    texts.write_text("\n".join(TEXTS))
    tokenizer = {"vocabulary_size": 60, "output_dir": folder / "tokenizer"}
    run("tokenizer", input_files=texts, **tokenizer)
    preset, model = folder / "TextClassifier", folder / "run" / "seed_1" / "model.keras"
    columns = {"text": "text", "label": "label"}
    run("inspect", data_file=data, preset=preset, **columns)
    files = {"train_file": data, "dev_file": data, "output_dir": folder / "run"}
    sizes = {"epochs": 1, "batch_size": 12, "sequence_length": 16, "export": False}
    run("finetune", preset=preset, **files, **columns, **sizes)
    run("predict", model=model, input=texts, output=folder / "answers.jsonl")
    run("evaluate", model=model, data_file=data, report_dir=folder / "scores", **columns)
    run("insight", model=model, data_file=data, report_dir=folder / "insight", **columns)


def pretrain(folder: Path) -> None:
    """Pre-trains, on records that the program makes of text."""
    corpus = folder / "corpus.txt"
    document = "\n".join(f"{text} . {other} ." for text in TEXTS for other in TEXTS)
    corpus.write_text("\n\n".join([document] * 8))
    encoder = {"num_layers": 1, "hidden_dim": 8, "num_heads": 2, "vocabulary_size": 60}
    steps = {"batch_size": 4, "num_steps": 4, "warmup_steps": 1, "interval": 2, "phases": "16:1"}
    files = {"input_files": corpus, "dev_files": corpus, "output_dir": folder / "pretrained"}
    options = {"duplicate_factor": 1, "num_workers": 1, "dev_batches": 1, "measure_energy": False}
    run("pretrain", model="bert_tiny_uncased", **files, **encoder, **steps, **options)
    assert (folder / "pretrained" / "preset").is_dir()


def run(program: str, **values: object) -> None:
    """Runs a program of `training/` with the values of its flags."""
    sys.argv = [program, *(f"--{name}={value}" for name, value in values.items())]
    others = set(flags.FLAGS)
    with contextlib.suppress(SystemExit):
        runpy.run_module(f"training.{program}", run_name="__main__", alter_sys=True)
    for name in set(flags.FLAGS) - others:
        delattr(flags.FLAGS, name)
    flags.FLAGS.unparse_flags()


def main(folder: Path) -> None:
    set_random_seed(0)
    vocabulary = train_vocabulary(TEXTS, 60, progress=False)
    for name in TASKS:
        use_task(name, vocabulary, folder)
    app.define_help_flags()
    use_programs(folder)
    pretrain(folder)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
    print("TensorFlow is", "imported" if "tensorflow" in sys.modules else "not imported")
