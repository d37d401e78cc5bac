# SPDX-License-Identifier: Apache-2.0

# %% [markdown]
# # Add a model family
#
# To add a family, write a record with its config values and with the names of its config fields and weights. All tasks, checkpoint formats and commands then
# support it.
#
# In this example you add NomicBERT (`model_type` "nomic_bert" in `transformers`). It is BERT with RoPE, gated feed-forward layers and no biases. The library already
# contains it, but here we build its record again.

# %%
import keras
import numpy as np
import torch
import transformers

import keras_bert
from keras_bert import families
from keras_bert.families import weight_names as names
from keras_bert.families.records import ConfigFields, Family, StoredTensor, WeightNames

del families.FAMILIES["nomic_bert"]

theirs = transformers.NomicBertModel(
    transformers.NomicBertConfig(
        vocab_size=100,
        hidden_size=32,
        num_hidden_layers=3,
        num_attention_heads=4,
        intermediate_size=64,
        max_position_embeddings=40,
    )
).eval()
theirs.save_pretrained("nomic")

# %% [markdown]
# Without a record, loading the directory raises an error:

# %%
try:
    keras_bert.Backbone.from_preset("nomic")
except keras_bert.checkpoints.CheckpointError as error:
    print(error)

# %% [markdown]
# ## Config values
#
# The differences from BERT are fields of `BertConfig`. With these values you can already train an encoder:

# %%
NOMIC = {
    "positions": "rotary",
    "feed_forward": "gated",
    "attention_bias": False,
    "feed_forward_bias": False,
}
config = keras_bert.BertConfig(
    **NOMIC, num_layers=2, num_heads=4, hidden_dim=32, intermediate_dim=64, activation="silu"
)
print(f"{keras_bert.Backbone(config).count_params():,} parameters")

# %% [markdown]
# ## Family record
#
# A record has these fields:
#
# | Field | Content |
# |---|---|
# | `name` | the `model_type`, and the scope of the tensors |
# | the class prefix | for example `NomicBert` |
# | `config` | names in configuration files, and constant values |
# | `hugging_face` | tensor names |
# | `classes` | the heads of each class |
#
# The same fields exist for KerasHub and TF1 checkpoints. A weight can consist of multiple tensors. For example, a gated feed-forward layer has an
# activated half and a gate.

# %%
block = names.hf_block(
    ("attn.Wqkv",),
    output="attn.out_proj",
    norm="norm1",
    intermediate=("mlp.fc12", "mlp.fc11"),
    feed_forward_output="mlp.fc2",
    feed_forward_norm="norm2",
)
embeddings = {
    **names.hf_embeddings("cls.predictions.decoder"),
    "embeddings.gamma": StoredTensor(("emb_ln.weight",)),
    "embeddings.beta": StoredTensor(("emb_ln.bias",)),
}
fields = families.BERT.config
families.FAMILIES["nomic_bert"] = Family(
    name="nomic_bert",
    class_prefix="NomicBert",
    config=ConfigFields(
        fields.required, fields.optional, fixed={**NOMIC, "rotary_base": 1000.0, "pooler": False}
    ),
    hugging_face=WeightNames(embeddings, block, "encoder.layers.{layer}.", heads={}),
    classes={"Model": ()},
)

# %% [markdown]
# ## Compare with the reference
#
# A family is correct if its hidden states match the reference, including padded inputs:

# %%
ours = keras_bert.Backbone.from_preset("nomic")
rng = np.random.default_rng(1)
ids = rng.integers(1, 100, (2, 9))
mask = np.arange(9) < np.array([[9], [6]])
with torch.no_grad():
    expected = theirs(torch.tensor(ids * mask), attention_mask=torch.tensor(mask.astype("int64")))
found = ours({"token_ids": ids * mask, "padding_mask": mask})
difference = (
    keras.ops.convert_to_numpy(found["sequence_output"]) - expected.last_hidden_state.numpy()
)
largest = np.abs(difference[mask]).max()
print(f"largest difference of {difference[mask].size} values: {largest:.1e}")
assert largest < 1e-5

# %% [markdown]
# Every task now supports the family. With `sizes` in the record, you can create an architecture by name, without a checkpoint.

# %%
classifier = keras_bert.TextClassifier(ours, num_classes=2)
print(classifier.predict({"token_ids": ids * mask, "padding_mask": mask}, verbose=0).shape)

# %% [markdown]
# ## Contribute the family
#
# - **Family.** Add a module with the record and its sizes to `keras_bert/families/`, and list it in `FAMILIES`. If a field in the configuration file is an object or a
#   list, add two functions that convert it, as in `rotary.py`.
# - **Config.** If `BertConfig` lacks a value, add a field with a default for the other families, and the few lines in `layers` or `models` that read it. An
#   architecture with a different structure (a convolution, experts) does not fit this encoder.
# - **Tokenizer.** WordPiece, byte-level BPE and SentencePiece exist. Add a tokenizer only for a new type.
# - **Tests.** `tests/checkpoints/families_test.py` compares each family with `transformers`. `tests/tasks/contract_test.py` runs it in every task.
