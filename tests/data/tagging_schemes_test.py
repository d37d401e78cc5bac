# SPDX-License-Identifier: Apache-2.0

import itertools

import numpy as np
import pytest

pytestmark = [pytest.mark.needs_tensorflow, pytest.mark.backend_independent]

pytest.importorskip("tensorflow")

from keras_bert.data.tagging_schemes import (  # noqa: E402
    SCHEMES,
    allowed_labels,
    are_span_labels,
    convert_labels,
    detect_notation,
    detect_scheme,
    deviations,
    entities,
    from_notation,
    misspelled_labels,
)

SPANS = [("PER", 0, 2), ("PER", 2, 3), ("LOC", 4, 7), ("PER", 7, 8)]
LABELS = {
    "IOB1": "I-PER I-PER B-PER O I-LOC I-LOC I-LOC I-PER",
    "IOB2": "B-PER I-PER B-PER O B-LOC I-LOC I-LOC B-PER",
    "BIOES": "B-PER E-PER S-PER O B-LOC I-LOC E-LOC S-PER",
}


@pytest.mark.parametrize("scheme", SCHEMES)
def test_schemes_encode_the_same_spans(scheme):
    labels = LABELS[scheme].split()
    assert detect_scheme([["O"], labels]) == scheme
    assert entities(labels) == entities(labels, strict=scheme) == SPANS
    for other in SCHEMES:
        assert convert_labels(labels, other) == LABELS[other].split()
    assert deviations(labels, scheme) == []


@pytest.mark.parametrize(
    ("scheme", "letters"), [("IOB1", "BI"), ("IOB2", "BI"), ("BIOES", "BIES"), ("BIOES", "BILU")]
)
def test_allowed_labels_have_no_deviations(scheme, letters):
    names = ["O", *(f"{letter}-{kind}" for letter in letters for kind in ("PER", "LOC"))]
    allowed = allowed_labels(names, scheme)
    for length in (1, 2, 3):
        for ids in itertools.product(range(len(names)), repeat=length):
            is_allowed = allowed.start[ids[0]] and allowed.end[ids[-1]]
            is_allowed &= all(allowed.transitions[pair] for pair in itertools.pairwise(ids))
            assert is_allowed == (deviations([names[i] for i in ids], scheme) == [])
    with pytest.raises(
        ValueError, match=r"Labels in IOB2 must start with B, I or O\. Rec.* 'E-PER'"
    ):
        allowed_labels(["O", "E-PER"], "IOB2")


@pytest.mark.parametrize(
    "labels", ["B-PER L-PER U-PER O B-LOC I-LOC L-LOC U-PER", "B-PER E-PER S-PER O B-LOC M-LOC "
               "E-LOC S-PER", "B-PER E-PER W-PER O B-LOC M-LOC E-LOC W-PER"]
)  # fmt: skip
def test_alternative_prefixes_are_bioes(labels):
    assert detect_scheme([labels.split()]) == "BIOES"
    assert deviations(labels.split(), "BIOES") == []
    assert convert_labels(labels.split(), "BIOES") == LABELS["BIOES"].split()


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ("O B-PER I-PER X-PER b-LOC B- B-", {"X-PER": 1, "b-LOC": 1, "B-": 2}),
        ("O b-per O i-per", {"b-per": 1, "i-per": 1}),
        ("O B_PER I_PER", {"B_PER": 1, "I_PER": 1}),
        ("O PER-B PER-I", {"PER-B": 1, "PER-I": 1}),
        ("O B:PER I:PER", {"B:PER": 1, "I:PER": 1}),
        ("O B-PER I-PER B I", {}),
        ("O O", {}),
        ("NN VB O B-X", {}),  # parts of speech
        ("B-X I-X NN", {}),
    ],
)
def test_misspelled_labels(labels, expected):
    assert misspelled_labels(labels.split()) == expected


@pytest.mark.parametrize(
    ("labels", "notation", "expected"),
    [
        ("(PER* *) (PER) * (LOC* * *) (PER*)", "brackets", LABELS["IOB2"]),
        ("PER PER O O LOC LOC LOC PER", "IO", "B-PER I-PER O O B-LOC I-LOC I-LOC B-PER"),
        ("person-actor O O art-film", "IO", "B-person-actor O O B-art-film"),
        ("PER_B PER_I PER_B - LOC_B LOC_I LOC_I PER_B", "suffixes", LABELS["IOB2"]),
        ("PER-B PER-I PER-B O LOC-B LOC-I LOC-I PER-B", "suffixes", LABELS["IOB2"]),
        ("B-PER I-PER B-PER - B-LOC I-LOC I-LOC B-PER", "suffixes", LABELS["IOB2"]),
    ],
)
def test_notations_are_converted(labels, notation, expected):
    assert detect_notation([labels.split(), ["O"] * 3]) == notation
    assert from_notation(labels.split(), notation) == expected.split()


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ("(A* (B* *) *)", r"not be nested. Received: '\(B\*'"),
        ("(A(B* *))", r"not be nested. Received: '\(A\(B\*'"),
        ("* *)", r"must follow an opening bracket. Received: '\*\)'"),
        ("(A* *", r"must end in its sentence. Received: \(A\*"),
        ("(A* O", "Brackets must contain one span and not be nested. Received: 'O'"),
    ],
)
def test_invalid_brackets_raise(labels, message):
    with pytest.raises(ValueError, match=message):
        from_notation(labels.split(), "brackets")


def test_parts_of_speech_are_not_span_labels():
    assert detect_scheme([["NNP", "VBZ", "."]]) is None
    assert not are_span_labels(["O"])
    with pytest.raises(
        ValueError, match=r"A span label must be O, B-TYPE, I-TYPE …. Received: 'NNP'"
    ):
        entities(["NNP"])


def test_strict_scheme_rejects_other_prefixes():
    with pytest.raises(
        ValueError, match=r"Labels in IOB2 must start with B, I or O. Received: 'S-A'"
    ):
        entities(["S-A"], strict="IOB2")


def test_conversion_is_lossless():
    generator = np.random.default_rng(0)
    for _ in range(200):
        labels = [str(x) for x in generator.choice(["O", "B-A", "I-A", "B-B", "I-B"], 8)]
        for scheme in SCHEMES:
            converted = convert_labels(labels, scheme)
            assert entities(converted, strict=scheme) == entities(labels)


@pytest.mark.parametrize("scheme", [None, *SCHEMES])
def test_entities_match_seqeval(scheme):
    scheme_module = pytest.importorskip("seqeval.scheme")
    from seqeval.metrics.sequence_labeling import get_entities

    letters = "BIES" if scheme in (None, "BIOES") else "BI"
    names = ["O", *(f"{letter}-{kind}" for letter in letters for kind in ("A", "b-c"))]
    generator = np.random.default_rng(1)
    seqeval_names = {"IOB1": "IOB1", "IOB2": "IOB2", "BIOES": "IOBES"}
    for _ in range(500):
        labels = [str(x) for x in generator.choice(names, generator.integers(1, 9))]
        if scheme is None:
            expected = [(kind, start, end + 1) for kind, start, end in get_entities(labels)]
        else:
            tokens = scheme_module.Tokens(labels, getattr(scheme_module, seqeval_names[scheme]))
            expected = [(e.tag, e.start, e.end) for e in tokens.entities]
        assert entities(labels, strict=scheme) == expected, labels
