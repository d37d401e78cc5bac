# SPDX-License-Identifier: Apache-2.0
"""The private parts of LiteRT that this library uses. See `keras_private`.

They are not in `tensorflow_private`, because all models import that module.
"""

from tensorflow.lite.tools.flatbuffer_utils import (
    convert_object_to_bytearray as convert_object_to_bytearray,
)
from tensorflow.lite.tools.flatbuffer_utils import (
    read_model_from_bytearray as read_model_from_bytearray,
)
