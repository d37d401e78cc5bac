# SPDX-License-Identifier: Apache-2.0
"""Creates pre-training records from text at a small scale."""

import json
import sys

import fsspec
import numpy as np
import pytest

pytestmark = [pytest.mark.needs_tensorflow, pytest.mark.backend_independent]

pytest.importorskip("tensorflow")


from keras_bert.data import pretraining_batches  # noqa: E402
from tests.training.pretraining.killed_records import (  # noqa: E402
    digests,
    kill_between_files,
    write_times,
)
from training import create_pretraining_data  # noqa: E402
from training.create_pretraining_data import CreatePretrainingDataConfig  # noqa: E402
from training.engine import program  # noqa: E402
from training.pretraining import tokenized_corpus  # noqa: E402
from training.pretraining.config import PretrainConfig  # noqa: E402
from training.pretraining.record_config import PretrainingDataConfig  # noqa: E402
from training.pretraining.records import create_records as create  # noqa: E402
from training.pretraining.run import pretrain  # noqa: E402
from training.pretraining.text_source import TextSource  # noqa: E402

INSTALL = r"pip install -e '\.\[pretraining\]'"

WORDS = [f"w{i}" for i in range(40)]
TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", ".", *WORDS]


@pytest.fixture
def config(tmp_path):
    """A config for 30 documents in two files."""
    (tmp_path / "vocab.txt").write_text("\n".join(TOKENS) + "\n")
    (tmp_path / "corpus").mkdir()
    rng = np.random.default_rng(0)
    for name in "ab":
        documents = [
            "\n".join(" ".join(rng.choice(WORDS, rng.integers(3, 12))) + " ." for _ in range(12))
            for _ in range(15)
        ]
        (tmp_path / "corpus" / f"{name}.txt").write_text("\n\n".join(documents))
    return PretrainingDataConfig.from_flags(
        input_files=(str(tmp_path / "corpus"),),
        vocabulary=str(tmp_path / "vocab.txt"),
        output_dir=str(tmp_path / "records"),
        sequence_length=32,
        duplicate_factor=2,
        num_shards=3,
        num_workers=1,
    )


def change_output_dir(config, tmp_path, name, **changes):
    return config.replace(output_dir=str(tmp_path / name), **changes)


def test_records_are_read_as_batches(config, tmp_path):
    summary = create(config)
    directory = tmp_path / "records"
    assert sorted(path.name for path in directory.iterdir()) == [
        "lengths.png",
        *(f"pretraining-0000{shard}-of-00003.tfrecord" for shard in range(3)),
        "summary.json",
    ]
    assert (directory / "lengths.png").read_bytes()[1:4] == b"PNG"
    assert json.loads((directory / "summary.json").read_text()) == json.loads(json.dumps(summary))
    assert (summary["documents"], summary["sentences"], summary["files"]) == (30, 360, 3)
    batches = pretraining_batches(
        directory / "*.tfrecord", batch_size=16, sequence_length=32, vocabulary_size=len(TOKENS)
    )
    rows = [batch["padding_mask"] for batch in batches]
    labels = [batch["next_sentence_labels"] for batch in batches]
    lengths = np.concatenate(rows).sum(axis=1)
    assert summary["instances"] == len(lengths)
    assert summary["mean_length"] == pytest.approx(lengths.mean(), abs=0.01)
    assert summary["padding"] == pytest.approx(1 - lengths.mean() / 32, abs=1e-3)
    assert summary["random_pairs"] == pytest.approx(np.concatenate(labels).mean(), abs=1e-4)
    assert summary["lengths"] == tuple(np.bincount(lengths, minlength=33).tolist())


def test_seed_determines_the_records(config, tmp_path):
    same_seed_a, same_seed_b, other = (
        change_output_dir(config, tmp_path, name, seed=seed)
        for name, seed in (("first", 3), ("again", 3), ("other", 4))
    )
    summaries = [create(run) for run in (same_seed_a, same_seed_b, other)]
    assert digests(same_seed_a) == digests(same_seed_b)
    assert not set(digests(same_seed_a).values()) & set(digests(other).values())
    assert 0.5 < summaries[0]["random_pairs"] < 0.8


@pytest.mark.parametrize("independent", [False, True])
def test_records_do_not_depend_on_process_count(config, tmp_path, monkeypatch, independent):
    # Use multiple processes even for little text.
    monkeypatch.setattr(tokenized_corpus, "_BYTES_PER_PROCESS", 1)
    config = config.replace(independent_shards=independent)
    multiple = change_output_dir(config, tmp_path, "multiple", num_workers=2)
    create(config)
    create(multiple)
    assert digests(config) == digests(multiple)
    assert len(digests(config)) == 3


def test_killed_command_resumes_to_the_same_records(config, tmp_path):
    config = config.replace(num_shards=30, duplicate_factor=40)
    directory = tmp_path / "records"
    before = kill_between_files(directory, config)
    assert 0 < len(digests(config)) < 30
    create(config)
    assert write_times(directory).items() >= before.items()
    assert not list(directory.glob(".*"))
    complete = change_output_dir(config, tmp_path, "whole")
    create(complete)
    assert digests(config) == digests(complete)
    assert len(digests(complete)) == 30


def test_remote_text_yields_the_same_records(config, tmp_path):
    system = fsspec.filesystem("memory")
    for path in (tmp_path / "corpus").iterdir():
        system.pipe(f"/remote/{path.name}", path.read_bytes())
    remote = change_output_dir(config, tmp_path, "remote", input_files=("memory://remote/*.txt",))
    create(config)
    create(remote)
    assert digests(remote) == digests(config)
    assert create(remote)["files"] == 3
    system.pipe("/remote/b.txt", b"w1 .\n")
    with pytest.raises(ValueError, match="different settings, vocabulary or files"):
        create(remote)
    system.rm("/remote", recursive=True)
    with pytest.raises(FileNotFoundError, match=r"memory://remote/\*.txt, which matches no file"):
        create(remote)


def test_vocabulary_training_rejects_binary_files(tmp_path):
    (tmp_path / "a.parquet").write_bytes(b"PAR1")
    untrained = PretrainConfig.from_flags(
        input_files=(str(tmp_path / "a.parquet"),), output_dir=str(tmp_path / "run")
    )
    with pytest.raises(ValueError, match=r"a.parquet. Train one on a sample"):
        TextSource.from_config(untrained).vocabulary()


def test_shards_with_few_documents_warn(config, tmp_path, caplog):
    few = change_output_dir(config, tmp_path, "few", independent_shards=True, num_shards=500)
    assert create(few)["files"] == 15
    assert "15 shards has only about 2 documents" in caplog.text
    caplog.clear()
    create(change_output_dir(config, tmp_path, "enough", independent_shards=True, num_shards=2))
    assert "documents to sample" not in caplog.text


def test_finished_records_are_kept(config, tmp_path, caplog):
    summary = create(config.replace(keep_store=True))
    assert (tmp_path / "records" / ".work" / "store").is_dir()
    written = digests(config)
    text = tmp_path / "corpus" / "a.txt"
    original_text = text.read_bytes()
    # Existing files are kept, and a missing file is written again.
    for missing in ([], list(written)[1:2], list(written)):
        for name in missing:
            (tmp_path / "records" / name).unlink()
        caplog.clear()
        assert create(config)["instances"] == summary["instances"]
        assert digests(config) == written
        assert ("lacks pretraining-0000" in caplog.text) == bool(missing)
    with pytest.raises(ValueError, match=r"records with different settings.*summary.json"):
        create(config.replace(seed=2))
    # One text has the original size, the other is longer.
    for changed in (original_text.replace(b"w1", b"w2"), original_text + b"w1 w2 .\n"):
        text.write_bytes(changed)
        with pytest.raises(ValueError, match="different settings, vocabulary or files"):
            create(config)


def test_warns_about_unknown_tokens(config, tmp_path, caplog):
    assert create(config)["unknown_tokens"] == 0
    assert "unknown" not in caplog.text
    other = tmp_path / "other.txt"
    other.write_text("w1 w2 w3 서울 .\n\nw4 부산 .\n")
    foreign = change_output_dir(config, tmp_path, "foreign", input_files=(str(other),))
    for _ in range(2):  # The records are created, then found.
        caplog.clear()
        assert create(foreign)["unknown_tokens"] == 0.25
        assert "25.0% of the tokens" in caplog.text
        assert f"unknown to the vocabulary {config.vocabulary}" in caplog.text


def test_single_document_corpus_raises(config, tmp_path):
    single = tmp_path / "single.txt"
    single.write_text("w1 w2 .\nw3 w4 .\n")
    config_with_file = config.replace(input_files=(str(single),))
    with pytest.raises(
        ValueError,
        match="--sequence_format=next_sentence requires at least 2 documents.* Received: "
        rf"1 document in {single}. .* a document ends at a blank line",
    ):
        create(config_with_file)
    single.write_text("w1 w2 .\n\nw3 w4 w5 .\n")
    assert create(config_with_file)["documents"] == 2
    # Record files are not removed, even if they are incomplete.
    (tmp_path / "records" / "summary.json").unlink()
    (tmp_path / "records" / ".work").mkdir()
    (tmp_path / "records" / ".work" / "settings.json").write_text('{"fingerprint": "other"}')
    with pytest.raises(ValueError, match=r"records with different settings.*\.work/settings.json"):
        create(config_with_file)


def test_missing_sentencex_raises_before_any_work(config, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "sentencex", None)
    run = config.replace(format="paragraphs")
    with pytest.raises(ImportError, match=rf"requires sentencex: {INSTALL}"):
        create(run)
    assert not (tmp_path / "records" / ".work" / "store").exists()
    # If only the validation text needs the library, the error also comes at once, although these
    # records are created last.
    for name in ("input_files", "dev_files"):
        pretraining = PretrainConfig.from_flags(
            **{name: run.input_files}, format=run.corpus.format, output_dir=str(tmp_path / "run")
        )
        with pytest.raises(ImportError, match=rf"requires sentencex: {INSTALL}"):
            pretrain(pretraining)
        assert not (tmp_path / "run").exists()


def test_summary_is_printed_with_a_table(config, tmp_path, capsys):
    create_pretraining_data.main(CreatePretrainingDataConfig(config))
    printed = capsys.readouterr().out
    summary = json.loads((tmp_path / "records" / "summary.json").read_text())
    assert f"30 documents, 360 sentences, {summary['tokens']:,} tokens (0.0% unknown)" in printed
    assert f"{summary['instances']:,} examples in 3 files" in printed
    lines = [line.split() for line in printed.splitlines()]
    header = next(n for n, words in enumerate(lines) if words[:1] == ["tokens"])
    assert lines[header] == ["tokens", "mean", "5%", "25%", "median", "75%", "95%"]
    lengths = np.repeat(np.arange(33), summary["lengths"])
    quantiles = np.quantile(lengths, [0.05, 0.25, 0.5, 0.75, 0.95], method="inverted_cdf")
    expected = ["per", "example", f"{lengths.mean():.2f}", *(str(int(n)) for n in quantiles)]
    assert lines[header + 1] == expected
    assert str(tmp_path / "records" / "summary.json") in printed
    assert len(lines) < 12


def test_number_of_shards_depends_on_size(config, tmp_path):
    automatic = change_output_dir(config, tmp_path, "by_size", num_shards=0)
    create(automatic)
    assert list(digests(automatic)) == ["pretraining-00000-of-00001.tfrecord"]
    many = change_output_dir(config, tmp_path, "many", num_shards=500)
    assert create(many)["files"] == 30


def test_invalid_corpus_raises_before_any_work(config, tmp_path):
    (tmp_path / "corpus" / "c.jsonl").write_text('{"text": 3}\n')
    with pytest.raises(
        ValueError, match=r"c\.jsonl, line 1: 'text' must be a string, but it is of type int"
    ):
        create(config)
    assert not (tmp_path / "records" / ".work" / "store").exists()
    with pytest.raises(SystemExit, match=r"error: .*c.jsonl, line 1"), program.exit_on_user_error():
        create_pretraining_data.main(
            CreatePretrainingDataConfig(change_output_dir(config, tmp_path, "locked"))
        )
    (tmp_path / "corpus" / "c.jsonl").unlink()
    empty = tmp_path / "empty.txt"
    empty.write_text("\n\n")
    empty_corpus = change_output_dir(config, tmp_path, "nothing", input_files=(str(empty),))
    with pytest.raises(ValueError, match=r"must contain text. Received: .*empty.txt"):
        create(empty_corpus)
