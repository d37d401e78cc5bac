# SPDX-License-Identifier: Apache-2.0
"""tf.data pipelines: from text to batches of ids."""

from keras_bert.data.batching import bucket_lengths, length_bucketed_batches
from keras_bert.data.preprocessors import TextClassifierPreprocessor

__all__ = ["TextClassifierPreprocessor", "bucket_lengths", "length_bucketed_batches"]
