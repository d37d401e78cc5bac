# SPDX-License-Identifier: Apache-2.0
"""Converts Keras' docstring sections and doctests for Griffe.

Griffe supports Google's sections `Args`, `Returns`, `Raises`, `Yields` and `Attributes`. Keras also
has `Call arguments`, `Input shape`, `Output shape`, `Example` and `Reference`. They become a bold
title with their content as Markdown. Doctests become fenced blocks.
"""

from __future__ import annotations

import re
import textwrap
from typing import Any

import griffe

_SECTION = re.compile(r"^([A-Z][\w ]+):\n((?:[ ]{4}.*\n?|\n(?=[ ]{4}))+)", re.M)
# Keras' sections with a list of names and descriptions, and Keras' sections with text
_LISTS = ("Call arguments",)
_TEXTS = ("Input shape", "Output shape", "Reference")
_ENTRY = re.compile(r"^(\w[\w, `]*): (.*(?:\n[ ]+.*)*)", re.M)
_DOCTEST = re.compile(r"^( *)>>> .*(?:\n(?! *$).*)*(?:\n\n\1>>> .*(?:\n(?! *$).*)*)*", re.M)
_EXAMPLE = re.compile(r"^(Examples?):\n", re.M)


class KerasSections(griffe.Extension):
    """Rewrites each object's docstring when Griffe loads it."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        if obj.docstring is not None:
            # A layer's class docstring describes what calling the layer returns.
            texts = (*_TEXTS, "Returns") if obj.is_class else _TEXTS
            obj.docstring.value = as_markdown(obj.docstring.value, texts)


def as_markdown(docstring: str, texts: tuple[str, ...] = _TEXTS) -> str:
    """Rewrites Keras' sections and doctests in a docstring as Markdown.

    Args:
        docstring: A docstring without indentation.
        texts: Titles of sections that contain text.
    """

    def section(found: re.Match[str]) -> str:
        title, content = found[1], textwrap.dedent(found[2]).strip()
        if title in _LISTS:
            content = _ENTRY.sub(lambda entry: f"- **`{entry[1]}`**: {entry[2]}", content)
        elif title not in texts:
            return found[0]
        return f"**{title}:**\n\n{content}\n"

    text = _SECTION.sub(section, docstring)
    text = _EXAMPLE.sub(r"**\1:**\n", text)
    return _DOCTEST.sub(_fenced, text)


def _fenced(found: re.Match[str]) -> str:
    indent = found[1]
    return f"{indent}```pycon\n{found[0]}\n{indent}```"
