# SPDX-License-Identifier: Apache-2.0
"""N-gram baselines of pre-training: masked tokens predicted by a unigram and a bigram model.

    python -m training.research.ngram_baselines --run=runs/wikitext2_cpu

It counts the n-grams in the training records of a pre-training run, and scores both models on the
same masked tokens of the validation text as the run itself.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

import numpy as np

from keras_bert.tables import text_table

from ..engine import program
from ..engine.options import ProgramConfig
from ..pretraining.config import PretrainConfig
from ..pretraining.unigrams import UnigramModel, never_predicted, unmasked_rows

# Count of the previous token at which bigram and unigram have equal weights.
_COUNT_FOR_HALF = 5.0

Integers = np.ndarray[Any, np.dtype[np.int64]]


@dataclasses.dataclass(frozen=True)
class NgramBaselinesConfig(ProgramConfig):
    """The run.

    Args:
        run: The --output_dir of a finished training.pretrain.
    """

    run: str = ""


class NgramModel:
    """Unigram and bigram counts of tokens.

    The bigram probability is interpolated with the unigram probability (Jelinek-Mercer smoothing),
    with a weight that grows with the count of the previous token.

    Args:
        vocabulary_size: Number of token ids.
        never_predicted: Ids that the unigram model leaves out.
    """

    def __init__(self, vocabulary_size: int, never_predicted: Collection[int] = ()) -> None:
        self.unigrams = UnigramModel(vocabulary_size, never_predicted)
        self._pairs = np.zeros((vocabulary_size, vocabulary_size), np.int32)

    def add(self, token_ids: Integers, is_real: np.ndarray[Any, Any]) -> None:
        """Counts the tokens of rows `(rows, length)`; `is_real` is False at padding."""
        self.unigrams.add(token_ids[is_real])
        both = is_real[:, 1:] & is_real[:, :-1]
        np.add.at(self._pairs, (token_ids[:, :-1][both], token_ids[:, 1:][both]), 1)

    def bigram(self, before: Integers) -> np.ndarray[Any, Any]:
        """Returns probabilities `(tokens, vocabulary)`, given the previous tokens `(tokens,)`."""
        pairs = self._pairs[before].astype("float64")
        seen = pairs.sum(axis=1, keepdims=True)
        share = seen / (seen + _COUNT_FOR_HALF)
        return share * pairs / np.maximum(seen, 1.0) + (1 - share) * self.unigrams.probabilities()


def score(
    model: NgramModel, batches: Iterable[dict[str, Any]], causal: bool = False
) -> dict[str, dict[str, float]]:
    """Returns the accuracy and the perplexity on the masked tokens of a `PretrainingStream`.

    The bigram model is given the previous token of the masked input, which may itself be masked or
    replaced, as the network is.

    Args:
        model: The counts.
        batches: The batches.
        causal: Whether the token at a position of `mask_positions` predicts the one after it.
    """
    batches = list(batches)
    right, loss, count = 0, 0.0, 0
    for batch in batches:
        rows, slots = np.nonzero(batch["mask_weights"])
        positions = batch["mask_positions"][rows, slots]
        labels = batch["mask_ids"][rows, slots]
        behind = model.bigram(batch["token_ids"][rows, positions if causal else positions - 1])
        right += int((behind.argmax(axis=1) == labels).sum())
        loss -= float(np.log(behind[np.arange(len(labels)), labels]).sum())
        count += len(labels)
    bigram = {"masked_accuracy": right / count, "perplexity": math.exp(loss / count)}
    return {"unigram": model.unigrams.score(batches), "bigram": bigram}


def baselines(folder: Path) -> dict[str, dict[str, float]]:
    """Returns the scores of both models and of a finished run.

    Raises:
        FileNotFoundError: If the run is not finished.
        ValueError: If the run has no validation text.
    """
    from ..pretraining.report import RESULTS_FILE
    from ..pretraining.text_source import Batches, TextSource
    from ..pretraining.tokenizer_source import open_tokenizer

    results = json.loads((folder / RESULTS_FILE).read_text(encoding="utf-8"))
    values = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in results["config"].items()
    }
    config = PretrainConfig.from_flags(**values)
    source, causal = TextSource.of(config), config.encoder.causal
    vocabulary, length = source.vocabulary(), source.lengths[-1]
    tokenizer = open_tokenizer(vocabulary, config.text.corpus.lowercase)
    if not config.text.dev_files and not config.text.dev_records:
        raise ValueError(f"{folder} is a run without validation text (--dev_files)")
    batches = Batches(config.text, config.task, causal, tokenizer)
    records = source.records(length, vocabulary, of_validation=True)
    dev = batches.of_validation(records, length, config.optimization.dev_batch_size(length))
    model = NgramModel(tokenizer.vocabulary_size, never_predicted(tokenizer, causal))
    for rows in unmasked_rows(source.records(length, vocabulary), length):
        model.add(*rows)
    scores = score(model, dev.first_batches(config.text.dev_batches), causal)
    last = results["last"]
    network = {name: last[f"val_{name}"] for name in ("masked_accuracy", "perplexity")}
    return {**scores, "this run": network}


def main(config: NgramBaselinesConfig) -> None:
    if not config.run:
        raise ValueError("no --run is given, expected the folder of a pre-training run")
    scores = baselines(Path(config.run))
    rows = [
        [name, 100 * values["masked_accuracy"], values["perplexity"]]
        for name, values in scores.items()
    ]
    print(text_table(["masked tokens", "accuracy, %", "perplexity"], rows))


if __name__ == "__main__":
    program.run(main, NgramBaselinesConfig)
