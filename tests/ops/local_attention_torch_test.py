# SPDX-License-Identifier: Apache-2.0
"""What is passed to PyTorch's `flex_attention`, whose own definition runs on a CPU."""

import keras
import numpy as np
import pytest

from tests.ops.backend_gradients import as_tensors, to_numpy
from tests.ops.local_attention_test import CASES, as_masks, mask_of_pairs

pytestmark = pytest.mark.skipif(keras.backend.backend() != "torch", reason="PyTorch's own")


@pytest.mark.parametrize("window", [10, 128, 200])
@pytest.mark.parametrize("case", CASES)
def test_the_mask_is_that_of_the_blocks(case, window):
    import torch
    from torch.nn.attention.flex_attention import create_block_mask

    from keras_bert.ops.local_attention_torch import block_mask, mask_function

    length = 700
    options = CASES[case](length)
    masks = {"padding_mask": None, "sequence_ids": None, "causal": False, **as_masks(options)}
    device = keras.ops.zeros(()).device
    is_attended = mask_function(**masks, window=torch.tensor(window, device=device))
    batch, query, key = torch.meshgrid(
        *(torch.arange(size, device=device) for size in (2, length, length)), indexing="ij"
    )
    expected = mask_of_pairs(length, window=window, **options)
    np.testing.assert_array_equal(to_numpy(is_attended(batch, 0, query, key)), expected[:, 0])

    ours = block_mask(is_attended, length, window, masks["causal"], device).to("cpu")
    theirs = create_block_mask(is_attended, 2, None, length, length, device).to("cpu")
    # Blocks that padding alone leaves out may be computed, none that has a score may be missing.
    assert (ours.to_dense() >= theirs.to_dense()).all()
    if case in ("whole", "causal"):
        np.testing.assert_array_equal(ours.to_dense().expand(2, -1, -1, -1), theirs.to_dense())


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile:UserWarning")
@pytest.mark.parametrize("case", CASES)
def test_agrees_with_blocks(case, monkeypatch):
    from torch.nn.attention.flex_attention import flex_attention

    from keras_bert.ops import local_attention, local_attention_torch

    length, window = 300, 10
    options = as_masks(CASES[case](length))
    random = np.random.default_rng(0)
    three = [random.normal(size=(2, length, heads, 16)) for heads in (4, 2, 2)]
    three = as_tensors(three, "float32")
    expected = local_attention(*three, window=window, **options)
    # The compiled kernel needs a GPU
    monkeypatch.setattr(local_attention_torch, "_compiled", lambda: flex_attention)
    options = {"padding_mask": None, "sequence_ids": None, "causal": False, **options}
    context = local_attention_torch.flex_local_attention(*three, window=window, **options)
    has_keys = mask_of_pairs(length, **CASES[case](length)).any(-1)[:, 0, :, None, None]
    context, expected = to_numpy(context) * has_keys, to_numpy(expected) * has_keys
    np.testing.assert_allclose(context, expected, atol=1e-5)
