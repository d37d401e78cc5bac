# SPDX-License-Identifier: Apache-2.0

# %% [markdown]
# # Resume exactly
#
# The same command resumes an interrupted run and ends with the same weights, bit for bit, on a CPU, and on a GPU where the backend is
# deterministic. This guide kills a run to show it.
#
# [Install](../start/install.md) in a checkout:
#
# ```bash
# pip install -e ".[training,vocabulary]"
# ```
#
# The data are names of colors of xkcd's survey, which come with Matplotlib, and whether the color is light or dark. The encoder is small and
# random.

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
# ## A killed run
#
# This starts the program and kills it (`SIGKILL`) after its first batches.

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
# `--checkpoint_seconds=0` writes a checkpoint after every batch; the default is one every three minutes. `--precision=float32` is for the
# comparison below: by default, each run measures [which precision is faster](devices.md#mixed-precision) when it begins, and keeps to it when
# it resumes.
#
# ## The same command again

# %%
print("exit status", finetune("runs/killed"))

# %% [markdown]
# Without an interruption, to compare:

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
# ## How
#
# The order of the rows depends on the seed and the epoch alone, and dropout on the seed and the step. The checkpoint has all other state: weights,
# optimizer, metrics, the best epoch so far. It is renamed when it is complete, and has a checksum. The tests kill `finetune` and `pretrain` at
# random moments.
#
# Finished seeds are not trained again. If a relevant flag or the data has changed, the program says so, and replaces nothing.
