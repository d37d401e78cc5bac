# SPDX-License-Identifier: Apache-2.0
"""Cranfield (abstracts that answer a question of aerodynamics), BM25 re-ranked by MiniLM L6-H384.

    python -m training.rerank --recipe=minilm_cranfield --data_dir=DIR

Measured on 45 held-out queries, MRR@10, MAP and nDCG@10: BM25 50.2, 25.1, 33.2; the encoder alone
44.1, 21.2, 29.7; both combined 55.8, 27.3, 36.6. Hardware and time: one CPU core, 32 minutes. Needs
the extra `ranking`.
"""

from ..jobs.reranking import RerankConfig

CONFIG = RerankConfig(output_dir="runs/minilm_cranfield")
