# SPDX-License-Identifier: Apache-2.0

# %% [markdown]
# # TensorFlow, JAX and PyTorch
#
# The same code runs on all three backends. Set `KERAS_BACKEND` before Keras is imported:
#
# ```bash
# pip install -e ".[jax,torch]"
# KERAS_BACKEND=jax python train.py
# ```
#
# In this guide you train one model on each backend, from the same weights and on the same data, and then load it on a different backend. See also
# [supported features per backend](../start/install.md#backend-features).
#
# On a CPU, we recommend TensorFlow. On a GPU, we recommend JAX or PyTorch, because [only these two were measured](../measurements/speed.md#on-a-gpu).
#
# The data is color names from the xkcd survey, split into letters. The label is *light* or *dark*.
#
# <details markdown="1"><summary>The training script</summary>

# %%
SCRIPT = """
import sys
import keras, numpy as np
from matplotlib.colors import XKCD_COLORS, to_rgb
import keras_bert

names = np.random.default_rng(1).permutation(sorted(XKCD_COLORS))
names = [name.removeprefix("xkcd:") for name in names]
light = np.array([np.dot(to_rgb("xkcd:" + name), (0.299, 0.587, 0.114)) for name in names])
labels = (light > np.median(light)).astype("int32")
ids = np.zeros((len(names), 24), "int32")              # 0 is padding, 1 starts a sequence
for row, name in zip(ids, names):
    letters = [1, *(ord(letter) - ord("a") + 3 if letter.isalpha() else 2 for letter in name)][:24]
    row[: len(letters)] = letters
x = {"token_ids": ids, "padding_mask": ids > 0}
train = {name: values[:800] for name, values in x.items()}
test = {name: values[800:] for name, values in x.items()}

if len(sys.argv) > 1:                                  # weights that another backend has saved
    classifier = keras_bert.load_model(sys.argv[1])
else:
    keras.utils.set_random_seed(1)
    config = keras_bert.BertConfig(vocabulary_size=32, num_layers=2, num_heads=2, hidden_dim=64,
                                   intermediate_dim=256, max_sequence_length=24,
                                   dropout=0.0, attention_dropout=0.0, classifier_dropout=0.0)
    classifier = keras_bert.TextClassifier(keras_bert.Backbone(config), num_classes=2)
    rng = np.random.default_rng(2)                     # the same weights on every backend
    for weight in classifier.weights:
        if "kernel" in weight.path or "embeddings" in weight.path:
            weight.assign(rng.normal(0, 0.05, weight.shape))
    classifier.compile(optimizer=keras_bert.optimizers.AdamW(1e-3))
    history = classifier.fit(train, labels[:800], epochs=EPOCHS, batch_size=32, shuffle=False, verbose=0)
    classifier.save(keras.backend.backend() + ".keras")
    losses = history.history["loss"]
    print("  loss by epoch", *(f"{losses[epoch]:.5f}" for epoch in (0, 1, -1)))
print(f"  test accuracy {classifier.evaluate(test, labels[800:], verbose=0, return_dict=True)['accuracy']:.1%}")
print("  first logits ", *classifier.predict(test, verbose=0)[:2].round(4).tolist())
"""

# %% [markdown]
# </details>

# %% small="""epochs, backends = 2, ("tensorflow",)"""
epochs, backends = 30, ("tensorflow", "jax", "torch")

# %%
import os
import subprocess
import sys


def train(backend, *arguments):
    code = SCRIPT.replace("EPOCHS", str(epochs))
    finished = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env={**os.environ, "KERAS_BACKEND": backend},
        capture_output=True,
        text=True,
    )
    print(backend, *arguments)
    print(finished.stdout.rstrip() or finished.stderr)
    finished.check_returncode()


for backend in backends:
    train(backend)

# %% [markdown]
# In the first two epochs, the losses agree in all printed digits. Later, every step amplifies rounding differences, just as it does between two
# types of processors.
#
# ## Move a model between backends
#
# A `.keras` file, a preset and a Hugging Face directory work on every backend:

# %%
train(backends[0], f"{backends[-1]}.keras")

# %% [markdown]
# Note that JAX compiles every new shape. keras_bert therefore pads to [a few lengths](../why/speed.md#padding), and the first epoch is slower. On a
# CPU, use float32 with JAX. For the other backends, see [mixed precision](devices.md#mixed-precision).
