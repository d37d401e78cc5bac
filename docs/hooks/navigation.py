# SPDX-License-Identifier: Apache-2.0
"""MkDocs' hook: adds the pages that are generated from the source, and expands folders in `nav`."""

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
# Characters from which on a cell of a table is prose
_PROSE = 40
sys.path.insert(0, str(ROOT))

from docs.hooks import commands, recipes, reference  # noqa: E402


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the generated pages and expands the folders of the navigation."""
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
    # A page that `nav` names itself is not repeated where its folder is expanded
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
    """Lets long code in tables break within names, and marks cells of prose, for the style."""

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
    """Refuses a page that loads something from the network: the site works without one."""
    for tag in re.findall(r"<(?:script|img|iframe|source|link)\b[^>]*>", output):
        is_loaded = not tag.startswith("<link") or "stylesheet" in tag or "preconnect" in tag
        if is_loaded and re.search(r"""(?:src|href)=["']?(?:https?:)?//""", tag):
            raise PluginError(f"{page.file.src_uri} loads from the network: {tag}")
    return output


def expanded(nav: Any, pages: dict[str, str]) -> Any:
    """Replaces each folder in a navigation, a path that ends with `/`, by its pages.

    Args:
        nav: The value of `nav` in mkdocs.yml, or a part of it.
        pages: The text of each page by its path. In a folder, the index comes first, then the
            pages to which it links, in that order, then the others in the order given here. A
            subfolder becomes a section, titled as its index is.
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


def _title(pages: dict[str, str], folder: str) -> str:
    heading = re.search(r"^# (.*)", pages.get(f"{folder}index.md", ""), re.M)
    return heading[1] if heading else Path(folder).name.replace("_", " ").capitalize()
