# SPDX-License-Identifier: Apache-2.0
"""Checks, before a release, what users install: each in an empty environment of its own.

    python -m tests.release_check                # wheel, extras, documentation, README's command
    python -m tests.release_check wheel docs     # some of them
    python -m tests.release_check readme suite   # `suite` is the README's second command

The wheel is built from a copy of this checkout. For each check there is a new virtual environment,
with the wheel and the extras that it names, and an empty folder, in which its commands do what the
extra is for, on a model of a few thousand weights. A line tells how each ended; the last output of
one that failed is shown. The exit status is 1 if any failed. Each takes minutes, most of them to
install TensorFlow; packages come from where pip is configured to look.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from training.command_line import COMMANDS

ROOT = Path(__file__).resolve().parent.parent
_PROGRAMS = "Scripts" if os.name == "nt" else "bin"
# What another environment has set, which an empty one lacks
_NOT_PASSED = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "KERAS_BACKEND")

# Trains, saves, loads and exports a classifier of text on Keras' backend, and leaves files that
# other commands read
TINY = """
import csv
import importlib.util
import keras
import keras_bert
from keras_bert.data import TextClassifierPreprocessor

words = ["good", "bad", "film", "plot"]
tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words]
tokenizer = keras_bert.WordPieceTokenizer(tokens)
config = keras_bert.BertConfig(
    vocabulary_size=len(tokens), num_layers=1, hidden_dim=16, num_heads=2, intermediate_dim=32,
    max_sequence_length=256,
)
task = keras_bert.TextClassifier(
    keras_bert.Backbone(config),
    preprocessor=TextClassifierPreprocessor(tokenizer, 16),
    class_names=["negative", "positive"],
)
positive, negative = ("good film", "good", "a good plot"), ("bad plot", "bad film", "bad")
rows = [(text, "positive") for text in positive] + [(text, "negative") for text in negative]
rows *= 20
texts, labels = zip(*rows)
keras.utils.set_random_seed(0)
task.compile(keras.optimizers.Adam(0.01))
task.fit(list(texts), list(labels), epochs=20, batch_size=8, verbose=0)
expected = task.classify(["good plot", "bad"])
assert [answer["label"] for answer in expected] == ["positive", "negative"], expected
task.save("tiny.keras")
assert keras_bert.load_model("tiny.keras").classify(["good plot", "bad"]) == expected
task.save_to_preset("preset")
# It has no wheels for Windows, which SavedModels cannot be written on.
if importlib.util.find_spec("tensorflow_text"):
    task.export("export/1")
with open("rows.csv", "w", newline="") as file:
    csv.writer(file).writerows([("text", "label"), *rows])
"""
EXPORTS = """
import keras_bert

task = keras_bert.load_model("tiny.keras")
for name in ("tiny.onnx", "tiny.xml", "tiny.tflite"):
    format = {".onnx": "onnx", ".xml": "openvino", ".tflite": "litert"}[name[4:]]
    for dtype in ("float32", "int8"):
        is_calibrated = (format, dtype) == ("openvino", "int8")
        calibration = ["good film", "bad plot"] * 8 if is_calibrated else None
        task.export(f"{dtype}_{name}", format=format, dtype=dtype, calibration=calibration)
task.export("text.xml", format="openvino", text=True)
"""
CORPUS = "\n\n".join(["The film was good. The plot was bad.\nA good film has a good plot."] * 40)
BEIR = {
    "corpus.jsonl": "".join(
        f'{{"_id": "d{n}", "title": "", "text": "{word} film"}}\n'
        for n, word in enumerate(("good", "bad", "plot") * 4)
    ),
    "queries.jsonl": "".join(f'{{"_id": "q{n}", "text": "good film"}}\n' for n in range(10)),
    "qrels/test.tsv": "query-id\tcorpus-id\tscore\n"
    + "".join(f"q{n}\td{3 * (n % 4)}\t1\n" for n in range(10)),
}
_SMALL = "--num_layers=1 --hidden_dim=16 --num_heads=2 --batch_size=4 --phases=16:1 --num_steps=4"
_TUNED = "keras-bert finetune --train_file=rows.csv --preset=preset --epochs=1 --output_dir=tuned"


@dataclass(frozen=True)
class Check:
    """What is installed, and the commands that show what it is for.

    Args:
        extras: The extras that are installed with the wheel; `None` installs nothing.
        commands: Lines of bash, run in an empty folder by the environment's programs.
        in_checkout: Whether they are run in a copy of the checkout instead.
    """

    extras: str | None
    commands: tuple[str, ...]
    in_checkout: bool = False


def _readme_command(heading: str) -> str:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    found = re.search(rf"{re.escape(heading)}.*?```bash\n(.*?)```", text, re.DOTALL)
    assert found, f"README.md has no command after {heading!r}"
    return found[1]


CHECKS = {
    "wheel": Check(
        "",
        (
            "pip check",
            "keras-bert",
            *(f"keras-bert {name} --help" for group in COMMANDS.values() for name in group),
            "python tiny.py",
            "printf 'good\\nbad\\n' | keras-bert predict --model=export/1",
        ),
    ),
    "jax": Check("jax", ("KERAS_BACKEND=jax python tiny.py",)),
    "torch": Check("torch", ("KERAS_BACKEND=torch python tiny.py",)),
    "training": Check(
        "training",
        (
            "python tiny.py",
            "keras-bert inspect rows.csv --preset=preset --report_dir=inspected",
            f"{_TUNED} --tensorboard",
            "keras-bert evaluate --model=tiny.keras --data_file=rows.csv --report_dir=report",
        ),
    ),
    "tables": Check(
        "training,tables",
        (
            "python tiny.py",
            'python -c "from pyarrow import csv, parquet; '
            "parquet.write_table(csv.read_csv('rows.csv'), 'rows.parquet')\"",
            "keras-bert inspect rows.parquet --preset=preset",
        ),
    ),
    "energy": Check(
        "training,energy", ("python tiny.py", f"{_TUNED} | tee tuned.txt", "grep CO2 tuned.txt")
    ),
    # Nothing listens there, which locust reports
    "load": Check(
        "load",
        (
            "keras-bert benchmark --what=serve --subjects=http://localhost:9/v1/models/m | "
            "grep 'Connection refused'",
        ),
    ),
    "quickstart": Check("quickstart", ("keras-bert quickstart --epochs=1 --max_per_package=60",)),
    "vocabulary": Check(
        "vocabulary",
        tuple(
            f"keras-bert tokenizer --input_files=corpus.txt --kind={kind} "
            f"--output_dir={kind} --vocabulary_size={size}"
            for kind, size in (("wordpiece", 60), ("byte_pair", 280), ("sentence_piece", 60))
        ),
    ),
    "pretraining": Check(
        "pretraining",
        (
            "keras-bert pretrain --input_files=corpus.txt --format=paragraphs --vocabulary_size=60 "
            f"{_SMALL} --warmup_steps=1 --dev_batches=1",
        ),
    ),
    "ranking": Check(
        "ranking",
        (
            "python tiny.py",
            "keras-bert finetune --data_dir=beir --preset=preset --epochs=1 --candidates=5",
        ),
    ),
    "export": Check("export", ("python tiny.py", "python exports.py", "pip check")),
    "docs": Check(None, ('pip install -e ".[docs]" && python -m mkdocs build',), in_checkout=True),
    "readme": Check(None, (_readme_command("## In one command"),), in_checkout=True),
    "suite": Check(None, (_readme_command("<!-- test command -->"),), in_checkout=True),
}
# It takes as long as the whole suite
NOT_BY_DEFAULT = ("suite",)


def copy_checkout(folder: Path) -> None:
    """Copies the files of the checkout, but none that git ignores."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, folder / name)


def build_wheel(folder: Path) -> Path:
    """Builds the wheel from a copy of the checkout, as pip builds it."""
    source = folder / "source"
    copy_checkout(source)
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", folder, source]
    subprocess.run(command, check=True)
    (wheel,) = folder.glob("*.whl")
    return wheel


def write_files(folder: Path) -> None:
    """Writes the scripts and data that the commands use."""
    beir = {f"beir/{name}": content for name, content in BEIR.items()}
    files = {"tiny.py": TINY, "exports.py": EXPORTS, "corpus.txt": CORPUS, **beir}
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content, encoding="utf-8")


def run(name: str, wheel: Path, folder: Path) -> bool:
    """Runs a check in a new environment, and says whether it passed.

    Args:
        name: The name of the check.
        wheel: The path of the wheel.
        folder: An empty folder; the environment in it is deleted at the end.
    """
    check, started = CHECKS[name], time.monotonic()
    environment, work, log = folder / "environment", folder / "work", folder / "log.txt"
    work.mkdir()
    subprocess.run([sys.executable, "-m", "venv", environment], check=True)
    lines = list(check.commands)
    if check.extras is not None:
        extras = f"[{check.extras}]" if check.extras else ""
        lines.insert(0, f"pip install 'keras3-bert{extras} @ {wheel.as_uri()}'")
    (copy_checkout if check.in_checkout else write_files)(work)
    variables = {key: value for key, value in os.environ.items() if key not in _NOT_PASSED}
    variables |= {"PATH": f"{environment / _PROGRAMS}{os.pathsep}{os.environ['PATH']}"}
    variables |= {"TF_CPP_MIN_LOG_LEVEL": "3", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    # The first command that fails ends it
    script = "\n".join(["set -eo pipefail", *lines])
    with log.open("wb") as output:
        status = subprocess.run(
            [shutil.which("bash") or "bash", "-xc", script],
            cwd=work,
            env=variables,
            stdout=output,
            stderr=output,
        ).returncode
    seconds = time.monotonic() - started
    if status:
        print("\n".join(log.read_text(errors="replace").splitlines()[-40:]))
    print(f"{'FAILED' if status else 'passed'}  {name}  ({seconds:.0f} s)", flush=True)
    shutil.rmtree(environment)
    shutil.rmtree(work)
    return not status


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("checks", nargs="*", help=f"among {', '.join(CHECKS)}")
    names = parser.parse_args().checks or [name for name in CHECKS if name not in NOT_BY_DEFAULT]
    unknown = sorted(set(names) - set(CHECKS))
    if unknown:
        parser.error(f"there is no check {', '.join(unknown)}; they are {', '.join(CHECKS)}")
    with tempfile.TemporaryDirectory(prefix="keras_bert_release_") as folder:
        wheel = build_wheel(Path(folder))
        passed = []
        for name in names:
            (own := Path(folder, name)).mkdir()
            passed.append(run(name, wheel, own))
    sys.exit(0 if all(passed) else 1)


if __name__ == "__main__":
    main()
