# SPDX-License-Identifier: Apache-2.0
"""Generates the library reference, with a page per task and a page per public module.

The public names are read from `__all__`, without importing any module. A new name therefore appears
on its module's page automatically, and a new module with `__all__` gets a page.
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
PACKAGE = ROOT / "keras_bert"
TASK, TEXT_TRAINER = "keras_bert.tasks.task.Task", "keras_bert.tasks.text_trainer.TextTrainer"
# Module, file name and title of each page, in the order in the navigation. Other modules follow.
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
)
# Order of the task pages. Other tasks follow.
TASKS = (
    *("TextClassifier", "TokenClassifier", "QuestionAnswerer", "MultipleChoice", "TextEmbedder"),
    *("SparseEmbedder", "LateInteractionEmbedder", "StaticEmbedder", "MaskedLM"),
    *("NextSentencePredictor", "Pretrainer", "ReplacedTokenDetector", "Distiller", "Ensemble"),
)
# Modules whose public names are on a different module's page
_SHOWN_WITH = {
    "keras_bert.config": "keras_bert.models",
    "keras_bert.vocabularies": "keras_bert.text",
}
# Keras base classes, with a link to their documentation and some of their methods
_KERAS = {
    "keras.Model": (
        "https://keras.io/api/models/",
        ("compile", "fit", "evaluate", "predict", "save", "summary", "get_layer"),
    ),
    "keras.optimizers.Optimizer": (
        "https://keras.io/api/optimizers/",
        ("apply_gradients", "build", "get_config"),
    ),
}
_INDEX_INTRO = (
    "Every public name, then the command line. [Recipes](../recipes.md) have their own page."
)
_TASKS_INTRO = """\
# Tasks

A task is an encoder with a head and, usually, a preprocessor that converts text to token ids. It
is a `keras.Model`; wherever Keras' methods take arrays, a task's methods also take text.

| task | |
|---|---|
{rows}

## Loading

::: keras_bert.load_model
    options: {{heading_level: 3}}

## Hard negatives

::: keras_bert.mine_hard_negatives
    options: {{heading_level: 3}}

## Methods of every task

::: {text_trainer}
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
        path: Shortest import path, for example `keras_bert.TextClassifier`.
        home: Module that defines the name.
        original: Name in that module.
        summary: First sentence of the docstring.
        other_name_of: For an alias, the original name. Otherwise empty.
    """

    path: str
    home: str
    original: str
    summary: str
    other_name_of: str = ""

    @property
    def short(self) -> str:
        """The part after the last dot."""
        return self.path.rpartition(".")[2]


def public_names() -> list[Name]:
    """Returns the package's public names without duplicates, in the order of `__all__`."""
    found: dict[tuple[str, str], Name] = {}
    for module in ("keras_bert", *_public_modules()):
        tree = _tree(module)
        for name in _exported(tree):
            if module == "keras_bert" and _file(f"{module}.{name}").exists():
                continue  # It is a module. Its names follow.
            home, original = _definition(module, name)
            found.setdefault((home, name), _described(f"{module}.{name}", home, name, original))
    return list(found.values())


def _public_modules() -> list[str]:
    """Returns the modules that `keras_bert` exports."""
    modules = [f"keras_bert.{name}" for name in _exported(_tree("keras_bert"))]
    return [module for module in modules if _file(module).exists()]


def _file(module: str) -> Path:
    path = ROOT.joinpath(*module.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


@functools.cache
def _tree(module: str) -> ast.Module:
    return ast.parse(_file(module).read_text(encoding="utf-8"))


def _exported(tree: ast.Module) -> list[str]:
    """Returns `__all__`, or the lazily imported names, or else the public classes."""
    for node in tree.body:
        if isinstance(node, ast.With) and "lazy_imports" in ast.unparse(node.items[0]):
            imports = [one for one in node.body if isinstance(one, ast.ImportFrom)]
            names = sorted(alias.asname or "" for one in imports for alias in one.names)
            if all(names):
                return names
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
                    is_preset_config = node.module.partition(".")[0] == PACKAGE.name
                    imported = node.module, alias.name
                    return _definition(*imported) if is_preset_config else imported
    return module, name


@functools.cache
def _stand_in(module: str, name: str) -> type:
    """Returns an empty class with a source class's name and bases, to compute its MRO."""
    node = _class_node(f"{module}.{name}")
    bases = [_base(module, ast.unparse(base)) for base in node.bases] if node else []
    return type(f"{module}.{name}", tuple(bases), {})


def _base(module: str, name: str) -> type:
    first, _, last = name.rpartition(".")
    return _stand_in(*((first, last) if first else _definition(module, name)))


def _class_node(path: str) -> ast.ClassDef | None:
    """Returns a class definition from this package's source, or `None` for other packages."""
    module, _, name = path.rpartition(".")
    if module.partition(".")[0] != PACKAGE.name or not _file(module).exists():
        return None
    nodes = (node for node in _tree(module).body if isinstance(node, ast.ClassDef))
    return next((node for node in nodes if node.name == name), None)


def _methods(path: str) -> dict[str, str]:
    """Maps a class's public methods and properties to the first sentences of their docstrings."""
    node = _class_node(path)
    return {
        method.name: _first_sentence(method)
        for method in (node.body if node else [])
        if isinstance(method, ast.FunctionDef) and not method.name.startswith("_")
    }


def _first_sentence(node: ast.ClassDef | ast.FunctionDef) -> str:
    return " ".join((ast.get_docstring(node) or "").partition("\n\n")[0].split())


def list_bases(name: Name) -> list[str]:
    """Returns a public class's bases in the order of its MRO.

    Bases from this package are named after the module that defines them. Other bases are named as
    in the source.
    """
    path = f"{name.home}.{name.original}"
    if _class_node(path) is None:
        return []
    return [base.__name__ for base in _stand_in(*path.rsplit(".", 1)).__mro__[1:-1]]


def inherited(name: Name, documented: Mapping[str, str]) -> str:
    """Returns a table of inherited methods, or `""` for a class without inherited methods.

    Args:
        name: The class.
        documented: Maps each class with documentation to its path there.
    """
    known = set(_methods(f"{name.home}.{name.original}"))
    lines = ["| inherited | from | |", "|---|---|---|"]
    for base in list_bases(name):
        short = base.rpartition(".")[2]
        for method, summary in _methods(base).items():
            # Methods without a docstring behave as in Keras.
            if method not in known and summary:
                in_base = documented.get(base)
                link = f"[`{method}`][{in_base}.{method}]" if in_base else f"`{method}`"
                lines.append(f"| {link} | `{short}` | {summary} |")
                known.add(method)
    if len(lines) == 2:
        return ""
    for base in list_bases(name):
        if base in _KERAS:
            address, methods = _KERAS[base]
            others = ", ".join(f"`{method}`" for method in methods if method not in known)
            lines += ["", f"Further methods from [`{base}`]({address}): {others} …"]
    return "\n".join(lines)


def _described(path: str, home: str, name: str, original: str) -> Name:
    for node in _tree(home).body:
        is_definition = isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name == original
        if is_definition:
            return Name(path, home, original, _first_sentence(node))  # type: ignore[arg-type]
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == original:
            value = ast.unparse(node.value)
            is_name = isinstance(node.value, ast.Name)
            summary, other_name_of = ("", value) if is_name else (f"`{value}`", "")
            return Name(path, home, original, summary, other_name_of)
    raise ValueError(f"{path} is exported, but {_file(home)} does not define {original}")


def pages() -> dict[str, str]:
    """Returns the Markdown of each page by its path."""
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
    index = _TASKS_INTRO.format(rows=rows, text_trainer=TEXT_TRAINER, task=TASK)
    documented = {f"{name.home}.{name.original}": name.path for name in names}
    documented |= {TASK: TASK, TEXT_TRAINER: TEXT_TRAINER}
    bases = {
        file: _add_bases(own, documented) for file, own in [("tasks", classes), *by_page.items()]
    }
    texts = {"reference/tasks/index.md": "\n\n".join([index, *bases["tasks"]])}
    texts |= {f"reference/tasks/{name.short}.md": _task_page(name, documented) for name in classes}
    for module, members in by_page.items():
        file, title = titles[module]
        page = _module_page(module, title, members, documented)
        texts[f"reference/{file}.md"] = "\n\n".join([page, *bases[module]])

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


def _add_bases(names: Iterable[Name], documented: dict[str, str]) -> list[str]:
    """Returns sections for undocumented base classes with methods.

    A base class without a public name is documented on the page of its first subclass.

    Args:
        names: The page's public classes.
        documented: Same as for `inherited`. The bases are added to it.
    """
    sections = []
    for base in dict.fromkeys(base for name in names for base in list_bases(name)):
        is_private = base.rpartition(".")[2].startswith("_")
        if base not in documented and not is_private and any(_methods(base).values()):
            options = "{heading_level: 3, show_root_full_path: false}"
            sections.append(f"::: {base}\n    options: {options}")
            documented[base] = base
    return sections


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


def _task_page(name: Name, documented: Mapping[str, str]) -> str:
    return (
        f"---\ntitle: {name.short}\n---\n\n::: {name.path}\n    options: {{heading_level: 1}}\n\n"
        f"## Inherited methods\n\n{inherited(name, documented)}\n"
    )


def _module_page(module: str, title: str, names: list[Name], documented: Mapping[str, str]) -> str:
    intro = ast.get_docstring(_tree(module)) or ""
    parts = [f"# {title}", re.sub(r"\n\n.*", "", intro, flags=re.S)]
    for name in names:
        if not name.other_name_of:
            parts += [f"::: {name.path}", *filter(None, [inherited(name, documented)])]
    others: dict[str, list[str]] = {}
    for name in names:
        if name.other_name_of:
            others.setdefault(name.other_name_of, []).append(
                f'- <a id="{name.path}"></a>`{name.path}`'
            )
    for original, lines in others.items():
        parts += [f"Other names of `{original}`:", "\n".join(lines)]
    return "\n\n".join(parts) + "\n"
