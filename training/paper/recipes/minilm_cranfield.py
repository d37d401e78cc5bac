# SPDX-License-Identifier: Apache-2.0
"""Cranfield (aerodynamics abstracts): BM25's results re-ranked by MiniLM L6-H384.

    python -m training.finetune --recipe=minilm_cranfield --data_dir=DIR

Requires the extra `ranking`.

Score: MRR@10, MAP and nDCG@10 on 45 validation queries. BM25 has 50.2, 25.1, 33.2, the encoder
44.1, 21.2, 29.7, and both combined 55.8, 27.3, 36.6.
Time: 32 minutes.
Hardware: one CPU core.
Recorded: 21 November 2026, commit 878956c.
"""

from ...jobs.reranking import RerankConfig

CONFIG = RerankConfig.from_flags(output_dir="runs/minilm_cranfield")
