# SPDX-License-Identifier: Apache-2.0
"""Ranking metrics, file formats, and re-ranking at a small scale."""

import json
import re

import keras
import numpy as np
import pytest

pytestmark = pytest.mark.on_torch

pytest.importorskip("bm25s")

from keras_bert import Backbone, MultipleChoice  # noqa: E402
from keras_bert.data import MultipleChoicePreprocessor  # noqa: E402
from tests.checkpoints.small_models import small_config  # noqa: E402
from tests.text.small_tokenizers import make_tokenizer  # noqa: E402
from training.engine.output_directory import SettingsMismatchError, is_own, reads_pairs  # noqa: E402
from training.jobs.reranking import (  # noqa: E402
    RerankConfig,
    bm25,
    combine_rankings,
    run_program,
    training_lists,
)
from training.paper import recipes  # noqa: E402
from training.readers.trec_files import (  # noqa: E402
    Collection,
    rank_documents,
    read_collection,
    read_cranfield,
    read_qrels,
    write_qrels,
    write_run,
)
from training.scores.ranking_scores import ranking_scores  # noqa: E402

WORDS = ["wing", "flow", "heat", "jet", "nose", "tail"]
TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "a", ".", *WORDS]


@pytest.mark.backend_independent
def test_ranking_scores_match_scikit_learn():
    from sklearn.metrics import average_precision_score, ndcg_score

    random = np.random.default_rng(0)
    grades, scores = (
        random.integers(0, 4, (5, 12)),
        random.permuted(np.tile(np.arange(12), (5, 1)), axis=1),
    )
    run = {str(q): [str(d) for d in np.argsort(-scores[q])] for q in range(5)}
    qrels = {str(q): {str(d): int(grades[q, d]) for d in range(12)} for q in range(5)}
    result = ranking_scores(run, qrels, cutoff=5)
    ndcg = [ndcg_score(grades[q : q + 1], scores[q : q + 1], k=5) for q in range(5)]
    precision = [average_precision_score(grades[q] > 0, scores[q]) for q in range(5)]
    ranks = [1 + next(i for i, d in enumerate(run[str(q)]) if grades[q, int(d)]) for q in range(5)]
    assert result["ndcg@5"] == pytest.approx(100 * np.mean(ndcg), abs=0.01)
    assert result["map"] == pytest.approx(100 * np.mean(precision), abs=0.01)
    assert result["mrr@5"] == pytest.approx(100 * np.mean(1 / np.array(ranks)), abs=0.01)


@pytest.mark.backend_independent
def test_ranking_scores_match_trec_eval():
    """`trec_eval -c` gives the same numbers (the C code in pytrec-eval-terrier 0.5.11)."""
    qrels = {"1": {"a": 1, "b": 1}, "2": {"a": 0}, "3": {"c": 1}, "4": {}}
    run = {"1": ["x", "a"], "2": ["a"], "4": ["a"]}
    result = ranking_scores(run, qrels)
    assert result == {"mrr@10": 16.67, "map": 8.33, "ndcg@10": 12.9}
    assert ranking_scores(run, qrels, cutoff=1) == {"mrr@1": 0.0, "map": 8.33, "ndcg@1": 0.0}
    with pytest.raises(ValueError, match="qrels must have at least one grade above 0"):
        ranking_scores(run, {"2": {"a": 0}})
    with pytest.raises(ValueError, match=r"only once. Received: duplicates for query 1"):
        ranking_scores({"1": ["a", "a"]}, qrels)


@pytest.mark.backend_independent
def test_bm25_terms_depend_on_script():
    """Parts of words match in some scripts, and stop words match unless the text is English."""
    documents = {
        "ko": "학교에서 사과를 먹었다",
        "ko2": "사람이 산에 오른다",
        "zh": "我喜欢自然语言处理。",
        "zh2": "今天天气很好。",
        "th": "ภาษาไทย",
        "en": "the left wing",
        "de": "was ist das",
    }
    queries = {"ko": "사과는", "zh": "自然语言", "th": "ไทย", "en": "wing", "de": "was"}
    english = {"en": "the wing of a plane", "tail": "the tail of the plane was in the air"}
    for texts, best in ((documents, {name: name for name in queries}), (english, {"en": "en"})):
        own = {name: queries[name] for name in best}
        results = bm25(Collection(texts, own, {}), 2)
        assert {query: found[0][0] for query, found in results.items()} == best
        assert all(found[0][1] > found[1][1] for found in results.values())
    assert bm25(Collection(english, {"1": "was the"}, {}), 1)["1"][0][1] == 0.0


@pytest.mark.backend_independent
def test_run_and_qrels_round_trip(tmp_path):
    # In float32, the scores of d2 and d10 are equal. To six decimals, all scores are.
    first = rank_documents([("d10", 3e-7), ("é", 1e-7), ("d2", 3.00000001e-7), ("z", 1e-7)])
    write_run(tmp_path / "a.run", {"1": first, "2": [("d3", -1.0)]})
    assert (tmp_path / "a.run").read_text().splitlines() == [
        "1 Q0 d2 1 3.00000011e-07 keras_bert",
        "1 Q0 d10 2 3.00000011e-07 keras_bert",
        "1 Q0 é 3 1.00000001e-07 keras_bert",
        "1 Q0 z 4 1.00000001e-07 keras_bert",
        "2 Q0 d3 1 -1 keras_bert",
    ]
    write_qrels(tmp_path / "a.qrels", {"1": {"d1": 2, "d2": 0}})
    assert read_qrels(tmp_path / "a.qrels") == {"1": {"d1": 2, "d2": 0}}
    (tmp_path / "qrels").write_text("1 0 d1 2\n1 0 d2 0\n\n2 d3  1\n")
    assert read_qrels(tmp_path / "qrels") == {"1": {"d1": 2, "d2": 0}, "2": {"d3": 1}}


@pytest.mark.backend_independent
def test_copies_of_positives_are_not_negatives():
    words = [f"text {number}" for number in range(6)]
    documents = {f"d{number}": words[number % 6] for number in range(12)}
    queries = {"q1": "a query", "q2": "a query", "q3": "another"}
    qrels = {"q1": {"d0": 1, "d1": 0}, "q2": {"d2": 1, "d8": 1}, "q3": {"d3": 1}}
    rankings = {query: [(document, 1.0) for document in documents] for query in queries}
    collection = Collection(documents, queries, qrels)
    lists = training_lists(RerankConfig(negatives=9), collection, rankings, list(queries))
    triples = [(one.query, one.documents[0], other) for one in lists for other in one.documents[1:]]
    # q1 and q2 have the same text, so a document relevant to q1 is not a negative for q2.
    expected = {
        ("a query", words[relevant], words[other]) for relevant in (0, 2) for other in (1, 3, 4, 5)
    }
    expected |= {("another", words[3], words[other]) for other in (0, 1, 2, 4, 5)}
    assert sorted(triples) == sorted(expected)


@pytest.mark.backend_independent
def test_combine_rankings_standardizes_scores():
    first = {"1": [("a", 30.0), ("b", 20.0), ("c", 10.0)]}
    second = {"1": [("c", 3.0), ("b", 2.0), ("a", 1.0)]}
    orders = {
        weight: "".join(document for document, _ in combine_rankings(first, second, weight)["1"])
        for weight in (0.0, 0.4, 0.6, 1.0)
    }
    assert orders == {0.0: "cba", 0.4: "cba", 0.6: "abc", 1.0: "abc"}
    constant = {"1": [("a", 2.0), ("b", 2.0), ("c", 2.0)]}
    assert dict(combine_rankings(constant, second, 0.5)["1"])["b"] == 0
    standard_deviation = 10 * np.sqrt(2 / 3)
    assert dict(combine_rankings(first, constant, 1.0)["1"])["a"] == pytest.approx(
        10 / standard_deviation
    )


@pytest.mark.backend_independent
def test_invalid_grade_error_has_the_line(tmp_path):
    (tmp_path / "file").write_text("1 0 d good\n")
    with pytest.raises(
        ValueError, match=r"line 1: the grade must be an integer\. Received: 'good'"
    ):
        read_qrels(tmp_path / "file")


def documents_by_query(run):
    """The documents of each query in a TREC run file, in the order of the lines."""
    documents = {}
    for line in run.read_text().splitlines():
        query, _, document, *_ = line.split()
        documents.setdefault(query, []).append(document)
    return documents


@pytest.fixture
def cranfield(tmp_path):
    directory = tmp_path / "cranfield"
    directory.mkdir()
    documents = [
        f".I {n + 1}\n.T\na {word} .\n.A\nx\n.W\na {word} .\n{word}\n"
        for n, word in enumerate(WORDS)
    ]
    (directory / "cran.all.1400").write_text("".join(documents))
    queries = [f".I {7 * n + 1:03}\n.W\na\n{word} .\n" for n, word in enumerate(WORDS)]
    (directory / "cran.qry").write_text("".join(queries))
    (directory / "cranqrel").write_text(
        "".join(f"{n} {n} 1 \n{n} {n % 6 + 1} -1\n" for n in range(1, 7))
    )
    return directory


@pytest.mark.backend_independent
def test_cranfield_collection_is_read(cranfield):
    collection = read_cranfield(cranfield)
    assert collection.documents["2"] == "a flow . flow"
    assert collection.queries["3"] == "a heat ."
    assert collection.qrels["6"] == {"6": 1, "1": 0}
    (cranfield / "cran.qry").write_text("a\n")
    with pytest.raises(ValueError, match=r"cran\.qry, line 1: the first line must be \.I and"):
        read_cranfield(cranfield)


@pytest.mark.backend_independent
def test_windows_require_the_pointwise_loss():
    assert RerankConfig(loss="pointwise", long_texts="max").long_texts == "max"
    with pytest.raises(ValueError, match="--long_texts=max is given, but --loss=pairwise truncat"):
        RerankConfig(long_texts="max")


DOCUMENTS = {"d1": ("A wing", "flow\there"), "d2": ("", "heat"), "d3": ("Jet", "")}


def write_beir(directory):
    rows = [{"_id": id, "title": title, "text": text} for id, (title, text) in DOCUMENTS.items()]
    (directory / "qrels").mkdir()
    (directory / "corpus.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (directory / "queries.jsonl").write_text(
        '{"_id": "q1", "text": "a"}\n{"_id": "q2", "text": "b"}'
    )
    (directory / "qrels" / "test.tsv").write_text(
        "query-id\tcorpus-id\tscore\nq1\td1\t2\nq1\td2\t0\n"
    )


def write_ms_marco(directory):
    rows = [f"{id}\t{title} {' '.join(text.split())}\n" for id, (title, text) in DOCUMENTS.items()]
    (directory / "collection.tsv").write_text("".join(rows))
    (directory / "queries.tsv").write_text("q1\ta\nq2\tb\n")
    (directory / "qrels.tsv").write_text("q1\t0\td1\t2\nq1\t0\td2\t0\n")


def write_tables(directory):
    """Writes tables with a header, and qrels as JSON Lines."""
    rows = [
        f"{id}\tx\t{' '.join(text.split())}\t{title}\n" for id, (title, text) in DOCUMENTS.items()
    ]
    (directory / "docs.tsv").write_text("docid\turl\ttext\ttitle\n" + "".join(rows))
    (directory / "topics.csv").write_text("id,text\nq1,a\nq2,b\n")
    grades = [{"query-id": "q1", "corpus-id": id, "score": n} for id, n in (("d1", 2), ("d2", 0))]
    (directory / "qrels.jsonl").write_text("\n".join(map(json.dumps, grades)))
    return {"documents": "docs.tsv", "queries": "topics.csv", "qrels": "qrels.jsonl"}


@pytest.mark.backend_independent
@pytest.mark.parametrize("write", [write_beir, write_ms_marco, write_tables])
def test_read_collection_formats(write, tmp_path):
    collection = read_collection(tmp_path, **(write(tmp_path) or {}))
    assert collection.documents == {"d1": "A wing flow here", "d2": "heat", "d3": "Jet"}
    assert collection.queries == {"q1": "a"}
    assert collection.qrels == {"q1": {"d1": 2, "d2": 0}}


@pytest.mark.backend_independent
@pytest.mark.parametrize(
    ("names", "parts"),
    [
        (["qrels/train.tsv", "qrels/dev.tsv", "qrels/test.tsv"], {"train": "a", "test": "c"}),
        (["qrels.train.tsv", "qrels.dev.tsv", "qrels.dev.small.tsv"], {"train": "a", "dev": "b"}),
        (["qrels/test.tsv"], {"train": "", "test": "a"}),
    ],
)
def test_splits_are_inferred_from_file_names(names, parts, tmp_path, caplog):
    (tmp_path / "corpus.jsonl").write_text('{"_id": "d1", "text": "wing"}\n')
    for name, query in zip(names, "abc", strict=False):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        # A query in both splits is used for scoring only.
        shared_line = f"{parts.get('test', parts.get('dev'))} 0 d1 0\n" if query == "a" else ""
        (tmp_path / name).write_text(f"{shared_line}{query} 0 d1 1\n")
    rows = [{"_id": query, "text": query} for query in "abc"]
    (tmp_path / "queries.jsonl").write_text("\n".join(map(json.dumps, rows)))
    with caplog.at_level("WARNING", logger="absl"):
        queries_by_split = read_collection(tmp_path).parts(holdout_every=1)
    assert {name: "".join(queries) for name, queries in queries_by_split.items()} == parts
    assert ("is the only file of qrels" in caplog.text) == (len(names) == 1)


@pytest.mark.backend_independent
def test_invalid_collections_raise(tmp_path, caplog):
    with pytest.raises(FileNotFoundError, match=r"must have the documents in .* Pass --documents"):
        read_collection(tmp_path)
    write_ms_marco(tmp_path)
    qrels = tmp_path / "qrels.tsv"
    qrels.write_text("q1\t0\td1\t1\nq1\t0\td9\t1\nq9\t0\td1\t1\n")
    with caplog.at_level("WARNING", logger="absl"):
        assert read_collection(tmp_path).qrels == {"q1": {"d1": 1}}
    assert "2 of 3 qrels are for unknown queries or documents" in caplog.text
    qrels.write_text("q9\t0\td1\t1\n")
    with pytest.raises(ValueError, match=r"must be for queries in .* Received: 1 other"):
        read_collection(tmp_path)
    (tmp_path / "collection.tsv").write_text("d1\ta\nd1\tb\n")
    with pytest.raises(ValueError, match=r"collection\.tsv, line 2: each id must be unique.*'d1'"):
        read_collection(tmp_path)


@pytest.mark.filterwarnings("ignore::keras_bert.checkpoints.CheckpointWarning")
@pytest.mark.parametrize("loss", ["pairwise", "pointwise", "margin_mse"])
def test_ranking_recipe_runs(loss, cranfield, tmp_path, capsys):
    config = small_config(vocabulary_size=len(TOKENS), num_layers=1, max_sequence_length=16)
    preprocessor = MultipleChoicePreprocessor(make_tokenizer(*TOKENS), 16)
    MultipleChoice(Backbone(config), preprocessor).save_to_preset(tmp_path / "preset")
    config = recipes.load("minilm_cranfield", RerankConfig).replace(
        loss=loss,
        teacher=str(tmp_path / "teacher.run") if loss == "margin_mse" else "",
        candidates=3,
        negatives=1,
        holdout_every=3,
        preset=str(tmp_path / "preset"),
        pretrained=loss != "pointwise",
        long_texts="mean" if loss == "pointwise" else "",
        epochs=1,
        batch_size=2,
        sequence_length=16,
        precision="float32",
        output_dir=str(tmp_path / "run"),
    )
    scores = {str(q): [(str(d), d - 2.0 * (d == q)) for d in range(1, 7)] for q in range(1, 7)}
    write_run(tmp_path / "teacher.run", scores)
    run_program(config.replace(data_dir=str(cranfield)))
    directory = tmp_path / "run"
    before = (directory / "model.keras").stat().st_mtime_ns
    run_program(config.replace(data_dir=str(cranfield)))
    assert (directory / "model.keras").stat().st_mtime_ns == before
    with pytest.raises(SettingsMismatchError, match="a finished run with different settings"):
        run_program(config.replace(data_dir=str(cranfield), bm25_weight=0.25))
    assert all(is_own(path.name, "finetune") for path in directory.iterdir())
    assert reads_pairs([directory / "model.keras"]) == (loss == "pointwise")
    results = json.loads((directory / "scores.json").read_text())
    output = capsys.readouterr().out
    assert output.count("\nmodel     ") == 2
    assert re.search(r"^bm25 +100.00 +100.00 +100.00$", output, re.M)
    assert f"model     {directory / 'model.keras'}\n" in output
    assert results["bm25"] == {"mrr@10": 100.0, "map": 100.0, "ndcg@10": 100.0}
    runs = [
        documents_by_query(directory / f"{name}.run") for name in ("bm25", "reranked", "combined")
    ]
    # The printed scores match the scores of the files.
    held_out = read_qrels(directory / "held_out.qrels")
    assert [ranking_scores(run, held_out) for run in runs] == list(results.values())
    assert [list(run) for run in runs] == [["3", "6"]] * 3
    documents = [{query: sorted(ranked) for query, ranked in run.items()} for run in runs]
    assert documents[1] == documents[2] == documents[0]
    model = keras.saving.load_model(directory / "model.keras")
    assert model.config.vocabulary_size == len(TOKENS)
    assert getattr(model.preprocessor, "long_texts", "") == ("mean" if loss == "pointwise" else "")
    initial = MultipleChoice.from_preset(tmp_path / "preset").backbone.get_weights()[0]
    # A few steps change the preset's weights only a little. Random weights differ more.
    assert np.allclose(model.backbone.get_weights()[0], initial, atol=2e-3) == config.pretrained
