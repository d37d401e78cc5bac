# SPDX-License-Identifier: Apache-2.0
"""Decides which batches are computed without padding."""

from __future__ import annotations

import contextlib
import contextvars
import math

from keras_bert.ops import dispatch
from keras_bert.ops.annotations import Tensor
from keras_bert.ops.attention.kernels import AttentionCase, kernel_of
from keras_bert.ops.batch_layout import BatchLayout
from keras_bert.ops.context_variables import set_variable

# BERT-base on an H100: a batch of 98,304 positions, 74% padding, took 44 ms unpadded and 81 ms
# padded. With 24,576, Python took longer to launch the operations than the GPU to compute them.
MIN_POSITIONS_ON_GPU = 65_536

# Set by a context: "allow", "forbid", or "" for neither
_request = contextvars.ContextVar("_request", default="")


def should_unpad(
    unpadded: bool | None,
    token_ids: Tensor,
    layout: BatchLayout,
    case: AttentionCase,
    returns_all_layers: bool = False,
) -> bool:
    """Returns whether a batch is computed without its padding.

    The first row that applies decides. Outputs are the same either way. The table rows below
    `unpadded=True` only affect speed.

    | case | unpadded |
    |---|---|
    | `unpadded=False` | no |
    | JAX, because its shapes are static but the number of tokens depends on the mask | no |
    | no `padding_mask`, so there is no padding | no |
    | packed batches, because their sequences already follow one another | no |
    | hidden states or attention scores are returned, in the shape of the padded batch | no |
    | empty batches, and PyTorch's meta tensors, because their mask has no values | no |
    | `torch.compile` traces the model | no |
    | within `forbid_unpadding()` | no |
    | `unpadded=True` | yes |
    | training, because XLA would compile kernels for each new number of tokens | no |
    | PyTorch with the varlen kernel, if the batch has 65,536 or more positions | yes |
    | TensorFlow on a CPU within `allow_unpadding()`, unless XLA compiles the graph | yes |
    | all other cases | no |

    Args:
        unpadded: The `unpadded` option of `Backbone`. With `rematerialize`, `True` counts as
            `False`.
        token_ids: int `(batch, length)`.
        layout: The layout of the padded batch.
        case: The attention case of the unpadded batch.
        returns_all_layers: Whether the model returns hidden states or attention scores.
    """
    if unpadded is False or case.backend == "jax":
        return False
    if layout.padding_mask is None or layout.sequence_ids is not None or returns_all_layers:
        return False
    if token_ids.shape[0] == 0 or getattr(token_ids, "is_meta", False):
        return False
    # Check for `torch.compile` first, since it cannot trace context variables.
    if dispatch.is_torch_graph() or _request.get() == "forbid":
        return False
    if unpadded:
        return True
    if case.training:
        return False
    if case.backend == "torch":
        return kernel_of(case) == "varlen" and math.prod(token_ids.shape) >= MIN_POSITIONS_ON_GPU
    return case.device == "cpu" and _request.get() == "allow" and not _is_compiled_by_xla()


def forbid_unpadding() -> contextlib.AbstractContextManager[None]:
    """Makes all encoders compute padding, whatever their options are.

    It is used for graphs that other runtimes execute, and for batches with almost no padding.
    """
    return set_variable(_request, "forbid")


def allow_unpadding() -> contextlib.AbstractContextManager[None]:
    """Lets encoders with `unpadded=None` skip padding in inference if it is faster.

    It is not the default, since exported graphs may be converted for runtimes that do not support
    its operations. It has no effect within `forbid_unpadding()`.
    """
    if not dispatch.is_tensorflow_on_cpu():
        return contextlib.nullcontext()  # `torch.compile` cannot trace context variables.
    return set_variable(_request, _request.get() or "allow")


def _is_compiled_by_xla() -> bool:
    from keras_bert.ops.tensorflow_plain import is_compiled_as_a_whole

    return is_compiled_as_a_whole()
