# SPDX-License-Identifier: Apache-2.0
"""Statistics of ModernBERT's initial weights match the transformers library."""

import numpy as np
import pytest
from safetensors.numpy import load_file

from keras_bert import checkpoints
from keras_bert.config import BertConfig
from keras_bert.models import Backbone
from keras_bert.ops import dispatch
from keras_bert.tasks import MaskedLM, QuestionAnswerer, TextClassifier, TokenClassifier

# Other tests check the ranges of initial weights on each backend.
pytestmark = pytest.mark.on_torch

transformers = pytest.importorskip("transformers")

SIZES = {
    "vocab_size": 300,
    "hidden_size": 96,
    "num_hidden_layers": 6,
    "num_attention_heads": 4,
    "intermediate_size": 160,
    "initializer_range": 0.03,
    "pad_token_id": 0,
}
TASKS = {
    "ForMaskedLM": MaskedLM,
    "ForSequenceClassification": lambda backbone: TextClassifier(backbone, 40),
    "ForTokenClassification": lambda backbone: TokenClassifier(backbone, 40),
    "ForQuestionAnswering": QuestionAnswerer,
}
# The standard deviation of a standard normal distribution truncated at two standard deviations
TRUNCATED = 0.8796


@pytest.mark.parametrize("ending", TASKS)
def test_modernbert_matches_transformers(ending, tmp_path):
    labels = {} if ending in ("ForMaskedLM", "ForQuestionAnswering") else {"num_labels": 40}
    config = transformers.ModernBertConfig(**SIZES, **labels)
    getattr(transformers, f"ModernBert{ending}")(config).save_pretrained(tmp_path / "reference")
    task = TASKS[ending](Backbone(checkpoints.open_checkpoint(tmp_path / "reference").config))
    checkpoints.save_hugging_face(task, tmp_path / "actual")
    reference, actual = (
        load_file(tmp_path / name / "model.safetensors") for name in ("reference", "actual")
    )
    assert set(reference) - set(actual) <= {"decoder.weight"}
    for name, values in actual.items():
        # 5 standard errors of the standard deviation of this number of values
        error = 5 / np.sqrt(2 * values.size)
        np.testing.assert_allclose(
            values.std(), reference[name].std(), rtol=2 * error, err_msg=name
        )
    expected = {
        "model.embeddings.tok_embeddings.weight": 0.03,
        "model.layers.3.attn.Wqkv.weight": 0.03,
        "model.layers.3.attn.Wo.weight": 0.03 / np.sqrt(12),
        "model.layers.0.mlp.Wi.weight": 0.03,
        "model.layers.0.mlp.Wo.weight": 0.03 / np.sqrt(12),
        "head.dense.weight": 0.03 / np.sqrt(12),
        "classifier.weight": 96**-0.5,
    }
    for name, deviation in expected.items():
        if name in actual:
            values = actual[name]
            error = 5 / np.sqrt(2 * values.size)
            np.testing.assert_allclose(values.std(), TRUNCATED * deviation, rtol=error)
            # Keras on PyTorch gives up after sampling four times. On a GPU, this happens once.
            num_given_up = 1 if dispatch.cuda_capability() else 0
            outside = np.sum(abs(values) > 2 * deviation * (1 + 1e-6)) - num_given_up
            assert outside / values.size < 1e-4


def test_only_some_families_scale_initial_weights():
    assert BertConfig.from_name("modernbert_large").output_initializer_range == 0.02 / 56**0.5
    assert BertConfig.from_name("ettin_17m").classifier_initializer_range == 256**-0.5
    bert = BertConfig.from_name("bert_base_uncased")
    assert bert.output_initializer_range == bert.classifier_initializer_range == 0.02
    # The range depends on the number of layers.
    assert bert.replace(scaled_initializer=True, num_layers=2).output_initializer_range == 0.01
