# SPDX-License-Identifier: Apache-2.0
"""Creates pre-training records from files of raw text.

    python -m training.create_pretraining_data --input_files=corpus --vocabulary=vocab.txt \\
        --output_dir=records

The text is tokenized into a token store on disk, from which the records are created shard by shard,
so that memory use does not grow with the corpus. The records depend on the seed, not on the number
of processes. If the program is interrupted, the same command resumes after the last complete shard.

Files written to `output_dir`: the shards (`pretraining-*-of-*.tfrecord`), `summary.json`, and a
histogram of the lengths of the rows (`lengths.png`).
"""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from absl import logging

from keras_bert import atomic
from keras_bert.data.pretraining.corpus import resolve_format, sentence_splitter
from keras_bert.data.pretraining.instances import PAIR_KINDS
from keras_bert.data.text_files import COMPRESSIONS
from keras_bert.progress import bar
from keras_bert.tables import of_records, text_table

from .engine import output_folder, program
from .pretraining.config import PretrainingDataConfig

SUMMARY_FILE = "summary.json"
# Share of unknown tokens that a vocabulary of the text's own language should stay below
_MANY_UNKNOWN = 0.05
# What separates documents, by `document_ends`
_DOCUMENT_ENDS = {
    "blank_lines": "a blank line between two of them, or the end of a file",
    "files": "the end of a file",
    "wikitext": "a line ' = Title = ' before each, or the end of a file",
}
_QUANTILES = {"5 %": 0.05, "25 %": 0.25, "median": 0.5, "75 %": 0.75, "95 %": 0.95}

if TYPE_CHECKING:
    from keras_bert.data import TokenStore

    from .pretraining.shards import ShardStatistics


def main(config: PretrainingDataConfig) -> None:
    program.require(("matplotlib",), "pretraining")
    with output_folder.claimed(config.output_dir):
        summary = create_pretraining_data(config)
    print(describe(summary))


def describe(summary: Mapping[str, Any]) -> str:
    """Formats the content of `summary.json`: the counts, and quantiles of the rows' lengths."""
    config = summary["config"]
    folder = Path(config["output_dir"])
    unknown = (
        f"{100 * summary['unknown_tokens']:.1f} % unknown" if "unknown_tokens" in summary else ""
    )
    pairs, files = summary["random_pairs"], summary["files"]
    lines = [
        f"Text: {summary['documents']:,} documents, {summary['sentences']:,} sentences, "
        f"{summary['tokens']:,} tokens" + (f" ({unknown})" if unknown else ""),
        f"Records: {summary['instances']:,} rows in {files:,} file{'s' * (files > 1)}; padding to "
        f"{config['sequence_length']} tokens would be {summary['padding']:.1%} of all tokens",
    ]
    if pairs is not None:
        lines.append(f"Pairs: {pairs:.1%} are labeled 1 (random, or swapped)")
    counts = np.asarray(summary["lengths"])
    # The length of the row at each share of all rows, sorted by length
    lengths = np.searchsorted(
        np.cumsum(counts), [share * counts.sum() for share in _QUANTILES.values()]
    )
    quantiles = dict(zip(_QUANTILES, map(int, lengths), strict=True))
    in_a_row = {"mean": summary["mean_length"], **quantiles}
    table = text_table(*of_records("tokens", {"in a row": in_a_row}))
    written = {
        "records": folder / "pretraining-*.tfrecord",
        "summary": folder / SUMMARY_FILE,
        "lengths": folder / "lengths.png",
    }
    paths = "\n".join(f"{name:8} {path}" for name, path in written.items())
    return "\n\n".join(("\n".join(lines), table, paths))


def create_pretraining_data(config: PretrainingDataConfig) -> dict[str, Any]:
    """Creates the records, or those whose files are missing.

    Args:
        config: The input, the output and the settings.

    Returns:
        The content of `summary.json`: the numbers of documents, sentences and tokens in the corpus,
        and the share of unknown tokens among them; the numbers of files and of instances; the
        instances' mean length in tokens; the share of padding if all were padded to the sequence
        length; and the share of pairs labeled 1 (`null` for rows without a second segment).

    Raises:
        FileNotFoundError: If a file does not exist.
        ImportError: If paragraphs are to be split into sentences and `sentencex` is not installed.
        ValueError: If a file is malformed, if pairs need a second document and there is only one,
            or if the folder contains records of other settings.
    """
    from keras_bert.data import TokenStore

    from .plots.length_histogram import length_figure
    from .plots.style import save
    from .pretraining.shards import count_shards, write_shards
    from .pretraining.tokenized_corpus import count_unknown

    folder = Path(config.output_dir)
    work = folder / "work"
    fingerprint = config.fingerprint()
    if _is_done(config, folder, fingerprint):
        warn_of_unknown_tokens(folder)
        return _read_json(folder / SUMMARY_FILE)
    require_libraries(config)
    work.mkdir(parents=True, exist_ok=True)
    if not (work / "store").exists():
        _tokenize(config, work / "store")
    store = TokenStore(work / "store")
    _check_documents(config, len(store))
    num_shards = count_shards(config, store)
    with bar("writing", num_shards, "shard") as shown:
        statistics = write_shards(config, work, num_shards, shown.update)
    unknown = count_unknown(config, store)
    summary = _summary(config, store, statistics, unknown) | {"fingerprint": fingerprint}
    drawn = length_figure(summary["lengths"], f"{summary['instances']:,} rows")
    save(drawn, folder / "lengths.png")
    atomic.write_json(folder / SUMMARY_FILE, summary)
    warn_of_unknown_tokens(folder)
    if not config.keep_store:
        shutil.rmtree(work)
    return summary


def require_libraries(config: PretrainingDataConfig) -> None:
    """Checks that the library that splits paragraphs is installed, if there are any."""
    if any(resolve_format(path, config.format) != "sentences" for path in config.paths()):
        sentence_splitter(config.language)


def _check_documents(config: PretrainingDataConfig, num_documents: int) -> None:
    if config.kind not in PAIR_KINDS or num_documents > 1:
        return
    names = ", ".join(str(path) for path in config.paths()[:5])
    raise ValueError(
        f"there is only 1 document in {names}, expected at least 2: --kind={config.kind} takes "
        "second segments from other documents. A document ends at "
        f"{_DOCUMENT_ENDS[config.document_ends]} (--document_ends={config.document_ends}; in JSON "
        "Lines each line is a document); --kind=full_sentences needs no second document"
    )


def warn_of_unknown_tokens(folder: Path) -> None:
    """Logs a warning if many tokens of the records in a folder are unknown to the vocabulary.

    Args:
        folder: The folder of the records. Without a summary that has the share of unknown tokens,
            which older versions did not write, there is no warning.
    """
    path = folder / SUMMARY_FILE
    summary = _read_json(path) if path.exists() else {}
    share = summary.get("unknown_tokens", 0.0)
    if share > _MANY_UNKNOWN:
        logging.warning(
            "%.1f %% of the tokens in %s are unknown to the vocabulary %s, and a model learns "
            "nothing about them: is it a vocabulary of this text's language? Give another one with "
            "--vocabulary, or train one on this text (pretrain without --vocabulary, or "
            "tokenizer), with a larger --vocabulary_size if it was trained on this text",
            100 * share,
            folder,
            summary["config"]["vocabulary"],
        )


def _is_done(config: PretrainingDataConfig, folder: Path, fingerprint: str) -> bool:
    """Returns whether all records exist. Records of other settings raise a ValueError."""
    work = folder / "work"
    known = (fingerprint, config.older_fingerprint())
    for path in (folder / SUMMARY_FILE, work / "settings.json"):
        if path.exists() and _read_json(path).get("fingerprint") not in known:
            if path.parent == work and not any(folder.glob("*.tfrecord")):
                shutil.rmtree(work)  # of a run that ended before its first record
                break
            raise output_folder.OtherSettingsError(
                f"{folder} contains records of other settings, another vocabulary or other files "
                f"(see {path}); choose another --output_dir, or remove that folder"
            )
    if (folder / SUMMARY_FILE).exists():
        missing = _missing_shards(folder)
        if not missing:
            return True
        logging.warning(
            "%s has no %s: creating the records that are missing", folder, ", ".join(missing[:5])
        )
        (folder / SUMMARY_FILE).unlink()
    work.mkdir(parents=True, exist_ok=True)
    settings = {"config": dataclasses.asdict(config), "fingerprint": fingerprint}
    atomic.write_json(work / "settings.json", settings)
    return False


def _missing_shards(folder: Path) -> list[str]:
    """Returns the names of the files that a folder's summary counts and that do not exist."""
    from .pretraining.shards import shard_path

    count = _read_json(folder / SUMMARY_FILE)["files"]
    paths = (shard_path(folder, shard, count) for shard in range(count))
    return [path.name for path in paths if not path.exists()]


def _tokenize(config: PretrainingDataConfig, folder: Path) -> None:
    from .pretraining.tokenized_corpus import write_token_store

    paths = config.paths()
    is_size_known = not any(path.suffix in COMPRESSIONS for path in paths)
    size = sum(path.stat().st_size for path in paths) if is_size_known else None
    with bar("tokenizing", size, "B", unit_scale=True) as shown:
        write_token_store(config, folder, shown.update)


def _summary(
    config: PretrainingDataConfig,
    store: TokenStore,
    shards: list[ShardStatistics],
    unknown: int,
) -> dict[str, Any]:
    counted = shards[0]
    for shard in shards[1:]:
        counted += shard
    instances = sum(counted.lengths)
    tokens = sum(length * count for length, count in enumerate(counted.lengths))
    return {
        "documents": len(store),
        "sentences": store.num_sentences,
        "tokens": store.num_tokens,
        "unknown_tokens": round(unknown / store.num_tokens, 4),
        "files": len(shards),
        "instances": instances,
        "mean_length": round(tokens / instances, 2),
        "padding": round(1 - tokens / (instances * config.sequence_length), 4),
        "random_pairs": round(counted.random_pairs / counted.pairs, 4) if counted.pairs else None,
        "lengths": counted.lengths,
        "config": dataclasses.asdict(config),
    }


def _read_json(path: Path) -> dict[str, Any]:
    values: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return values


if __name__ == "__main__":
    program.run(main, PretrainingDataConfig)
