# SPDX-License-Identifier: Apache-2.0
"""Draws the diagrams in docs/assets: packages, serving, and the model.

    python -m docs.hooks.diagrams

The package order is computed from the imports in keras_bert/.
"""

from __future__ import annotations

import ast
import functools

from docs.hooks import model_diagrams
from docs.hooks.drawing import BLUE, GAP, WIDTH, arrow, box, svg, text
from docs.hooks.input_diagram import bert_input
from docs.hooks.speed_tables import ROOT
from keras_bert import atomic

ASSETS = ROOT / "docs" / "assets"
DESCRIPTIONS = {
    "insight": "interpretability",
    "tasks": "fit, predict, classify",
    "export": "SavedModel, ONNX",
    "data": "readers, batches, masking",
    "models": "Backbone, save and load",
    "text": "tokenizers",
    "checkpoints": "Hugging Face, TF1, presets",
    "layers": "embeddings, blocks, heads",
    "vocabularies": "vocabulary files",
    "optimizers": "AdamW, LAMB",
    "losses": "for each task",
    "metrics": "weighted means",
    "config": "BertConfig",
    "families": "BERT, RoBERTa, ModernBERT…",
    "ops": "kernels for each backend",
}


def architecture() -> str:
    """Returns an SVG of the packages. Each package imports only from lower rows."""
    tiers: dict[int, list[str]] = {}
    for name in DESCRIPTIONS:
        tiers.setdefault(_tier(name), []).append(name)
    shapes = [box(0, 0, WIDTH, "training", "the keras-bert commands: finetune, pretrain, serve")]
    y = 44 + GAP
    for tier in sorted(tiers):
        names = tiers[tier]
        width = (WIDTH - GAP * (len(names) - 1)) / len(names)
        for column, name in enumerate(names):
            shapes.append(box(column * (width + GAP), y, width, name, DESCRIPTIONS[name]))
        y += 44 + GAP
    shapes.append(text(WIDTH / 2, y + 12, "Each package imports only from the rows below it."))
    return svg("The packages of keras_bert in their dependency order", y + 20, shapes)


def _tier(name: str) -> int:
    """Returns a package's row, one below its lowest importer. The top row is 0."""
    importers = [other for other in DESCRIPTIONS if name in _imports(other)]
    return 1 + max(map(_tier, importers), default=-1)


@functools.cache
def _imports(name: str) -> set[str]:
    """Returns the packages and modules in keras_bert that a package imports."""
    path = ROOT / "keras_bert" / name
    found: set[str] = set()
    for file in path.rglob("*.py") if path.is_dir() else [path.with_suffix(".py")]:
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module == "keras_bert":
                found |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                root, _, rest = node.module.partition(".")
                found |= {rest.partition(".")[0]} if root == "keras_bert" else set()
    return found - {name}


def serving() -> str:
    """Returns an SVG that shows how a server computes a prediction from text."""
    middle = WIDTH / 2
    shapes = [
        box(90, 0, 300, "Text", "“a bowl of noodle soup”"),
        arrow(44, 70, "fit, classify, or an HTTP request"),
        f'<rect x="1" y="72" width="{WIDTH - 2}" height="186" rx="6" fill="none" '
        f'stroke="{BLUE}" stroke-dasharray="5 4"/>',
        text(middle, 92, "One model: a task, its .keras file, its export", color=BLUE),
        box(90, 102, 300, "Tokenizer", "[CLS] a bowl of noodle soup [SEP]"),
        box(90, 154, 300, "Encoder", "one vector for each token"),
        box(90, 206, 300, "Head", "a probability for each class"),
        arrow(258, 290, "export"),
    ]
    servers = {
        "keras-bert serve": "HTTP",
        "TensorFlow Serving": "HTTP, gRPC",
        "ONNX, OpenVINO": "other runtimes",
    }
    width = (WIDTH - GAP * (len(servers) - 1)) / len(servers)
    for column, (name, protocol) in enumerate(servers.items()):
        shapes.append(box(column * (width + GAP), 292, width, name, protocol))
    shapes += [
        arrow(336, 366, "JSON"),
        box(90, 368, 300, "Answer", '{"label": "food", "score": 0.954}'),
    ]
    return svg("From a text to a served answer", 414, shapes)


DIAGRAMS = {
    "architecture.svg": architecture,
    "serving.svg": serving,
    "bert_input.svg": bert_input,
    **model_diagrams.DIAGRAMS,
}


def main() -> None:
    for name, draw in DIAGRAMS.items():
        atomic.write_text(ASSETS / name, draw())


if __name__ == "__main__":
    main()
