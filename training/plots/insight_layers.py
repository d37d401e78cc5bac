# SPDX-License-Identifier: Apache-2.0
"""Creates a report's sections about attention patterns and the logit lens."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from keras_bert import insight
from keras_bert.tasks.explained_row import check_length

from . import page
from .insight_report import Report
from .style import BLUE, GRAY, new_figure, style

# Number of texts whose attention is averaged. For each text, layers x heads x tokens x tokens
# scores are in memory.
_ATTENTION_TEXTS = 32
# Three of these figures fit next to each other.
_HEAD_INCHES = 2.9


def add_attention(report: Report, model: Any, texts: Sequence[str | tuple[str, str]]) -> None:
    """Adds a heat map per attention measure, means by layer, and plots of three heads.

    Texts longer than the model's sequence length are skipped.
    """
    fitting: list[str | tuple[str, str]] = []
    for text in texts[:_ATTENTION_TEXTS]:
        with contextlib.suppress(ValueError):
            check_length(model.preprocessor, (text,) if isinstance(text, str) else text)
            fitting.append(text)
    if not fitting:
        report.leave_out("Attention patterns: all texts are too long for the model.")
        return
    patterns = insight.attention_patterns(model, fitting)
    blocks = [
        page.text(
            f"Means over {sum(map(len, patterns.tokens)):,} tokens in {len(patterns.tokens)} rows. "
            "Each cell is a head. The first layer is at the bottom."
        ),
        *(_heat_map(report, patterns, name) for name in insight.MEASURES),
        report.figure(
            "attention_by_layer", _curves(patterns), "Means over the heads of each layer"
        ),
    ]
    heads = []
    shortest = min(range(len(patterns.tokens)), key=lambda row: len(patterns.tokens[row]))
    for name in ("previous", "next", "separators"):
        values = np.nan_to_num(patterns.measures[name])
        layer, head = (int(index) for index in np.unravel_index(values.argmax(), values.shape))
        figure = patterns.plot_heads(shortest, [layer], [head])
        figure.set_size_inches(_HEAD_INCHES, _HEAD_INCHES)
        size = 55 * _HEAD_INCHES / len(patterns.tokens[shortest])
        figure.axes[0].tick_params(labelsize=min(7, max(3, size)))
        figure.suptitle(f"most attention: {name}", fontsize=8)
        description = f"Head with the highest {insight.MEASURES[name]}. Rows attend to columns."
        heads.append(report.figure(f"head_{name}", figure, description).text)
    blocks.append(page.Html(f"<div>{''.join(heads)}</div>"))
    report.add("Attention patterns", blocks, attention=patterns.to_dict())


@style()
def _heat_map(report: Report, patterns: Any, name: str) -> page.Html:
    """Draws one measure for every head. Two of these figures fit next to each other."""
    layers, heads = patterns.measures[name].shape
    figure, (axes,) = new_figure(max(3.0, 0.25 * heads + 1.4), max(1.6, 0.25 * layers + 0.9))
    patterns.plot(name, axes=axes)
    # With few heads, the axes are narrower than the title, so the title belongs to the figure.
    axes.set_title("")
    figure.suptitle(insight.MEASURES[name], fontsize=9)
    return report.figure(f"attention_{name}", figure, f"{insight.MEASURES[name]} by head")


@style()
def _curves(patterns: Any) -> Any:
    """Draws the mean of each attention measure by layer, fractions on the left."""
    from matplotlib.ticker import MaxNLocator

    figure, (shares, others) = new_figure(7, 3, 2)
    for name, title in insight.MEASURES.items():
        axes = others if name in ("entropy", "distance") else shares
        means = np.nanmean(patterns.measures[name], axis=1)
        axes.plot(range(len(means)), means, "o-", label=title)
    for axes in (shares, others):
        axes.set_xlabel("layer")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.set_ylim(bottom=0)
        axes.legend(fontsize=6)
    return figure


def add_predictions_by_layer(report: Report, masked_lm: Any, texts: Sequence[str]) -> None:
    """Adds the logit lens, the predictions of each layer for a mask.

    Each text must have one mask.
    """
    if not texts:
        return
    mask = masked_lm.preprocessor.tokenizer.mask_token
    layers = [insight.logit_lens(masked_lm, text) for text in texts]
    masks = [one.tokens.index(mask) for one in layers]
    # (layers + 1, texts), from 1
    ranks = np.stack([one.ranks[:, at] for one, at in zip(layers, masks, strict=True)], axis=1) + 1
    cells = [
        [number, *(layer[at][0] for layer in one.predictions)]
        for number, (one, at) in enumerate(zip(layers, masks, strict=True), start=1)
    ]
    blocks = [
        page.text(
            "The masked LM head, applied to each layer, for the masks in the rows above. The head "
            "was trained on the last layer only. Earlier layers may contain more information than "
            "it shows."
        ),
        page.table(
            ["row", "embeddings", *(f"layer {layer}" for layer in range(1, len(ranks)))],
            cells,
            f"The most probable token for {mask}",
        ),
        report.figure("layers", _ranks(ranks), "Rank of the last layer's token in each layer"),
    ]
    report.add("Logit lens", blocks, layers=[one.to_dict() for one in layers])


@style()
def _ranks(ranks: np.ndarray) -> Any:
    """Draws the rank of the last layer's token in each layer, for each text and as the median."""
    from matplotlib.ticker import MaxNLocator, ScalarFormatter

    figure, (axes,) = new_figure(5, 3)
    axes.plot(ranks, color=GRAY, alpha=0.6, linewidth=1)
    axes.plot(np.median(ranks, axis=1), "o-", color=BLUE, label="median")
    axes.set(yscale="log", xlabel="layer (0: embeddings)", ylabel="rank of the last layer's token")
    axes.yaxis.set_major_formatter(ScalarFormatter())
    axes.invert_yaxis()
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.legend()
    return figure
