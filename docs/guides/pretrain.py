# SPDX-License-Identifier: Apache-2.0

# %% [markdown]
# # Pre-train a BERT in your language
#
# In this guide you train a vocabulary and a masked language model on Korean text, in about two minutes of CPU time. For a corpus of many
# gigabytes, [one command](#pre-train-on-a-large-corpus) does the same.
#
# ```python
# vocabulary = keras_bert.text.train_vocabulary(texts, 1500)
# tokenizer = keras_bert.WordPieceTokenizer(vocabulary)
# preprocessor = keras_bert.data.TextClassifierPreprocessor(tokenizer, sequence_length=64)
# masked_lm = keras_bert.MaskedLM(keras_bert.Backbone(config), preprocessor)
# masked_lm.compile()
# masked_lm.fit(texts)
# ```
#
# [Install keras_bert](../start/install.md) from a clone:
#
# ```bash
# pip install -e ".[training,vocabulary]" babel==2.18.0
# ```
#
# The corpus needs no download. We build it from templates and from the Korean names of countries, languages and currencies in Babel. The model learns
# these templates rather than the language, but the steps are the same for a real corpus.
#
# <details markdown="1"><summary>Code that generates the corpus</summary>

# %%
import random

import keras
import numpy as np
from babel import Locale
from babel.languages import get_official_languages
from babel.numbers import get_territory_currencies

import keras_bert

keras.utils.set_random_seed(1)
korean = Locale("ko")


def with_particle(word, after_consonant, after_vowel):
    """A word with the form of a particle that its last syllable demands."""
    ends_in_consonant = (ord(word[-1]) - 0xAC00) % 28 > 0
    return word + (after_consonant if ends_in_consonant else after_vowel)


def sentences():
    for code, country in korean.territories.items():
        if len(code) != 2 or not "가" <= country[-1] <= "힣":
            continue
        for currency in get_territory_currencies(code)[:1]:
            money = korean.currencies.get(currency, "")
            if money and "가" <= money[-1] <= "힣":
                yield f"{country}에서는 {with_particle(money, '을', '를')} 씁니다."
                yield f"{country}의 통화는 {money}입니다."
        for language in get_official_languages(code)[:2]:
            if name := korean.languages.get(language):
                yield f"{country} 사람들은 {with_particle(name, '을', '를')} 말합니다."
                yield f"{country}의 공용어는 {name}입니다."


texts = sorted(set(sentences()))
random.Random(1).shuffle(texts)
held_out, corpus = texts[:100], texts[100:]
print(len(corpus), "sentences for training,", len(held_out), "held out")
print(*corpus[:4], sep="\n")

# %% [markdown]
# </details>
#
# ## Train a vocabulary
#
# `train_vocabulary` trains a WordPiece vocabulary, as in BERT. For RoBERTa, use `train_byte_pair_vocabulary`. For ALBERT, use
# `train_sentence_piece_model`. `choose_lowercase` decides whether to lowercase the text and strip accents. Do not do this for Hangul, because
# stripping accents would split its syllables.

# %%
choice = keras_bert.text.choose_lowercase(corpus)
print(f"lowercase: {choice.lowercase}, since {choice.reason}")
vocabulary = keras_bert.text.train_vocabulary(corpus, 1500, lowercase=choice.lowercase)
tokenizer = keras_bert.WordPieceTokenizer(vocabulary, lowercase=choice.lowercase)
ids, starts, ends = tokenizer.tokenize_with_offsets(corpus[0])
print(corpus[0])
print([corpus[0][start:end] for start, end in zip(starts, ends, strict=True)])

# %% [markdown]
# ## Train the masked language model
#
# This configuration is much smaller than BERT-base. For a standard size, use `BertConfig.from_name`. Every epoch masks different tokens.

# %% small="epochs = 2"
config = keras_bert.BertConfig(
    vocabulary_size=len(vocabulary),
    num_layers=2,
    num_heads=4,
    hidden_dim=128,
    intermediate_dim=512,
    max_sequence_length=64,
    dropout=0.0,
)
preprocessor = keras_bert.data.TextClassifierPreprocessor(tokenizer, sequence_length=64)
masked_lm = keras_bert.MaskedLM(keras_bert.Backbone(config), preprocessor)
print(f"{masked_lm.count_params():,} parameters")
epochs = 25

# %%
steps = masked_lm.num_steps(corpus, batch_size=32, epochs=epochs)
masked_lm.compile(
    optimizer=keras_bert.optimizers.AdamW(2e-3, num_train_steps=steps, num_warmup_steps=steps // 10)
)
masked_lm.fit(corpus, epochs=epochs, batch_size=32, verbose=0)

# %% [markdown]
# The baseline is a unigram model. It always predicts the most frequent token, and its perplexity follows from the token frequencies.

# %%
counts = np.bincount(np.concatenate(tokenizer(corpus)), minlength=len(vocabulary)) + 1
tokens = np.concatenate(tokenizer(held_out))
perplexity = np.exp(-np.log(counts / counts.sum())[tokens].mean())
print(f"unigrams:  accuracy {np.mean(tokens == counts.argmax()):.1%}, perplexity {perplexity:.1f}")
scores = masked_lm.evaluate(held_out, verbose=0, return_dict=True)
print(f"masked LM: accuracy {scores['accuracy']:.1%}, perplexity {scores['perplexity']:.1f}")

# %% [markdown]
# `fill` returns the most probable tokens for `[MASK]`. The last two examples test a particle, which is 를 after a vowel and 을 after a consonant.

# %%
for text in (
    "독일의 통화는 [MASK]입니다.",
    "프랑스 사람들은 프랑스어[MASK] 말합니다.",
    "미국에서는 미국 달러[MASK] 씁니다.",
    "베트남에서는 베트남 동[MASK] 씁니다.",
):
    guesses = masked_lm.fill(text, top_k=3)
    print(text, *(f"{guess['token']} {guess['score']:.2f}" for guess in guesses), sep="   ")

# %% [markdown]
# From a thousand sentences, the model has learned the templates, for example that a particle precedes 씁니다. It has not learned which particle
# follows a vowel, and it knows few facts.
#
# ## Fine-tune the encoder
#
# A preset contains the encoder, the vocabulary and the head. You can load it into every task:
#
# ```python
# masked_lm.save_to_preset("my_korean_bert")
# classifier = keras_bert.TextClassifier.from_preset("my_korean_bert", num_classes=2)
# ```
#
# Note that such a small corpus does not improve other tasks. [Even two million words](../measurements/pretraining.md#wikitext-2-runs) help little.
#
# ## Pre-train on a large corpus
#
# If the corpus does not fit in memory, use [`keras-bert pretrain`](../commands/pretrain.md). It also trains the vocabulary, and it resumes after an
# interruption:
#
# ```bash
# keras-bert pretrain --input_files=corpus --dev_files=validation.txt --format=paragraphs --language=ko \
#   --model=bert_small_uncased --phases=128:0.9,512:0.1 --num_steps=100000 --warmup_steps=1000 \
#   --output_dir=runs/korean
# ```
