# SPDX-License-Identifier: Apache-2.0
"""Writes the tables in docs/measurements/speed.md, and the chart, from speed.json.

    python -m docs.hooks.speed_tables                        # after speed.json has changed
    python -m docs.hooks.speed_tables --measure=masked_lm    # measures a table again first

To measure, install the compared libraries with `pip install -e ".[torch]" transformers`.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

from keras_bert import atomic

ROOT = Path(__file__).resolve().parent.parent.parent
DATA = ROOT / "docs" / "measurements" / "speed.json"
PAGE = DATA.with_suffix(".md")
CHART = ROOT / "docs" / "assets" / "speed.svg"
CHARTED = ("classifier_24", "masked_lm")
_LIBRARIES = {"keras_hub": "KerasHub", "matmuls": "only matmuls"}
_BACKENDS = {"tensorflow": "TensorFlow", "jax": "JAX", "torch": "PyTorch"}
_TABLE = re.compile(r"(<!-- measured: (\w+) -->\n).*?(<!-- end -->)", re.S)
# This mid gray is legible on light and dark pages.
_TEXT, _OURS, _OTHERS = "#768390", "#5c6bc0", "#a3adba"
# Labels are above the bars, where they fit in any font and are legible on a phone.
_WIDTH, _BAR_WIDTH, _BAR, _LINE = 380, 310, 12, 18


def read() -> dict[str, dict[str, Any]]:
    """Returns the measurements by name."""
    measurements = json.loads(DATA.read_text(encoding="utf-8"))
    return {measurement["name"]: measurement for measurement in measurements}


def label(subject: str, precision: str = "") -> str:
    """Returns a label for a subject such as `keras_hub+sorted:jax:bfloat16@roberta_base`.

    Args:
        subject: A subject of `training.benchmarks.benchmark`.
        precision: Precision if the subject does not include it.
    """
    rest, _, model = subject.partition("@")
    library, backend, *own = rest.split(":")
    library, *options = library.split("+")
    precision = own[0] if own else precision
    if library == "transformers" and precision.startswith("mixed_"):
        precision = precision.removeprefix("mixed_") + " autocast"
    parts = (_LIBRARIES.get(library, library), _BACKENDS[backend], precision, model, *options)
    return ", ".join(part for part in parts if part)


def ratio(row: dict[str, Any], rows: list[dict[str, Any]]) -> float:
    """Returns a row's time divided by the first row's time."""
    return row.get("ratio") or row["milliseconds"] / rows[0]["milliseconds"]


def table(measurement: dict[str, Any]) -> str:
    """Returns a measurement's table and conditions as Markdown."""
    rows = measurement["rows"]
    columns = {"Library": lambda row: label(row["subject"], _precision(measurement))}
    digits = 1 if rows[0]["milliseconds"] < 100 else 0
    columns["ms"] = lambda row: f"{row['milliseconds']:,.{digits}f}"
    if "fastest" in rows[0]:
        columns["range"] = lambda row: (
            f"{row['fastest']:,.{digits}f} to {row['slowest']:,.{digits}f}"
        )
    columns["ratio"] = lambda row: f"{ratio(row, rows):.2f}"
    lines = [f"| {' | '.join(columns)} |", "|---" + "|---:" * (len(columns) - 1) + "|"]
    lines += [f"| {' | '.join(cell(row) for cell in columns.values())} |" for row in rows]
    date = datetime.date.fromisoformat(measurement["date"])
    again = f"`--measure={measurement['name']}`"
    conditions = f"{date.day} {date:%B %Y}, {measurement['machine']}: {again}"
    return "\n".join([*lines, "", conditions, ""])


def _precision(measurement: dict[str, Any]) -> str:
    found = [flag for flag in measurement["flags"] if flag.startswith("--precision=")]
    return found[0].partition("=")[2] if found else "float32"


def words(measurement: dict[str, Any]) -> list[str]:
    """Returns the benchmark command."""
    subjects = ",".join(row["subject"] for row in measurement["rows"])
    prefix = [*shlex.split(measurement["prefix"]), "python", "-m", "training.benchmarks.benchmark"]
    return [*prefix, *measurement["flags"], f"--subjects={subjects}"]


def page_text(text: str) -> str:
    """Returns the page's text with up-to-date tables."""
    measurements = read()
    return _TABLE.sub(lambda found: found[1] + table(measurements[found[2]]) + found[3], text)


def chart() -> str:
    """Returns an SVG bar chart of training speed, in descending order."""
    shapes = [_text(0, _LINE, "Training examples per second, higher is better")]
    y = _LINE
    for measurement in (read()[name] for name in CHARTED):
        y += 8
        for words in measurement["title"].split(": "):
            y += _LINE
            shapes.append(_text(0, y, words, weight="bold"))
        y += 4
        rows = sorted(measurement["rows"], key=lambda row: row["fastest"])
        for row in rows:
            is_preset_config = row["subject"].startswith("keras_bert:")
            width = _BAR_WIDTH * rows[0]["fastest"] / row["fastest"]
            rate = 1000 * _batch_size(measurement) / row["fastest"]
            words = label(row["subject"], _precision(measurement))
            y += _LINE + _BAR + 5
            shapes += [
                _text(0, y - _BAR - 6, words, weight="bold" if is_preset_config else "normal"),
                f'<rect x="0" y="{y - _BAR}" width="{width:.1f}" height="{_BAR}" rx="2" '
                f'fill="{_OURS if is_preset_config else _OTHERS}"/>',
                _text(
                    width + 8, y - 2, f"{rate:.3g}", weight="bold" if is_preset_config else "normal"
                ),
            ]
        y += _LINE
    dates = sorted({read()[name]["date"] for name in CHARTED})
    y += _LINE
    shapes.append(_text(0, y, f"One CPU core, the fastest round, {' and '.join(dates)}"))
    height = y + 8
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}" '
            f'viewBox="0 0 {_WIDTH} {height}" font-family="system-ui, sans-serif" font-size="13">',
            "<title>Training speed of keras_bert, KerasHub and transformers</title>",
            *shapes,
            "</svg>\n",
        ]
    )


def _batch_size(measurement: dict[str, Any]) -> int:
    (found,) = [flag for flag in measurement["flags"] if flag.startswith("--batch_size=")]
    return int(found.partition("=")[2])


def _text(x: float, y: float, words: str, weight: str = "normal") -> str:
    return f'<text x="{x:.1f}" y="{y}" fill="{_TEXT}" font-weight="{weight}">{escape(words)}</text>'


def measure(name: str) -> None:
    """Runs a measurement's command, and stores the results in speed.json."""
    measurements = read()
    if name not in measurements:
        raise SystemExit(f"--measure must be one of {', '.join(measurements)}. Received: {name}")
    measurement = measurements[name]
    with tempfile.TemporaryDirectory() as directory:
        results_path = Path(directory) / "results.json"
        print(shlex.join(words(measurement)))
        line = [sys.executable if word == "python" else word for word in words(measurement)]
        subprocess.run([*line, f"--json={results_path}"], cwd=ROOT, check=True)
        results = json.loads(results_path.read_text(encoding="utf-8"))
    unavailable = [row for row in results["rows"] if row["unavailable"]]
    if unavailable:
        raise SystemExit(
            f"not recorded: {unavailable[0]['subject']}: {unavailable[0]['unavailable']}"
        )
    kept = ("subject", "milliseconds", "fastest", "slowest")
    measurement["rows"] = [
        {key: row[key] if key == "subject" else round(row[key], 1) for key in kept if row[key]}
        for row in results["rows"]
    ]
    measurement["date"] = datetime.date.today().isoformat()
    cores = "one core" if measurement["prefix"] else f"all {os.cpu_count()} cores"
    measurement["machine"] = f"{cores} of {_processor()}"
    atomic.write_text(DATA, _json(list(measurements.values())))


def _json(value: Any) -> str:
    """Returns indented JSON with each innermost list or object on one line."""
    indented = json.dumps(value, indent=2)
    innermost = re.compile(r"\{[^{}\[\]]*\}|\[[^{}\[\]]*\]")
    return innermost.sub(lambda found: json.dumps(json.loads(found[0])), indented) + "\n"


def _processor() -> str:
    path = Path("/proc/cpuinfo")
    names = re.findall(r"model name\s*: (.*)", path.read_text()) if path.exists() else []
    return names[0] if names else platform.processor() or platform.machine()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--measure", default="", metavar="NAME", help=", ".join(read()))
    arguments = parser.parse_args()
    if arguments.measure:
        measure(arguments.measure)
    atomic.write_text(PAGE, page_text(PAGE.read_text(encoding="utf-8")))
    atomic.write_text(CHART, chart())


if __name__ == "__main__":
    main()
