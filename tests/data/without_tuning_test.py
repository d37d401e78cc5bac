# SPDX-License-Identifier: Apache-2.0

import numpy as np
import pytest

pytestmark = [pytest.mark.needs_tensorflow, pytest.mark.backend_independent]

tf = pytest.importorskip("tensorflow")

from keras_bert.data import (  # noqa: E402
    Instance,
    InstanceEncoder,
    MaskedLMMasker,
    NextTokenTargets,
    PretrainingStream,
    TextClassifierPreprocessor,
    packed_batches,
    pretraining_batches,
    ragged_pretraining_batches,
    write_records,
)
from keras_bert.data.batching import without_tuning  # noqa: E402
from keras_bert.data.text_batches import batches_from_batched_rows, batches_from_rows  # noqa: E402
from tests.text.small_tokenizers import of_tokens  # noqa: E402

TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "c"]
SIZES = {"batch_size": 2, "sequence_length": 8}


@pytest.fixture(scope="module")
def records(tmp_path_factory):
    rng = np.random.default_rng(0)
    encode = InstanceEncoder(TOKENS, [2, 3], 8)
    path = tmp_path_factory.mktemp("records") / "rows.tfrecord"
    ids = np.array([2, 5, 6, 7, 3], np.int32)
    write_records(path, [encode(Instance(ids, np.zeros_like(ids), 0), rng)] * 4)
    return path


def stream(records):
    masker = MaskedLMMasker.from_vocabulary(TOKENS)
    return PretrainingStream(records, masker=masker, **SIZES)


def batches_of_text(make):
    preprocessor = TextClassifierPreprocessor(of_tokens(*TOKENS), 8)
    return make(tf.data.Dataset.from_tensor_slices(["a b", "c"]), preprocessor)


def ids(records):
    return tf.data.Dataset.from_tensors({"token_ids": tf.ragged.constant([[2, 5, 6, 3]])})


PIPELINES = {
    "text by length": lambda _: batches_of_text(
        lambda rows, preprocessor: batches_from_rows(rows, preprocessor, batch_size=2)
    ),
    "text in batches": lambda _: batches_of_text(
        lambda rows, preprocessor: batches_from_batched_rows(rows.batch(2), preprocessor)
    ),
    "records": lambda records: pretraining_batches(records, **SIZES),
    "records by length": lambda records: pretraining_batches(records, buckets=(4, 8), **SIZES),
    "ragged records": lambda records: ragged_pretraining_batches(records, **SIZES),
    "a stream of records": lambda records: stream(records).from_batch(0).take(1),
    "its first batches": lambda records: stream(records).first_batches(1),
    "packed sequences": lambda records: packed_batches(ids(records), **SIZES),
    "masked ids": lambda records: MaskedLMMasker.from_vocabulary(TOKENS).masked(
        ids(records).map(lambda x: {"token_ids": x["token_ids"].to_tensor()})
    ),
    "next tokens": lambda records: NextTokenTargets.from_vocabulary(TOKENS).masked(
        ids(records).map(lambda x: {"token_ids": x["token_ids"].to_tensor()})
    ),
}


@pytest.mark.parametrize("pipeline", PIPELINES)
def test_no_pipeline_waits_for_a_tuner_when_it_ends(pipeline, records):
    dataset = PIPELINES[pipeline](records)
    assert dataset.options().autotune.enabled is False
    assert len(list(dataset))


def test_the_elements_stay_as_they_are_and_the_option_is_passed_on():
    rows = tf.data.Dataset.range(7).map(lambda x: x * 2, num_parallel_calls=tf.data.AUTOTUNE)
    dataset = without_tuning(rows).batch(2).prefetch(tf.data.AUTOTUNE)
    assert dataset.options().autotune.enabled is False
    assert [batch.tolist() for batch in dataset.as_numpy_iterator()] == [
        batch.tolist() for batch in rows.batch(2).as_numpy_iterator()
    ]
