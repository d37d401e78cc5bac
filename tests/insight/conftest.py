# SPDX-License-Identifier: Apache-2.0
"""A small masked LM, and the log probabilities of its copy in `transformers`."""

import pytest

from keras_bert import MaskedLM

WORDS = (
    "he she him her his the an a is doctor nurse engineer showed that was tired saw and for work "
    "kind angry rich poor to grandma s mean man men woman women they are who had go people from "
    ". , ' - very"
)
TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS.split(), "##s", "##ly", "##er"]


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    """A small random BERT in the Hugging Face format."""
    pytest.importorskip("transformers")
    from tests.insight.hugging_face_models import save_masked_lm

    return save_masked_lm(TOKENS, tmp_path_factory.mktemp("masked_lm"))


@pytest.fixture(scope="module")
def masked_lm(directory):
    return MaskedLM.from_preset(directory)


@pytest.fixture(scope="module")
def reference(directory):
    """The same model in `transformers`: a function from token ids to logits."""
    import torch
    import transformers

    model = transformers.BertForMaskedLM.from_pretrained(directory).eval()

    def logits(ids):
        with torch.no_grad():
            return model(torch.tensor(ids)).logits

    return logits


@pytest.fixture(scope="module")
def tokenizer(directory):
    import transformers

    return transformers.BertTokenizerFast(str(directory / "vocab.txt"))


@pytest.fixture(scope="module")
def log_probabilities(reference, tokenizer):
    """A function that returns the log probabilities of the vocabulary at a mask in a text."""
    import torch

    def compute(text, number=0):
        ids = tokenizer.encode(text)
        positions = [
            position for position, token in enumerate(ids) if token == tokenizer.mask_token_id
        ]
        logits = reference([ids])[0, positions[number]]
        scores = torch.log_softmax(logits.double(), dim=0).numpy()
        return dict(zip(TOKENS, scores, strict=True))

    return compute
