# SPDX-License-Identifier: Apache-2.0
"""ALBERT's normalization in plain Python, around the sentencepiece library."""

import unicodedata

SPACE = "▁"


class ReferenceTokenizer:
    """Text to pieces as ALBERT's released code makes them.

    Args:
        model: A serialized model.
        lowercase, keep_accents: As for the tokenizer.
    """

    def __init__(self, model, lowercase=True, keep_accents=False):
        import sentencepiece

        self.processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        self.lowercase = lowercase
        self.keep_accents = keep_accents

    def clean(self, text):
        """The text that the model gets."""
        text = " ".join(text.split()).replace("``", '"').replace("''", '"')
        if not self.keep_accents:
            text = unicodedata.normalize("NFKD", text)
            text = "".join(letter for letter in text if not unicodedata.combining(letter))
        return text.lower() if self.lowercase else text

    def normalized(self, text):
        """The cleaned text as the model itself normalizes it."""
        return self.processor.normalize(self.clean(text))

    def pieces(self, text):
        """The pieces of a text, numbers taken apart from their commas."""
        pieces = []
        for piece in self.processor.encode(self.clean(text), out_type=str):
            if len(piece) > 1 and piece[-1] == "," and piece[-2].isdigit():
                number = self.processor.encode(piece[:-1].replace(SPACE, ""), out_type=str)
                if piece[0] != SPACE and number[0][0] == SPACE:
                    number = number[1:] if len(number[0]) == 1 else [number[0][1:], *number[1:]]
                pieces += [*number, ","]
            else:
                pieces.append(piece)
        return pieces

    def __call__(self, text):
        """The ids of a text."""
        return [self.processor.piece_to_id(piece) for piece in self.pieces(text)]

    def to_pieces(self, ids):
        """The pieces of ids."""
        return [self.processor.id_to_piece(token_id) for token_id in ids]

    def is_best(self, text, ids):
        """Whether ids are the reference's, or as good: `x xx` scores as `xx x`.

        Which of these wins is a matter of rounding, and not the same in all of the library's
        versions.
        """
        expected = self(text)
        if ids == expected:
            return True
        same_text = "".join(self.to_pieces(ids)) == "".join(self.to_pieces(expected))
        score, best = (sum(map(self.processor.get_score, row)) for row in (ids, expected))
        return same_text and abs(score - best) < 1e-6 * abs(best)
