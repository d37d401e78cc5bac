# SPDX-License-Identifier: Apache-2.0

# %% [markdown]
# # ELECTRA and distillation
#
# ELECTRA trains a discriminator to detect the tokens that a small generator has replaced. Distillation trains a student to give the answers of a
# larger teacher. In short:
#
# ```python
# detector = keras_bert.ReplacedTokenDetector.from_preset("minilm")
# detector.compile()
# detector.fit(texts)
# detector.save_to_preset("electra")                     # an encoder for every task
#
# student = keras_bert.Distiller.student_from_teacher(teacher, layers=[0, 1])
# distiller = keras_bert.Distiller(student, teacher)
# distiller.compile()
# distiller.fit(texts, labels)                           # -1 for texts without a label
# ```
#
# In this guide MiniLM becomes ELECTRA's discriminator, is fine-tuned, and then distilled into a third of its layers.
# It needs an [installation](../start/install.md) with the extra `training` and MiniLM's weights.
#
# The text is sentences of docstrings, and the task a question of grammar: have two neighboring words been swapped?

# %% small="packages = ['scipy']"
import ast
import importlib.util
import random
import re
from pathlib import Path

import keras
import numpy as np

import keras_bert

keras.utils.set_random_seed(1)
packages = ["keras", "matplotlib", "scipy", "sklearn"]


# %%
def sentences(package):
    """The sentences of 6 to 24 plain words in the docstrings of a package."""
    folder = Path(importlib.util.find_spec(package).origin).parent
    for path in sorted(folder.rglob("*.py")):
        if "test" in path.relative_to(folder).as_posix() or path.stat().st_size > 100_000:
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                for paragraph in (ast.get_docstring(node) or "").split("\n\n"):
                    for text in re.split(r"(?<=\.)\s+", " ".join(paragraph.split())):
                        if re.fullmatch(r"[A-Z][a-z]*(?:,? [A-Za-z]+(?:-[a-z]+)*){5,23}\.", text):
                            yield text


texts = sorted({text for package in packages for text in sentences(package)})
random.Random(1).shuffle(texts)
labeled, corpus = texts[:1500], texts[1500:]
print(len(corpus), "sentences without labels; for example:", corpus[0])

# %% [markdown]
# ## Replaced tokens
#
# The generator is a small masked LM. Samples of its predictions replace the masked tokens, and the discriminator says of every token whether it was
# replaced. A warning says that the generator begins with random weights; the discriminator begins with MiniLM's.

# %% small="checkpoint, labeled, corpus = small_encoder(), labeled[:48], corpus[:32]"
checkpoint = "minilm"

# %%
detector = keras_bert.ReplacedTokenDetector.from_preset(
    checkpoint, sequence_length=48, dtype="mixed_bfloat16"
)
steps = detector.num_steps(corpus, batch_size=32)
detector.compile(
    optimizer=keras_bert.optimizers.AdamW(2e-4, num_train_steps=steps, num_warmup_steps=steps // 10)
)
detector.fit(corpus, batch_size=32, verbose=0)

# %%
scores = detector.evaluate(labeled, verbose=0, return_dict=True)
for name in ("generator_accuracy", "discriminator_precision", "discriminator_recall"):
    print(f"{name:25}{scores[name]:.1%}")

# %% [markdown]
# A better generator lowers precision and recall, so do not compare them between runs.

# %%
for text in ("Returns the mean the of array.", "If true, the weights is not updated."):
    found = detector.detect(text, threshold=0.0)
    print(text, *(f"  {token['token']:10}{token['score']:.2f}" for token in found), sep="\n")

# %% [markdown]
# ## Use the discriminator
#
# `from_preset` of every task reads the preset. `MaskedLM.from_preset("electra/generator")` reads the generator, which is not needed any more.

# %%
detector.save_to_preset("electra")
print(*sorted(path.as_posix() for path in Path("electra").rglob("*.*")), sep="\n")


# %%
def swapped(texts, rng):
    """The texts, in half of them two neighboring words swapped; and 1 for those, 0 for others."""
    labels = np.array([rng.randrange(2) for _ in texts])
    rows = [text.rstrip(".").split() for text in texts]
    for words, label in zip(rows, labels, strict=True):
        at = rng.choice(
            [n for n in range(1, len(words) - 1) if words[n].lower() != words[n + 1].lower()]
        )
        if label:
            words[at], words[at + 1] = words[at + 1], words[at]
    return [" ".join(words) + "." for words in rows], labels


third = len(labeled) // 3
train, train_labels = swapped(labeled[:third], random.Random(1))
test, test_labels = swapped(labeled[third:], random.Random(2))
print(
    *(f"{label}  {text}" for text, label in zip(train[:4], train_labels[:4], strict=True)), sep="\n"
)


# %%
def fine_tuned(classifier, x, y, learning_rate=2e-4, epochs=5):
    steps = classifier.num_steps(x, epochs=epochs)
    classifier.compile(
        optimizer=keras_bert.optimizers.AdamW(
            learning_rate, num_train_steps=steps, num_warmup_steps=steps // 10
        )
    )
    classifier.fit(x, y, epochs=epochs, verbose=0)
    return classifier


def accuracy(classifier):
    return np.mean(classifier.predict(test, verbose=0).argmax(axis=-1) == test_labels)


# %% small="del presets['MiniLM']"
presets = {"MiniLM": checkpoint, "discriminator": "electra"}

# %%
print(f"always the same answer  {max(test_labels.mean(), 1 - test_labels.mean()):.1%}")
for name, preset in presets.items():
    teacher = keras_bert.TextClassifier.from_preset(
        preset, num_classes=2, sequence_length=48, dtype="mixed_bfloat16"
    )
    fine_tuned(teacher, train, train_labels)
    print(f"{name:24}{accuracy(teacher):.1%}")

# %% [markdown]
# ## Distill
#
# The fine-tuned discriminator is now the teacher. `student_from_teacher` makes a student of some of its layers, here the first two. A `Distiller`
# trains it on the labels and on the probabilities of the teacher, also of rows without a label (-1). The student without a teacher has only the
# labeled rows, for as many updates.

# %% small="more, more_labels = more[:16], more_labels[:16]"
more, _ = swapped(corpus[:2500], random.Random(3))
more_labels = np.full(len(more), -1)

# %% small="layers, names = [0], names[1:]"
layers, names = [0, 1], ["student without a teacher", "student of the teacher"]

# %%
print(f"{'teacher':28}{teacher.config.num_layers} layers  {accuracy(teacher):.1%}")
for name in names:
    student = keras_bert.Distiller.student_from_teacher(teacher, layers=layers)
    if name == "student of the teacher":
        targets = np.concatenate([train_labels, more_labels])
        fine_tuned(keras_bert.Distiller(student, teacher), train + more, targets)
    else:
        epochs = 5 * len(train + more) // len(train)
        fine_tuned(student, train, train_labels, epochs=epochs)
    print(f"{name:28}{student.config.num_layers} layers  {accuracy(student):.1%}")

# %% [markdown]
# Text without labels has taught the discriminator grammar: it makes far fewer mistakes than MiniLM. A student with a third of its layers needs the
# teacher.
#
# Save and export the student like any classifier. With two `MaskedLM`s, a `Distiller` makes a smaller encoder for all tasks, such as DistilBERT.
#
# ## The same as commands
#
# ```bash
# keras-bert pretrain --input_files=corpus --dev_files=validation.txt --kind=full_sentences \
#   --objective=replaced_token --init_preset=hf://google-bert/bert-base-uncased --output_dir=runs/electra
# keras-bert pretrain --input_files=corpus --dev_files=validation.txt --kind=full_sentences \
#   --objective=distillation --teacher=hf://google-bert/bert-base-uncased --num_layers=6 --output_dir=runs/student
# ```
