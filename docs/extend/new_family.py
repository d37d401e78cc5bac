# SPDX-License-Identifier: Apache-2.0

# %% [markdown]
# # A new family
#
# BERT, RoBERTa, ALBERT, DistilBERT and ELECTRA are one encoder with other values in its config. A further family of this kind needs no
# code: it is a record that says what the fields of its configuration and its weights are called. Then every task, checkpoint format and
# program works with it.
#
# The example is ERNIE (`model_type` "ernie" in `transformers`), whose released encoders compute what BERT computes.

# %%
import dataclasses

import keras
import numpy as np
import torch
import transformers

import keras_bert
from keras_bert.checkpoints import families

theirs = transformers.ErnieModel(
    transformers.ErnieConfig(
        vocab_size=100,
        hidden_size=32,
        num_hidden_layers=3,
        num_attention_heads=4,
        intermediate_size=64,
        max_position_embeddings=40,
        hidden_act="gelu",
    )
).eval()
theirs.save_pretrained("ernie")

# %% [markdown]
# Without a record, the folder is refused:

# %%
try:
    keras_bert.Backbone.from_preset("ernie")
except keras_bert.checkpoints.CheckpointError as error:
    print(error)

# %% [markdown]
# ## The record
#
# What a record has: `name`, the `model_type`, which is also the scope of the tensors; `class_prefix` of the classes' names; `config`, the
# fields of its configuration files; `hugging_face`, the names of its tensors; and the same for KerasHub's format and for a TF1 release.
# ERNIE differs from BERT in two of them:

# %%
ERNIE = dataclasses.replace(families.BERT, name="ernie", class_prefix="Ernie", google_tf1=None)
families.FAMILIES["ernie"] = ERNIE

# %% [markdown]
# ## Does it compute the same?
#
# A family is right if its hidden states are those of the reference, with padding too:

# %%
ours = keras_bert.Backbone.from_preset("ernie")
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
# Every task takes it. (A line in `named_sizes.py` makes a size available by a name, without a checkpoint.)

# %%
classifier = keras_bert.TextClassifier(ours, num_classes=2)
print(classifier.predict({"token_ids": ids * mask, "padding_mask": mask}, verbose=0).shape)

# %% [markdown]
# ## In the library
#
# - The record goes to `keras_bert/checkpoints/families.py`. If the names of its tensors follow another pattern, write them out, as the
#   records there do; `hf_embeddings`, `block_layout` and the like cover what most have.
# - Its released sizes go to `keras_bert/named_sizes.py`, as values of `BertConfig`.
# - If its architecture differs in a value that `BertConfig` does not have, add a field with the default of the others, and the few lines in
#   `layers` or `models` that read it. If it differs in kind (relative positions, other attention), it is not a family of this encoder.
# - A tokenizer is needed only if it is of a new kind; WordPiece, byte-level BPE and SentencePiece are there.
# - `tests/checkpoints/families_test.py` compares each family with `transformers`, and `tests/tasks/contract_test.py` runs it in every task.
