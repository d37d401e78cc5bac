# SPDX-License-Identifier: Apache-2.0
"""Draws the package diagram and the serving diagram in docs/assets.

    python -m docs.hooks.diagrams

The package order is computed from the imports in keras_bert/.
"""

from __future__ import annotations

import ast
import functools
from xml.sax.saxutils import escape

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
# These grays and blues are legible on light and on dark pages.
_TEXT, _LINE, _BLUE = "#768390", "#a3adba", "#5c6bc0"
_WIDTH, _GAP = 480, 8


def architecture() -> str:
    """Returns an SVG of the packages. Each package imports only from lower rows."""
    tiers: dict[int, list[str]] = {}
    for name in DESCRIPTIONS:
        tiers.setdefault(_tier(name), []).append(name)
    shapes = [_box(0, 0, _WIDTH, "training", "the keras-bert commands: finetune, pretrain, serve")]
    y = 44 + _GAP
    for tier in sorted(tiers):
        names = tiers[tier]
        width = (_WIDTH - _GAP * (len(names) - 1)) / len(names)
        for column, name in enumerate(names):
            shapes.append(_box(column * (width + _GAP), y, width, name, DESCRIPTIONS[name]))
        y += 44 + _GAP
    shapes.append(_text(_WIDTH / 2, y + 12, "Each package imports only from the rows below it."))
    return _svg("The packages of keras_bert in their dependency order", y + 20, shapes)


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
    middle = _WIDTH / 2
    shapes = [
        _box(90, 0, 300, "Text", "“a bowl of noodle soup”"),
        _arrow(44, 70, "fit, classify, or an HTTP request"),
        f'<rect x="1" y="72" width="{_WIDTH - 2}" height="186" rx="6" fill="none" '
        f'stroke="{_BLUE}" stroke-dasharray="5 4"/>',
        _text(middle, 92, "One model: a task, its .keras file, its export", color=_BLUE),
        _box(90, 102, 300, "Tokenizer", "[CLS] a bowl of noodle soup [SEP]"),
        _box(90, 154, 300, "Encoder", "one vector for each token"),
        _box(90, 206, 300, "Head", "a probability for each class"),
        _arrow(258, 290, "export"),
    ]
    servers = {
        "keras-bert serve": "HTTP",
        "TensorFlow Serving": "HTTP, gRPC",
        "ONNX, OpenVINO": "other runtimes",
    }
    width = (_WIDTH - _GAP * (len(servers) - 1)) / len(servers)
    for column, (name, protocol) in enumerate(servers.items()):
        shapes.append(_box(column * (width + _GAP), 292, width, name, protocol))
    shapes += [
        _arrow(336, 366, "JSON"),
        _box(90, 368, 300, "Answer", '{"label": "food", "score": 0.954}'),
    ]
    return _svg("From a text to a served answer", 414, shapes)


def _svg(title: str, height: float, shapes: list[str]) -> str:
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height:.0f}" '
            f'viewBox="0 0 {_WIDTH} {height:.0f}" font-family="system-ui, sans-serif">',
            f"<title>{escape(title)}</title>",
            *shapes,
            "</svg>\n",
        ]
    )


def _box(x: float, y: float, width: float, name: str, description: str) -> str:
    """Draws a box of height 44 with a name and, below it, a description."""
    middle = x + width / 2
    return "\n".join(
        [
            f'<rect x="{x + 1:.1f}" y="{y + 1}" width="{width - 2:.1f}" height="42" rx="6" '
            f'fill="none" stroke="{_LINE}"/>',
            _text(middle, y + 19, name, weight="bold", size=13),
            _text(middle, y + 35, description),
        ]
    )


def _arrow(top: float, bottom: float, label: str) -> str:
    x = _WIDTH / 2
    return "\n".join(
        [
            f'<path d="M{x} {top + 3}V{bottom - 3}m-4 -6l4 6l4 -6" fill="none" stroke="{_LINE}"/>',
            _text(x + 10, (top + bottom) / 2 + 4, label, anchor="start"),
        ]
    )


def _text(
    x: float,
    y: float,
    words: str,
    *,
    color: str = _TEXT,
    weight: str = "normal",
    size: int = 11,
    anchor: str = "middle",
) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.0f}" fill="{color}" font-size="{size}" font-weight="{weight}" '
        f'text-anchor="{anchor}">{escape(words)}</text>'
    )


DIAGRAMS = {"architecture.svg": architecture, "serving.svg": serving}


def main() -> None:
    for name, draw in DIAGRAMS.items():
        atomic.write_text(ASSETS / name, draw())


if __name__ == "__main__":
    main()
