# SPDX-License-Identifier: Apache-2.0
"""Writes a pre-training corpus, `corpus.txt`, and a ranking dataset, `beir`."""

from pathlib import Path

PARAGRAPH = "The film was good. The plot was bad.\nA good film has a good plot."
WORDS = ("good", "bad", "plot") * 4
DOCUMENTS = [
    f'{{"_id": "d{n}", "title": "", "text": "{word} film"}}' for n, word in enumerate(WORDS)
]
QUERIES = [f'{{"_id": "q{n}", "text": "good film"}}' for n in range(10)]
JUDGMENTS = [f"q{n}\td{3 * (n % 4)}\t1" for n in range(10)]

Path("corpus.txt").write_text("\n\n".join([PARAGRAPH] * 40))
Path("beir/qrels").mkdir(parents=True)
Path("beir/corpus.jsonl").write_text("\n".join(DOCUMENTS))
Path("beir/queries.jsonl").write_text("\n".join(QUERIES))
Path("beir/qrels/test.tsv").write_text("\n".join(["query-id\tcorpus-id\tscore", *JUDGMENTS]))
