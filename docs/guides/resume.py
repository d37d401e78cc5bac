# SPDX-License-Identifier: Apache-2.0

# %% [markdown]
# # Resume an interrupted run
#
# Run the same command again to resume a `finetune` or `pretrain` run:
#
# ```bash
# keras-bert finetune --train_file=colors.csv --output_dir=runs/colors     # killed
# keras-bert finetune --train_file=colors.csv --output_dir=runs/colors     # resumes
# ```
#
# The resumed run ends with the same weights as an uninterrupted run, bit for bit. This holds on a CPU, and on a GPU if the backend is deterministic.
# In this guide you kill a run to check it.
#
# [Install keras_bert](../start/install.md) from a clone:
#
# ```bash
# pip install -e ".[training,vocabulary]"
# ```
#
# The data is color names from the xkcd survey, labeled *light* or *dark*. The encoder is small and starts from random weights.
#
# <details markdown="1"><summary>Code that writes the data and the encoder</summary>

# %% small="Path('colors.csv').write_text(''.join(open('colors.csv').readlines()[:49])); keras_bert.MaskedLM(keras_bert.Backbone(config.replace(num_layers=1)), preprocessor).save_to_preset('encoder')"
import csv
import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import keras
import numpy as np
from matplotlib.colors import XKCD_COLORS, to_rgb

import keras_bert

names = np.random.default_rng(1).permutation(sorted(XKCD_COLORS))
lightness = np.array([np.dot(to_rgb(name), (0.299, 0.587, 0.114)) for name in names])
texts = [name.removeprefix("xkcd:") for name in names]
labels = np.where(lightness > np.median(lightness), "light", "dark")
with open("colors.csv", "w", newline="", encoding="utf-8") as file:
    csv.writer(file).writerows([("text", "label"), *zip(texts, labels, strict=True)])

keras.utils.set_random_seed(1)
tokenizer = keras_bert.WordPieceTokenizer(keras_bert.text.train_vocabulary(texts, 500))
config = keras_bert.BertConfig(
    vocabulary_size=tokenizer.vocabulary_size,
    num_layers=2,
    num_heads=2,
    hidden_dim=64,
    intermediate_dim=256,
)
preprocessor = keras_bert.data.TextClassifierPreprocessor(tokenizer)
keras_bert.MaskedLM(keras_bert.Backbone(config), preprocessor).save_to_preset("encoder")

# %% [markdown]
# </details>
#
# ## Kill a run
#
# This code starts the command and kills it (`SIGKILL`) after the first checkpoint.

# %%
COMMAND = """finetune --train_file=colors.csv --preset=encoder --sequence_length=16
    --learning_rate=1e-3 --epochs=3 --checkpoint_seconds=0 --precision=float32
    --noexport"""


def checkpoint_names(output_dir):
    """The names of the checkpoints of a run."""
    return sorted(path.name for path in Path(output_dir, "seed_1").glob("checkpoints/[!.]*"))


def finetune(output_dir, kill=False):
    process = subprocess.Popen(
        [sys.executable, "-m", "keras_bert", *COMMAND.split(), f"--output_dir={output_dir}"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    if kill:
        while process.poll() is None and not checkpoint_names(output_dir):
            time.sleep(0.02)
        process.send_signal(signal.SIGKILL)
    return process.wait()


print("exit status", finetune("runs/killed", kill=True))
print("checkpoints", *checkpoint_names("runs/killed"))

# %% [markdown]
# `--checkpoint_seconds=0` writes a checkpoint after every batch. The default is one checkpoint every three minutes. `--precision=float32` makes the
# two runs below comparable. By default, a run measures [which precision is faster](devices.md#mixed-precision) at the start and keeps it when it
# resumes.
#
# ## Resume the run
#
# We run the same command again:

# %%
print("exit status", finetune("runs/killed"))

# %% [markdown]
# Then we train without an interruption and compare:

# %% small="assert all(equal)"
print("exit status", finetune("runs/whole"))
killed, whole = (
    keras_bert.load_model(f"runs/{name}/seed_1/model.keras") for name in ("killed", "whole")
)
equal = [
    np.array_equal(one, other)
    for one, other in zip(killed.get_weights(), whole.get_weights(), strict=True)
]
print(f"{sum(equal)} of {len(equal)} weights are equal, bit for bit")

# %%
for name in ("killed", "whole"):
    results = json.loads(Path(f"runs/{name}/results.json").read_text())
    scores = {**results["baselines"]["dev"], "this run": results["runs"][0]["best"]["dev"]}
    print(
        f"{name:8}",
        *(f"{key} {score['accuracy']:.1f} %" for key, score in scores.items()),
        sep="  ",
    )

# %% [markdown]
# ## How it works
#
# - The order of the examples depends only on the seed and the epoch. Dropout depends only on the seed and the step.
# - The checkpoint contains everything else: weights, optimizer state, metrics and the best epoch so far.
# - Checkpoints are atomic. A checkpoint gets its final name when it is complete, and it has a checksum.
# - Finished seeds are not trained again.
# - If you change the data or a relevant flag, the command stops with an error and keeps the old run.
#
# The tests kill `finetune` and `pretrain` at random moments.
