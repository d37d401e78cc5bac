# SPDX-License-Identifier: Apache-2.0
"""ALBERT's normalization in plain Python, around the sentencepiece library."""

import unicodedata

SPACE = "▁"


class ReferenceTokenizer:
    """Converts text to pieces as the original ALBERT code does.

    Args:
        model: Serialized model.
        lowercase, keep_accents: Same as for the tokenizer.
    """

    def __init__(self, model, lowercase=True, keep_accents=False):
        import sentencepiece

        self.processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        self.lowercase = lowercase
        self.keep_accents = keep_accents

    def clean(self, text):
        """Returns the input of the model."""
        text = " ".join(text.split()).replace("``", '"').replace("''", '"')
        if not self.keep_accents:
            text = unicodedata.normalize("NFKD", text)
            text = "".join(character for character in text if not unicodedata.combining(character))
        return text.lower() if self.lowercase else text

    def normalize(self, text):
        """Returns the cleaned text after the model's own normalization."""
        return self.processor.normalize(self.clean(text))

    def pieces(self, text):
        """Returns a text's pieces, with numbers separated from their commas."""
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
        """Returns a text's ids."""
        return [self.processor.piece_to_id(piece) for piece in self.pieces(text)]

    def to_pieces(self, ids):
        """Returns the pieces of ids."""
        return [self.processor.id_to_piece(token_id) for token_id in ids]

    def is_best(self, text, ids):
        """Returns whether ids match the reference or have the same score.

        For example, `x xx` has the same score as `xx x`. Rounding decides, and it differs between
        versions of the library.
        """
        expected = self(text)
        if ids == expected:
            return True
        same_text = "".join(self.to_pieces(ids)) == "".join(self.to_pieces(expected))
        score, expected_score = (sum(map(self.processor.get_score, row)) for row in (ids, expected))
        return same_text and abs(score - expected_score) < 1e-6 * abs(expected_score)
