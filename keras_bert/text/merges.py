# SPDX-License-Identifier: Apache-2.0
"""Applies BPE merges and analyzes them, for tokenizers in Python and in graphs."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence


def single_ranks(merges: Mapping[tuple[int, int], int]) -> frozenset[int]:
    """Returns the ranks of merges whose result may immediately be merged further.

    Their result occurs in a merge with a lower rank. Gemma's runs of spaces are an example. Such
    merges must be made one at a time, before the next merge is chosen.
    """
    lowest: dict[int, int] = {}
    for rank, pair in enumerate(merges):
        for component in pair:
            lowest.setdefault(component, rank)
    return frozenset(
        rank for rank, token in enumerate(merges.values()) if lowest.get(token, rank) < rank
    )


def longest_runs(tokens: Sequence[str], merges: Mapping[tuple[int, int], int]) -> dict[str, int]:
    """Returns characters whose long runs merge to equally long tokens, with the token length.

    A run can be split after each of these tokens without changing the result, because all merges of
    the character with itself come before its merges with other characters, and no merge contains
    the longest token.
    """
    runs: dict[str, dict[str, int]] = {}
    with_others: set[str] = set()
    for result in merges.values():
        text = tokens[result]
        characters = set(text)
        if len(characters) > 1:
            with_others |= characters
        elif text[0] in with_others:
            runs[text[0]] = {}
        else:
            runs.setdefault(text[0], {})[text] = result
    components = {component for pair in merges for component in pair}
    ranks = {pair: rank for rank, pair in enumerate(merges)}
    lengths = {}
    for character, ids_by_token in runs.items():
        longest = max(ids_by_token, key=len, default=character)
        size = len(longest)
        if size < 2 or ids_by_token[longest] in components:
            continue
        single = tokens.index(character)
        ids_by_length = [
            merge_with_heap([single] * count, ranks, merges) for count in range(4 * size)
        ]
        if all(
            ids_by_length[count] == [ids_by_token[longest], *ids_by_length[count - size]]
            for count in range(size, 4 * size)
        ):
            lengths[character] = size
    return lengths


def count_blanks(piece: bytes, space: str) -> tuple[int, int]:
    """Counts the spaces at the start and end of a token's bytes."""
    blank = space.encode("utf-8")
    leading = trailing = 0
    while piece.startswith(blank, leading * len(blank)):
        leading += 1
    while piece.endswith(blank, 0, len(piece) - trailing * len(blank)):
        trailing += 1
    return leading, trailing


def merge_with_heap(
    ids: list[int],
    ranks: Mapping[tuple[int, int], int],
    merges: Mapping[tuple[int, int], int],
) -> list[int]:
    """Merges the first pair with the lowest rank until no pair has a rank, in n log n steps."""
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
        # When two symbols are merged, the right symbol gets the id -1.
        pair = ids[place], ids[after[place]]
        if ranks.get(pair) != rank:
            continue
        second = after[place]
        ids[place], ids[second] = merges[pair], -1
        after[place] = after[second]
        before[after[place]] = place
        push(place)
        if before[place] >= 0:
            push(before[place])
    return [index for index in ids if index >= 0]
