# SPDX-License-Identifier: Apache-2.0

# %% [markdown]
# # Pre-train a ModernBERT on your own text
#
# This guide trains a small ModernBERT on the docstrings of Python's standard library, in a few minutes on a CPU, with the command for a large model
# on a large corpus. ModernBERT is BERT with RoPE, so that it reads long texts, a sliding window in two of three layers, gated feed-forward layers,
# norms before the sublayers and no biases.
#
# [Install](../start/install.md) in a checkout:
#
# ```bash
# pip install -e ".[training,pretraining]"
# ```
#
# ## Text
#
# The text is files of paragraphs, one per line, with blank lines between documents. Here a document is the docstrings of a module. One module in
# twenty is the validation set.

# %% small="MODULES = MODULES[:60]"
import ast
import inspect
import json
import os
import re
import subprocess
import sys
import warnings
from pathlib import Path

import keras_bert

LIBRARY = Path(os.__file__).parent
MODULES = [
    path
    for path in sorted(LIBRARY.rglob("*.py"))
    if not re.search("test|site-packages|dist-packages|idlelib", str(path.relative_to(LIBRARY)))
]


# %%
def paragraphs(path):
    """The paragraphs of the docstrings of a module."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tree = ast.parse(path.read_bytes())
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef)
    for node in ast.walk(tree):
        if isinstance(node, documented) and (docstring := ast.get_docstring(node)):
            for paragraph in inspect.cleandoc(docstring).split("\n\n"):
                yield " ".join(paragraph.split())


documents = [document for document in map("\n".join, map(paragraphs, MODULES)) if document]
held_out = documents[7::20]
corpus = [document for index, document in enumerate(documents) if index % 20 != 7]
for name, kept in (("corpus.txt", corpus), ("validation.txt", held_out)):
    Path(name).write_text("\n\n".join(kept) + "\n", encoding="utf-8")
    print(f"{name}: {len(kept)} modules, {Path(name).stat().st_size / 1e6:.2f} MB")

# %% [markdown]
# ## The command
#
# `--model` names the architecture; the flags after it make it small. Without `--vocabulary`, the command trains one of the model's kind,
# byte-level BPE. The paper's training is:
#
# - `--masked_lm_probability=0.3`: each row has more to predict. The validation text is scored with 15 %, as for other models.
# - `--kind=full_sentences --packing`: text fills the rows.
# - `--optimizer=stable_adamw --clip_norm=0`: if the gradient of a tensor suddenly grows, its learning rate falls; nothing is clipped.
# - `--schedule=trapezoidal --decay_steps=160`: the learning rate is constant after its warm-up, and falls in the last 160 updates.
# - `--initial_batch_size=8 --batch_warmup_steps=90`: 8, 16 and 24 rows in an update, 30 updates each, and then 32.
# - `--phases`: four fifths of the updates have rows of 64 tokens, and the last fifth rows of 256, in smaller batches and with a smaller learning
#   rate.

# %% small="COMMAND += ' --num_steps=8 --batch_warmup_steps=3 --warmup_steps=1 --decay_steps=2 --num_layers=2 --hidden_dim=32 --vocabulary_size=400 --dev_batches=1 --interval=4'"
COMMAND = """pretrain --input_files=corpus.txt --dev_files=validation.txt --format=paragraphs
    --model=modernbert_base --num_layers=4 --hidden_dim=128 --num_heads=2 --vocabulary_size=2000
    --kind=full_sentences --packing --duplicate_factor=1
    --masked_lm_probability=0.3 --dev_masked_lm_probability=0.15
    --optimizer=stable_adamw --clip_norm=0 --beta_2=0.98
    --schedule=trapezoidal --learning_rate=3e-3 --warmup_steps=60 --decay_steps=160
    --batch_size=32 --initial_batch_size=8 --batch_warmup_steps=90
    --phases=64:0.8,256:0.2:batch_size=8:learning_rate=1e-3
    --num_steps=800 --interval=80 --output_dir=runs/modernbert"""

# %%
process = subprocess.run(
    [sys.executable, "-m", "keras_bert", *COMMAND.split()],
    stdout=subprocess.PIPE,
    stderr=subprocess.DEVNULL,
    text=True,
    check=True,
)
report = process.stdout.partition("\nPre-trained")
print("Pre-trained" + report[2].partition("\nTime:")[0])

# %% [markdown]
# The unigram model always predicts the most frequent token. The validation text over time, with the learning rate of the next update:

# %%
log = [json.loads(line) for line in Path("runs/modernbert/log.jsonl").read_text().splitlines()]
for record in log:
    print(
        f"step {record['step']:4}",
        f"learning rate {record['learning_rate']:.5f}",
        f"accuracy {record['val_masked_accuracy']:.1%}",
        f"perplexity {record['val_perplexity']:.1f}",
        sep="   ",
    )

# %% [markdown]
# If it is killed, the same command continues from its last checkpoint and ends with the [same weights](resume.md).
#
# ## Use it
#
# Every task reads the preset. In byte-level BPE, a token holds the space before it:

# %%
masked_lm = keras_bert.MaskedLM.from_preset("runs/modernbert/preset")
mask = masked_lm.preprocessor.tokenizer.mask_token
for text in (
    f"Return the{mask} of the file.",
    f"Raise a{mask} if the argument is not a string.",
    f"If the list is empty, return{mask}.",
):
    guesses = masked_lm.fill(text, top_k=3)
    print(text, *(f"{guess['token']!r} {guess['score']:.2f}" for guess in guesses), sep="   ")

# %% [markdown]
# Fine-tune it as any encoder, on texts as long as your memory allows:
#
# ```python
# classifier = keras_bert.TextClassifier.from_preset(
#     "runs/modernbert/preset", num_classes=2, sequence_length=512
# )
# ```
#
# ## A real one
#
# `keras-bert plan --model=modernbert_base --tokens=1e10 --hardware=h100` estimates the cost of a larger run, and `--recipe=modernbert_base` has the
# paper's settings. For English text, first try to continue from published weights (`--init_preset=hf://answerdotai/ModernBERT-base`): it takes a
# hundredth of the updates.
