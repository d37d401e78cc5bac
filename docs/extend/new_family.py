# SPDX-License-Identifier: Apache-2.0

# %% [markdown]
# # A new family
#
# A new family needs a record with its config values and the names of its config fields and weights. Then every task, checkpoint format and program
# works with it.
#
# The example is NomicBERT (`model_type` "nomic_bert" in `transformers`): BERT with RoPE, gated feed-forward networks, and no biases in its blocks.
# The library has its record; here it is made anew.

# %%
import keras
import numpy as np
import torch
import transformers

import keras_bert
from keras_bert import families
from keras_bert.families import weight_names as names
from keras_bert.families.records import ConfigFields, Family, Stored, WeightNames

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
# Without a record, the folder is refused:

# %%
try:
    keras_bert.Backbone.from_preset("nomic")
except keras_bert.checkpoints.CheckpointError as error:
    print(error)

# %% [markdown]
# ## The values
#
# The differences from BERT are fields of `BertConfig`. An encoder with these values can be trained without any record:

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
# ## The record
#
# A record has `name`, the `model_type`, which is also the scope of the tensors; the prefix of its class names; `config`, the field names in its
# configuration files, and constant values; `hugging_face`, the names of its tensors; `classes`, the heads of each class; and the same for KerasHub's
# format and a TF1 release. A weight may be several tensors, as here both halves of a gated network: the activated one and the gate.

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
    "embeddings.gamma": Stored(("emb_ln.weight",)),
    "embeddings.beta": Stored(("emb_ln.bias",)),
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
# ## Does it compute the same?
#
# A family is right if its hidden states equal the reference's, with padding too:

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
# Every task supports it. The record's `sizes` make an architecture available by a name, without a checkpoint.

# %%
classifier = keras_bert.TextClassifier(ours, num_classes=2)
print(classifier.predict({"token_ids": ids * mask, "padding_mask": mask}, verbose=0).shape)

# %% [markdown]
# ## In the library
#
# - The family gets a module in `keras_bert/families/` with its record and released sizes, and a place in `FAMILIES` there. If a field of its
#   files is an object or a list, a pair of functions makes plain fields of it, as in `rotary.py`.
# - If `BertConfig` lacks a value, add a field with a default for the other families, and the few lines in `layers` or `models` that read it. An
#   architecture that differs in kind (a convolution, experts) is not a family of this encoder.
# - A tokenizer is needed only for a new kind; WordPiece, byte-level BPE and SentencePiece are there.
# - `tests/checkpoints/families_test.py` compares each family with `transformers`, and `tests/tasks/contract_test.py` runs it in every task.
