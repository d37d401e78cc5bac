# SPDX-License-Identifier: Apache-2.0
"""A small masked LM, and the log probabilities of its copy in `transformers`."""

import pytest

from keras_bert import MaskedLM

WORDS = (
    "he she him her his the an a is doctor nurse engineer told that was tired saw and for work "
    "kind angry rich poor to grandma s mean man men woman women they are who had go people from "
    ". , ' - very"
)
TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS.split(), "##s", "##ly", "##er"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A small random BERT as Hugging Face stores it."""
    pytest.importorskip("transformers")
    from tests.insight.hugging_face_models import save_masked_lm

    return save_masked_lm(TOKENS, tmp_path_factory.mktemp("masked_lm"))


@pytest.fixture(scope="module")
def masked_lm(folder):
    return MaskedLM.from_preset(folder)


@pytest.fixture(scope="module")
def reference(folder):
    """The same model in `transformers`: its logits `(batch, length, vocabulary)` of token ids."""
    import torch
    import transformers

    model = transformers.BertForMaskedLM.from_pretrained(folder).eval()

    def logits(ids):
        with torch.no_grad():
            return model(torch.tensor(ids)).logits

    return logits


@pytest.fixture(scope="module")
def tokenizer(folder):
    import transformers

    return transformers.BertTokenizerFast(str(folder / "vocab.txt"))


@pytest.fixture(scope="module")
def log_probabilities(reference, tokenizer):
    """Of a text with masks, the log probabilities of the vocabulary at one of them."""
    import torch

    def compute(text, number=0):
        ids = tokenizer.encode(text)
        places = [place for place, token in enumerate(ids) if token == tokenizer.mask_token_id]
        logits = reference([ids])[0, places[number]]
        scores = torch.log_softmax(logits.double(), dim=0).numpy()
        return dict(zip(TOKENS, scores, strict=True))

    return compute
