# SPDX-License-Identifier: Apache-2.0
"""Records have the same bytes as those that TensorFlow writes."""

import io

import numpy as np
import pytest

pytestmark = [pytest.mark.needs_tensorflow, pytest.mark.backend_independent]

tf = pytest.importorskip("tensorflow")

from keras_bert.data.arrays import Ragged  # noqa: E402
from keras_bert.data.pretraining.tfrecords import (  # noqa: E402
    Record,
    count_records,
    first_record,
    parse,
    read_records,
    serialize,
    write_records,
)


def make_features(length):
    rng = np.random.default_rng(length)
    return {
        "input_ids": rng.integers(0, 30522, length).astype("int32"),
        "segment_ids": rng.integers(0, 2, length),
        "word_starts": rng.integers(0, 2, length).astype(bool),
        "limits": np.array([-1, 0, 127, 128, 2**62, 2**63 - 1, -(2**63)]),
        "masked_lm_weights": rng.random(length).astype("float32"),
    }


def serialize_with_tensorflow(features):
    example = tf.train.Example()
    for name, values in features.items():
        feature = example.features.feature[name]
        is_float = values.dtype.kind == "f"
        feature_values = feature.float_list if is_float else feature.int64_list
        feature_values.value.extend(map(float if is_float else int, values.tolist()))
    return example.SerializeToString(deterministic=True)


LENGTHS = [1, 5, 0, 128, 130, 600, 6000]


def serialize_rows(rows):
    def ragged(name):
        values = [row[name] for row in rows]
        return Ragged(np.concatenate(values), np.array([len(row) for row in values]))

    return serialize({name: ragged(name) for name in rows[0]})


def test_example_bytes_match_tensorflow():
    rows = [make_features(length) for length in [*LENGTHS, *range(100, 400)]]
    assert serialize_rows(rows) == list(map(serialize_with_tensorflow, rows))
    assert serialize_rows(rows[:1]) == [serialize_with_tensorflow(rows[0])]


def test_integer_bytes_match_tensorflow():
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 64, 2000)
    values = rng.integers(-(2**63), 2**63, 2000) >> bits
    rows = [{"a": part} for part in np.array_split(values, 50)]
    assert serialize_rows(rows) == list(map(serialize_with_tensorflow, rows))


def test_parse_round_trip():
    contents = serialize_rows([make_features(n) for n in LENGTHS])
    records = [Record(content, "file", i) for i, content in enumerate(contents)]
    kinds = {"input_ids": "int64", "limits": "int64", "masked_lm_weights": "float", "no": "int64"}
    parsed = parse(records, kinds)
    for name in ("input_ids", "limits", "masked_lm_weights"):
        assert parsed[name].to_list() == [make_features(n)[name].tolist() for n in LENGTHS]
    assert parsed["no"].to_list() == [[]] * len(LENGTHS)


def test_unpacked_values_are_parsed():
    content = b"\x0a\x0e\x0a\x0c\x0a\x01a\x12\x07\x1a\x05\x08\x01\x08\x96\x01"
    assert tf.train.Example.FromString(content).features.feature["a"].int64_list.value == [1, 150]
    assert parse([Record(content, "file", 0)], {"a": "int64"})["a"].to_list() == [[1, 150]]


# Sizes around the chunks in which the checksum is computed, and a size over the read block
SIZES = (31, 32, 33, 1023, 1024, 1025, 5000, 3 << 20)
CONTENTS = [b"", b"\xff\xff", *(np.random.default_rng(n).bytes(n) for n in SIZES), b"last"]


def test_file_bytes_match_tensorflow(tmp_path):
    path = str(tmp_path / "a.tfrecord")
    with tf.io.TFRecordWriter(path) as writer:
        for content in CONTENTS:
            writer.write(content)
    file = io.BytesIO()
    assert write_records(file, CONTENTS) == count_records(path) == len(CONTENTS)
    assert file.getvalue() == (tmp_path / "a.tfrecord").read_bytes()
    assert [record.content for record in read_records(path)] == CONTENTS
    assert [str(record) for record in read_records(path)][-1] == f"{path}, record 10"
    assert first_record(path).content == b""


def test_changed_or_missing_bytes_raise(tmp_path):
    file = io.BytesIO()
    write_records(file, [b"first", b"second"])
    content = file.getvalue()
    path = tmp_path / "a.tfrecord"
    for index in range(len(content)):
        path.write_bytes(content[:index] + bytes([content[index] ^ 4]) + content[index + 1 :])
        number = int(index >= 16 + len(b"first"))
        with pytest.raises(
            ValueError, match=rf"a\.tfrecord, record {number}: truncated or corrupt"
        ):
            list(read_records(str(path)))
    for end in set(range(1, len(content))) - {16 + len(b"first")}:
        path.write_bytes(content[:end])
        with pytest.raises(ValueError, match="truncated"):
            count_records(str(path))
