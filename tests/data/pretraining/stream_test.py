# SPDX-License-Identifier: Apache-2.0

import itertools
import shutil
from pathlib import Path

import numpy as np
import pytest

from keras_bert.data import (
    Instance,
    InstanceEncoder,
    MaskedLMMaskGenerator,
    NextTokenTargets,
    PretrainingStream,
    StaticMasker,
    pretraining_batches,
    write_records,
)
from keras_bert.data.pretraining import stream as streams
from keras_bert.data.pretraining.stream import pretraining_examples
from tests.text.small_tokenizers import make_tokenizer

pytestmark = pytest.mark.backend_independent

TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"w{i}" for i in range(60))]
LENGTH = 16
ROWS = 53


def write_rows(path, numbers, masker=None):
    """Writes rows that are identified by their second token."""
    rng = np.random.default_rng(0)
    encode = InstanceEncoder(TOKENS, [2, 3], LENGTH, masker)
    rows = []
    for number in numbers:
        middle = rng.integers(5, len(TOKENS), size=rng.integers(1, LENGTH - 3))
        ids = np.array([2, 5 + number, *middle, 3], np.int32)
        rows.append(Instance(ids, np.zeros_like(ids), number % 2))
    write_records(path, (encode(row, rng) for row in rows))


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    directory = tmp_path_factory.mktemp("records")
    for shard, numbers in enumerate(np.array_split(np.arange(ROWS), 3)):
        write_rows(directory / f"{shard}.tfrecord", numbers.tolist())
    return str(directory / "*.tfrecord")


def make_masker(**options):
    return MaskedLMMaskGenerator.from_tokenizer(make_tokenizer(*TOKENS), **options)


def make_stream(files, **options):
    options = {"masker": make_masker(), "batch_size": 4, **options}
    return PretrainingStream(files, sequence_length=LENGTH, **options)


def take(dataset, count):
    return list(itertools.islice(dataset, count))


def assert_same(batches, expected):
    assert len(batches) == len(expected)
    for batch, expected_batch in zip(batches, expected, strict=True):
        assert set(batch) == set(expected_batch)
        for name, value in batch.items():
            np.testing.assert_array_equal(value, expected_batch[name], err_msg=name)


def unmasked_ids(batch):
    """Returns the token ids before masking."""
    ids = batch["token_ids"].copy()
    rows, slots = np.nonzero(batch["mask_weights"])
    ids[rows, batch["mask_positions"][rows, slots]] = batch["mask_ids"][rows, slots]
    return ids


@pytest.mark.parametrize("packed", [False, True])
def test_resume_with_another_batch_size(files, packed):
    first = make_stream(files, packed=packed, batch_size=2)
    single_rows = take(
        make_stream(files, packed=packed, batch_size=1).from_batch(), 2 * first.num_rows
    )
    # Each stream resumes in the previous stream's epoch. The last starts after the epoch's end.
    second = first.resume_after(3, 5)
    third = second.resume_after(2, 3)
    fourth = third.resume_after(2 + third.num_rows // 3, 2)
    rows, steps = [], 0
    for part_stream, count in ((first, 3), (second, 2), (third, 2)):
        batches = take(part_stream.from_batch(), count)
        assert_same(take(part_stream.from_batch(count - 1), 1), batches[-1:])
        rows += [row for batch in batches for row in unmasked_ids(batch)]
        steps += count
    np.testing.assert_array_equal(
        rows, [unmasked_ids(batch)[0] for batch in single_rows[: len(rows)]]
    )
    # The step used for masking counts the batches of all streams.
    (masked,) = take(third.resume_after(2, 2).from_batch(), 1)
    features = {n: v for n, v in masked.items() if not n.startswith("mask_")}
    features["token_ids"] = unmasked_ids(masked)
    remasked = make_masker()(features, steps)
    np.testing.assert_array_equal(remasked["token_ids"], masked["token_ids"])
    # An epoch later, the rows that do not fill a batch were dropped.
    next_epoch_rows = unmasked_ids(take(fourth.from_batch(), 1)[0])
    first_epoch = (first.num_rows - 16) // 3
    skipped = first.num_rows + 3 * (2 + first.num_rows // 3 - first_epoch)
    np.testing.assert_array_equal(
        next_epoch_rows, [unmasked_ids(batch)[0] for batch in single_rows[skipped : skipped + 2]]
    )


def test_epochs_have_different_orders(files):
    batches = take(make_stream(files, batch_size=1).from_batch(), 2 * ROWS)
    numbers = [int(unmasked_ids(batch)[0, 1]) - 5 for batch in batches]
    assert len({tuple(numbers[:ROWS]), tuple(numbers[ROWS:]), tuple(range(ROWS))}) == 3


def sequence_numbers(batch):
    """Returns the numbers of the sequences in a batch."""
    positions = batch.get("position_ids", np.arange(LENGTH))
    is_first = np.broadcast_to(positions == 1, batch["token_ids"].shape)
    return (unmasked_ids(batch)[is_first] - 5).tolist()


@pytest.mark.parametrize("options", [{}, {"packed": True}, {"file_groups": 2, "batch_size": 2}])
def test_each_row_is_read_once_per_epoch(tmp_path, monkeypatch, options):
    """Batches resume correctly with windows of four rows, or two rows per file group."""
    for name in ("SHUFFLE_WINDOW", "PACKING_WINDOW"):
        monkeypatch.setattr(streams, name, 4)
    for num_rows in (2, 4, 6, 8, 10, 16, 18):
        for shard, numbers in enumerate(np.split(np.arange(num_rows), 2)):
            write_rows(tmp_path / f"{num_rows}-{shard}.tfrecord", numbers.tolist())
        files = str(tmp_path / f"{num_rows}-*.tfrecord")
        records = make_stream(files, **{"batch_size": 1, **options})
        count = records.batches_per_epoch
        batches = take(records.from_batch(), 2 * count)
        for epoch in (batches[:count], batches[count:], list(records.first_batches(count))):
            rows = [row for batch in epoch for row in sequence_numbers(batch)]
            assert sorted(rows) == list(range(num_rows)), rows
        for first in {1, count - 1, count, 2 * count - 1}:
            following = take(
                make_stream(files, **{"batch_size": 1, **options}).from_batch(first), 3
            )
            expected = batches[first : first + 3]
            assert_same(following[: len(expected)], expected)


def test_masks_change_between_epochs(files):
    records = make_stream(files, batch_size=ROWS)
    first, second = take(records.from_batch(), 2)
    assert {tuple(row) for row in unmasked_ids(first)} == {
        tuple(row) for row in unmasked_ids(second)
    }
    assert {tuple(row) for row in first["token_ids"]} != {tuple(row) for row in second["token_ids"]}


def test_packed_batch_features(files):
    batches = take(make_stream(files, packed=True, batch_size=1).from_batch(), 1)
    assert set(batches[0]) == {
        "token_ids",
        "segment_ids",
        "sequence_ids",
        "position_ids",
        "mask_positions",
        "mask_ids",
        "mask_weights",
    }


def test_masked_records_need_no_masker(tmp_path):
    path = tmp_path / "masked.tfrecord"
    write_rows(path, range(9), StaticMasker(4, len(TOKENS), 3))
    batch = take(make_stream(path, masker=None).from_batch(), 1)[0]
    assert batch["mask_positions"].shape == (4, 3)
    with pytest.raises(ValueError, match=r"masked\.tfrecord must have records without masks"):
        make_stream(path)
    with pytest.raises(ValueError, match="to be packed"):
        make_stream(path, masker=None, packed=True)


STREAM_KINDS = ["masked", "packed", "with masks", "next tokens", "groups", "packed groups"]


@pytest.mark.parametrize("kind", STREAM_KINDS)
def test_process_shards_form_the_whole_batch(files, tmp_path, kind):
    options = {"packed": kind.startswith("packed"), "batch_size": 6}
    if kind.endswith("groups"):
        options["file_groups"] = 2  # The second of three processes has rows of both groups.
    if kind == "next tokens":
        options["masker"] = NextTokenTargets()
    if kind == "with masks":
        options["masker"] = None
        files = tmp_path / "masked.tfrecord"
        write_rows(files, range(20), StaticMasker(4, len(TOKENS), 3))
    records = make_stream(files, **options)
    for read in (
        lambda *shard: take(records.from_batch(2, *shard), 9),
        lambda *shard: list(records.first_batches(3, *shard)),
    ):
        shards = [read((number, 3)) for number in range(3)]
        joined = [
            {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
            for parts in zip(*shards, strict=True)
        ]
        assert_same(joined, read())
    assert records.from_batch(0, (1, 3)).rows_in_batch == 2
    for shard in ((0, 4), (3, 3)):
        with pytest.raises(ValueError, match="batch_size must be a multiple"):
            records.from_batch(0, shard)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("unit", ["token", "word", "ngram"])
def test_completed_shards_form_the_whole_batch(files, unit, packed):
    options = {"mask_selection_rate": 0.4, "mask_token_rate": 0.3, "random_token_rate": 0.6}
    records = make_stream(
        files, masker=make_masker(unit=unit, **options), packed=packed, batch_size=6
    )
    for read in (
        lambda *shard, **options: take(records.from_batch(2, *shard, **options), 9),
        lambda *shard, **options: list(records.first_batches(3, *shard, **options)),
    ):
        shards = [read((number, 3), return_shards=True) for number in range(3)]
        completed = []
        for parts in zip(*shards, strict=True):
            # The number of selected tokens before a shard is enough to complete it.
            num_selected_before = np.cumsum([0, *(part.num_selected for part in parts)])
            parts = [
                part.complete(n) for part, n in zip(parts, num_selected_before[:-1], strict=True)
            ]
            completed.append({name: np.concatenate([p[name] for p in parts]) for name in parts[0]})
        assert_same(completed, read())


@pytest.mark.parametrize("packed", [False, True])
def test_file_groups_have_equal_shares_of_batches(files, packed):
    records = make_stream(files, file_groups=3, batch_size=6, packed=packed)
    # Each file has 17 or 18 records.
    assert records.num_rows == 3 * (13 if packed else 17)
    file_numbers = np.repeat([0, 1, 2], [len(part) for part in np.array_split(range(ROWS), 3)])
    epochs = []
    for batch in take(records.from_batch(), 2 * records.batches_per_epoch):
        numbers = unmasked_ids(batch)[:, 1] - 5
        np.testing.assert_array_equal(file_numbers[numbers], [0, 0, 1, 1, 2, 2])
        epochs += numbers.tolist()
    first, second = np.split(np.array(epochs), 2)
    assert len(set(first)) == len(set(second)) == 6 * records.batches_per_epoch
    assert first.tolist() != second.tolist()


@pytest.mark.parametrize("packed", [False, True])
def test_process_reads_only_its_files(files, tmp_path, packed):
    for path in Path(files).parent.iterdir():
        shutil.copy(path, tmp_path)
    records = make_stream(str(tmp_path / "*.tfrecord"), file_groups=3, batch_size=6, packed=packed)
    expected = [
        batch.complete(0) for batch in take(records.from_batch(0, (1, 3), return_shards=True), 20)
    ]
    for other in (0, 2):
        (tmp_path / f"{other}.tfrecord").unlink()
    batches = take(records.from_batch(0, (1, 3), return_shards=True), 20)
    assert_same([batch.complete(0) for batch in batches], expected)
    with pytest.raises(FileNotFoundError, match=r"0\.tfrecord"):
        take(records.from_batch(0, (0, 3), return_shards=True), 1)


def test_shortened_file_raises(tmp_path):
    for number, rows in enumerate((range(9), range(9))):
        write_rows(tmp_path / f"{number}.tfrecord", rows)
    records = make_stream(str(tmp_path / "*.tfrecord"), file_groups=2)
    write_rows(tmp_path / "1.tfrecord", range(5))
    with pytest.raises(
        ValueError,
        match=r"must not change during training. Received: fewer rows than before in the files "
        r"of .*1\.tfrecord",
    ):
        take(records.from_batch(), 4)


def test_pretraining_examples(files):
    batches = make_stream(files).from_batch()
    x, y, weights = take(pretraining_examples(batches, next_sentence=True), 1)[0]
    assert set(x) == {"token_ids", "segment_ids", "padding_mask", "mask_positions"}
    assert set(y) == set(weights) == {"masked_lm_logits", "next_sentence_logits"}
    assert weights["next_sentence_logits"].tolist() == [1, 1, 1, 1]
    x, y, _ = take(pretraining_examples(batches, next_sentence=False), 1)[0]
    assert set(y) == {"masked_lm_logits"}
    assert "next_sentence_labels" not in x


def test_pretraining_examples_without_masks_raise(files):
    batches = pretraining_batches(files, batch_size=4, sequence_length=LENGTH)
    with pytest.raises(
        ValueError,
        match=r"The records must have masks. Received: .* PretrainingStream\(files, "
        r"masker=MaskedLMMaskGenerator\.",
    ):
        pretraining_examples(batches, next_sentence=True)
