# SPDX-License-Identifier: Apache-2.0
"""Runs the scripts in docs/guides and docs/extend, and writes pages with their output.

    python docs/run_guides.py                        # all scripts
    python docs/run_guides.py guides/classify        # one script
    python docs/run_guides.py --prose                # updates text and keeps the outputs

Scripts are in jupytext's percent format. A code cell starts with `# %%`, a text cell with
`# %% [markdown]`. If a test runs the script at a reduced size, the code in a cell's metadata
`small` runs after the cell, for example `small="rows = 50"`. This code may call `small_encoder()`.

Each script runs in a new process and in a temporary directory. Its page has the same name with the
suffix `.md`. The scripts in `NOTEBOOKS` also get an executed notebook.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import functools
import importlib.metadata
import io
import json
import os
import pprint
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jupytext
import nbformat

DOCS = Path(__file__).resolve().parent
DIRECTORIES = ("guides", "extend")
NOTEBOOKS = ("guides/classify", "guides/questions", "guides/pretrain")
_WIDTH = 92
# The start of a page's last line. This line is not compared with the script.
_STAMP = "*Written by `python docs/run_guides.py"
_LICENSE = "# SPDX-License-Identifier"


def names() -> list[str]:
    """Returns the scripts' paths relative to `docs`, without suffix."""
    return [
        path.relative_to(DOCS).with_suffix("").as_posix()
        for directory in DIRECTORIES
        for path in sorted((DOCS / directory).glob("*.py"))
    ]


def read_cells(name: str) -> list[Any]:
    """Returns a script's cells without the license comment."""
    source = (DOCS / f"{name}.py").read_text(encoding="utf-8")
    cells = jupytext.reads(source, fmt="py:percent").cells
    return [cell for cell in cells if not cell.source.startswith(_LICENSE)]


def run_cells(cells: list[Any], *, small: bool = False) -> Iterator[tuple[Any, str]]:
    """Runs a script's cells in the current directory.

    Args:
        cells: The cells.
        small: Whether to run the code in the metadata `small` after each cell.

    Yields:
        Each code cell with its output, including the value of its last expression.
    """
    namespace: dict[str, Any] = {"__name__": "__main__"}
    if small:
        namespace["small_encoder"] = small_encoder
    for cell in cells:
        if cell.cell_type != "code":
            continue
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            _run(cell.source, namespace)
            if small and "small" in cell.metadata:
                _run(cell.metadata["small"], namespace)
        yield cell, _readable(printed.getvalue())


def _run(source: str, namespace: dict[str, Any]) -> None:
    """Runs code like a notebook. If it ends with an expression, prints the value."""
    tree = ast.parse(source)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "<guide>", "exec"), namespace)
    if last is not None:
        value = eval(compile(ast.Expression(last.value), "<guide>", "eval"), namespace)
        shown = value if isinstance(value, str) else pprint.pformat(value, width=_WIDTH)
        # An object without a readable form, such as the `History` of `fit`, is not shown.
        if value is not None and " object at 0x" not in shown:
            print(shown)


@functools.cache
def small_encoder() -> Path:
    """Returns a preset with one narrow layer, random weights and MiniLM's vocabulary."""
    import keras_bert
    from keras_bert import minilm

    tokenizer = keras_bert.WordPieceTokenizer(minilm.directory() / "vocab.txt")
    config = keras_bert.BertConfig(num_layers=1, num_heads=2, hidden_dim=32, intermediate_dim=64)
    preprocessor = keras_bert.data.TextClassifierPreprocessor(tokenizer)
    directory = Path(tempfile.mkdtemp(), "encoder")
    keras_bert.TextEmbedder(keras_bert.Backbone(config), preprocessor).save_to_preset(directory)
    return directory


def _readable(printed: str) -> str:
    """Removes colors and all but the last version of overwritten lines."""
    printed = re.sub(r"\x1b\[[0-9;]*m|\x08", "", printed)
    lines = [line.split("\r")[-1].rstrip() for line in printed.replace("\r\n", "\n").split("\n")]
    return "\n".join(lines).strip("\n")


def run_here(name: str, *, small: bool = False) -> dict[int, str]:
    """Runs a script in this process and a temporary directory.

    Returns:
        The output of each cell by cell index.
    """
    cells, outputs = read_cells(name), {}
    before = os.getcwd()
    with tempfile.TemporaryDirectory() as directory:
        os.chdir(directory)
        try:
            for cell, printed in run_cells(cells, small=small):
                outputs[cells.index(cell)] = printed
        finally:
            os.chdir(before)
    return outputs


# === Pages ===


def render_page(name: str, outputs: dict[int, str], stamp: str) -> str:
    """Returns the script and its outputs as Markdown."""
    parts = []
    for index, cell in enumerate(read_cells(name)):
        if cell.cell_type == "markdown":
            parts.append(cell.source)
        else:
            parts.append(f"```python\n{cell.source}\n```")
            if outputs.get(index):
                parts.append(f"```text\n{outputs[index]}\n```")
    return "\n\n".join([*parts, "---", stamp]) + "\n"


def run_stamp(name: str, seconds: float) -> str:
    """Returns a page's last line with the command that wrote it, its time and versions."""
    versions = " and ".join(
        f"{library} {importlib.metadata.version(library)}" for library in ("keras", "tensorflow")
    )
    stem = name.split("/")[-1]
    notebook = f" As a notebook: [{stem}.ipynb]({stem}.ipynb)." if name in NOTEBOOKS else ""
    return f"{_STAMP} {name}` in {seconds:.0f} s of processor time, with {versions}.*{notebook}"


def without_outputs(page: str) -> str:
    """Returns a page's text and code, without outputs and the last line."""
    page = re.sub(r"(```python\n(?:(?!```).*\n)*```)\n\n```text\n(?:(?!```).*\n)*```", r"\1", page)
    return page.split(f"---\n\n{_STAMP}")[0]


def write_page(name: str, *, prose_only: bool) -> None:
    """Runs a script, and writes its page and notebook.

    Raises:
        RuntimeError: If the script fails. With `prose_only`, if the page does not contain one of
            the script's code cells.
    """
    page = DOCS / f"{name}.md"
    if prose_only:
        outputs, stamp = _read_outputs(page, name)
    else:
        started = os.times()
        outputs = _run_in_process(name)
        now = os.times()
        used = sum(now[2:4]) - sum(started[2:4])
        stamp = run_stamp(name, used)
    page.write_text(render_page(name, outputs, stamp), encoding="utf-8")
    if name in NOTEBOOKS:
        text = nbformat.writes(render_notebook(name, outputs)) + "\n"
        page.with_suffix(".ipynb").write_text(text, encoding="utf-8")


def _read_outputs(page: Path, name: str) -> tuple[dict[int, str], str]:
    """Reads the outputs and the last line from a page."""
    text = page.read_text(encoding="utf-8")
    pattern = r"```python\n((?:(?!```).*\n)*)```(?:\n\n```text\n((?:(?!```).*\n)*)```)?"
    written = re.findall(pattern, text)
    shown = {index: cell for index, cell in enumerate(read_cells(name)) if cell.cell_type == "code"}
    output_by_code = {code.rstrip("\n"): output.rstrip("\n") for code, output in written}
    missing = [cell.source for cell in shown.values() if cell.source not in output_by_code]
    if missing:
        raise RuntimeError(f"{page} does not contain this code. Run the script:\n{missing[0]}")
    outputs = {index: output_by_code[cell.source] for index, cell in shown.items()}
    return outputs, text.strip().splitlines()[-1]


def render_notebook(name: str, outputs: dict[int, str]) -> Any:
    """Returns the executed notebook in nbformat's format."""
    notebook = nbformat.v4.new_notebook()
    notebook.metadata["kernelspec"] = {
        "display_name": "Python 3", "language": "python", "name": "python3"
    }  # fmt: skip
    count = 0
    for index, cell in enumerate(read_cells(name)):
        if cell.cell_type == "markdown":
            new = nbformat.v4.new_markdown_cell(cell.source)
        else:
            count += 1
            new = nbformat.v4.new_code_cell(cell.source, execution_count=count)
            if outputs.get(index):
                new.outputs = [nbformat.v4.new_output("stream", text=outputs[index] + "\n")]
        new.id = f"{name.split('/')[-1]}-{index}"
        notebook.cells.append(new)
    return notebook


def _run_in_process(name: str) -> dict[int, str]:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "outputs.json")
        subprocess.run(
            [sys.executable, __file__, name, f"--outputs={path}"],
            check=True,
            env={"KERAS_BACKEND": "tensorflow", "TF_CPP_MIN_LOG_LEVEL": "3", **os.environ},
        )
        return {int(index): text for index, text in json.loads(path.read_text("utf-8")).items()}


def main() -> None:
    parser = argparse.ArgumentParser(description="Runs the guides and writes their pages.")
    parser.add_argument("names", nargs="*", help="scripts, such as guides/classify; all by default")
    parser.add_argument("--prose", action="store_true", help="keep the outputs of the pages")
    parser.add_argument("--outputs", help=argparse.SUPPRESS)  # for the process of one script
    arguments = parser.parse_args()
    unknown = sorted(set(arguments.names) - set(names()))
    if unknown:
        parser.error(f"names must be among {', '.join(names())}. Received: {unknown[0]}")
    if arguments.outputs:
        outputs = run_here(arguments.names[0])
        Path(arguments.outputs).write_text(json.dumps(outputs), encoding="utf-8")
        return
    for name in arguments.names or names():
        print(name, flush=True)
        write_page(name, prose_only=arguments.prose)


if __name__ == "__main__":
    main()
