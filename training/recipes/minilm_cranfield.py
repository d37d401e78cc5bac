# SPDX-License-Identifier: Apache-2.0
"""Cranfield (abstracts that answer a question of aerodynamics), BM25 re-ranked by MiniLM L6-H384.

    python -m training.rerank --recipe=minilm_cranfield --data_dir=DIR

Hardware, time and score: the README's table of recipes.
"""

from training.jobs.reranking import RerankConfig

CONFIG = RerankConfig(output_dir="runs/minilm_cranfield")
