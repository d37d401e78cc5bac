# SPDX-License-Identifier: Apache-2.0

# %% [markdown]
# # Pre-train a ModernBERT
#
# ```bash
# keras-bert pretrain --recipe=modernbert_base --input_files=corpus --dev_files=validation.txt --output_dir=runs/modernbert
# ```
#
# In this guide you pre-train a small ModernBERT on the docstrings of Python's standard library, in three minutes of CPU time. For a large model on a
# large corpus, the command is the same.
#
# ModernBERT is an encoder for long texts. Compared with BERT, it has rotary position embeddings (RoPE), a sliding attention window in two of three
# layers, gated feed-forward layers, pre-normalization and no biases.
#
# [Install keras_bert](../start/install.md) from a clone:
#
# ```bash
# pip install -e ".[training,pretraining]"
# ```
#
# ## Prepare the text
#
# The input is text files with one paragraph per line and blank lines between documents. Here each document contains the docstrings of one module. We
# hold out every twentieth module for validation.
#
# <details markdown="1"><summary>Code that collects the docstrings</summary>

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
# </details>
#
# The corpus has 551 modules with 1.47 MB of text, and the validation set has 29 modules.
#
# ## Pre-train
#
# `--model` selects the architecture, and the flags after it make it small. Without `--vocabulary`, the command also trains a byte-level BPE
# vocabulary. The other flags follow the ModernBERT paper:
#
# | Flag | Effect |
# |---|---|
# | `--masked_lm_probability=0.3` | masks 30% of the tokens, and 15% in validation |
# | `--sequence_format=full_sentences --packing` | fills each sequence with text |
# | `--optimizer=stable_adamw --clip_norm=0` | limits the learning rate per tensor instead of clipping gradients |
# | `--schedule=trapezoidal --decay_steps=160` | keeps the learning rate constant, then decays it over the last 160 steps |
# | `--initial_batch_size=8 --batch_warmup_steps=90` | grows the batch: 8, 16 and 24 sequences for 30 steps each, then 32 |
# | `--phases=64:0.8,256:0.2:…` | trains on 64 tokens for 80% of the steps, then on 256 tokens |

# %% small="COMMAND += ' --num_steps=8 --batch_warmup_steps=3 --warmup_steps=1 --decay_steps=2 --num_layers=2 --hidden_dim=32 --vocabulary_size=400 --dev_batches=1 --eval_every=4'"
COMMAND = """pretrain --input_files=corpus.txt --dev_files=validation.txt --format=paragraphs
    --model=modernbert_base --num_layers=4 --hidden_dim=128 --num_heads=2 --vocabulary_size=2000
    --sequence_format=full_sentences --packing --duplicate_factor=1
    --masked_lm_probability=0.3 --dev_masked_lm_probability=0.15
    --optimizer=stable_adamw --clip_norm=0 --beta_2=0.98
    --schedule=trapezoidal --learning_rate=3e-3 --warmup_steps=60 --decay_steps=160
    --batch_size=32 --initial_batch_size=8 --batch_warmup_steps=90
    --phases=64:0.8,256:0.2:batch_size=8:learning_rate=1e-3
    --num_steps=800 --eval_every=80 --output_dir=runs/modernbert"""

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
# The unigram model always predicts the most frequent token. The log shows the validation scores over time:

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
# If the run is killed, the same command [resumes it](resume.md).
#
# ## Use the model
#
# Every task can load the preset. In byte-level BPE, a token includes the space before it (`Ġ`):

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
# Fine-tune it like any other encoder. Choose `sequence_length` as large as your memory permits:
#
# ```python
# classifier = keras_bert.TextClassifier.from_preset(
#     "runs/modernbert/preset", num_classes=2, sequence_length=512
# )
# ```
#
# ## Pre-train a larger model
#
# `keras-bert plan --model=modernbert_base --tokens=1e10 --hardware=h100` estimates the cost. `--recipe=modernbert_base` contains the settings from the
# paper.
#
# For English text, we recommend continuing from published weights (`--init_preset=hf://answerdotai/ModernBERT-base`), because this takes about 1%
# of the steps.
