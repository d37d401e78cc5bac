# SPDX-License-Identifier: Apache-2.0
"""MkDocs hook that adds generated pages and expands directories in `nav`."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parent.parent.parent
# Table cells with more characters are styled as prose.
_PROSE = 40
sys.path.insert(0, str(ROOT))

from docs.hooks import commands, recipes, reference  # noqa: E402


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the generated pages and expands directories in the navigation."""
    generated = {
        **reference.pages(),
        **commands.pages(),
        "recipes.md": recipes.page(),
        "contributing.md": (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"),
        "changelog.md": (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"),
    }
    written = sorted(file.src_uri for file in files.documentation_pages())
    for path, text in generated.items():
        files.append(File.generated(config, path, content=text))
    texts = {file.src_uri: file.content_string for file in files.documentation_pages()}
    # Do not repeat pages in an expanded directory that `nav` already lists.
    named = set(_paths(config.nav))
    pages = {path: texts[path] for path in [*generated, *written] if path not in named}
    config.nav = expanded(config.nav, pages)
    return files


def _paths(nav: Any) -> Iterator[str]:
    if isinstance(nav, str):
        yield nav
    for part in nav.values() if isinstance(nav, dict) else nav if isinstance(nav, list) else ():
        yield from _paths(part)


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Allows line breaks within long code in tables, and marks prose cells for the style sheet."""

    def marked(cell: re.Match[str]) -> str:
        is_prose = len(re.sub(r"<[^>]*>", "", cell[1])) > _PROSE
        return f'<td class="prose">{cell[1]}</td>' if is_prose else cell[0]

    def breakable(code: re.Match[str]) -> str:
        return f"<code>{re.sub(r'(?<=[.,(/=_])(?=[^ ])', '<wbr>', code[1])}</code>"

    def arranged(table: re.Match[str]) -> str:
        text = re.sub(
            r"<td>(.*?)</td>",
            marked,
            table[0].replace(" ± ", "\N{NO-BREAK SPACE}±\N{NO-BREAK SPACE}"),
            flags=re.S,
        )
        return re.sub(r"<code>([^<]{24,})</code>", breakable, text)

    return re.sub(r"<table>.*?</table>", arranged, html, flags=re.S)


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """Raises a `PluginError` if a page loads from the network. The site must work offline."""
    for tag in re.findall(r"<(?:script|img|iframe|source|link)\b[^>]*>", output):
        is_loaded = not tag.startswith("<link") or "stylesheet" in tag or "preconnect" in tag
        if is_loaded and re.search(r"""(?:src|href)=["']?(?:https?:)?//""", tag):
            raise PluginError(f"{page.file.src_uri} loads from the network: {tag}")
    return output


def expanded(nav: Any, pages: dict[str, str]) -> Any:
    """Replaces each directory (a path with a final `/`) in a navigation with its pages.

    Args:
        nav: Value of `nav` in mkdocs.yml, or a part of it.
        pages: Text of each page by its path. Each directory lists its index first, then the pages
            in the order of the index's links, then the remaining pages in the given order. A
            subdirectory becomes a section with the title of its index.
    """
    if isinstance(nav, list):
        items: list[Any] = []
        for item in nav:
            value = expanded(item, pages)
            items += value if isinstance(value, list) else [value] if value else []
        return items
    if isinstance(nav, dict):
        return {title: value for title, part in nav.items() if (value := expanded(part, pages))}
    if not nav.endswith("/"):
        return nav
    within = [path.removeprefix(nav) for path in pages if path.startswith(nav)]
    names = dict.fromkeys(re.sub("/.*", "/", path) for path in within)
    index = pages.get(f"{nav}index.md", "")

    def place(name: str) -> int:
        found = index.find(f"]({name}")
        return -1 if name == "index.md" else found if found >= 0 else len(index)

    return [
        {_title(pages, f"{nav}{name}"): expanded(f"{nav}{name}", pages)}
        if name.endswith("/")
        else f"{nav}{name}"
        for name in sorted(names, key=place)
    ]


def _title(pages: dict[str, str], directory: str) -> str:
    heading = re.search(r"^# (.*)", pages.get(f"{directory}index.md", ""), re.M)
    return heading[1] if heading else Path(directory).name.replace("_", " ").capitalize()
