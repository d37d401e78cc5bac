# SPDX-License-Identifier: Apache-2.0

# %% [markdown]
# # Sentence pairs and regression
#
# A `TextClassifier` also accepts pairs of texts, for example for paraphrase detection or natural language inference. With one output it predicts a
# number, for example a star rating or a similarity:
#
# ```python
# regression = keras_bert.TextClassifier.from_preset("minilm", num_classes=1)
# regression.compile()
# regression.fit(texts, scores)
# classifier = keras_bert.TextClassifier.from_preset("minilm", num_classes=2)
# classifier.compile()
# classifier.fit([("snow", "charcoal")], [0])
# ```
#
# In this guide you predict a color's lightness from its name. MiniLM is off by 8.5 points of 100 on average, and a ridge regression by 10.3.
#
# To run it, [install keras_bert](../start/install.md) with the extra `training` and the MiniLM weights.
#
# The data ships with Matplotlib: 949 color names from the xkcd survey. The target is the lightness, from 0 (black) to 100 (white).

# %% small="texts, lightness, held_out = texts[:96], lightness[:96], 32"

import keras
import numpy as np
from matplotlib.colors import XKCD_COLORS, to_rgb

import keras_bert

keras.utils.set_random_seed(1)
names = np.random.default_rng(1).permutation(sorted(XKCD_COLORS))
texts = [name.removeprefix("xkcd:") for name in names]
lightness = np.array([100 * np.dot(to_rgb(name), (0.299, 0.587, 0.114)) for name in names])
held_out = 249
print(
    *(f"{text}: {value:.0f}" for text, value in zip(texts[:5], lightness[:5], strict=True)),
    sep="\n",
)

# %% [markdown]
# ## Regression
#
# `num_classes=1` selects regression with the mean squared error. Scale the targets to a standard deviation of about 1, because training starts with
# outputs near 0.

# %% small="epochs = 1; regression = keras_bert.TextClassifier.from_preset(small_encoder(), num_classes=1)"
regression = keras_bert.TextClassifier.from_preset("minilm", num_classes=1, sequence_length=16)
epochs = 5

# %% [markdown]
# We compare with two baselines: the mean, and a ridge regression on word counts.

# %%
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline

train, test = texts[:-held_out], texts[-held_out:]
targets, expected = lightness[:-held_out], lightness[-held_out:]
words = make_pipeline(CountVectorizer(), Ridge()).fit(train, targets)
mean, scale = targets.mean(), targets.std()
steps = regression.num_steps(train, batch_size=16, epochs=epochs)
regression.compile(
    optimizer=keras_bert.optimizers.AdamW(2e-4, num_train_steps=steps, num_warmup_steps=steps // 10)
)
regression.fit(train, (targets - mean) / scale, batch_size=16, epochs=epochs, verbose=0)
predicted = regression.predict(test, verbose=0)[:, 0] * scale + mean
for name, values in {"mean": mean, "words": words.predict(test), "MiniLM": predicted}.items():
    print(f"{name:8}off by {np.abs(values - expected).mean():.1f} on average")

# %% [markdown]
# Now try some names. Only charcoal occurs in the survey.

# %%
for text in ("snow", "charcoal", "the sea at night", "lemon sorbet"):
    (answer,) = regression.classify([text])
    print(f"{text:18}{answer['score'] * scale + mean:.0f}")

# %% [markdown]
# The model gets snow wrong. The word does not occur in the training data.
#
# ## Sentence pairs
#
# A pair is a tuple of two texts. Here the model decides which of two colors is lighter. The test pairs contain only unseen colors.


# %% small="pick_pairs = lambda texts, values, count, seed, full=pick_pairs: full(texts, values, 48, seed)"
def pick_pairs(texts, values, count, seed):
    """Random pairs of names whose lightness differs by 15 or more, and which is lighter."""
    rng = np.random.default_rng(seed)
    pairs, labels = [], []
    while len(pairs) < count:
        one, other = rng.integers(0, len(texts), 2)
        if abs(values[one] - values[other]) >= 15:
            pairs.append((texts[one], texts[other]))
            labels.append("first" if values[one] > values[other] else "second")
    return pairs, labels


# %% small="classifier = keras_bert.TextClassifier.from_preset(small_encoder(), class_names=['first', 'second'])"
pairs, labels = pick_pairs(train, targets, 1500, seed=1)
test_pairs, test_labels = pick_pairs(test, expected, 400, seed=2)
print(pairs[0], labels[0])
classifier = keras_bert.TextClassifier.from_preset(
    "minilm", class_names=["first", "second"], sequence_length=24
)

# %%
classifier.compile(optimizer=keras_bert.optimizers.AdamW(2e-4))
classifier.fit(pairs, labels, epochs=min(3, epochs), verbose=0)
accuracy = classifier.evaluate(test_pairs, test_labels, verbose=0, return_dict=True)["accuracy"]
by_words = [
    "first" if one > other else "second"
    for one, other in zip(
        *(words.predict(list(side)) for side in zip(*test_pairs, strict=True)), strict=True
    )
]
print(f"always the first:          {np.mean([label == 'first' for label in test_labels]):.1%}")
print(
    f"ridge regression of words: {np.mean([a == b for a, b in zip(by_words, test_labels, strict=True)]):.1%}"
)
print(f"MiniLM on pairs:           {accuracy:.1%}")

# %% [markdown]
# On this task MiniLM and ridge regression are equally good, because the lightness of each color follows from single words. On paraphrases and
# sentence similarity, [MiniLM beats a bag of words](../measurements/fine_tuning.md#scores-by-task).
#
# ## Command line
#
# This code writes the training data to two CSV files:

# %%
import csv

tables = {
    "colors.csv": [("text", "lightness"), *zip(train, targets, strict=True)],
    "pairs.csv": [
        ("first", "second", "label"),
        *((*pair, label) for pair, label in zip(pairs, labels, strict=True)),
    ],
}
for name, rows in tables.items():
    with open(name, "w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows(rows)

# %% [markdown]
# ```bash
# keras-bert finetune --train_file=colors.csv --label=lightness --task=regression
# keras-bert finetune --train_file=pairs.csv --text=first --text_pair=second
# ```
