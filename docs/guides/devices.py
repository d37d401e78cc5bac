# SPDX-License-Identifier: Apache-2.0

# %% [markdown]
# # Multi-device training and mixed precision
#
# ```bash
# keras-bert finetune --train_file=reviews.tsv --devices=2 --output_dir=runs/reviews      # JAX or TensorFlow
# ```
#
# In data parallel training, every device has a copy of the model and processes a shard of each batch. The result is the same as on one device. How you
# enable it in Python depends on the backend:
#
# | Backend | Multi-device training | Run in this guide |
# |---|---|---|
# | JAX | `keras.distribution.set_distribution(keras.distribution.DataParallel())` | two virtual devices |
# | TensorFlow | create model and optimizer in the scope of `tf.distribute.MirroredStrategy()` | two virtual devices |
# | PyTorch | `DistributedDataParallel` with your own loop, because `fit` uses one device | two processes |
#
# This guide compares one and two virtual devices on a CPU, so it demonstrates correctness, not speed. Multiple GPUs and TPUs were not run. For multiple
# machines, see [multi-host training](scale.md).
#
# Note:
#
# - `batch_size` must be divisible by the number of devices.
# - With `gradient_accumulation_steps`, TensorFlow exchanges gradients once per optimizer step. JAX exchanges them for every micro-batch.
# - On TensorFlow, a `TextEmbedder` uses only the negatives on the same device.
#
# The data is the same as in [TensorFlow, JAX and PyTorch](backends.md). We disable dropout, because on TensorFlow and PyTorch its random numbers
# depend on the sharding.
#
# <details markdown="1"><summary>Code that writes <code>colors.py</code></summary>

# %%
import os
import subprocess
import sys

with open("colors.py", "w") as file:
    file.write("""
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
x = {"token_ids": ids, "padding_mask": (ids > 0).astype("int32")}
train, test = ({name: values[rows] for name, values in x.items()} for rows in (slice(768), slice(768, 928)))


def make(hidden_dim=64, learning_rate=1e-3, dtype=None):
    keras.utils.set_random_seed(1)
    config = keras_bert.BertConfig(vocabulary_size=32, num_layers=2, num_heads=2, hidden_dim=hidden_dim,
                                   intermediate_dim=4 * hidden_dim, max_sequence_length=24,
                                   dropout=0.0, attention_dropout=0.0, classifier_dropout=0.0)
    classifier = keras_bert.TextClassifier(keras_bert.Backbone(config, dtype=dtype), num_classes=2)
    classifier.compile(optimizer=keras_bert.optimizers.AdamW(learning_rate))
    return classifier


def fit(classifier, epochs):
    history = classifier.fit(train, labels[:768], epochs=epochs, batch_size=32, shuffle=False, verbose=0)
    return history.history["loss"]


def report(name, classifier, losses):
    logits = classifier.predict(test, batch_size=32, verbose=0)
    accuracy = np.mean(logits.argmax(axis=-1) == labels[768:928])
    print(f"{name:22}loss {losses[0]:.5f} … {losses[-1]:.5f}   test accuracy {accuracy:.1%}")
""")

# %% [markdown]
# </details>


# %% small="started, run = run, lambda *_, **__: None; epochs = 1"
def run(backend, *arguments, **environment):
    finished = subprocess.run(
        [sys.executable, *arguments],
        env={**os.environ, "KERAS_BACKEND": backend, **environment},
        capture_output=True,
        text=True,
    )
    print(finished.stdout.rstrip())
    if finished.returncode:
        raise RuntimeError(finished.stderr)


epochs = 10

# %% [markdown]
# ## JAX: `keras.distribution`
#
# Add one line before you create the model. If you pass arrays, every batch size must be divisible by the number of devices, including the last
# batch. We therefore use 768 and 160 examples. The XLA flag creates two virtual devices.

# %%
JAX = """
import keras
from colors import fit, make, report

print(keras.distribution.list_devices())
one = make()
report("JAX, one device", one, fit(one, EPOCHS))
keras.distribution.set_distribution(keras.distribution.DataParallel())
two = make()
report("JAX, two devices", two, fit(two, EPOCHS))
"""
run(
    "jax",
    "-c",
    JAX.replace("EPOCHS", str(epochs)),
    XLA_FLAGS="--xla_force_host_platform_device_count=2",
)

# %% [markdown]
# ## TensorFlow: `tf.distribute`
#
# Create the model and the optimizer in a strategy's scope. On a machine with GPUs, `MirroredStrategy()` uses all of them.

# %%
TENSORFLOW = """
import tensorflow as tf

cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)

from colors import fit, make, report

one = make()
report("TensorFlow, one", one, fit(one, EPOCHS))
with tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]).scope():
    two = make()
report("TensorFlow, two", two, fit(two, EPOCHS))
"""
run("tensorflow", "-c", TENSORFLOW.replace("EPOCHS", str(epochs)))

# %% [markdown]
# ## PyTorch: `DistributedDataParallel`
#
# On PyTorch, Keras' `fit` uses one device. However, every task is a `torch.nn.Module`, so you can start one process per device with your own training
# loop and a PyTorch optimizer. On GPUs, use the process group `nccl`.

# %%
with open("ddp.py", "w") as file:
    file.write("""
import sys
import torch
from colors import labels, make, report, train

torch.distributed.init_process_group("gloo")      # reads what torchrun puts in the environment
rank, size = torch.distributed.get_rank(), torch.distributed.get_world_size()
classifier = make()
module = torch.nn.parallel.DistributedDataParallel(classifier)
optimizer = torch.optim.AdamW(module.parameters(), 1e-3)
losses = []
for epoch in range(int(sys.argv[1])):
    total = torch.zeros(())
    for start in range(0, 768, 32):
        rows = slice(start + rank * 32 // size, start + (rank + 1) * 32 // size)
        logits = module({name: torch.tensor(values[rows]) for name, values in train.items()})
        loss = torch.nn.functional.cross_entropy(logits, torch.tensor(labels[rows]).long())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.detach() / 24
    torch.distributed.all_reduce(total)
    losses.append(float(total) / size)
if rank == 0:
    report(f"PyTorch, {size} process{'es' * (size > 1)}", classifier, losses)
torch.distributed.destroy_process_group()
""")


def torchrun(processes):
    run(
        "torch",
        "-m",
        "torch.distributed.run",
        f"--nproc_per_node={processes}",
        "ddp.py",
        str(epochs),
    )


# %% small="run = started"
torchrun(1)

# %% small="run = lambda *_, **__: None"
torchrun(2)

# %% [markdown]
# ## Mixed precision
#
# `dtype="mixed_bfloat16"` computes in 16 bits and keeps the weights in 32 bits. With `mixed_float16`, Keras scales the loss automatically.

# %%
PRECISION = """
import time
from colors import fit, make, report

for dtype in ("float32", "mixed_bfloat16"):
    classifier = make(hidden_dim=256, learning_rate=3e-4, dtype=dtype)
    losses = fit(classifier, 1)                   # compiles
    start = time.process_time()
    losses += fit(classifier, EPOCHS)
    seconds = time.process_time() - start
    report(dtype, classifier, losses)
    print(f"{'':22}{seconds / EPOCHS:.1f} s of processor time for an epoch")
"""
run("tensorflow", "-c", PRECISION.replace("EPOCHS", str(epochs)))

# %% [markdown]
# The accuracies differ by six of 160 examples, which is within chance.
#
# bfloat16 is not faster on every processor. The commands therefore measure both precisions at the start. In Python, see
# [which precision to choose](../why/speed.md). On JAX and a CPU, use float32.
#
# ## Sharded weights and optimizer state (JAX)
#
# If a model does not fit on one device, shard its weights with a `LayoutMap`. `shard_state=True` also shards the optimizer state, which is twice as
# large as the weights. It also works without a `LayoutMap`. On the command line, use `--shard_optimizer`.
#
# ```python
# mesh = keras.distribution.DeviceMesh((2, 4), ("batch", "model"))
# layout_map = keras_bert.Backbone.get_layout_map(mesh)
# keras.distribution.set_distribution(
#     keras.distribution.ModelParallel(layout_map=layout_map, batch_dim_name="batch")
# )
# classifier = keras_bert.TextClassifier.from_preset(
#     "hf://google-bert/bert-large-uncased", num_classes=2
# )
# classifier.compile(optimizer=keras_bert.optimizers.AdamW(2e-5, shard_state=True))
# ```
#
# `from_preset` reads each weight directly into its shards.
