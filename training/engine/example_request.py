# SPDX-License-Identifier: Apache-2.0
"""An example text, and the command that sends it to a model server."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from . import child_commands

DEFAULT_NAME, DEFAULT_HOST, DEFAULT_PORT = "model", "127.0.0.1", 8501
_VALUES = {
    "text": "A gripping film, and a moving one.",
    "text_pair": "This film is boring.",
    "question": "Who wrote Faust?",
    "context": "Faust is a tragedy by Johann Wolfgang von Goethe.",
    "choices": ["It was raining.", "She closed the window."],
}


def example_row(fields: Sequence[str]) -> dict[str, Any]:
    """Returns an example text for each field."""
    return {name: _VALUES.get(name, _VALUES["text"]) for name in fields}


def curl_command(
    fields: Sequence[str],
    model: str = f"http://{DEFAULT_HOST}:{DEFAULT_PORT}/v1/models/{DEFAULT_NAME}",
    curl: str = "curl",
    **values: Any,
) -> str:
    """Returns a command that asks a server for a prediction.

    Args:
        fields: The input fields of the model, such as `("text",)`.
        model: URL of the model. Defaults to the URL of `training.serve` without flags.
        curl: The command and its options.
        **values: Values that replace the example texts. Values of other fields are ignored.

    Example:

    >>> print(curl_command(["text"], "http://localhost:8501/v1/models/sst2", text="a film"))
    curl http://localhost:8501/v1/models/sst2:predict -d '{"instances": ["a film"]}'
    """
    row = example_row(fields) | {name: values[name] for name in fields if name in values}
    instance: Any = next(iter(row.values())) if len(row) == 1 else row
    body = json.dumps({"instances": [instance]}, ensure_ascii=False)
    return f"{curl} {model}:predict -d {shlex.quote(body)}"


def next_commands(
    model: str, example_input: str, fields: Sequence[str], values: Mapping[str, Any] | None = None
) -> str:
    """Returns the commands that query a model, to print after it has been written."""
    option, file = shlex.quote(f"--model={model}"), shlex.quote(f"--input={example_input}")
    return (
        f"Next: {child_commands.command_name('serve')} {option}\n"
        f"      {curl_command(fields, **values or {})}\n"
        f"  or: {child_commands.command_name('predict')} {option} {file}"
    )
