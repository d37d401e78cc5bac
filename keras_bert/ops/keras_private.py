# SPDX-License-Identifier: Apache-2.0
"""The private parts of Keras that this library uses because there are no public names.

If a new Keras version removes one, `tests/ops/private_parts_test.py` shows what uses it.
"""

from keras.src.backend.common.stateless_scope import in_stateless_scope as in_stateless_scope
from keras.src.losses.losses import LossFunctionWrapper as LossFunctionWrapper
from keras.src.trainers.compile_utils import MetricsList as MetricsList
from keras.src.trainers.data_adapters import get_data_adapter as get_data_adapter
from keras.src.trainers.data_adapters.array_slicing import (
    train_validation_split as train_validation_split,
)
from keras.src.trainers.data_adapters.data_adapter import DataAdapter as DataAdapter
from keras.src.trainers.data_adapters.data_adapter_utils import (
    get_torch_dataloader as get_torch_dataloader,
)
from keras.src.utils import module_utils as module_utils
