# SPDX-License-Identifier: Apache-2.0
"""Re-ranks BM25 results with an encoder that reads query and document together."""

from __future__ import annotations

import dataclasses
import itertools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from absl import logging

from keras_bert import atomic, checks
from keras_bert.data.texts import LONG_TEXTS
from keras_bert.search.terms import terms
from keras_bert.tables import table_from_records, text_table

from ..engine import program, run_presets, run_report
from ..engine.finetuning_config import SCORED_ROWS, FineTuningConfig
from ..engine.job import finite
from ..engine.options import (
    Fraction,
    PositiveInt,
    TextFileOptions,
    UnusedFlags,
    check_one_of,
    check_unset,
)
from ..engine.output_directory import NotFiniteError, hash_directory
from ..readers.data_splits import counts_table
from ..readers.trec_files import (
    Collection,
    rank_documents,
    read_collection,
    read_run,
    write_qrels,
    write_run,
)
from ..scores.ranking_scores import ranking_scores

if TYPE_CHECKING:
    from ..engine.devices import Scope
    from ..engine.seed_runs import SeedRun

# Maps a query ID to a list of (document ID, score), best first
Scored = dict[str, list[tuple[str, float]]]
LOSSES = ("pointwise", "pairwise", "margin_mse", "listwise")
# The documents are English if more than this fraction of the words are English stop words. In other
# languages with the Latin alphabet, some stop words are common, such as *in*.
_ENGLISH_STOP_WORDS = 0.15
_LANGUAGE_SAMPLE = 1000
# The qrels of the scored queries
QRELS_FILE = "held_out.qrels"


@dataclasses.dataclass(frozen=True)
class RerankConfig(TextFileOptions, FineTuningConfig):
    """Re-ranking of BM25 results with an encoder that reads query and document together.

    Args:
        data_dir: Directory with a collection: Cranfield (cran.all.1400, cran.qry, cranqrel), BEIR
            (corpus.jsonl, queries.jsonl, qrels/train.tsv, qrels/test.tsv) or MS MARCO
            (collection.tsv, queries.train.tsv, qrels.train.tsv, qrels.dev.tsv).
        documents: The file of the documents in data_dir, TSV or JSON Lines with an ID and a text.
            If empty, a file with one of the usual names is used.
        queries: The file of the queries in data_dir, in the same formats. If empty, a file with one
            of the usual names is used.
        qrels: The file of relevance judgments, in the format of TREC or BEIR. If empty, the splits
            train, dev and test are found by the names of files or directories. The first split is
            used for training and the last for scoring.
        loss: One of pointwise, pairwise, margin_mse and listwise. pointwise classifies each
            document as relevant or not. pairwise trains a relevant document to have a higher score
            than a negative for the same query. margin_mse trains on the difference between the
            teacher's scores of a relevant document and each negative. listwise trains on the
            softmax over the teacher's scores of a relevant document and its negatives, or over
            their grades in the qrels without a teacher (ListNet).
        teacher: A TREC run, with a teacher's score of each training query and document, for
            margin_mse and listwise. Documents that it does not score are not used.
        candidates: Number of BM25 results to re-rank per query.
        negatives: Number of BM25 negatives per relevant document.
        bm25_weight: Weight of the BM25 score in the combined ranking, from 0 to 1. The encoder's
            score has the remaining weight.
        holdout_every: With a single file of qrels, every holdout_every-th query is held out for
            scoring.
        batch_size: Number of examples per optimizer step: pairs of documents, single documents
            with the pointwise loss, or relevant documents with all their negatives with margin_mse
            and listwise.
        sequence_length: Maximum length of each query with a document, in tokens. Longer documents
            are truncated, unless with long_texts.
        long_texts: With the pointwise loss, how longer documents are read: truncate, or in
            overlapping windows, each with the query, whose logits are averaged (mean) or maximized
            (max). If empty, the checkpoint's own setting is kept, and most checkpoints truncate.
        seed: Random seed. It determines the weights of the new head, dropout and the choice of
            negatives.
    """

    documents: str = ""
    queries: str = ""
    qrels: str = ""
    loss: str = "pairwise"
    teacher: str = ""
    candidates: PositiveInt = 50
    negatives: PositiveInt = 4
    bm25_weight: Fraction = 0.5
    holdout_every: Annotated[int, checks.NumberRange(at_least=2, integer=True)] = 5
    epochs: PositiveInt = 2
    batch_size: PositiveInt = 16
    sequence_length: PositiveInt = 192
    long_texts: str = ""

    def unused_flags(self) -> UnusedFlags:
        yield from super().unused_flags()
        yield self.costs.to_dict(), "ranking does not measure its costs"
        if self.loss in ("pointwise", "pairwise"):
            yield ["teacher"], f"--loss={self.loss} trains on the qrels"
        if self.loss != "pointwise":
            reason = f"--loss={self.loss} truncates documents. Windows require --loss=pointwise"
            yield ["long_texts"], reason

    def __post_init__(self) -> None:
        super().__post_init__()
        check_one_of(self, loss=LOSSES, long_texts=("", *LONG_TEXTS))
        if self.loss == "margin_mse" and not self.teacher:
            raise ValueError("--teacher must be a TREC run with --loss=margin_mse. Received: ''")


def run_program(config: RerankConfig) -> None:
    """Reads the collection, trains, ranks, and prints the scores.

    Files written to `output_dir`: the rankings of the held-out queries in TREC's run format, by
    BM25 (`bm25.run`), by the encoder (`reranked.run`) and by both combined (`combined.run`), the
    qrels of these queries (`held_out.qrels`), their scores (`scores.json`), the model
    (`model.keras`), and whether the model reads text pairs (`results.json`).
    """
    program.require(("bm25s", *program.TRAINING_LIBRARIES), "ranking")
    with program.joined_hosts(config.hosts, config.compute):
        program.check_preset(config.preset)
        collection = read_collection(
            Path(config.data_dir), config.documents, config.queries, config.qrels, config.encoding
        )
        if collection.splits:
            check_unset(config, ["holdout_every"], "the qrels have splits")
        program.import_quietly()
        with program.locked_by_main_process(config, "finetune"):
            scores = rerank(config, collection)
        directory = Path(config.output_dir)
        print("\n" + text_table(*table_from_records("held-out queries", scores)))
        print(f"\nmodel     {directory / 'model.keras'}\nrankings  {directory / '*.run'}")
        bm25 = {"bm25": scores["bm25"]}
        print("\n" + run_report.verdict("held-out queries", scores["combined"], bm25))


def rerank(config: RerankConfig, collection: Collection) -> dict[str, dict[str, float]]:
    """Trains on some of the queries, re-ranks the documents for the rest, and writes all results.

    A finished run is not repeated.

    Returns:
        The metrics of `ranking_scores` for the BM25 ranking, the encoder's ranking and the combined
        ranking. `trec_eval -c` computes the same scores from the written files.
    """
    from keras_bert.ops.lazy_tensorflow import set_random_seed

    from ..engine import devices, finetuning, hosts
    from ..engine.dev_evaluation import save_model
    from ..engine.seed_runs import SeedRun, run_fingerprint

    finetuning.check_hosts(config)
    set_random_seed(config.seed)
    directory = Path(config.output_dir)
    candidates = bm25(collection, config.candidates)
    parts = collection.parts(config.holdout_every)
    training, test = parts.values()
    print(counts_table({name: collection.counts(own) for name, own in parts.items()}), flush=True)
    teacher = read_run(Path(config.teacher), config.encoding) if config.teacher else None
    lists = training_lists(config, collection, candidates, training, teacher)
    fingerprint = run_fingerprint(config, [collection, lists], seed=config.seed)
    preset = hash_directory(run_presets.resolve(config.preset)).hex()
    hosts.check_all_equal("the data", {"fingerprint": fingerprint, "preset": preset})
    seed_run = SeedRun(directory, config.seed, fingerprint, config.checkpoint_seconds, preset)
    if (results := seed_run.load_result()) is not None:
        return results
    baseline = {query: candidates[query] for query in test}
    try:
        with devices.distribute_over(config.compute.devices) as scope:
            model = train(config, lists, seed_run, scope)
            rankings = {"bm25": baseline, "reranked": rerank_documents(model, collection, baseline)}
    except NotFiniteError as error:
        raise finetuning.divergence_error(config.seed, error) from error
    rankings["combined"] = combine_rankings(baseline, rankings["reranked"], config.bm25_weight)
    qrels = {query: collection.qrels.get(query, {}) for query in test}
    results = {}
    for name, ranking in rankings.items():
        run = {query: [document for document, _ in own] for query, own in ranking.items()}
        results[name] = ranking_scores(run, qrels)
    save_model(model, seed_run.model_path)
    if hosts.is_main_process():
        write_qrels(directory / QRELS_FILE, qrels)
        for name, ranking in rankings.items():
            write_run(directory / f"{name}.run", ranking, tag=name)
        atomic.write_json(directory / "scores.json", results)
        # Whether the model reads text pairs, for commands that load it
        atomic.write_json(directory / "results.json", {"pairs": config.loss == "pointwise"})
        seed_run.finish(results)
    return results


def bm25(collection: Collection, count: int) -> Scored:
    """Retrieves and scores documents for each query with BM25, in descending order of score.

    Terms are lowercase words. In Chinese, Japanese, Korean and Thai, they are pairs of adjacent
    characters. If the documents are English, stop words are removed.

    Reference:
        [BM25S](https://arxiv.org/abs/2407.03618).
    """
    with checks.importing("ranking", "BM25"):
        import bm25s

    stop_words = _stop_words(collection.documents.values())

    def tokens(texts: Iterable[str]) -> Any:
        return bm25s.tokenize(
            [" ".join(terms(text)) for text in texts],
            lower=False,
            token_pattern=r"\S+",
            stopwords=stop_words,
            show_progress=False,
        )

    ids = list(collection.documents)
    index = bm25s.BM25()
    index.index(tokens(collection.documents.values()), show_progress=False)
    indices, scores = index.retrieve(
        tokens(collection.queries.values()), k=min(count, len(ids)), show_progress=False
    )
    return {
        query: rank_documents((ids[index], float(score)) for index, score in zip(*row, strict=True))
        for query, *row in zip(collection.queries, indices, scores, strict=True)
    }


def _stop_words(documents: Iterable[str]) -> list[str]:
    """Returns the English stop words if the documents are English, or no words."""
    from bm25s.stopwords import STOPWORDS_EN

    counts: Counter[str] = Counter()
    for text in itertools.islice(documents, _LANGUAGE_SAMPLE):
        counts.update(terms(text))
    count = sum(counts[word] for word in STOPWORDS_EN)
    return list(STOPWORDS_EN) if count > _ENGLISH_STOP_WORDS * counts.total() else []


@dataclasses.dataclass(frozen=True)
class TrainingList:
    """A query with a relevant document, followed by negatives from BM25.

    Args:
        query: The text of the query.
        documents: The texts of the documents.
        scores: The teacher's scores of the documents, or their grades in the qrels.
    """

    query: str
    documents: tuple[str, ...]
    scores: tuple[float, ...]


def training_lists(
    config: RerankConfig,
    collection: Collection,
    rankings: Scored,
    queries: Sequence[str],
    teacher: Mapping[str, Mapping[str, float]] | None = None,
) -> list[TrainingList]:
    """Returns a list for each relevant document of each query.

    Documents and queries are identified by their texts, because different IDs may have the same
    text. A document must not be relevant under one ID and a negative under a different ID.

    Args:
        config: The config.
        collection: The collection.
        rankings: The BM25 results for each query.
        queries: The IDs of the training queries.
        teacher: The teacher's scores by query and document ID. Other documents are not used.
    """
    generator = np.random.default_rng(config.seed)
    relevant: dict[str, dict[str, None]] = {}  # document texts by query text, in order
    for query in queries:
        grades = collection.qrels.get(query, {})
        texts = (collection.documents[document] for document, grade in grades.items() if grade > 0)
        relevant.setdefault(collection.queries[query], {}).update(dict.fromkeys(texts))
    lists = []
    for query in queries:
        text, grades = collection.queries[query], collection.qrels.get(query, {})
        names = [document for document, _ in rankings[query]]
        own = [document for document, grade in grades.items() if grade > 0]
        scores: Mapping[str, float] = {name: max(0, grades.get(name, 0)) for name in [*own, *names]}
        if teacher is not None:
            scores = teacher.get(query, {})
        score_of_text = {collection.documents[x]: scores[x] for x in [*names, *own] if x in scores}
        candidates = dict.fromkeys(collection.documents[name] for name in names if name in scores)
        others = [candidate for candidate in candidates if candidate not in relevant[text]]
        for document in dict.fromkeys(collection.documents[name] for name in own if name in scores):
            indices = generator.permutation(len(others))[: config.negatives]
            documents = (document, *(others[index] for index in indices))
            if len(documents) > 1:
                lists.append(
                    TrainingList(text, documents, tuple(score_of_text[one] for one in documents))
                )
    if not lists:
        scored = "" if teacher is None else f", both with a score in --teacher={config.teacher}"
        raise ValueError(
            f"at least one of the {len(queries)} training queries must have both a relevant "
            f"document and a negative from BM25{scored}"
        )
    return lists


def train(
    config: RerankConfig, lists: Sequence[TrainingList], seed_run: SeedRun, scope: Scope
) -> Any:
    """Trains and returns a `TextClassifier` (pointwise loss) or a `MultipleChoice`."""
    from keras_bert import MultipleChoice, TextClassifier
    from keras_bert.losses import ListNetLoss, MarginMSELoss

    from ..engine import finetuning

    preset, options = run_presets.resolve(config.preset), finetuning.preset_options(config)
    x: Any
    loss = None
    with scope():
        if config.loss == "pointwise":
            long_texts = config.long_texts or None
            model = TextClassifier.from_preset(preset, 2, long_texts=long_texts, **options)
            labels = {(one.query, one.documents[0]): 1 for one in lists}
            labels |= {(one.query, other): 0 for one in lists for other in one.documents[1:]}
            x, y = list(labels), np.array(list(labels.values()), "int32")
        else:
            model = MultipleChoice.from_preset(preset, **options)
            if config.loss == "pairwise":
                # The cross-entropy over two choices is the logistic loss of the difference between
                # their scores.
                x = [
                    (one.query, [one.documents[0], other])
                    for one in lists
                    for other in one.documents[1:]
                ]
                y = np.zeros(len(x), "int32")
            else:
                loss = MarginMSELoss() if config.loss == "margin_mse" else ListNetLoss()
                x = [(one.query, list(one.documents)) for one in lists]
                y = [list(one.scores) for one in lists]
        finetuning.compile_task(model, config, x, loss)
    logging.info("training on %d examples", len(x))
    finetuning.fit(model, finetuning.epochs_of_text(model, x, y, config), config, seed_run)
    return model


def rerank_documents(model: Any, collection: Collection, rankings: Scored) -> Scored:
    """Sorts the documents of each query by the model's relevance scores."""
    pairs = [(query, document) for query, own in rankings.items() for document, _ in own]
    texts = [(collection.queries[query], collection.documents[text]) for query, text in pairs]
    result: Scored = {query: [] for query in rankings}
    for (query, document), score in zip(pairs, relevance(model, texts), strict=True):
        result[query].append((document, float(score)))
    return {query: rank_documents(own) for query, own in result.items()}


def combine_rankings(first: Scored, second: Scored, share: float) -> Scored:
    """Combines two rankings by a weighted sum of their scores.

    First, the scores of each ranking are standardized per query to mean 0 and standard deviation 1.

    Args:
        first, second: Rankings of the same documents for each query.
        share: Weight of the first ranking, in [0, 1]. The second ranking has the remaining weight.
    """
    result: Scored = {}
    for query, own in first.items():
        both = [_standard_scores(own), _standard_scores(second[query])]
        sums = {name: share * both[0][name] + (1 - share) * both[1][name] for name in both[0]}
        result[query] = rank_documents(sums.items())
    return result


def _standard_scores(ranking: Sequence[tuple[str, float]]) -> dict[str, float]:
    scores = np.array([score for _, score in ranking])
    deviation = scores.std() or 1.0
    return {document: float((score - scores.mean()) / deviation) for document, score in ranking}


def relevance(model: Any, pairs: Sequence[tuple[str, str]]) -> np.ndarray:
    """Returns the relevance scores of (query, text) pairs, of shape `(pairs,)`.

    For a `TextClassifier`, the last class is the relevant one.
    """
    if "choices" in model.fields:
        rows = [(query, [text]) for query, text in pairs]
        return finite(model.predict(rows, batch_size=SCORED_ROWS, verbose=0)[:, 0])
    logits = finite(model.predict(list(pairs), batch_size=SCORED_ROWS, verbose=0))
    return np.asarray(logits[:, -1] - logits[:, 0])
