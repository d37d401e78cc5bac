# SPDX-License-Identifier: Apache-2.0
"""What decides a run of re-ranking: one typed, frozen record."""

from __future__ import annotations

import dataclasses

from training.engine.training_config import OptimizationConfig

LOSSES = ("pointwise", "pairwise")


@dataclasses.dataclass(frozen=True)
class RerankConfig(OptimizationConfig):
    """Re-ranking what BM25 finds, by an encoder that reads query and document together.

    Args:
        data_dir: the folder of a collection: Cranfield's (cran.all.1400, cran.qry, cranqrel),
            BEIR's (corpus.jsonl, queries.jsonl, qrels/test.tsv) or MS MARCO's (collection.tsv,
            queries.tsv, qrels.tsv).
        documents: the file in data_dir of the documents, TSV or JSON Lines with an id and a text;
            empty takes the one that has a usual name.
        queries: the file of the queries, likewise.
        judgements: the file of the judgements, TREC's qrels or BEIR's.
        loss: pointwise tells relevant documents from others, each on its own; pairwise makes the
            score of a relevant one higher than that of another for the same query.
        candidates: how many documents of BM25's are re-ranked.
        negatives: for each relevant document, how many others of BM25's it is trained against.
        bm25_share: weight of BM25's score beside the encoder's, 0 to 1, in the combined ranking.
        test_every: every so many queries one is held out to be scored.
        batch_size: pairs of documents, or single ones, in an optimizer step.
        sequence_length: the longest query with a document in tokens; longer ones are cut.
        seed: it decides the head's weights, dropout, and which others a document is trained
            against.
        output_dir: where rankings, scores and the model go.
    """

    data_dir: str = ""
    documents: str = ""
    queries: str = ""
    judgements: str = ""
    loss: str = "pairwise"
    candidates: int = 50
    negatives: int = 4
    bm25_share: float = 0.5
    test_every: int = 5
    epochs: int = 2
    batch_size: int = 16
    sequence_length: int = 192
    output_dir: str = "runs/rerank"

    def __post_init__(self) -> None:
        if self.loss not in LOSSES:
            raise ValueError(f"--loss is {self.loss!r}, expected one of {', '.join(LOSSES)}")
        super().__post_init__()
        self.check_positive("candidates", "negatives")
        if not 0 <= self.bm25_share <= 1:
            raise ValueError(f"--bm25_share is {self.bm25_share}, expected 0 to 1")
        if self.test_every < 2:
            raise ValueError(f"--test_every is {self.test_every}, expected at least 2")
