# SPDX-License-Identifier: Apache-2.0
"""Generates the page of recipes with command, score, time, hardware and settings."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from pathlib import Path

DIRECTORY = Path(__file__).resolve().parent.parent.parent / "training" / "paper" / "recipes"

_COMMAND = re.compile(r"^ {4}(python -m training\.\w+.*(?:\n {8}.*)*)", re.M)
_FACT = re.compile(r"^(?:(Published )?score|score|time|hardware|recorded)\b.*:", re.I)
# The page's sections by config class
_TITLES = {
    "FinetuneConfig": "Classification and regression",
    "FinetuneGlueConfig": "All of GLUE",
    "SquadConfig": "Question answering",
    "TaggingConfig": "Token classification",
    "FeatureTaggingConfig": "Token classification on frozen features",
    "ChoiceConfig": "Multiple choice",
    "RerankConfig": "Re-ranking",
    "PretrainConfig": "Pre-training",
}


@dataclass(frozen=True)
class Recipe:
    """A parsed recipe.

    Attributes:
        name: Recipe name.
        kind: Name of the config class.
        title: First paragraph of the docstring.
        body: Rest of the docstring as Markdown.
        facts: Score, time, hardware and record from the docstring, by title.
        base: Recipe whose settings this recipe changes. Empty if it changes the command's defaults.
        settings: Settings as written in the file.
    """

    name: str
    kind: str
    title: str
    body: str
    facts: dict[str, str]
    base: str
    settings: dict[str, str]


def read(name: str) -> Recipe:
    """Reads a recipe.

    Raises:
        ValueError: If the docstring does not contain a command for the recipe.
    """
    tree = ast.parse((DIRECTORY / f"{name}.py").read_text(encoding="utf-8"))
    title, _, rest = (ast.get_docstring(tree) or "").partition("\n\n")
    commands = [found for found in _COMMAND.finditer(rest) if f"--recipe={name}" in found[1]]
    if not commands:
        raise ValueError(f"the docstring of the recipe {name} has no command that runs it")
    facts: dict[str, str] = {}
    paragraphs = []
    for paragraph in rest.strip("\n").split("\n\n"):
        lines: list[str] = []
        for line in paragraph.splitlines():
            is_continued = lines and not _FACT.match(line)
            lines[-1:] = [f"{lines[-1]}\n{line}"] if is_continued else [*lines[-1:], line]
        if _FACT.match(paragraph):
            for line in lines:
                key, _, value = line.partition(":")
                facts[" ".join(key.split())] = " ".join(value.split())
        elif paragraph.startswith("    "):
            code = re.sub(r"^ {4}", "", paragraph, flags=re.M)
            paragraphs.append(f"```bash\n{code}\n```")
        else:
            paragraphs.append(paragraph)
    kind, base, settings = _settings(tree)
    return Recipe(
        name=name,
        kind=kind,
        title=" ".join(title.split()),
        body="\n\n".join(paragraphs),
        facts=facts,
        base=base,
        settings=settings,
    )


def _settings(tree: ast.Module) -> tuple[str, str, dict[str, str]]:
    """Returns the class of `CONFIG`, its base recipe, and the arguments of its constructor."""
    (call,) = (
        node.value
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "CONFIG"
    )
    if not isinstance(call, ast.Call):
        raise ValueError(f"CONFIG must be a call. Received: {ast.unparse(call)}")
    # `PretrainConfig.from_flags(...)`, or `wikitext2_cpu.CONFIG.replace(...)`
    kind, _, method = ast.unparse(call.func).partition(".")
    base = kind if method == "CONFIG.replace" else ""
    kind = read(base).kind if base else kind
    return kind, base, {keyword.arg or "": _flag_value(keyword.value) for keyword in call.keywords}


def _flag_value(node: ast.expr) -> str:
    try:
        value = ast.literal_eval(node)
    except ValueError:  # It is an expression, such as 1 / 3.
        return ast.unparse(node)
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


def page() -> str:
    """Returns the page as Markdown."""
    names = sorted(path.stem for path in DIRECTORY.glob("*.py") if path.stem != "__init__")
    found = [read(name) for name in names]
    lines = [
        "# Recipes",
        "",
        "```bash",
        "keras-bert finetune --recipe=minilm_sst2 --data_dir=glue --epochs=2",
        "```",
        "",
        "A recipe is a complete run: command, settings, score, time and hardware. Flags override "
        "its settings, for example `--epochs=2`. `--data_dir` is the directory with the data set. "
        "Scores with ± have a 95% confidence interval over seeds. If a recipe has not been run, "
        "its entry lists the published score. See also the [comparison with "
        "`transformers`](measurements/fine_tuning.md).",
        "",
    ]
    for kind, title in _TITLES.items():
        lines += [f"## {title}", ""]
        for recipe in found:
            if recipe.kind == kind:
                lines += _section(recipe)
    missing = sorted({recipe.kind for recipe in found} - _TITLES.keys())
    if missing:
        raise ValueError(f"add a title for the recipes of {', '.join(missing)} to {__file__}")
    return "\n".join(lines)


def _section(recipe: Recipe) -> list[str]:
    lines = [f"### {recipe.name}", "", recipe.title, "", recipe.body, ""]
    lines += [f"- **{key}:** {value}" for key, value in recipe.facts.items()]
    settings = f"Settings: the same as {recipe.base}, and" if recipe.base else "Settings"
    lines += ["", f'??? note "{settings}"', "", "    ```text"]
    lines += [f"    --{name}={value}" for name, value in recipe.settings.items()]
    return [*lines, "    ```", ""]
