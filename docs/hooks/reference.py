# SPDX-License-Identifier: Apache-2.0
"""The reference of the library: a page for each task, and one for each module of public names.

The names are those of `__all__`, read without importing anything, so none can be forgotten: a new
name appears on the page of its module, and a new module with `__all__` has a page of its own.
"""

from __future__ import annotations

import ast
import functools
import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
PACKAGE = ROOT / "keras_bert"
TASK, TEXT_MODEL = "keras_bert.tasks.task.Task", "keras_bert.tasks.text_model.TextModel"
# Pages in the order in which users need them: module, file name, title. Other modules follow.
PAGES = (
    ("keras_bert.models", "encoder", "Encoder"),
    ("keras_bert.text", "text", "Tokenizers and vocabularies"),
    ("keras_bert.data", "data", "Data"),
    ("keras_bert.data.pretraining", "pretraining_data", "Pre-training data"),
    ("keras_bert.optimizers", "optimizers", "Optimizers and schedules"),
    ("keras_bert.losses", "losses", "Losses"),
    ("keras_bert.metrics", "metrics", "Metrics"),
    ("keras_bert.checkpoints", "checkpoints", "Checkpoints"),
    ("keras_bert.export", "export", "Export"),
    ("keras_bert.insight", "insight", "Insight"),
    ("keras_bert.layers", "layers", "Layers"),
    ("keras_bert.ops", "ops", "Operations"),
)
# Tasks in that order; others follow
TASKS = (
    *("TextClassifier", "TokenClassifier", "QuestionAnswerer", "MultipleChoice", "TextEmbedder"),
    *("MaskedLM", "Pretrainer", "ReplacedTokenDetector", "Distiller"),
)
# Modules whose public names are on the page of another
_SHOWN_WITH = {
    "keras_bert.config": "keras_bert.models",
    "keras_bert.vocabularies": "keras_bert.text",
}
_INDEX_INTRO = (
    "Every public name, then the command line. [Recipes](../recipes.md) have their own page."
)
_TASKS_INTRO = """\
# Tasks

A task is an encoder with a head and, usually, a preprocessor that converts text to token ids. It
is a `keras.Model`: what Keras' methods take as arrays, those of a task also take as text.

| task | |
|---|---|
{rows}

## Loading

::: keras_bert.load_model
    options: {{heading_level: 3}}

## Methods of every task

::: {text_model}
    options:
      heading_level: 3
      show_root_full_path: false

::: {task}
    options:
      heading_level: 3
      show_root_full_path: false
"""


@dataclass(frozen=True)
class Name:
    """A public name.

    Attributes:
        path: The shortest path by which users reach it: `keras_bert.TextClassifier`.
        home: The module that defines it.
        summary: The first sentence of its docstring.
        other_name_of: The name that it is another name of; empty for none.
    """

    path: str
    home: str
    summary: str
    other_name_of: str = ""

    @property
    def short(self) -> str:
        """Its last part."""
        return self.path.rpartition(".")[2]


def public_names() -> list[Name]:
    """Returns every public name of the package once, in the order of the modules' `__all__`."""
    found: dict[tuple[str, str], Name] = {}
    for module in ("keras_bert", *_public_modules()):
        tree = _tree(module)
        for name in _exported(tree):
            if module == "keras_bert" and _file(f"{module}.{name}").exists():
                continue  # a module, whose names follow
            home, original = _definition(module, name)
            found.setdefault((home, name), _described(f"{module}.{name}", home, name, original))
    return list(found.values())


def _public_modules() -> list[str]:
    """The modules whose names are public: packages, and the modules that `keras_bert` exports."""
    packages = sorted(path.parent.name for path in PACKAGE.glob("*/__init__.py"))
    modules = [name for name in _exported(_tree("keras_bert")) if (PACKAGE / f"{name}.py").exists()]
    return [f"keras_bert.{name}" for name in [*packages, *modules]]


def _file(module: str) -> Path:
    path = ROOT.joinpath(*module.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


@functools.cache
def _tree(module: str) -> ast.Module:
    return ast.parse(_file(module).read_text(encoding="utf-8"))


def _exported(tree: ast.Module) -> list[str]:
    """Returns `__all__`, or the public classes of a module without it."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return list(ast.literal_eval(node.value))
    return [
        node.name
        for node in tree.body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    ]


def _definition(module: str, name: str) -> tuple[str, str]:
    """Returns the module that defines a name, and its name there."""
    for node in ast.walk(_tree(module)):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                if (alias.asname or alias.name) == name:
                    return _definition(node.module, alias.name)
    return module, name


def _described(path: str, home: str, name: str, original: str) -> Name:
    for node in _tree(home).body:
        is_definition = isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name == original
        if is_definition:
            docstring = ast.get_docstring(node) or ""  # type: ignore[arg-type]
            return Name(path, home, " ".join(docstring.partition("\n\n")[0].split()))
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == original:
            value = ast.unparse(node.value)
            is_name = isinstance(node.value, ast.Name)
            return Name(path, home, "" if is_name else f"`{value}`", value if is_name else "")
    raise ValueError(f"{path} is exported, but {_file(home)} does not define {original}")


def pages() -> dict[str, str]:
    """Returns the path and the Markdown of each page."""
    names = public_names()
    tasks = [name for name in names if name.home.startswith("keras_bert.tasks.")]
    tasks.sort(key=lambda name: TASKS.index(name.short) if name.short in TASKS else len(TASKS))
    classes = [name for name in tasks if name.short[0].isupper()]
    by_page: dict[str, list[Name]] = {module: [] for module, _, _ in PAGES}
    for name in names:
        if name not in tasks:
            by_page.setdefault(_page_path(name), []).append(name)
    titles = {module: (file, title) for module, file, title in PAGES}
    for module in by_page.keys() - titles.keys():
        last = module.rpartition(".")[2]
        titles[module] = (last, last.replace("_", " ").capitalize())

    rows = "\n".join(f"| [`{name.short}`]({name.short}.md) | {name.summary} |" for name in classes)
    index = _TASKS_INTRO.format(rows=rows, text_model=TEXT_MODEL, task=TASK)
    texts = {"reference/tasks/index.md": index}
    texts |= {f"reference/tasks/{name.short}.md": _task_page(name) for name in classes}
    for module, members in by_page.items():
        file, title = titles[module]
        texts[f"reference/{file}.md"] = _module_page(module, title, members)

    lines = ["# Reference", "", _INDEX_INTRO, "", "## [Tasks](tasks/index.md)", ""]
    lines += _table(
        {name: f"tasks/{name.short if name in classes else 'index'}.md" for name in tasks}
    )
    for module, members in by_page.items():
        file, title = titles[module]
        lines += [f"## [{title}]({file}.md)", ""]
        lines += _table(dict.fromkeys(members, f"{file}.md"))
    lines += ["## [Command line](commands/index.md)", "", "Every command, with its flags."]
    return {"reference/index.md": "\n".join(lines), **texts}


def _page_path(name: Name) -> str:
    for module in ("keras_bert.data.pretraining", *_SHOWN_WITH):
        if name.home == module or name.home.startswith(f"{module}."):
            return _SHOWN_WITH.get(module, module)
    return ".".join(name.home.split(".")[:2])


def _table(pages_of: dict[Name, str]) -> list[str]:
    rows = [
        f"| [`{name.short}`]({page}#{name.path}) "
        f"| {name.summary or f'another name of `{name.other_name_of}`'} |"
        for name, page in pages_of.items()
    ]
    return ["| name | |", "|---|---|", *rows, ""]


def _task_page(name: Name) -> str:
    return (
        f"---\ntitle: {name.short}\n---\n\n::: {name.path}\n    options: {{heading_level: 1}}\n\n"
        "`fit`, `evaluate`, `predict`, `compile`, `from_preset`, `save_to_preset`, `save` and "
        "`export` are [methods of every task](index.md#methods-of-every-task).\n"
    )


def _module_page(module: str, title: str, names: list[Name]) -> str:
    intro = ast.get_docstring(_tree(module)) or ""
    parts = [f"# {title}", re.sub(r"\n\n.*", "", intro, flags=re.S)]
    parts += [f"::: {name.path}" for name in names if not name.other_name_of]
    others: dict[str, list[str]] = {}
    for name in names:
        if name.other_name_of:
            others.setdefault(name.other_name_of, []).append(
                f'- <a id="{name.path}"></a>`{name.path}`'
            )
    for original, lines in others.items():
        parts += [f"Other names of `{original}`:", "\n".join(lines)]
    return "\n\n".join(parts) + "\n"
