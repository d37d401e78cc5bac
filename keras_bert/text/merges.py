# SPDX-License-Identifier: Apache-2.0
"""What tokenizers in Python and in graphs both know about the merges of a BPE vocabulary."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence


def single_ranks(merged: Mapping[tuple[int, int], int]) -> frozenset[int]:
    """Returns the ranks of merges whose result may be merged further at once.

    That is if it is a part of a merge of a lower rank, as of runs of spaces in Gemma. Such a merge
    must not be done at several places before the next one is looked for.

    Args:
        merged: The id of the merged token for each pair of ids, in the order of their ranks.
    """
    lowest: dict[int, int] = {}
    for rank, pair in enumerate(merged):
        for part in pair:
            lowest.setdefault(part, rank)
    return frozenset(
        rank for rank, token in enumerate(merged.values()) if lowest.get(token, rank) < rank
    )


def longest_runs(tokens: Sequence[str], merged: Mapping[tuple[int, int], int]) -> dict[str, int]:
    """Returns characters of which a long run is merged to tokens of one length, and that length.

    A run may be split after each of these tokens without changing the others: all merges of the
    character with itself come before those with others, and there is none of the longest token.

    Args:
        tokens: The tokens in the order of their ids.
        merged: The id of the merged token for each pair of ids, in the order of their ranks.
    """
    runs: dict[str, dict[str, int]] = {}
    with_others: set[str] = set()
    for result in merged.values():
        text = tokens[result]
        characters = set(text)
        if len(characters) > 1:
            with_others |= characters
        elif text[0] in with_others:
            runs[text[0]] = {}
        else:
            runs.setdefault(text[0], {})[text] = result
    parts = {part for pair in merged for part in pair}
    ranks = {pair: rank for rank, pair in enumerate(merged)}
    found = {}
    for character, made in runs.items():
        longest = max(made, key=len, default=character)
        size = len(longest)
        if size < 2 or made[longest] in parts:
            continue
        single = tokens.index(character)
        of_length = [merged_by_heap([single] * count, ranks, merged) for count in range(4 * size)]
        if all(
            of_length[count] == [made[longest], *of_length[count - size]]
            for count in range(size, 4 * size)
        ):
            found[character] = size
    return found


def count_blanks(piece: bytes, space: str) -> tuple[int, int]:
    """Counts the spaces at the beginning and at the end of the bytes of a token."""
    blank = space.encode("utf-8")
    leading = trailing = 0
    while piece.startswith(blank, leading * len(blank)):
        leading += 1
    while piece.endswith(blank, 0, len(piece) - trailing * len(blank)):
        trailing += 1
    return leading, trailing


def merged_by_heap(
    ids: list[int],
    ranks: Mapping[tuple[int, int], int],
    merged: Mapping[tuple[int, int], int],
) -> list[int]:
    """Merges the first pair of the lowest rank until there is none, in n log n steps."""
    end = len(ids)
    ids = [*ids, -1]
    after = list(range(1, end + 1))
    before = list(range(-1, end))
    heap: list[tuple[int, int]] = []

    def push(place: int) -> None:
        rank = ranks.get((ids[place], ids[after[place]]))
        if rank is not None:
            heapq.heappush(heap, (rank, place))

    for place in range(end):
        push(place)
    while heap:
        rank, place = heapq.heappop(heap)
        # The right one of two merged symbols has the id -1.
        pair = ids[place], ids[after[place]]
        if ranks.get(pair) != rank:
            continue
        second = after[place]
        ids[place], ids[second] = merged[pair], -1
        after[place] = after[second]
        before[after[place]] = place
        push(place)
        if before[place] >= 0:
            push(before[place])
    return [index for index in ids if index >= 0]
