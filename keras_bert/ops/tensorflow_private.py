# SPDX-License-Identifier: Apache-2.0
"""The private parts of TensorFlow that this library uses. See `keras_private`."""

from tensorflow.python.framework.kernels import (
    get_registered_kernels_for_op as get_registered_kernels_for_op,
)
from tensorflow.python.framework.op_def_library import apply_op as apply_op
from tensorflow.python.ops.control_flow_util import (
    GraphOrParentsInXlaContext as GraphOrParentsInXlaContext,
)
