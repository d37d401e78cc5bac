# SPDX-License-Identifier: Apache-2.0

# %% [markdown]
# # Pre-train a BERT in your language
#
# In this guide you train a vocabulary and a BERT on Korean text, in about two minutes of CPU time. As in the BERT paper, the objectives are
# masked language modeling and next sentence prediction. For a corpus of many gigabytes, [one command](#pre-train-on-a-large-corpus) does the
# same.
#
# ```python
# documents = keras_bert.data.read_documents("corpus.txt")    # [["A sentence.", …], …]
# vocabulary = keras_bert.text.train_vocabulary(sentences, 1000)
# tokenizer = keras_bert.WordPieceTokenizer(vocabulary)
# preprocessor = keras_bert.data.TextClassifierPreprocessor(tokenizer, sequence_length=64)
# pretrainer = keras_bert.Pretrainer(keras_bert.Backbone(config), preprocessor)
# pretrainer.compile()
# pretrainer.fit(documents)
# ```
#
# [Install keras_bert](../start/install.md) from a clone:
#
# ```bash
# pip install -e ".[training,vocabulary]" babel==2.18.0
# ```
#
# The corpus needs no download. We build it from templates and from the Korean names of countries, languages and currencies in Babel. Each country is
# a document. The model learns these templates rather than the language, but the steps are the same for a real corpus.
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


def is_hangul(word):
    return "가" <= word[-1:] <= "힣"


def document(code, country):
    """Sentences about a country."""
    for currency in get_territory_currencies(code)[:1]:
        money = korean.currencies.get(currency, "")
        if is_hangul(money):
            yield f"{country}에서는 {with_particle(money, '을', '를')} 씁니다."
            yield f"{country}의 통화는 {money}입니다."
    for language in get_official_languages(code)[:2]:
        if name := korean.languages.get(language):
            yield f"{country} 사람들은 {with_particle(name, '을', '를')} 말합니다."
            yield f"{country}의 공용어는 {name}입니다."


documents = [
    list(document(code, country))
    for code, country in sorted(korean.territories.items())
    if len(code) == 2 and is_hangul(country)
]
documents = [sentences for sentences in documents if len(sentences) > 1]
random.Random(1).shuffle(documents)
held_out, corpus = documents[:40], documents[40:]
print(len(corpus), "documents for training,", len(held_out), "held out")
print(*corpus[0], sep="\n")

# %% [markdown]
# </details>
#
# ## Train a vocabulary
#
# `train_vocabulary` trains a WordPiece vocabulary, as in BERT. For RoBERTa, use `train_byte_pair_vocabulary`. For ALBERT, use
# `train_sentence_piece_model`. `choose_lowercase` decides whether to lowercase the text and strip accents. Do not do this for Hangul, because
# stripping accents would split its syllables.

# %%
sentences = [sentence for document in corpus for sentence in document]
choice = keras_bert.text.choose_lowercase(sentences)
print(f"lowercase: {choice.lowercase}, since {choice.reason}")
vocabulary = keras_bert.text.train_vocabulary(sentences, 1000, lowercase=choice.lowercase)
tokenizer = keras_bert.WordPieceTokenizer(vocabulary, lowercase=choice.lowercase)
ids, starts, ends = tokenizer.tokenize_with_offsets(sentences[0])
print(sentences[0])
print([sentences[0][start:end] for start, end in zip(starts, ends, strict=True)])

# %% [markdown]
# ## Pre-train the encoder
#
# This configuration is much smaller than BERT-base. For a standard size, use `BertConfig.from_name`.

# %% small="epochs, corpus = 1, corpus[:60]"
config = keras_bert.BertConfig(
    vocabulary_size=len(vocabulary),
    num_layers=2,
    num_heads=4,
    hidden_dim=64,
    intermediate_dim=256,
    max_sequence_length=64,
    dropout=0.0,
)
preprocessor = keras_bert.data.TextClassifierPreprocessor(tokenizer, sequence_length=64)
pretrainer = keras_bert.Pretrainer(keras_bert.Backbone(config), preprocessor)
print(f"{pretrainer.count_params():,} parameters")
epochs = 7

# %% [markdown]
# `Pretrainer.fit` creates pairs of segments from consecutive sentences. In half of the pairs, the second segment is replaced with sentences from
# another document. An epoch contains ten sets of pairs (`duplicate_factor`), and every epoch masks different tokens:

# %%
steps = pretrainer.num_steps(corpus, batch_size=32, epochs=epochs)
pretrainer.compile(
    optimizer=keras_bert.optimizers.AdamW(2e-3, num_train_steps=steps, num_warmup_steps=steps // 10)
)
history = pretrainer.fit(
    corpus, epochs=epochs, batch_size=32, validation_data=held_out, verbose=0
).history
for epoch in range(epochs):
    masked, pairs = (
        history[f"val_{name}_logits_accuracy"][epoch] for name in ("masked_lm", "next_sentence")
    )
    print(f"epoch {epoch + 1}: masked tokens {masked:.1%}, pairs {pairs:.1%}")

# %% [markdown]
# These are accuracies on the held-out countries. The baseline for pairs is the more frequent class. The baseline for masked tokens is a unigram model,
# which always predicts the most frequent token. Its perplexity follows from the token frequencies.

# %%
counts = np.bincount(np.concatenate(tokenizer(sentences)), minlength=len(vocabulary)) + 1
tokens = np.concatenate([np.concatenate(tokenizer(document)) for document in held_out])
perplexity = np.exp(-np.log(counts / counts.sum())[tokens].mean())
is_other = np.concatenate(
    [labels["next_sentence_logits"] for _, labels, _ in pretrainer.evaluation_batches(held_out)]
)
share = max(is_other.mean(), 1 - is_other.mean())
scores = pretrainer.evaluate(held_out, verbose=0, return_dict=True)
print(
    f"baselines:  masked tokens {np.mean(tokens == counts.argmax()):.1%}, "
    f"perplexity {perplexity:.1f}, pairs {share:.1%}"
)
print(
    f"pretrainer: masked tokens {scores['masked_lm_logits_accuracy']:.1%}, "
    f"perplexity {scores['masked_lm_logits_perplexity']:.1f}, "
    f"pairs {scores['next_sentence_logits_accuracy']:.1%}"
)

# %% [markdown]
# ## Query both heads
#
# A preset contains the encoder, the vocabulary and both heads. `MaskedLM.fill` returns the most probable tokens for `[MASK]`.

# %%
pretrainer.save_to_preset("my_korean_bert")
masked_lm = keras_bert.MaskedLM.from_preset("my_korean_bert")
for text in (
    "독일에서는 유로를 씁니다. 독일의 통화는 [MASK]입니다.",
    "프랑스 사람들은 프랑스어[MASK] 말합니다.",
    "미국에서는 미국 달러[MASK] 씁니다.",
    "베트남에서는 베트남 동[MASK] 씁니다.",
):
    guesses = masked_lm.fill(text, top_k=3)
    print(text, *(f"{guess['token']} {guess['score']:.2f}" for guess in guesses), sep="   ")

# %% [markdown]
# `NextSentencePredictor.classify` predicts whether the second text follows the first. These countries are held out:

# %%
predictor = keras_bert.NextSentencePredictor.from_preset("my_korean_bert")
first, second = held_out[:2]
for pair in ((first[0], first[1]), (first[0], second[1]), (second[0], second[1])):
    answer = predictor.classify([pair])[0]
    print(*pair, answer["label"], f"{answer['score']:.2f}", sep="   ")

# %% [markdown]
# The second answer is wrong. From 213 documents, the model has learned the templates, and to compare the names of countries a little better than the
# baseline. It knows few facts.
#
# ## Fine-tune the encoder
#
# You can load the preset into every task:
#
# ```python
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
