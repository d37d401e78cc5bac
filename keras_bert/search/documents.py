# SPDX-License-Identifier: Apache-2.0
"""Reads documents from files and directories: text, Markdown, HTML and PDF."""

from __future__ import annotations

import codecs
import contextlib
import dataclasses
import os
import re
import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from keras_bert import checks
from keras_bert.data.text_files import UTF_8, read_lines

_TEXT_SUFFIXES = (".txt", ".text", ".rst")
_MARKDOWN_SUFFIXES = (".md", ".markdown")
_HTML_SUFFIXES = (".html", ".htm")
_CHARSET = re.compile(rb"""charset=["']?([\w.:-]+)""", re.IGNORECASE)
# Browsers read these declared encodings as code pages that include them.
_AS_IN_BROWSERS = {
    **dict.fromkeys(("ascii", "iso8859-1"), "cp1252"),
    **dict.fromkeys(("gb2312", "gbk"), "gb18030"),
    **{"euc_kr": "cp949", "shift_jis": "cp932"},
}
_CHARSET_BYTES = 1024  # The HTML standard requires the declaration there.


@dataclasses.dataclass(frozen=True)
class Document:
    """A document to search.

    Args:
        name: The unique name, for example its path or URL.
        text: The text.
        title: The title. Empty if it has none.
        page_starts: The offset of each page's first character, for documents with pages.

    Raises:
        ValueError: If `name`, `text` or `title` is not a string.
    """

    name: str
    text: str
    title: str = ""
    page_starts: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        for field in ("name", "text", "title"):
            if not isinstance(value := getattr(self, field), str):
                raise ValueError(
                    f"{field} of the document {self.name!r} must be a string. Received: "
                    f"{checks.shorten_repr(value)}"
                )


def read_documents(
    paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]], encoding: str = UTF_8
) -> Iterator[Document]:
    """Reads documents from files, and from all files with a known suffix in directories.

    Known suffixes are `.txt`, `.text`, `.md`, `.markdown`, `.rst`, `.html`, `.htm` and `.pdf`.
    Hidden files and directories, and symbolic links in directories, are left out. So is anything in
    a directory that cannot be read, with a warning. Markdown becomes plain text, as HTML does.

    Args:
        paths: A path, or an iterable of paths.
        encoding: The encoding of text files that are not valid UTF-8, and neither have a byte order
            mark nor declare an encoding as HTML can. Defaults to `"utf-8"`.

    Yields:
        Documents in the order of their paths. A document's name is its path. In it, bytes that are
        not UTF-8 are escaped.

    Warns:
        UserWarning: If something in a directory is left out, or if a document has no text.

    Raises:
        FileNotFoundError: If a path does not exist.
        OSError: If a file in `paths` cannot be opened.
        ValueError: If a file in `paths` has an unknown suffix or cannot be read. The message has
            its path.
        ImportError: If a library is missing.
    """
    given = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
    for path in map(Path, given):
        if not path.exists():
            raise FileNotFoundError(f"{path} does not exist. It must be a file or a directory")
        read = _read_directory if path.is_dir() else _read_file
        for document in read(path, encoding):
            if not document.text.strip():
                warnings.warn(f"{document.name} contains no text", stacklevel=2)
            yield document


def _read_file(path: Path, encoding: str) -> Iterator[Document]:
    suffix = path.suffix.lower()
    if suffix not in _READERS:
        raise ValueError(
            f"{path} must have one of the suffixes {', '.join(_READERS)}. Received: {suffix!r}"
        )
    yield _READERS[suffix](path, encoding)


def _read_directory(directory: Path, encoding: str) -> Iterator[Document]:
    count = 0
    for count, path in enumerate(_files(directory), start=1):  # noqa: B007  (the last one counts)
        try:
            (document,) = _read_file(path, encoding)
        except (OSError, ValueError) as error:
            _warn_left_out(error)
        else:
            yield document
    if not count:
        warnings.warn(
            f"{directory} has no files with the suffixes {', '.join(_READERS)}", stacklevel=3
        )


def _warn_left_out(error: Exception) -> None:
    warnings.warn(f"left out: {error}", stacklevel=4)


def _files(directory: Path) -> Iterator[Path]:
    """Yields the files with known suffixes in a directory, sorted. Symbolic links are left out."""
    for parent, directories, names in os.walk(directory, onerror=_warn_left_out):
        directories[:] = sorted(name for name in directories if not name.startswith("."))
        for name in sorted(names):
            path = Path(parent, name)
            is_known = path.suffix.lower() in _READERS and not name.startswith(".")
            if is_known and not os.path.islink(path):
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


def _content(path: Path, encoding: str) -> str:
    """Reads a text file. In a directory, only some of the files may be in another encoding."""
    if encoding != UTF_8:
        with contextlib.suppress(ValueError):
            return "".join(read_lines(path, UTF_8))
    return "".join(read_lines(path, encoding))


def _read_text(path: Path, encoding: str) -> Document:
    return Document(_name(path), _content(path, encoding).replace("\r\n", "\n"))


def _read_markdown(path: Path, encoding: str) -> Document:
    with checks.importing("search", "Reading Markdown"):
        from markdown_it import MarkdownIt
    source = _content(path, encoding)
    return _from_html(path, MarkdownIt("commonmark").enable("table").render(source))


def _read_html(path: Path, encoding: str) -> Document:
    with path.open("rb") as file:
        declared = _CHARSET.search(file.read(_CHARSET_BYTES))
    with contextlib.suppress(LookupError):
        if declared:
            encoding = codecs.lookup(declared[1].decode("ascii", "replace")).name
            encoding = _AS_IN_BROWSERS.get(encoding, encoding)
    return _from_html(path, _content(path, encoding))


def _from_html(path: Path, content: str) -> Document:
    with checks.importing("search", "Reading HTML"):
        import lxml.html
        from inscriptis import Inscriptis
        from inscriptis.css_profiles import RELAXED_CSS_PROFILE
        from inscriptis.html_properties import WhiteSpace
        from inscriptis.model.config import ParserConfig
        from inscriptis.model.html_element import HtmlElement
        from lxml.etree import ParserError
    # Markdown has code in <pre><code>.
    style = {**RELAXED_CSS_PROFILE, "code": HtmlElement(whitespace=WhiteSpace.pre)}
    parser = lxml.html.HTMLParser(encoding=UTF_8)
    with _parsing(path):
        try:
            root = lxml.html.fromstring(content.encode(), parser=parser)
        except ParserError:  # It has no elements.
            return Document(_name(path), "")
        titles = (element for name in ("title", "h1") for element in root.iter(name))
        title = next((" ".join(element.text_content().split()) for element in titles), "")
        return Document(_name(path), Inscriptis(root, ParserConfig(style)).get_text(), title)


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
SUFFIXES = tuple(_READERS)
"""The suffixes of files that can be read."""
