# SPDX-License-Identifier: Apache-2.0

# %% [markdown]
# # Pre-train on your own language
#
# This guide trains a vocabulary and a masked language model in Korean, in a minute on a CPU. For gigabytes of text, one
# [command](#a-real-corpus) does the same.
#
# [Install](../start/install.md) in a checkout:
#
# ```bash
# pip install -e ".[training,vocabulary]" babel==2.18.0
# ```
#
# This corpus needs no download: it is made of the Korean names of countries, languages and currencies, which Babel brings, in sentences of a few
# patterns. The model learns these patterns and not the language, but the steps are the same for a real corpus.

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
# ## A vocabulary
#
# `train_vocabulary` trains WordPiece; `train_byte_pair_vocabulary` and `train_sentence_piece_model` the kinds of RoBERTa and ALBERT.
# `choose_lowercase` says whether to lowercase and strip accents: not in Hangul, where this would take syllables apart.

# %%
choice = keras_bert.text.choose_lowercase(corpus)
print(f"lowercase: {choice.lowercase}, since {choice.reason}")
vocabulary = keras_bert.text.train_vocabulary(corpus, 1500, lowercase=choice.lowercase)
tokenizer = keras_bert.WordPieceTokenizer(vocabulary, lowercase=choice.lowercase)
ids, starts, ends = tokenizer.tokenize_with_offsets(corpus[0])
print(corpus[0])
print([corpus[0][start:end] for start, end in zip(starts, ends, strict=True)])

# %% [markdown]
# ## Train
#
# `BertConfig.from_name` has all released sizes; this one is smaller. Every epoch draws new masks.

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
# As a baseline, a unigram model always says the most frequent token, and its perplexity follows from the tokens' frequencies.

# %%
counts = np.bincount(np.concatenate(tokenizer(corpus)), minlength=len(vocabulary)) + 1
tokens = np.concatenate(tokenizer(held_out))
perplexity = np.exp(-np.log(counts / counts.sum())[tokens].mean())
print(f"unigrams:  accuracy {np.mean(tokens == counts.argmax()):.1%}, perplexity {perplexity:.1f}")
scores = masked_lm.evaluate(held_out, verbose=0, return_dict=True)
print(f"masked LM: accuracy {scores['accuracy']:.1%}, perplexity {scores['perplexity']:.1f}")

# %% [markdown]
# `fill` gives the most likely tokens for `[MASK]`. The last two are a particle, 를 after a vowel and 을 after a consonant.

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
# In a thousand sentences it has learned the patterns, such as a particle before 씁니다, but not which particle follows a vowel, and few facts.
#
# ## Use the encoder
#
# A preset holds encoder, vocabulary and head; `from_preset` of every task reads it:
#
# ```python
# masked_lm.save_to_preset("my_korean_bert")
# classifier = keras_bert.TextClassifier.from_preset("my_korean_bert", num_classes=2)
# ```
#
# So small a corpus does not help other tasks: [even two million words](../measurements/pretraining.md) do little.
#
# ## A real corpus
#
# For more text than fits in memory, [`keras-bert pretrain`](../commands/pretrain.md) does all of this, and resumes after an interruption:
#
# ```bash
# keras-bert pretrain --input_files=corpus --dev_files=validation.txt --format=paragraphs --language=ko \
#   --model=bert_small_uncased --phases=128:0.9,512:0.1 --num_steps=100000 --warmup_steps=1000 \
#   --output_dir=runs/korean
# ```
