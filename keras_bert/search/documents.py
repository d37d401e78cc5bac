# SPDX-License-Identifier: Apache-2.0
"""Reads documents from files and directories: text, Markdown, HTML and PDF."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from keras_bert import checks
from keras_bert.data.text_files import UTF_8, read_lines

_TEXT_SUFFIXES = (".txt", ".text", ".rst")
_MARKDOWN_SUFFIXES = (".md", ".markdown")
_HTML_SUFFIXES = (".html", ".htm")


@dataclasses.dataclass(frozen=True)
class Document:
    """A document to search.

    Args:
        name: The unique name, for example its path or URL.
        text: The text.
        title: The title. Empty if it has none.
        page_starts: The offset of each page's first character, for documents with pages.
    """

    name: str
    text: str
    title: str = ""
    page_starts: tuple[int, ...] = ()


def read_documents(
    paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]], encoding: str = UTF_8
) -> Iterator[Document]:
    """Reads documents from files, and from all files with a known suffix in directories.

    Known suffixes are `.txt`, `.text`, `.md`, `.markdown`, `.rst`, `.html`, `.htm` and `.pdf`.
    Hidden files and directories are left out. Markdown becomes plain text, as HTML does. A file in
    a directory that cannot be read is left out with a warning.

    Args:
        paths: A path, or an iterable of paths.
        encoding: The encoding of text files without a byte order mark. Defaults to `"utf-8"`.

    Yields:
        Documents in the order of their paths. A document's name is its path. In it, bytes that are
        not UTF-8 are escaped.

    Raises:
        FileNotFoundError: If a path does not exist.
        OSError: If a directory or a file in `paths` cannot be opened.
        ValueError: If a file in `paths` has an unknown suffix or cannot be read. The message has
            its path.
        ImportError: If a library is missing.
    """
    given = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
    for path in map(Path, given):
        if not path.exists():
            raise FileNotFoundError(f"{path} does not exist. It must be a file or a directory")
        if path.is_dir():
            for file in _files(path):
                try:
                    document = _READERS[file.suffix.lower()](file, encoding)
                except (OSError, ValueError) as error:
                    warnings.warn(f"left out: {error}", stacklevel=2)
                else:
                    yield document
        elif path.suffix.lower() in _READERS:
            yield _READERS[path.suffix.lower()](path, encoding)
        else:
            raise ValueError(
                f"{path} must have one of the suffixes {', '.join(_READERS)}. Received: "
                f"{path.suffix!r}"
            )


def _files(directory: Path) -> Iterator[Path]:
    """Yields the files with known suffixes in a directory, sorted. Symbolic links are left out."""

    def fail(error: OSError) -> None:
        raise error

    for parent, directories, names in os.walk(directory, onerror=fail):
        directories[:] = sorted(name for name in directories if not name.startswith("."))
        for name in sorted(names):
            path = Path(parent, name)
            is_known = path.suffix.lower() in _READERS and not name.startswith(".")
            if is_known and not path.is_symlink():
                yield path


def _name(path: Path) -> str:
    return os.fsencode(path).decode("utf-8", "backslashreplace")


@contextlib.contextmanager
def _parsing(path: Path) -> Iterator[None]:
    """Context manager that adds the path to errors. Parsers raise many kinds for damaged files."""
    try:
        yield
    except OSError:
        raise
    except Exception as error:
        raise ValueError(f"{_name(path)} cannot be read: {error}") from error


def _read_text(path: Path, encoding: str) -> Document:
    return Document(_name(path), "".join(read_lines(path, encoding)).replace("\r\n", "\n"))


def _read_markdown(path: Path, encoding: str) -> Document:
    with checks.importing("search", "Reading Markdown"):
        from markdown_it import MarkdownIt
    source = "".join(read_lines(path, encoding))
    return _from_html(path, MarkdownIt("commonmark").enable("table").render(source))


def _read_html(path: Path, encoding: str) -> Document:
    return _from_html(path, "".join(read_lines(path, encoding)))


def _from_html(path: Path, content: str) -> Document:
    with checks.importing("search", "Reading HTML"):
        import inscriptis
        import lxml.html
        from lxml.etree import ParserError
    parser = lxml.html.HTMLParser(encoding=UTF_8)
    with _parsing(path):
        try:
            root = lxml.html.fromstring(content.encode(), parser=parser)
        except ParserError:  # It has no elements.
            return Document(_name(path), "")
        titles = (element for name in ("title", "h1") for element in root.iter(name))
        title = next((" ".join(element.text_content().split()) for element in titles), "")
        return Document(_name(path), inscriptis.Inscriptis(root).get_text(), title)


def _read_pdf(path: Path, encoding: str) -> Document:
    with checks.importing("search", "Reading PDF"):
        import pypdf
    with _parsing(path):
        reader = pypdf.PdfReader(path)
        # Invalid fonts can yield halves of surrogate pairs.
        pages = [page.extract_text().encode("utf-8", "replace").decode() for page in reader.pages]
        title = (reader.metadata and reader.metadata.title) or ""
    starts, length = [], 0
    for page in pages:
        starts.append(length)
        length += len(page) + 2
    return Document(_name(path), "\n\n".join(pages), str(title), tuple(starts))


_READERS: dict[str, Callable[[Path, str], Document]] = {
    **dict.fromkeys(_TEXT_SUFFIXES, _read_text),
    **dict.fromkeys(_MARKDOWN_SUFFIXES, _read_markdown),
    **dict.fromkeys(_HTML_SUFFIXES, _read_html),
    ".pdf": _read_pdf,
}
