# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest

pytestmark = pytest.mark.needs_tensorflow

tf = pytest.importorskip("tensorflow")

from keras_bert import Backbone  # noqa: E402
from keras_bert.data import (  # noqa: E402
    MaskedLMMaskGenerator,
    NextTokenTargets,
    TextClassifierPreprocessor,
    packed_batches,
)
from keras_bert.tasks import MaskedLM  # noqa: E402
from tests import small_tasks  # noqa: E402
from tests.text.small_tokenizers import make_tokenizer  # noqa: E402

VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "one", "two", "three", "four"]
IDS = np.array([[2, 5, 6, 7, 3], [2, 8, 3, 0, 0]])


def to_numpy(features):
    return {name: np.asarray(value) for name, value in features.items()}


@pytest.mark.backend_independent
@pytest.mark.parametrize("mask", [None, IDS > 0, (IDS > 0).astype(int)])
def test_targets_are_the_next_tokens(mask):
    targets = to_numpy(NextTokenTargets()({"token_ids": IDS, "padding_mask": mask}))
    assert targets["mask_weights"].tolist() == [[1, 1, 1, 1], [1, 1, 0, 0]]
    assert targets["mask_positions"].tolist() == [[0, 1, 2, 3], [0, 1, 0, 0]]
    assert targets["mask_ids"].tolist() == [[5, 6, 7, 3], [8, 3, 0, 0]]
    np.testing.assert_array_equal(targets["token_ids"], IDS)
    assert targets["mask_weights"].dtype == np.float32
    for name in ("token_ids", "mask_positions", "mask_ids"):
        assert targets[name].dtype == np.int32


@pytest.mark.backend_independent
def test_targets_stay_within_packed_sequences():
    windows = [{"token_ids": [[2, 5, 3], [2, 6, 3]]}]
    (batch,) = packed_batches(windows, batch_size=1, sequence_length=8)
    targets = to_numpy(NextTokenTargets()(batch))
    assert targets["mask_weights"].tolist() == [[1, 1, 0, 1, 1, 0, 0]]
    assert targets["mask_positions"].tolist() == [[0, 1, 0, 3, 4, 0, 0]]
    assert targets["mask_ids"].tolist() == [[5, 3, 0, 6, 3, 0, 0]]


@pytest.mark.backend_independent
def test_output_structure_matches_masker():
    features = {"token_ids": IDS, "word_starts": np.ones_like(IDS, bool), "other": IDS}
    dataset = tf.data.Dataset.from_tensors((features, [1, 0]))
    masker = MaskedLMMaskGenerator.from_tokenizer(make_tokenizer(*VOCABULARY))
    targets = NextTokenTargets()
    ((masked, labels),) = targets.mask_dataset(dataset, first_step=3)
    ((expected, _),) = masker.mask_dataset(dataset, first_step=3)
    assert masked.keys() == expected.keys()
    assert {k: v.dtype for k, v in masked.items()} == {k: v.dtype for k, v in expected.items()}
    assert labels.numpy().tolist() == [1, 0]
    assert masked["mask_ids"].shape == (2, targets.num_predictions(5))
    row = targets(IDS[1], step=0)
    assert row["mask_ids"].tolist() == [8, 3, 0, 0]
    arrays = targets({"token_ids": IDS, "other": IDS})
    for name, value in arrays.items():
        np.testing.assert_array_equal(value, masked[name])


def make_causal_lm(**arguments):
    config = small_tasks.CONFIG.replace(
        vocabulary_size=len(VOCABULARY), max_sequence_length=8, initializer_range=0.3, causal=True
    )
    preprocessor = TextClassifierPreprocessor(make_tokenizer(*VOCABULARY), sequence_length=8)
    return MaskedLM(Backbone(config), preprocessor, **arguments)


@pytest.mark.on_torch
def test_causal_model_fills_from_left_context_only():
    model = make_causal_lm()
    model.compile()
    model.optimizer.learning_rate = 0.02
    model.fit(["one two three four", "two three four", "three four"] * 8, epochs=25, verbose=0)
    best, *_ = model.fill("one two [MASK]")
    assert (best["token"], best["text"]) == ("three", "one two three")
    longer, *_ = model.fill("one two [MASK] one one")
    assert longer["score"] == pytest.approx(best["score"], abs=1e-5)


@pytest.mark.on_torch
def test_causal_model_rejects_masking():
    with pytest.raises(ValueError, match="masking must be None with a causal encoder"):
        make_causal_lm(masking={"unit": "word"})
