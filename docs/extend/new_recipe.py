# SPDX-License-Identifier: Apache-2.0

# %% [markdown]
# # Add a recipe
#
# A recipe is a run that other people can repeat. It is one file in `training/paper/recipes` with the command's flags, the score, the time and the hardware. Run it
# with `--recipe=NAME`, and override its values with flags. [The recipes page](../recipes.md) is generated from these files.
#
# In this example you add `xkcd_colors.py`. It classifies color names as light or dark:

# %%
from pathlib import Path

RECIPE = '''# SPDX-License-Identifier: Apache-2.0
"""Light or dark, by the names of the colors of xkcd's survey, with MiniLM L6-H384.

    python -m training.finetune --recipe=xkcd_colors --data_dir=DIR

DIR has colors.csv, with the columns text and label.

Score: see below.
Time: a minute.
Hardware: two CPU cores; TensorFlow, mixed_bfloat16.
"""

from ...jobs.classification import FinetuneConfig

CONFIG = FinetuneConfig.from_flags(
    train_file="colors.csv",
    learning_rate=2e-4,
    epochs=3,
    sequence_length=16,
    export=False,
    output_dir="runs/xkcd_colors",
)
'''
Path("recipes").mkdir()
with open("recipes/xkcd_colors.py", "w", encoding="utf-8") as file:
    file.write(RECIPE)

# %% [markdown]
# The config validates the values, so a wrong name or value raises an error. To try the file without moving it, we add its directory to the package. In a clone,
# save it to `training/paper/recipes`.

# %%
from training.jobs.classification import FinetuneConfig
from training.paper import recipes

recipes.__path__.append("recipes")
config = recipes.load("xkcd_colors", FinetuneConfig)
print(config.epochs, config.learning_rate, config.train_file)

# %% [markdown]
# ## Run the recipe

# %% small="rows, changes = 48, {'epochs': 1, 'preset': str(small_encoder())}"
rows, changes = None, {}

# %%
import csv

import numpy as np
from matplotlib.colors import XKCD_COLORS, to_rgb

names = np.random.default_rng(1).permutation(sorted(XKCD_COLORS))[:rows]
lightness = np.array([np.dot(to_rgb(name), (0.299, 0.587, 0.114)) for name in names])
labels = np.where(lightness > np.median(lightness), "light", "dark")
with open("colors.csv", "w", newline="", encoding="utf-8") as file:
    texts = [name.removeprefix("xkcd:") for name in names]
    csv.writer(file).writerows([("text", "label"), *zip(texts, labels, strict=True)])

# %% [markdown]
# On the command line, run `keras-bert finetune --recipe=xkcd_colors --data_dir=DIR`. In Python:

# %%
from training.engine import finetuning
from training.jobs.classification import ClassificationJob

config = config.replace(**changes)
data = ClassificationJob.read(config)
results = finetuning.run(ClassificationJob, config, data)
for name, scores in {
    **results["baselines"]["dev"],
    "MiniLM": results["runs"][0]["best"]["dev"],
}.items():
    print(f"{name:14}{scores['accuracy']:.1f}")

# %% [markdown]
# With this seed, the model is worse than the bag of words. Try more epochs or a different encoder, and measure again.
#
# ## Document the result
#
# Add the measurement to the file: the score with its confidence interval over multiple seeds (`num_seeds=3`), the validation set, the time and the hardware. If you
# cannot run the recipe, write "not run here". `tests/training/paper/recipes_test.py` checks the file.
