# SPDX-License-Identifier: Apache-2.0

import itertools

import fsspec
import numpy as np
import pytest

from keras_bert.data.arrays import NUMPY, Ragged
from keras_bert.data.pretraining import record_batches
from keras_bert.data.pretraining.instances import InstanceGenerator
from keras_bert.data.pretraining.record_batches import (
    pretraining_batches,
    ragged_pretraining_batches,
)
from keras_bert.data.pretraining.record_files import check_record_files
from keras_bert.data.pretraining.record_writing import InstanceEncoder, write_records
from keras_bert.data.pretraining.static_masking import StaticMasker
from keras_bert.data.pretraining.tfrecords import read_records, serialize

pytestmark = pytest.mark.backend_independent

TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
TOKENS += [f"w{i}" for i in range(30)] + [f"##p{i}" for i in range(15)]
CLS, SEP, MASK, LENGTH = 2, 3, 4, 24


def make_documents():
    rng = np.random.default_rng(0)
    return [
        [
            rng.integers(5, len(TOKENS), size=rng.integers(1, 9)).astype(np.int32)
            for _ in range(rng.integers(1, 12))
        ]
        for _ in range(15)
    ]


def make_instances(kind="next_sentence"):
    return InstanceGenerator(
        CLS, SEP, sequence_format=kind, sequence_length=LENGTH, duplicate_factor=1
    )(make_documents())


def make_encoder(masked, **options):
    masker = StaticMasker(MASK, len(TOKENS), 4, **options) if masked else None
    return InstanceEncoder(TOKENS, [CLS, SEP], LENGTH, masker)


def write_rows(path, rows, encode):
    rng = np.random.default_rng(0)
    write_records(path, (encode(row, rng) for row in rows))
    return path


def read_batches(path, **options):
    options = {"batch_size": 4, "sequence_length": LENGTH, **options}
    return list(pretraining_batches(path, **options))


def split_rows(batches):
    """Returns the features of each row, in batch order."""
    return [
        {name: value[i] for name, value in batch.items()}
        for batch in batches
        for i in range(len(batch["token_ids"]))
    ]


@pytest.mark.needs_tensorflow
def test_masked_records_match_original_bert(tmp_path):
    tf = pytest.importorskip("tensorflow")
    spec = {
        "input_ids": tf.io.FixedLenFeature([LENGTH], tf.int64),
        "input_mask": tf.io.FixedLenFeature([LENGTH], tf.int64),
        "segment_ids": tf.io.FixedLenFeature([LENGTH], tf.int64),
        "masked_lm_positions": tf.io.FixedLenFeature([4], tf.int64),
        "masked_lm_ids": tf.io.FixedLenFeature([4], tf.int64),
        "masked_lm_weights": tf.io.FixedLenFeature([4], tf.float32),
        "next_sentence_labels": tf.io.FixedLenFeature([1], tf.int64),
    }
    rows = make_instances()
    path = write_rows(tmp_path / "a.tfrecord", rows, make_encoder(masked=True))
    records = list(tf.data.TFRecordDataset(str(path)))
    assert len(records) == len(rows)
    for record, row in zip(records, rows, strict=True):
        assert set(tf.train.Example.FromString(record.numpy()).features.feature) == set(spec)
        parsed = {k: v.numpy() for k, v in tf.io.parse_single_example(record, spec).items()}
        length = len(row.token_ids)
        assert parsed["input_mask"].tolist() == [1] * length + [0] * (LENGTH - length)
        assert parsed["segment_ids"].tolist() == [*row.segment_ids] + [0] * (LENGTH - length)
        assert parsed["next_sentence_labels"] == [row.label]
        predictions = int(parsed["masked_lm_weights"].sum())
        assert predictions == min(4, max(1, round(0.15 * length)))
        for name in ("masked_lm_weights", "masked_lm_ids", "masked_lm_positions"):
            assert parsed[name].astype(bool).tolist() == [True] * predictions + [False] * (
                4 - predictions
            )
        unmasked = parsed["input_ids"].copy()
        positions = parsed["masked_lm_positions"][:predictions]
        unmasked[positions] = parsed["masked_lm_ids"][:predictions]
        assert unmasked.tolist() == [*row.token_ids] + [0] * (LENGTH - length)
        assert not np.isin(row.token_ids[positions], [CLS, SEP]).any()


def test_original_bert_records_are_read(tmp_path):
    path = tmp_path / "original.tf_record"
    features = {
        "input_ids": [CLS, 5, MASK, SEP, 7, SEP, 0, 0],
        "input_mask": [1, 1, 1, 1, 1, 1, 0, 0],
        "segment_ids": [0, 0, 0, 0, 1, 1, 0, 0],
        "masked_lm_positions": [2, 0, 0],
        "masked_lm_ids": [6, 0, 0],
        "next_sentence_labels": [1],
    }
    write_records(path, [serialize_example(features, masked_lm_weights=[1.0, 0.0, 0.0])])
    (batch,) = read_batches(path, sequence_length=7, vocabulary_size=10)
    assert {name: value.tolist() for name, value in batch.items()} == {
        "token_ids": [[CLS, 5, MASK, SEP, 7, SEP, 0]],
        "segment_ids": [[0, 0, 0, 0, 1, 1, 0]],
        "padding_mask": [[True] * 6 + [False]],
        "mask_positions": [[2, 0, 0]],
        "mask_ids": [[6, 0, 0]],
        "mask_weights": [[1.0, 0.0, 0.0]],
        "next_sentence_labels": [1],
    }


def serialize_example(features, **floats):
    values = {**features, **{name: np.array(x, np.float32) for name, x in floats.items()}}
    (content,) = serialize(
        {name: Ragged(np.asarray(x), np.array([len(x)])) for name, x in values.items()}
    )
    return content


@pytest.mark.parametrize("kind", ["next_sentence", "full_sentences"])
def test_unmasked_rows_round_trip(tmp_path, kind):
    rows = make_instances(kind)
    path = write_rows(tmp_path / "a.tfrecord", rows, make_encoder(masked=False))
    loaded = split_rows(read_batches(path, vocabulary_size=len(TOKENS)))
    assert len(loaded) == len(rows)
    for features, row in zip(loaded, rows, strict=True):
        length = len(row.token_ids)
        assert features["padding_mask"].sum() == length
        for name in ("token_ids", "segment_ids"):
            np.testing.assert_array_equal(features[name][:length], getattr(row, name))
            assert not features[name][length:].any()
        tokens = [TOKENS[token] for token in row.token_ids]
        starts = [
            not token.startswith("##") or before in ("[CLS]", "[SEP]")
            for before, token in zip(["[CLS]", *tokens], tokens, strict=False)
        ]
        assert features["word_starts"].tolist() == starts + [False] * (LENGTH - length)
        assert features.get("next_sentence_labels") == row.label


@pytest.mark.parametrize("masked", [False, True])
def test_batch_shapes_and_dtypes(tmp_path, masked):
    path = write_rows(tmp_path / "a.tfrecord", make_instances(), make_encoder(masked))
    loaded = read_batches(path, drop_remainder=True, shuffle_seed=0)
    assert len(loaded) == len(make_instances()) // 4
    token_shape, mask_shape = ((4, LENGTH), (4, 4))
    expected = {
        "token_ids": (token_shape, "int32"),
        "segment_ids": (token_shape, "int32"),
        "padding_mask": (token_shape, "bool"),
        "next_sentence_labels": ((4,), "int32"),
    }
    if masked:
        expected["mask_positions"] = expected["mask_ids"] = (mask_shape, "int32")
        expected["mask_weights"] = (mask_shape, "float32")
    else:
        expected["word_starts"] = (token_shape, "bool")
    for batch in loaded:
        assert {name: (x.shape, x.dtype.name) for name, x in batch.items()} == expected


def test_shuffle_order_depends_on_seed(tmp_path):
    rows = make_instances()
    for shard in range(3):
        write_rows(tmp_path / f"{shard}.tfrecord", rows[shard::3], make_encoder(masked=False))

    def read_order(**options):
        loaded = split_rows(read_batches(tmp_path / "*.tfrecord", **options))
        return [tuple(row["token_ids"]) for row in loaded]

    file_order, shuffled = read_order(), read_order(shuffle_seed=1)
    assert file_order != shuffled
    assert sorted(file_order) == sorted(shuffled)
    assert shuffled == read_order(shuffle_seed=1)
    assert shuffled != read_order(shuffle_seed=2)


def unpadded_ids(batches):
    """Returns the token ids of the rows in each batch, without padding."""
    return [
        [tuple(row["token_ids"][row["padding_mask"]]) for row in split_rows([batch])]
        for batch in batches
    ]


def test_each_record_is_read_once(tmp_path, monkeypatch):
    """Batches resume correctly with windows of two batches and four shuffled records."""
    monkeypatch.setattr(record_batches, "WINDOW_BATCHES", 2)
    monkeypatch.setattr(record_batches.shuffled_records, "__kwdefaults__", {"window": 4})
    for count in (1, 3, 4, 5, 8, 9, 13):
        rows = make_instances()[:count]
        path = write_rows(tmp_path / f"{count}.tfrecord", rows, make_encoder(masked=False))
        for buckets, seed in itertools.product((None, (8, LENGTH)), (None, 1)):
            loader = pretraining_batches(
                path, batch_size=2, sequence_length=LENGTH, buckets=buckets, shuffle_seed=seed
            )
            actual = unpadded_ids(loader)
            expected = [tuple(row.token_ids) for row in rows]
            assert sorted(itertools.chain(*actual)) == sorted(expected)
            for first in range(len(actual) + 1):
                assert unpadded_ids(loader.epoch(0, first)) == actual[first:]


@pytest.mark.parametrize("masked", [False, True])
def test_buckets_minimize_padding(tmp_path, masked):
    path = write_rows(tmp_path / "a.tfrecord", make_instances(), make_encoder(masked))
    bucketed = read_batches(path, buckets=(8, 16, LENGTH))
    for batch in bucketed:
        longest = batch["padding_mask"].sum(axis=1).max()
        bucket = min(b for b in (8, 16, LENGTH) if b >= longest)
        assert batch["token_ids"].shape[1] == batch["segment_ids"].shape[1] == bucket
    rows = {tuple(row["token_ids"][row["padding_mask"]]) for row in split_rows(bucketed)}
    assert rows == {
        tuple(row["token_ids"][row["padding_mask"]]) for row in split_rows(read_batches(path))
    }
    for buckets in ((8, 16), ()):
        with pytest.raises(ValueError, match=r"buckets must be ascending"):
            read_batches(path, buckets=buckets)


def test_ragged_batches_match_padded_batches(tmp_path):
    path = write_rows(tmp_path / "a.tfrecord", make_instances(), make_encoder(masked=False))
    ragged = ragged_pretraining_batches(path, batch_size=4, sequence_length=LENGTH)
    for batch, padded in zip(ragged, read_batches(path), strict=True):
        assert set(batch) == set(padded) - {"padding_mask"}
        for name in ("token_ids", "segment_ids", "word_starts"):
            dense = NUMPY.to_dense(batch[name], LENGTH, 0)
            np.testing.assert_array_equal(dense, padded[name])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"input_ids": None}, "feature input_ids: there must be at least 1 value. Received: 0"),
        ({"input_ids": [5] * 6 + [99]}, r"feature input_ids: there must be values in \[0, 50\)"),
        (
            {"segment_ids": [0]},
            "feature segment_ids: there must be the same number of values as input_ids",
        ),
        ({"segment_ids": "floats"}, "segment_ids: must be int64. Received: float"),
        (dict.fromkeys(("input_ids", "segment_ids", "word_starts"), [1] * 25), "at most 24 tokens"),
        ({"input_ids": [5] * 5 + [0] * 2}, "input_mask: there must be values, because input_ids"),
        (
            {"input_mask": [1] * 7},
            "feature input_mask: there must be no values, as in the first record",
        ),
    ],
)
def test_invalid_record_error_includes_feature(tmp_path, change, message):
    valid = {"input_ids": [5] * 7, "segment_ids": [0] * 7, "word_starts": [1] * 7}
    valid["next_sentence_labels"] = [1]
    values = {name: value for name, value in {**valid, **change}.items() if value is not None}
    floats = {name: [0.5] * 7 for name, value in values.items() if value == "floats"}
    ints = {name: value for name, value in values.items() if value != "floats"}
    path = tmp_path / "bad.tfrecord"
    write_records(path, [serialize_example(valid), serialize_example(ints, **floats)])
    with pytest.raises(ValueError, match=message) as raised:
        read_batches(path, vocabulary_size=50)
    assert f"{path}, record 1" in str(raised.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"input_mask": [1, 0, 1, 1]},
            "feature input_mask: there must be ones, then zeros at padding",
        ),
        (
            {"input_ids": [2**32 + 5] * 4},
            r"feature input_ids: there must be values in \[0, 2147483647\)",
        ),
        (
            {"masked_lm_positions": [3]},
            "feature masked_lm_positions: there must be positions in the row",
        ),
        (
            {"masked_lm_weights": [float("nan")]},
            "masked_lm_weights: there must be values that are a finite number of",
        ),
    ],
)
def test_invalid_masked_record_raises(tmp_path, change, message):
    valid = {"input_ids": [5] * 4, "segment_ids": [0] * 4, "input_mask": [1, 1, 1, 0]}
    valid |= {"masked_lm_positions": [2], "masked_lm_ids": [5], "masked_lm_weights": [1.0]}
    ints = {**valid, **change}
    weights = ints.pop("masked_lm_weights")
    write_records(tmp_path / "a.tfrecord", [serialize_example(ints, masked_lm_weights=weights)])
    with pytest.raises(ValueError, match=message):
        read_batches(tmp_path / "a.tfrecord")


def test_missing_shard_error_includes_name(tmp_path):
    names = [f"rows-0000{number}-of-00003.tfrecord" for number in range(3)]
    paths = [
        write_rows(tmp_path / name, make_instances()[:4], make_encoder(masked=False))
        for name in names
    ]
    assert len(read_batches(tmp_path / "*.tfrecord")) == 3
    paths[1].unlink()
    with pytest.raises(
        FileNotFoundError,
        match=f"must match all 3 record files. Received: 2 files. The first missing file is "
        f".*{names[1]}. To read",
    ):
        read_batches(tmp_path / "*.tfrecord")
    assert len(read_batches([paths[0], paths[2]])) == 2


def test_records_at_url_match_local_file(tmp_path):
    path = write_rows(tmp_path / "a.tfrecord", make_instances(), make_encoder(masked=True))
    system = fsspec.filesystem("memory")
    system.pipe("/records/a-00000-of-00001.tfrecord", path.read_bytes())
    remote = read_batches("memory://records/*.tfrecord")
    assert [*map(str, remote)] == [*map(str, read_batches(path))]
    with pytest.raises(FileNotFoundError, match="No file matches memory://records/b"):
        read_batches("memory://records/b*")


def test_non_pretraining_records_raise(tmp_path):
    path = tmp_path / "a.tfrecord"
    with pytest.raises(FileNotFoundError, match=r"a.tfrecord"):
        read_batches(path)
    write_records(path, [])
    with pytest.raises(ValueError, match=r"a.tfrecord must contain at least one record"):
        read_batches(path)
    write_records(path, [b"\xff\xff"])
    with pytest.raises(ValueError, match=r"a.tfrecord, record 0: the record is not a tf.train"):
        read_batches(path)
    write_records(path, [serialize_example({"input_ids": [5], "label": [1]})])
    with pytest.raises(
        ValueError, match=r"a.tfrecord: the first record must have segment_ids, word"
    ):
        read_batches(path)
    valid = {"input_ids": [5], "segment_ids": [0], "word_starts": [1]}
    write_records(path, [serialize_example(valid)])
    write_records(tmp_path / "b.tfrecord", [])
    assert len(read_batches(tmp_path / "*.tfrecord")) == 1
    for record, message in {
        serialize_example(
            {**valid, "input_mask": [1]}
        ): r": the first record must have \['input_ids', 'segment_ids', 'word_starts'\], as "
        r"in .*a.tfrecord. Received: \['input_ids', 'input_mask',",
        b"\xff\xff": ", record 0: the record is not a tf.train.Example",
    }.items():
        write_records(tmp_path / "b.tfrecord", [record])
        with pytest.raises(ValueError, match=f"b.tfrecord{message}"):
            read_batches(tmp_path / "*.tfrecord")


def test_truncated_or_corrupt_file_raises(tmp_path):
    intact = write_rows(tmp_path / "a.tfrecord", make_instances(), make_encoder(masked=False))
    num_records = len(split_rows(read_batches(intact)))
    content = intact.read_bytes()
    assert check_record_files(tmp_path / "*.tfrecord") == num_records
    damaged = tmp_path / "b.tfrecord"
    last = num_records - 1
    for number, damaged_content in {
        last: content[:-4],
        0: content[:20] + b"?" + content[21:],
    }.items():
        damaged.write_bytes(damaged_content)
        for read in (check_record_files, read_batches):
            with pytest.raises(
                ValueError, match=rf"b.tfrecord, record {number}: truncated or corr"
            ):
                read(tmp_path / "*.tfrecord")


def test_failed_write_keeps_previous_file(tmp_path):
    def raise_after_first_record():
        yield b"new"
        raise KeyError

    path = tmp_path / "a.tfrecord"
    assert write_records(path, [b"old", b"old"]) == 2
    with pytest.raises(KeyError):
        write_records(path, raise_after_first_record())
    assert [record.content for record in read_records(str(path))] == [b"old", b"old"]
    assert [item.name for item in tmp_path.iterdir()] == ["a.tfrecord"]
