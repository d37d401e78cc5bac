# SPDX-License-Identifier: Apache-2.0
"""MkDocs' hook: adds the pages that are generated from the source, and expands folders in `nav`."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parent.parent.parent
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
    for path, text in generated.items():
        files.append(File.generated(config, path, content=text))
    paths = [file.src_uri for file in files.documentation_pages()]
    order = [*generated, *sorted(path for path in paths if path not in generated)]
    config.nav = expanded(config.nav, order)
    return files


def expanded(nav: Any, paths: Iterable[str]) -> Any:
    """Replaces each folder in a navigation, a path that ends with `/`, by its pages.

    Args:
        nav: The value of `nav` in mkdocs.yml, or a part of it.
        paths: The pages in the order in which they appear; an index comes first. Subfolders become
            sections.
    """
    if isinstance(nav, list):
        items: list[Any] = []
        for item in nav:
            value = expanded(item, paths)
            items += value if isinstance(value, list) else [value] if value else []
        return items
    if isinstance(nav, dict):
        return {title: pages for title, value in nav.items() if (pages := expanded(value, paths))}
    if not nav.endswith("/"):
        return nav
    within = [path for path in paths if path.startswith(nav)]
    pages = [path for path in within if str(PurePosixPath(path).parent) == nav.rstrip("/")]
    pages.sort(key=lambda path: not path.endswith("/index.md"))
    folders = dict.fromkeys(path.removeprefix(nav).split("/")[0] for path in within if path not in pages)
    sections = [{title_of(folder): expanded(f"{nav}{folder}/", paths)} for folder in folders]
    return [*pages, *sections]


def title_of(folder: str) -> str:
    """`from_tf_hub` is `From tf hub`: the title of a section without an index page."""
    return folder.replace("_", " ").capitalize()
