# SPDX-License-Identifier: Apache-2.0
"""The initial weights of ModernBERT against those of the transformers library: their statistics."""

import numpy as np
import pytest
from safetensors.numpy import load_file

from keras_bert import checkpoints
from keras_bert.config import BertConfig
from keras_bert.models import Backbone
from keras_bert.ops import dispatch
from keras_bert.tasks import MaskedLM, QuestionAnswerer, TextClassifier, TokenClassifier

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
# Of a normal distribution that is truncated at two standard deviations
TRUNCATED = 0.8796


@pytest.mark.parametrize("ending", TASKS)
def test_modernbert_matches_transformers(ending, tmp_path):
    labels = {} if ending in ("ForMaskedLM", "ForQuestionAnswering") else {"num_labels": 40}
    config = transformers.ModernBertConfig(**SIZES, **labels)
    getattr(transformers, f"ModernBert{ending}")(config).save_pretrained(tmp_path / "theirs")
    task = TASKS[ending](Backbone(checkpoints.open_checkpoint(tmp_path / "theirs").config))
    checkpoints.save_hugging_face(task, tmp_path / "ours")
    theirs, ours = (load_file(tmp_path / name / "model.safetensors") for name in ("theirs", "ours"))
    assert set(theirs) - set(ours) <= {"decoder.weight"}
    for name, values in ours.items():
        # 5 standard errors of the spread of as many values
        error = 5 / np.sqrt(2 * values.size)
        np.testing.assert_allclose(values.std(), theirs[name].std(), rtol=2 * error, err_msg=name)
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
        if name in ours:
            values = ours[name]
            error = 5 / np.sqrt(2 * values.size)
            np.testing.assert_allclose(values.std(), TRUNCATED * deviation, rtol=error)
            # Keras on PyTorch gives up after four draws; with those of a GPU it does so once.
            given_up = 1 if dispatch.cuda_capability() else 0
            outside = np.sum(abs(values) > 2 * deviation * (1 + 1e-6)) - given_up
            assert outside / values.size < 1e-4


def test_only_a_family_that_says_so_has_scaled_initial_weights():
    assert BertConfig.from_name("modernbert_large").output_initializer_range == 0.02 / 56**0.5
    assert BertConfig.from_name("ettin_17m").classifier_initializer_range == 256**-0.5
    bert = BertConfig.from_name("bert_base_uncased")
    assert bert.output_initializer_range == bert.classifier_initializer_range == 0.02
    # It follows other sizes.
    assert bert.replace(scaled_initializer=True, num_layers=2).output_initializer_range == 0.01
