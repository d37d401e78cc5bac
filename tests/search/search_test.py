# SPDX-License-Identifier: Apache-2.0
"""Searches documents by words and by meaning, also while another process changes the index."""

import contextlib
import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
import threading
import time
import unicodedata
import warnings
from concurrent import futures
from pathlib import Path

import numpy as np
import pytest

import keras_bert
from keras_bert.data import max_similarities
from keras_bert.search import (
    Document,
    Searcher,
    SearchIndex,
    SearchIndexError,
    embed_document,
    nearest,
    read_documents,
)
from keras_bert.search import index as index_module
from keras_bert.search.index import DATABASE
from keras_bert.search.passages import split_passages
from keras_bert.search.searching import MODES, fuse_scores
from keras_bert.search.terms import terms
from tests import small_tasks
from tests.text import small_tokenizers
from tests.text.small_tokenizers import make_tokenizer
from training.search import SearchConfig, load_embedders
from training.search import main as search

pytestmark = pytest.mark.on_torch

WORDS = ["the", "cat", "dog", "sat", "on", "mat", "who", "visa", "needs", "a", ".", "travels"]
TEXTS = {
    "a": "the cat sat on the mat. who needs a visa. the dog travels.",
    "b": "a dog sat on a dog.\n\nthe mat.",
    "c": "비자가 필요하다.",
}


def make_embedder(seed=0, kind="TextEmbedder", length=10):
    tokenizer = make_tokenizer("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS)
    config = small_tasks.CONFIG.replace(vocabulary_size=tokenizer.vocabulary_size)
    import keras

    keras.utils.set_random_seed(seed)
    task_class = getattr(keras_bert, kind)
    lengths = {"sequence_length": length}
    if kind == "LateInteractionEmbedder":
        lengths = {"sequence_length": 12, "query_length": 12, "document_length": 10}
    preprocessor = task_class.preprocessor_class(tokenizer, **lengths)
    return task_class(keras_bert.Backbone(config), preprocessor)


@pytest.fixture(scope="module")
def embedder():
    return make_embedder()


@pytest.fixture(scope="module")
def embedders(embedder):
    others = [make_embedder(0, kind) for kind in ("LateInteractionEmbedder", "SparseEmbedder")]
    return [*others, embedder]


def add_texts(index, texts=TEXTS):
    return index.add(Document(name, text) for name, text in texts.items())


def found(index, query, **options):
    return [(hit.document, hit.text) for hit in Searcher(index).search(query, **options)]


@pytest.mark.parametrize("max_tokens", [1, 2, 3, 5, 8, 50])
def test_passages_contain_every_token_once(embedder, max_tokens):
    tokenizer = embedder.preprocessor.tokenizer
    for text in (*TEXTS.values(), "", " \n ", "dog dog dog dog dog dog dog dog dog."):
        spans = split_passages(text, tokenizer, max_tokens)
        parts = [tokenizer(text[start:end]) for start, end in spans]
        assert [token for part in parts for token in part] == list(tokenizer(text))
        assert all(0 < len(part) <= max_tokens for part in parts)
        flat = [offset for span in spans for offset in span]
        assert flat == sorted(flat)


@pytest.mark.parametrize("kind", small_tokenizers.MAKERS)
def test_passages_fit_for_each_tokenizer(kind):
    tokenizer = small_tokenizers.make(kind)
    text = "\n\n".join(small_tokenizers.texts()[:150])
    for max_tokens in (20, 60):
        spans = split_passages(text, tokenizer, max_tokens)
        assert max(len(tokenizer(text[start:end])) for start, end in spans) <= max_tokens
        kept = "".join(text[slice(*span)] for span in spans)
        assert "".join(kept.split()) == "".join(text.split())


def test_each_mode_finds_its_passages(embedder, tmp_path):
    index = SearchIndex(tmp_path / "index", embedder)
    assert add_texts(index) == 3
    assert found(index, "who needs a visa?", mode="words")[0][0] == "a"
    assert found(index, "비자", mode="words") == [("c", TEXTS["c"])]
    for number in range(1, len(index) + 1):
        (passage,) = index.passages([number])
        hits = Searcher(index).search(passage.text, mode="vectors")
        assert hits[0].score == pytest.approx(1, abs=1e-5)
        assert len(hits) == len(index)
        assert TEXTS[passage.document][passage.start :].startswith(passage.text)
    (hit, *_) = Searcher(index).search("visa", top_k=1)
    assert hit.text[slice(*hit.snippet)] == "who needs a visa."
    assert found(index, "", mode="words") == found(index, "?!", mode="words") == []


def test_index_without_embedder_finds_words(tmp_path):
    index = SearchIndex(tmp_path / "index")
    sentence = "the cat sat on the mat. "
    add_texts(index, TEXTS | {"long": sentence * 100, "chinese": "没有空格的文字。" * 100})
    assert found(index, "who needs a visa?")[0] == ("a", TEXTS["a"])
    texts = [passage.text for passage in index.passages(range(len(index) + 1))]
    assert max(map(len, texts)) < 33 * len(sentence)
    assert "".join(texts).count("mat.") == 102
    assert index.methods == ("words",)


def test_build_follows_the_files(tmp_path, capsys, monkeypatch):

    folder, index = tmp_path / "docs", str(tmp_path / "index")
    folder.mkdir()
    names = [str(folder / name) for name in ("a.txt", "b.txt", "c\x1b[1m.txt")]
    for name in names:
        Path(name).write_text(f"visa \x1b[31m {name}")

    def run(action, **options):
        search(SearchConfig(action=action, index=index, embedder=(), **options))
        return capsys.readouterr().out

    assert "replaced: 3. Documents" in run("build", files=(str(folder),))
    # They are from elsewhere, or may exist.
    others = [
        "https://a.example/b",
        "7",
        str(folder / r"\xff.txt"),
        str(folder / "locked" / "e.txt"),
    ]
    with contextlib.closing(SearchIndex(index)) as opened:
        opened.add(Document(name, "mat") for name in others)
    lstat = os.lstat

    def lstat_or_fail(path):
        if "locked" in str(path):
            raise PermissionError
        return lstat(path)

    monkeypatch.setattr(os, "lstat", lstat_or_fail)
    Path(names[1]).unlink()
    Path(names[0]).write_text("dog")
    output = run("build", files=(str(folder),))
    assert "replaced: 1. Documents" in output
    assert (
        f"1 documents are kept although their files do not exist any more, such as {names[1]}"
        in output
    )
    assert "removed 1 documents" in run("build", files=(str(folder),), prune=True)
    with contextlib.closing(SearchIndex(index)) as opened:
        assert opened.document_names == sorted([names[0], names[2], *others])
        opened.remove(others)
    output = run("query", query="visa")
    assert "c\ufffd[1m.txt, character 0" in output
    assert "\x1b" not in output
    folder.rename(tmp_path / "unmounted")
    folder.mkdir()
    with pytest.warns(UserWarning, match="docs has no files with the suffixes"):
        output = run("build", files=(str(folder),), prune=True)
    assert f"no document of {folder} has a file any more" in output
    with pytest.raises(ValueError, match=r"Received: .*/do$"):
        run("remove", files=(str(tmp_path / "do"),))
    assert "removed 2 documents" in run("remove", files=(str(folder),))


def test_words_follow_an_older_database(embedder, tmp_path):
    def change(texts):
        with contextlib.closing(SearchIndex(tmp_path / "index", embedder)) as index:
            add_texts(index, texts)
            return index.document_names, [name for name, _ in found(index, "visa", mode="words")]

    path = tmp_path / "index" / DATABASE
    change({"a": "visa", "z": "the cat"})
    older = path.read_bytes()
    with contextlib.closing(SearchIndex(tmp_path / "index", embedder)) as index:
        index.remove("a")  # not the last one, which a number would show
    path.write_bytes(older)
    assert change({}) == (["a", "z"], ["a"])
    change({"a": "the cat"})
    older = path.read_bytes()
    change(dict.fromkeys("bcd", "visa"))
    path.write_bytes(older)
    assert change({}) == (["a", "z"], [])
    assert change({"e": "visa", "f": "the dog"}) == (["a", "e", "f", "z"], ["e"])


def test_embedded_documents_match_an_index(embedder, tmp_path):
    document = Document("a", TEXTS["a"], "visa", (0, 30))
    index = SearchIndex(tmp_path / "index", embedder)
    index.add([Document("b", TEXTS["b"]), document])
    passages = json.loads(json.dumps(embed_document(document, embedder)))
    stored = [index.passages([n])[0]._asdict() for n in range(1, len(index) + 1)]
    stored = [passage for passage in stored if passage["document"] == "a"]
    names = ("document", "title", "text", "start", "page")
    assert len(passages) > 2
    assert {passage["page"] for passage in passages} == {1, 2}
    for passage, other in zip(passages, stored, strict=True):
        assert {name: passage[name] for name in names} == {name: other[name] for name in names}
        (hit, *_) = Searcher(index).search(f"visa {passage['text']}", mode="vectors")
        query = embedder.embed_queries(f"visa {passage['text']}")
        assert hit.score == pytest.approx(query @ passage["vector"] / np.linalg.norm(query))
    assert embed_document(Document("empty", ""), embedder) == []


def test_other_objects_raise(embedder, tmp_path):
    document = Document("a", "the cat")
    sparse = keras_bert.SparseEmbedder(embedder.backbone, embedder.preprocessor)
    with pytest.raises(ValueError, match="Received: a SparseEmbedder"):
        embed_document(document, sparse)
    for other in ("minilm", None, {embedder}, [embedder, embedder.backbone]):
        with pytest.raises(ValueError, match="An embedder must have embed_queries and"):
            SearchIndex(tmp_path / "index", other)
    with pytest.raises(ValueError, match="An embedder must have embed_queries and"):
        embed_document(document, [embedder])
    index = SearchIndex(tmp_path / "index", embedder)
    assert index.add(document) == index.add([Document("aa", "a dog")]) == 1
    with pytest.raises(ValueError, match="documents must be Document objects"):
        index.add(["text"])
    assert (index.remove("aa"), index.document_names) == (1, ["a"])
    for arguments, message in ((("sparse", "cat", 1), "method"), (("words", "cat", -1), "count")):
        with pytest.raises(ValueError, match=f"{message} must be"):
            index.search(*arguments)


def test_changes_are_found_by_other_readers(embedder, tmp_path):
    index, reader = (SearchIndex(tmp_path / "index", embedder) for _ in range(2))
    assert (add_texts(index), add_texts(index)) == (3, 0)
    assert reader.document_names == ["a", "b", "c"]
    assert found(reader, "mat", mode="vectors")
    assert add_texts(index, {"b": "visa"}) == 1
    assert index.remove(["a", "unknown"]) == 1
    for mode in ("words", "vectors", "fused"):
        assert ("b", "visa") in found(reader, "visa", mode=mode)
        assert {name for name, _ in found(reader, "mat visa dog 필요", mode=mode)} <= {"b", "c"}
    assert found(reader, "dog", mode="words") == []


@pytest.mark.parametrize("max_new_fraction", [0.0, 0.5])
def test_graph_finds_what_exact_search_finds(embedder, tmp_path, monkeypatch, max_new_fraction):
    monkeypatch.setattr(nearest, "MIN_PASSAGES", 4)
    monkeypatch.setattr(nearest, "_MAX_NEW_FRACTION", max_new_fraction)
    rng = np.random.default_rng(0)
    texts = {str(n): " ".join(rng.choice(WORDS, 5)) for n in range(40)}
    index, reader = (SearchIndex(tmp_path / "index", embedder) for _ in range(2))
    for names in ("012", "123456789", ""):  # Documents are added, replaced and removed.
        add_texts(index, {n: text for n, text in texts.items() if n[0] in names})
        index.remove(["3", "11"])
        for query in ("the cat sat", "who needs a visa ."):
            vectors = embedder.embed_documents(list(texts.values()))
            scores = dict(zip(texts, vectors @ embedder.embed_queries(query), strict=True))
            kept = {name: scores[name] for name in index.document_names}
            expected = sorted(kept.values(), reverse=True)[:7]
            for searched in (index, reader):
                hits = Searcher(searched).search(query, 7, mode="vectors")
                np.testing.assert_allclose([hit.score for hit in hits], expected, atol=1e-6)
                np.testing.assert_allclose([kept[hit.document] for hit in hits], expected, 1e-5)
    (path,) = (tmp_path / "index").glob("vectors-*.usearch")
    path.unlink()
    hits = Searcher(SearchIndex(tmp_path / "index", embedder)).search(query, 7, mode="vectors")
    np.testing.assert_allclose([hit.score for hit in hits], expected, atol=1e-6)


def test_words_of_a_killed_update_are_found_later(embedder, tmp_path, monkeypatch):
    index = SearchIndex(tmp_path / "index", embedder)
    add_texts(index)
    for damage in (lambda words: None, shutil.rmtree, lambda words: damage_file(words)):
        with monkeypatch.context() as patch:
            patch.setattr(SearchIndex, "_update_words", lambda self: None)
            add_texts(index, {"a": "who needs a dog"})
            index.remove(["b"])
        index.close()
        damage(tmp_path / "index" / "words")
        index = SearchIndex(tmp_path / "index", embedder)
        assert {name for name, _ in found(index, "dog mat", mode="words")} == {"a"}
        add_texts(index)


def damage_file(words):
    (words / "meta.json").write_text("{")


def test_error_in_add_keeps_earlier_documents(embedder, tmp_path, monkeypatch):
    def documents():
        yield Document("a", "visa")
        yield Document("b", "mat \x00 dog. " * 4)
        raise OSError("broken file")

    monkeypatch.setattr(index_module, "_PASSAGES_AT_A_TIME", 1)
    index = SearchIndex(tmp_path / "index", embedder)
    with pytest.raises(OSError, match="broken file"):
        index.add(documents())
    assert found(index, "visa", mode="words") == [("a", "visa")]
    # A NUL character does not end a text.
    assert len(found(index, "dog", mode="words")) == len(index) - 1
    for parts in (("c\ud800", "dog"), ("c", "\ud800"), ("c", "dog", "\ud800")):
        with pytest.raises(ValueError, match=r"The document 'c.* must only contain"):
            index.add([Document(*parts)])


def test_long_documents_are_encoded_in_parts(embedder, tmp_path, monkeypatch):
    sizes = []
    monkeypatch.setattr(
        embedder,
        "embed_documents",
        lambda x: sizes.append(len(x)) or np.ones((len(x), 8), "float32"),
    )
    monkeypatch.setattr(index_module, "_PASSAGES_PER_ENCODING", 2)
    index = SearchIndex(tmp_path / "index", embedder)
    index.add(Document("a", "the cat sat on the mat.\n\n" * 9))
    assert (sum(sizes), max(sizes)) == (len(index), 2)


def test_removed_passages_leave_the_scores(embedder, tmp_path, monkeypatch):
    monkeypatch.setattr(nearest, "MIN_PASSAGES", 4)
    monkeypatch.setattr(nearest, "_MAX_NEW_FRACTION", 1.0)
    index = SearchIndex(tmp_path / "index", embedder)
    names = [str(number) for number in range(40)]
    add_texts(index, dict.fromkeys(names, "visa") | {"last": "the cat. who needs a visa."})
    index.remove(names[:38])
    assert all(rarity > 0 for rarity in index.rarities("visa").values())
    assert len(index.search("vectors", "visa", 3)) == 3
    # The last of two documents with the same name stays.
    index.add([Document("0", "dog"), Document("1", "mat"), Document("0", "visa")])
    assert ("0", "visa") in found(index, "visa", mode="words")
    assert index.search("vectors", "visa", 2**40)


def test_terms_contain_marks():
    assert list(terms("हिन्दी भाषा")) == ["हिन्दी", "भाषा"]
    for text in ("Tiếng Việt", "한국어", "BERT를", "الْعَرَبِيَّة", "é à"):
        decomposed = unicodedata.normalize("NFD", text)
        assert list(terms(decomposed)) == list(terms(text))
    text = "Don't __init__ a_b C9 x-ray 3.14 A"
    expected = ["don", "t", "__init__", "a_b", "c9", "x", "ray", "3", "14", "a"]
    assert list(terms(text)) == expected
    assert list(terms(f"{text} é")) == [*expected, "é"]


def test_killed_process_loses_only_its_transaction(embedder, tmp_path):
    index = SearchIndex(tmp_path / "index", embedder)
    add_texts(index, {"a": TEXTS["a"]})
    code = (
        "import os, sqlite3, sys\n"
        "connection = sqlite3.connect(sys.argv[1], isolation_level=None)\n"
        "connection.execute('PRAGMA synchronous = OFF')\n"
        "connection.execute('BEGIN IMMEDIATE')\n"
        "connection.execute('DELETE FROM documents')\n"
        "os.kill(os.getpid(), 9)\n"
    )
    path = str(tmp_path / "index" / DATABASE)
    assert subprocess.run([sys.executable, "-c", code, path], check=False).returncode == -9
    assert index.document_names == ["a"]
    assert add_texts(index) == 2


def test_each_embedder_adds_a_method(embedders, tmp_path):
    late, sparse, dense = embedders
    for number, embedder in enumerate(embedders):
        embedder.save_to_preset(tmp_path / str(number))
    paths = tuple(str(tmp_path / str(number)) for number in range(3))
    loaded = load_embedders(SearchConfig(embedder=paths, sequence_length=10))
    index, reader = (SearchIndex(tmp_path / "index", each) for each in (embedders, loaded))
    assert index.methods == ("words", "sparse", "vectors", "late")
    query = "who needs a dog"
    for texts in (TEXTS, {"b": "the cat sat. a visa. who travels on a mat. who needs a dog."}):
        add_texts(index, texts)
        index.remove(["c"])
        passages = [passage.text for passage in index.passages(range(1, 20))]
        hits = {mode: Searcher(reader).search(query, mode=mode) for mode in MODES}
        ranks = sparse.rank(query, passages)
        expected = [(passages[rank["index"]], rank["score"]) for rank in ranks if rank["score"] > 0]
        assert [hit.text for hit in hits["sparse"]] == [text for text, _ in expected]
        np.testing.assert_allclose(
            [hit.score for hit in hits["sparse"]], [score for _, score in expected], 1e-5
        )
        vectors = late.embed_documents(passages, pool_factor=2)
        scores = max_similarities(late.embed_queries(query), vectors)
        assert [hit.text for hit in hits["late"]] == [passages[row] for row in np.argsort(-scores)]
        np.testing.assert_allclose([hit.score for hit in hits["late"]], np.sort(-scores) * -1, 1e-3)
        rankings = [reader.search(name, query, 100) for name in index.methods[:-1]]
        candidates = [number for number, _ in fuse_scores(rankings, 100)]
        rankings.append(reader.search("late", query, 100, candidates))
        for hit, (number, score) in zip(hits["fused"], fuse_scores(rankings, 100), strict=True):
            assert (hit.id, hit.score) == (number, pytest.approx(score))
        assert {*hits["fused"][0].ranks} == {*index.methods}
        for method in ("words", "sparse", "vectors"):
            numbers = [number for number, _ in reader.search(method, query, 10)]
            assert len(index.passages(numbers)) == len(numbers) > 0
    with pytest.raises(SearchIndexError, match=r"for the methods: .*\. Received: vectors\."):
        SearchIndex(tmp_path / "index", dense)
    with pytest.raises(ValueError, match=r"at most one dense, .* Received: TextEmbedder, TextE"):
        SearchIndex(tmp_path / "other", [dense, dense])
    with pytest.raises(ValueError, match="mode must be one of fused, words, vectors"):
        Searcher(SearchIndex(tmp_path / "other", dense)).search("dog", mode="sparse")


def test_long_titles_leave_room_for_the_text(embedder, tmp_path, monkeypatch):
    texts = []
    monkeypatch.setattr(
        embedder, "embed_documents", lambda x: texts.extend(x) or np.ones((len(x), 8), "float32")
    )
    index = SearchIndex(tmp_path / "index", embedder)
    index.add([Document("a", "dog mat cat visa", "the " * 20), Document("b", "dog", "a mat")])
    assert texts == ["the the the the dog mat cat visa", "a mat dog"]
    assert index.passages([1])[0].title == "the " * 20


def test_passages_fit_into_each_embedder(embedders, tmp_path):
    _, sparse, _ = embedders
    letters = "abcdefghijklmnopqrstuvwxyz"
    tokenizer = make_tokenizer(
        "[PAD]", "[UNK]", "[CLS]", "[SEP]", ".", *letters, *(f"##{letter}" for letter in letters)
    )
    config = small_tasks.CONFIG.replace(
        vocabulary_size=tokenizer.vocabulary_size, max_sequence_length=20
    )
    preprocessor = keras_bert.data.TextClassifierPreprocessor(tokenizer, sequence_length=20)
    dense = keras_bert.TextEmbedder(keras_bert.Backbone(config), preprocessor)
    text = "the dog travels on the mat. who needs a visa. " * 3
    index = SearchIndex(tmp_path / "index", [sparse, dense])
    index.add([Document("a", text, "visa")])
    passages = index.passages(range(1, len(index) + 1))
    assert "".join(passage.text for passage in passages).replace(" ", "") == text.replace(" ", "")
    for passage in passages:
        for task, most in ((sparse, 8), (dense, 18)):
            tokens = task.preprocessor.tokenizer(f"visa {passage.text}")
            assert len(tokens) <= most


def test_one_of_two_processes_builds_the_graph(embedder, tmp_path, monkeypatch):
    index, other = (SearchIndex(tmp_path / "index", embedder) for _ in range(2))
    add_texts(index)
    monkeypatch.setattr(nearest, "MIN_PASSAGES", 2)
    built, extended = [], nearest.NearestVectors._extended

    def extend_slowly(*arguments):
        built.append(threading.get_ident())
        time.sleep(0.3)
        return extended(*arguments)

    monkeypatch.setattr(nearest.NearestVectors, "_extended", extend_slowly)
    threads = [threading.Thread(target=add_texts, args=(each,)) for each in (index, other)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(built) == 1
    (graph,) = (tmp_path / "index").glob("vectors-*.usearch")
    # A damaged graph is built again.
    expected = found(index, "visa", mode="vectors")
    index.close()
    graph.write_bytes(graph.read_bytes()[:100])
    index = SearchIndex(tmp_path / "index", embedder)
    assert found(index, "visa", mode="vectors") == expected
    index.add(Document("new", "dog"))
    assert len(built) == 2


def test_changes_wait_for_another_process(embedder, tmp_path):
    index = SearchIndex(tmp_path / "index", embedder)
    index._writer.execute("PRAGMA busy_timeout = 10")
    other = sqlite3.connect(tmp_path / "index" / DATABASE, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with futures.ThreadPoolExecutor() as pool, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        added = pool.submit(add_texts, index)
        with pytest.raises(TimeoutError):
            added.result(timeout=0.5)
        # Searches do not wait.
        searched = pool.submit(found, index, "dog")
        try:
            assert searched.result(timeout=5) == []
        finally:
            other.execute("COMMIT")
        assert added.result() == len(TEXTS)
    assert any("waiting for another process" in str(each.message) for each in caught)


def test_foreign_directories_and_embedders_raise(embedder, tmp_path):
    (tmp_path / "photo.jpg").write_text("")
    with pytest.raises(FileExistsError, match=r"with photo\.jpg, but without index\.sqlite"):
        SearchIndex(tmp_path, embedder)
    assert os.listdir(tmp_path) == ["photo.jpg"]
    with pytest.raises(FileExistsError, match=r"must be a directory\. Received: a file"):
        SearchIndex(tmp_path / "photo.jpg", embedder)
    SearchIndex(tmp_path / "index", embedder).close()
    for other, difference in (
        (make_embedder(1), "a TextEmbedder with .* \\(cosine similarity"),
        (make_embedder(length=9), "a TextEmbedder with passages of up to 7 instead of 8 tokens"),
        ((), "none"),
    ):
        with pytest.raises(SearchIndexError, match=rf"Received: {difference}"):
            SearchIndex(tmp_path / "index", other)
    for name, content in (("text", b"not a database" * 100), ("other", None)):
        (tmp_path / name).mkdir()
        path = tmp_path / name / DATABASE
        if content is None:
            sqlite3.connect(path).execute("CREATE TABLE documents(id)")
        else:
            path.write_bytes(content)
        with pytest.raises(SearchIndexError, match=r"index.sqlite (cannot be read|must be an i)"):
            SearchIndex(tmp_path / name, embedder)


@pytest.mark.parametrize("data", [b"\0\0\0\x40\0\0\x80\x3f", b"\xff" * 8, b"\0" * 3])
@pytest.mark.parametrize("mode", ["sparse", "vectors", "late"])
def test_invalid_embeddings_raise(embedders, tmp_path, mode, data):
    with contextlib.closing(SearchIndex(tmp_path / "index", embedders)) as index:
        add_texts(index)
    with contextlib.closing(sqlite3.connect(tmp_path / "index" / DATABASE)) as connection:
        connection.execute(f"UPDATE {mode} SET data = ?", (data,))
        connection.commit()
    with (
        contextlib.closing(SearchIndex(tmp_path / "index", embedders)) as index,
        pytest.raises(SearchIndexError, match=r"index\.sqlite cannot be read as an index"),
    ):
        Searcher(index).search("the cat", mode=mode)


def test_reranker_and_answerer_decide(embedder, tmp_path):
    class Reranker:
        def rank(self, query, documents, top_k):
            order = np.argsort([len(text) for text in documents])[:top_k]
            return [{"index": int(index), "score": -float(index)} for index in order]

    class Answerer:
        def answer(self, questions, contexts):
            return [{"answer": text[:3], "start": 0, "end": 3, "score": 0.5} for text in contexts]

    index = SearchIndex(tmp_path / "index", embedder)
    add_texts(index)
    hits = Searcher(index, Reranker(), Answerer()).search("dog mat", top_k=2)
    lengths = [len(hit.text) for hit in hits]
    assert lengths == sorted(lengths)
    assert {(hit.snippet, hit.answer_score) for hit in hits} == {((0, 3), 0.5)}
    with pytest.raises(ValueError, match="reranker must be a task with the method rank"):
        Searcher(index, embedder)


def test_explain_weighs_the_words_of_a_passage(embedder, tmp_path):
    import keras

    index = SearchIndex(tmp_path / "index", embedder)
    add_texts(index)
    (hit,) = Searcher(index).search("비자 new", 1, mode="words")
    assert (hit.ranks, hit.document) == ({"words": 1}, "c")
    (word,) = Searcher(index).explain("비자 new", hit.id)
    assert hit.text[word["start"] : word["end"]] == "비자"
    preprocessor = keras_bert.data.TextClassifierPreprocessor(
        embedder.preprocessor.tokenizer, sequence_length=32
    )
    keras.utils.set_random_seed(0)
    classifier = keras_bert.TextClassifier(
        keras_bert.Backbone(embedder.backbone.config.replace(max_sequence_length=32)),
        1,
        preprocessor,
    )
    searcher = Searcher(index, classifier)
    words = {}
    for title in ("", "the dog"):
        index.add(Document("a", "who needs a visa", title))
        (hit,) = (hit for hit in searcher.search("who needs") if hit.document == "a")
        words[title] = searcher.explain("who", hit.id)
        places = [hit.text[word["start"] : word["end"]] for word in words[title]]
        assert places == hit.text.split()
    # The title is a part of what the re-ranker reads.
    assert words[""] != words["the dog"]
    assert searcher.explain("who", 99) == []


def test_read_documents(tmp_path):
    pytest.importorskip("inscriptis")
    pypdf = pytest.importorskip("pypdf")
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "x.md").write_text("# Title\n\nSee **[one](two)**.\n")
    (tmp_path / "a" / ".hidden.md").write_text("x")
    (tmp_path / "b.html").write_text("<title>Über</title><p>One <b>two</b></p>", "utf-8")
    (tmp_path / "c.bin").write_bytes(b"\xff")
    writer = pypdf.PdfWriter()
    writer.add_blank_page(72, 72)
    writer.add_blank_page(72, 72)
    writer.write(tmp_path / "d.pdf")
    with pytest.warns(UserWarning, match=r"d\.pdf contains no text"):
        documents = list(read_documents(tmp_path))
    assert [(x.name.removeprefix(str(tmp_path)), x.title) for x in documents] == [
        ("/b.html", "Über"),
        ("/d.pdf", ""),
        ("/a/x.md", "Title"),
    ]
    assert "One two" in documents[0].text
    assert documents[2].text.split() == ["Title", "See", "one."]
    assert documents[1].page_starts == (0, 2)
    (tmp_path / "e.pdf").write_bytes(b"%PDF-")
    with pytest.raises(ValueError, match=r"e\.pdf cannot be read: "):
        list(read_documents(tmp_path / "e.pdf"))
    (tmp_path / "f.md").write_text("<!-- nothing else -->")
    (tmp_path / "g.txt").write_bytes(b"\xe9t\xe9")
    (tmp_path / os.fsdecode(b"h\xff.txt")).write_text("x")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        names = [document.name for document in read_documents(tmp_path)]
    messages = "\n".join(str(each.message).replace(str(tmp_path), "") for each in caught)
    assert re.findall(r"/(\S+) contains no text", messages) == ["d.pdf", "f.md"]
    assert re.findall(r"left out: /([^\s,]+)", messages) == ["e.pdf", "g.txt"]
    assert [name.removeprefix(str(tmp_path)) for name in names] == [
        *("/b.html", "/d.pdf", "/f.md", "/h\\xff.txt", "/a/x.md")
    ]
    # Only files that are not UTF-8 are in the given encoding.
    folder = tmp_path / "encodings"
    folder.mkdir()
    (folder / "1.txt").write_text("naïve", "utf-8")
    (folder / "2.txt").write_text("été", "cp1252")
    (folder / "3.html").write_bytes("<meta charset=euc-kr><p>비자 똠".encode("cp949"))
    texts = [document.text.strip() for document in read_documents(folder, "cp1252")]
    assert texts == ["naïve", "été", "비자 똠"]
    (folder / "1.txt").rename(folder / "1.bin")
    for path in (folder / "2.txt", folder / "3.html"):
        path.unlink()
    with pytest.warns(UserWarning, match="encodings has no files with the suffixes"):
        assert list(read_documents(folder)) == []
    (folder / "code.md").write_text("Run `a  b`:\n\n```\nif x:\n  y\n\nz\n```\n")
    (document,) = read_documents(folder)
    lines = [line.removeprefix("  ") for line in document.text.splitlines()]
    assert lines[-5:-1] == ["if x:", "  y", "", "z"]
    for parts in ((Path("a"), "x"), ("a", None), ("a", "x", float("nan"))):
        with pytest.raises(ValueError, match=r"of the document .* must be a string\. Received: "):
            Document(*parts)
    with pytest.raises(ValueError, match=r"c\.bin must have one of the suffixes"):
        list(read_documents(tmp_path / "c.bin"))
    with pytest.raises(FileNotFoundError, match="missing does not exist"):
        list(read_documents(tmp_path / "missing"))
