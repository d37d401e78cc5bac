# SPDX-License-Identifier: Apache-2.0
"""The README and the pages: links, Python snippets, commands and generated content.

`tests/docs/site_test.py` checks links between pages when it builds the site.
"""

import ast
import importlib
import inspect
import re
import shlex
import textwrap
import tomllib
from types import FunctionType, MethodType, ModuleType

import pytest

pytestmark = [pytest.mark.needs_tensorflow, pytest.mark.backend_independent]

pytest.importorskip("tensorflow")
pytest.importorskip("griffe")

import keras_bert  # noqa: E402
from docs.hooks import (  # noqa: E402
    commands,
    diagrams,
    navigation,
    recipes,
    reference,
    speed_tables,
)
from keras_bert.export import export_task  # noqa: E402
from tests.source_imports import ROOT, source_files  # noqa: E402
from training.engine import child_commands  # noqa: E402
from training.paper import recipes as recipe_files  # noqa: E402

README = ROOT / "README.md"
PAGES = [README, ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
IDS = [str(page.relative_to(ROOT)) for page in PAGES]
LINK = re.compile(r"(?<!`)\[[^]]*\]\(([^)\s]+)\)")
BLOCK = re.compile(r"^( *)```(\w+)\n(.*?)^\1```", re.M | re.S)
# Names that pages use for objects of earlier snippets
NAMES = {
    "answerer": "QuestionAnswerer",
    "backbone": "Backbone",
    "classifier": "TextClassifier",
    "embedder": "TextEmbedder",
    "masked_lm": "MaskedLM",
    "tagger": "TokenClassifier",
}
# Methods that forward other arguments to these functions
FORWARDED_TO = {
    "export": export_task,
    "replace": keras_bert.BertConfig,
    "student_from_teacher": keras_bert.BertConfig,
}
COMMAND = re.compile(r"(?:keras-bert ([a-z][a-z-]+)|python -m (training\.[\w.]+))\b")
# Flags that absl defines for every command
COMMON_FLAGS = {"help", "verbosity", "version"}


# === Installation ===


def test_no_tensorflow_install_command():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    requirements = [*project["dependencies"], *extras["training"], *extras["serve"], *extras["jax"]]
    names = {re.split(r"[\[><=;]", requirement)[0].strip() for requirement in requirements}
    page = (ROOT / "docs/start/install.md").read_text(encoding="utf-8")
    (command,) = re.findall(r"^pip install (absl-py .*?[^\\])$", page, re.M | re.S)
    listed = {word.split(">")[0] for word in shlex.split(command.replace("\\\n", " "))}
    # KerasHub requires TF Text, and TensorBoard is for logs that TensorFlow writes.
    assert listed == names - {"tensorflow", "tensorflow-text", "keras-nlp", "tensorboard"}


# === Links of the README, which GitHub shows ===


def headings(page):
    """Returns the anchors of a page's headings, as GitHub and MkDocs create them."""
    titles = re.findall(r"^#+ (.*)", page.read_text(encoding="utf-8"), re.M)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", [README, ROOT / "CONTRIBUTING.md"], ids=lambda page: page.name)
def test_relative_links_exist(page):
    for target in LINK.findall(page.read_text(encoding="utf-8")):
        if not target.startswith("http"):
            path, _, anchor = target.partition("#")
            file = page.parent / path if path else page
            assert file.exists(), target
            assert not anchor or anchor in headings(file), target


def test_readme_is_short():
    assert len(README.read_text(encoding="utf-8").splitlines()) <= 150


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_tables_have_a_header(page):
    """Rows without a header are shown as text."""
    text = re.sub(BLOCK, "", page.read_text(encoding="utf-8"))
    for table in re.findall(r"(?:^\|.*\n)+", text, re.M):
        assert re.match(r".*\n\|[-|: ]+\|\n", table), table


# === Python snippets ===


def find_blocks(page, *languages):
    """Yields the line and the text of each fenced block on a page."""
    text = page.read_text(encoding="utf-8")
    for match in BLOCK.finditer(text):
        if match[2] in languages:
            line = text.count("\n", 0, match.start(3)) + 1
            yield line, textwrap.dedent(match[3])


class Instance:
    """An object of which only the class is known."""

    def __init__(self, cls):
        self.cls = cls

    def attribute(self, name):
        """Returns the value of an attribute, or `None` if it is unknown.

        Raises:
            AttributeError: If objects of the class do not have the attribute.
        """
        if hasattr(self.cls, name):
            attribute = inspect.getattr_static(self.cls, name)
            return getattr(self.cls, name) if isinstance(attribute, FunctionType) else None
        sources = [
            inspect.getsource(base) for base in self.cls.__mro__[:-1] if is_from_keras_bert(base)
        ]
        if any(re.search(rf"\bself\.{name}\b|^    {name}: ", source, re.M) for source in sources):
            return None
        raise AttributeError(f"{self.cls.__name__} has no {name}")


def is_from_keras_bert(value):
    return getattr(value, "__module__", "").startswith("keras_bert")


class SnippetChecker(ast.NodeVisitor):
    """Follows the objects of `keras_bert` through a snippet: their names and keyword arguments."""

    def __init__(self):
        self.known = {name: Instance(getattr(keras_bert, cls)) for name, cls in NAMES.items()}
        self.known["keras_bert"] = keras_bert

    def visit_Import(self, node):
        for alias in node.names:
            if alias.name.split(".")[0] == "keras_bert":
                importlib.import_module(alias.name)
            else:
                self.known.pop(alias.asname or alias.name, None)

    def visit_ImportFrom(self, node):
        if (node.module or "").split(".")[0] == "keras_bert":
            module = importlib.import_module(node.module)
            for alias in node.names:
                self.known[alias.asname or alias.name] = getattr(module, alias.name)

    def visit_Assign(self, node):
        value = self.evaluate(node.value)
        for target in node.targets:
            for name in ast.walk(target):
                if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Store):
                    self.known.pop(name.id, None)
            if isinstance(target, ast.Name) and value is not None:
                self.known[target.id] = value

    def visit_Expr(self, node):
        self.evaluate(node.value)

    def generic_visit(self, node):
        """Also visits statements inside other statements."""
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr):
                self.evaluate(child)
            else:
                self.visit(child)

    def evaluate(self, node):
        """Returns the value of an expression, or `None` if unknown, and checks its parts."""
        if isinstance(node, ast.Name):
            return self.known.get(node.id)
        if isinstance(node, ast.Attribute):
            base = self.evaluate(node.value)
            if isinstance(base, Instance):
                return base.attribute(node.attr)
            is_known = isinstance(base, ModuleType) or is_from_keras_bert(base)
            return getattr(base, node.attr) if is_known else None
        if isinstance(node, ast.Call):
            return self.evaluate_call(node)
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr):
                self.evaluate(child)
        return None

    def evaluate_call(self, node):
        function = self.evaluate(node.func)
        for argument in [*node.args, *(keyword.value for keyword in node.keywords)]:
            self.evaluate(argument)
        if isinstance(function, Instance) or not callable(function):
            return None
        self.check_keywords(function, {keyword.arg for keyword in node.keywords if keyword.arg})
        if function is keras_bert.Ensemble:
            return None  # The class depends on the class of the members.
        if isinstance(function, type):
            return Instance(function)
        if isinstance(function, MethodType) and isinstance(function.__self__, type):
            return Instance(function.__self__)  # For example, from_preset and from_name
        return None

    def check_keywords(self, function, keywords):
        parameters = set(inspect.signature(function).parameters)
        name = getattr(function, "__name__", "")
        accepts_any = inspect.getfullargspec(function).varkw and inspect.isfunction(function)
        if accepts_any and function.__qualname__ == name:  # For example, `signature(…, **inputs)`
            return
        owner = getattr(function, "__self__", None)
        if isinstance(function, type):  # A class passes `**kwargs` to its bases.
            name, owner = "__init__", function
        elif isinstance(function, FunctionType) and function.__qualname__.endswith(f".{name}"):
            owner = self.find_class(function)
        for base in inspect.getmro(owner) if isinstance(owner, type) else ():
            if name in vars(base):
                parameters |= set(inspect.signature(getattr(base, name)).parameters)
        if name == "from_preset" and hasattr(owner, "options"):
            parameters |= {*owner.options, *owner.preprocessor_class.options}
        if name in FORWARDED_TO:
            parameters |= set(inspect.signature(FORWARDED_TO[name]).parameters)
        assert keywords <= parameters, f"{function} takes no {keywords - parameters}"

    def find_class(self, function):
        return getattr(inspect.getmodule(function), function.__qualname__.partition(".")[0])


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_python_snippets_use_existing_names(page):
    checker = SnippetChecker()  # Later snippets on a page use objects of earlier snippets.
    for line, source in find_blocks(page, "python"):
        try:
            checker.visit(ast.parse(source))
        except (SyntaxError, AttributeError, ImportError, AssertionError) as error:
            raise AssertionError(f"{page.name}, in the snippet at line {line}: {error}") from error


# === Commands ===


def command_lines(page):
    """Yields the lines in shell blocks, with continued lines joined, and a page's inline code."""
    for _, source in find_blocks(page, "bash", "console"):
        yield from source.replace("\\\n", "").splitlines()
    text = BLOCK.sub("", page.read_text(encoding="utf-8"))
    yield from (" ".join(code.split()) for code in re.findall(r"`([^`]+)`", text))


def find_flags(words):
    """Yields the flag names in a command's words, up to the end of the command."""
    for word in words:
        if word in ("&&", "||", "|", ";"):
            return
        if match := re.match(r"--(\w+)", word):
            yield match[1]


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_commands_and_their_flags_exist(page):
    names = {name for group in child_commands.COMMANDS.values() for name in group}
    names_by_module = {child_commands.module_name(name): name for name in names}
    for line in command_lines(page):
        for match in COMMAND.finditer(line):
            name = match[1] or names_by_module.get(match[2])
            assert name in names, line
            known = {flag.name for flag in commands.read(name).all_flags}
            known |= {f"no{flag.name}" for flag in commands.read(name).all_flags if flag.is_switch}
            words = shlex.split(line[match.end() :].replace("…", ""), comments=True)
            unknown = set(find_flags(words)) - known - COMMON_FLAGS
            assert not unknown, f"{page.name}: {line}: no flag {unknown}"


def test_environment_variables_are_documented():
    pattern = re.compile(r"\bKERAS_BERT_*[A-Z]\w*")
    documented = {name for page in PAGES for name in pattern.findall(page.read_text("utf-8"))}
    shipped = [
        path
        for module, path in source_files().items()
        if module.startswith(("keras_bert", "training"))
    ]
    used = {name for path in shipped for name in pattern.findall(path.read_text("utf-8"))}
    assert used
    assert used <= documented


# === Generated content ===


def test_speed_tables_and_chart_are_up_to_date():
    text = speed_tables.PAGE.read_text(encoding="utf-8")
    message = "`python -m docs.hooks.speed_tables` writes them"
    assert speed_tables.page_text(text) == text, message
    assert speed_tables.chart() == speed_tables.CHART.read_text(encoding="utf-8"), message
    assert set(re.findall(r"<!-- measured: (\w+) -->", text)) == speed_tables.read().keys()


@pytest.mark.parametrize("name", diagrams.DIAGRAMS)
def test_diagrams_are_up_to_date(name):
    message = "`python -m docs.hooks.diagrams` draws them"
    assert diagrams.DIAGRAMS[name]() == (diagrams.ASSETS / name).read_text("utf-8"), message


def test_measurement_commands_use_benchmark_flags():
    flags = {flag.name for flag in commands.read("benchmark").flags}
    for measurement in speed_tables.read().values():
        assert set(find_flags(speed_tables.words(measurement))) <= flags


def test_reference_has_each_public_name_once():
    names = reference.public_names()
    paths = [name.path for name in names]
    assert len(set(paths)) == len(paths)
    text = "\n".join(reference.pages().values())
    for name in names:
        owner, _, last = name.path.rpartition(".")
        assert hasattr(importlib.import_module(owner), last)
        assert f"::: {name.path}\n" in text or f'id="{name.path}"' in text
    own = (name for name in keras_bert.__all__ if not inspect.ismodule(getattr(keras_bert, name)))
    assert {f"keras_bert.{name}" for name in own} <= set(paths)


def test_reference_lists_inherited_methods():
    pages = reference.pages()
    classifier, encoder = pages["reference/tasks/TextClassifier.md"], pages["reference/encoder.md"]
    home = "keras_bert.tasks.text_trainer.TextTrainer"
    assert f"| [`fit`][{home}.fit] | `TextTrainer` | Trains the model like" in classifier
    assert "[`from_preset`][keras_bert.tasks.task.Task.from_preset] | `Task`" in classifier
    assert (
        "[`classify`]" not in classifier
    )  # Documented above, because it is the class's own method
    assert re.search(r"Further methods from \[`keras\.Model`\].*`fit`", encoder)
    for name in reference.public_names():
        if name.home.startswith("keras_bert.tasks.") and name.short[0].isupper():
            bases = getattr(keras_bert, name.short).__mro__[1:]
            package_bases = [base for base in bases if base.__module__.startswith("keras_bert.")]
            expected = [f"{base.__module__}.{base.__name__}" for base in package_bases]
            names = [base for base in reference.list_bases(name) if base.startswith("keras_bert.")]
            assert names == expected


def test_every_command_has_a_page_with_its_flags():
    pages = commands.pages()
    for name in (name for group in child_commands.COMMANDS.values() for name in group):
        page = pages[f"reference/commands/{name}.md"]
        assert f"]({name}.md)" in pages["reference/commands/index.md"]
        assert all(f"{flag.name}=" in page for flag in commands.read(name).all_flags)


def test_recipe_page_matches_recipe_files():
    page = recipes.page()
    for name in recipe_files.names():
        section = page.partition(f"\n### {name}\n")[2].partition("\n### ")[0]
        assert f"--recipe={name}" in section
        assert re.search(r"\*\*(Score|Published)", section)
        config = importlib.import_module(f"training.paper.recipes.{name}").CONFIG
        for field, value in recipes.read(name).settings.items():
            stated = config.to_dict()[field]
            stated = ",".join(map(str, stated)) if isinstance(stated, tuple) else stated
            assert value == str(stated) or eval(value) == stated


def test_navigation_follows_index_order():
    pages = {
        "guides/a.md": "",
        "guides/more/b.md": "",
        "guides/c.md": "",
        "guides/index.md": "[C](c.md), [B](more/b.md)",
        "start.md": "",
    }
    nav = [{"Start": "start.md"}, {"Guides": "guides/"}, {"Extend": ["extend/"]}]
    listed = ["guides/index.md", "guides/c.md", {"More": ["guides/more/b.md"]}, "guides/a.md"]
    assert navigation.expanded(nav, pages) == [{"Start": "start.md"}, {"Guides": listed}]
