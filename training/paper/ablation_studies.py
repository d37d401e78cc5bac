# SPDX-License-Identifier: Apache-2.0
"""The studies of `ablation`: the rows of their tables, with the published scores, and their plots.

All published scores are from [BERT](https://arxiv.org/abs/1810.04805).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from ..costs.run_cost import format_flops
from .ablation_config import NER, NER_FEATURES, RECIPE, SQUAD, AblationConfig, Size
from .ablation_plots import scores_figure, size_figure, steps_figure
from .feature_tagging_job import ROWS as FEATURES

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_FEATURES = f"{NER_FEATURES}concatenated_last_4"
SAME_TOKENS, SAME_FLOPS = "same tokens", "same FLOPs"


class Row(NamedTuple):
    """An encoder, a row in the table.

    Args:
        name: Name of the row. The names of the fine-tuning directories contain it.
        labels: The cells before the scores.
        run: Directory of the pre-training run. Empty if there is none.
        num_steps: Number of pre-training steps.
        sequence_format: The format of its text, if it is not the recipe's format.
        pretraining: The other pre-training flags that differ from the recipe wikitext2_cpu.
        preset: Directory of the preset in the run.
        module: The module that fine-tunes. Empty uses the column's module.
        finetuning: Additional flags for fine-tuning.
        tasks: The task that fills a column, if it is another one. `None` leaves the cell blank.
        published: The published scores, by column.
        is_trained: Whether the row is trained. Otherwise, it only has published scores.
        line: The name of the plot's line.
        step: The number of pre-training steps before the preset, in the plot of the steps.
        size: The encoder size, if it is not `AblationConfig.encoder`.
    """

    name: str
    labels: tuple[str, ...]
    run: str = ""
    num_steps: int = 0
    sequence_format: str = ""
    pretraining: tuple[str, ...] = ()
    preset: str = "preset"
    module: str = ""
    finetuning: tuple[str, ...] = ()
    tasks: Mapping[str, str | None] = MappingProxyType({})
    published: Mapping[str, float | str] = MappingProxyType({})
    is_trained: bool = True
    line: str = ""
    step: int = 0
    size: Size | None = None

    def preset_path(self, config: AblationConfig) -> str:
        """Returns the checkpoint to fine-tune."""
        if not self.run:
            return config.preset
        return os.fspath(config.directory / self.run / self.preset)


class Study(NamedTuple):
    """A study.

    Args:
        heads: The headers of `Row.labels`.
        rows: Returns the rows. Rows with the same `run` share a pre-trained encoder.
        figure: Plots the records of all rows for the columns.
        measures: The columns with properties of the pre-trained encoders, by their key in a record:
            the header, and a function that formats the value.
    """

    heads: tuple[str, ...]
    rows: Callable[[AblationConfig], list[Row]]
    figure: Callable[[list[dict[str, Any]], list[str]], Figure] = scores_figure
    measures: Mapping[str, tuple[str, Callable[[Any], str]]] = MappingProxyType({})


def _published_only(name: str, scores: Mapping[str, float | str]) -> Row:
    """Returns a row with only published scores."""
    return Row(name, (name,), published=scores, is_trained=False)


# Table 1. MRPC and QQP are F1.
_ELMO = {"mnli": 76.4, "qqp": "64.8 F1", "qnli": 79.8, "sst2": 90.4, "cola": 36.0, "stsb": 73.3}
_ELMO |= {"mrpc": "84.9 F1", "rte": 56.8}
_GPT = {"mnli": 82.1, "qqp": "70.3 F1", "qnli": 87.4, "sst2": 91.3, "cola": 45.4, "stsb": 80.0}
_GPT |= {"mrpc": "82.3 F1", "rte": 56.0}


def _scores(names: Iterable[str], *scores: float) -> dict[str, float]:
    return dict(zip(names, scores, strict=True))


def _task_rows(config: AblationConfig) -> list[Row]:
    """Returns the rows of table 5, and the models of tables 1 and 2 that it is compared with.

    Two more rows read from right to left, and in both directions. Section 5.1 discusses the latter.
    """
    steps, columns = config.num_steps, ("mnli", "qnli", "mrpc", "sst2", SQUAD)
    features = {NER_FEATURES + name: None for name in FEATURES}
    directional = {
        "pretraining": ("--causal", "--right_to_left"),
        "module": "training.paper.directional_finetuning",
        "tasks": {SQUAD: None, NER: None, **features},
    }
    ltr = config.directory / "ltr" / "preset"

    def row(name: str, run: str, *scores: float, **options: Any) -> Row:
        published = _scores(columns, *scores) if scores else {}
        return Row(name, (name,), run, steps, published=published, **options)

    return [
        row("BERT", "bert", 84.4, 88.4, 86.7, 92.7, 88.5, sequence_format="next_sentence"),
        row("No NSP", "no_nsp", 83.9, 84.9, 86.5, 92.6, 87.9),
        row("LTR & No NSP", "ltr", 82.1, 84.3, 77.5, 92.1, 77.8, pretraining=("--causal",)),
        row(
            *("LTR + BiLSTM", "ltr", 82.1, 84.1, 75.7, 91.6, 84.9),
            pretraining=("--causal",),
            finetuning=(f"--bilstm_units={config.bilstm_units}",),
            tasks={NER: None, **features},
        ),
        row("RTL & No NSP", "rtl", **directional),
        row(
            "LTR and RTL, concatenated",
            "rtl",
            **directional,
            finetuning=(f"--forward_preset={ltr}",),
        ),
        row("random weights", "bert", finetuning=("--nopretrained",), tasks=features),
        _published_only("OpenAI GPT, GLUE test", _GPT),
        _published_only("BiLSTM + ELMo, GLUE test", _ELMO),
        _published_only("BiDAF + ELMo, SQuAD dev", {SQUAD: 85.6}),
    ]


# Table 6: perplexity on masked tokens, and accuracies on development sets
SIZES: Mapping[Size, Mapping[str, float]] = {
    Size(*size): _scores(("perplexity", "mnli", "mrpc", "sst2"), *scores)
    for size, scores in {
        (3, 768, 12): (5.84, 77.9, 79.8, 88.4),
        (6, 768, 3): (5.24, 80.6, 82.2, 90.7),
        (6, 768, 12): (4.68, 81.9, 84.8, 91.3),
        (12, 768, 12): (3.99, 84.4, 86.7, 92.9),
        (12, 1024, 16): (3.54, 85.7, 86.9, 93.3),
        (24, 1024, 16): (3.23, 86.6, 87.8, 93.7),
    }.items()
}


def _size_rows(config: AblationConfig) -> list[Row]:
    """Returns the rows of table 6, for the same number of tokens or of FLOPs."""
    sizes = config.parsed_sizes()
    steps_of = {SAME_TOKENS: dict.fromkeys(sizes, config.num_steps)}
    if config.match_flops:
        budget = config.num_steps * sizes[0].step_flops()
        steps_of[SAME_FLOPS] = {size: max(1, round(budget / size.step_flops())) for size in sizes}
    return [
        _size_row(size, steps, line)
        for line, by_size in steps_of.items()
        for size, steps in by_size.items()
    ]


def _size_row(size: Size, num_steps: int, line: str) -> Row:
    name = f"{size} {num_steps} steps"
    labels, published = (str(size), line, f"{num_steps:,}"), SIZES.get(size, {})
    return Row(name, labels, name, num_steps, published=published, line=line, size=size)


def size_measures(size: Size, num_steps: int, results: Mapping[str, Any]) -> dict[str, Any]:
    """Returns an encoder's properties from the results of its pre-training."""
    return {
        "parameters": results["parameters"],
        "flops": num_steps * RECIPE.optimization.batch_size * size.step_flops(),
        "perplexity": results["last"]["val_perplexity"],
    }


# Table 8. Rates of [MASK], of the same token and of a random token in percent
_MASKING = {
    (80, 10, 10): (84.2, 95.4, 94.9),
    (100, 0, 0): (84.3, 94.9, 94.0),
    (80, 0, 20): (84.1, 95.2, 94.6),
    (80, 20, 0): (84.4, 95.2, 94.7),
    (0, 20, 80): (83.7, 94.8, 94.6),
    (0, 0, 100): (83.6, 94.9, 94.6),
}


def _masking_rows(config: AblationConfig) -> list[Row]:
    """Returns the rows of table 8."""
    rows = []
    for rates, scores in _MASKING.items():
        mask, _, random = (rate / 100 for rate in rates)
        name = "-".join(map(str, rates))
        flags = (f"--mask_token_rate={mask}", f"--random_token_rate={random}")
        published = _scores(("mnli", NER, _FEATURES), *scores)
        labels = tuple(f"{rate}%" for rate in rates)
        rows.append(
            Row(name, labels, name, config.num_steps, pretraining=flags, published=published)
        )
    return rows


# Table 7
_FEATURE_ROWS = {
    "embeddings": ("Embeddings", 91.0),
    "second_to_last": ("Second-to-last hidden", 95.6),
    "last": ("Last hidden", 94.9),
    "weighted_last_4": ("Weighted sum, last four hidden", 95.9),
    "concatenated_last_4": ("Concatenation, last four hidden", 96.1),
    "weighted_all": ("Weighted sum, all layers", 95.5),
}


def _feature_rows(config: AblationConfig) -> list[Row]:
    """Returns the rows of table 7."""
    return [
        Row("fine-tuning", ("Fine-tuning",), published={NER: 96.4}),
        *(
            Row(features, (name,), tasks={NER: NER_FEATURES + features}, published={NER: score})
            for features, (name, score) in _FEATURE_ROWS.items()
        ),
        _published_only("Fine-tuning, BERT-large", {NER: 96.6}),
        _published_only("ELMo", {NER: 95.7}),
        _published_only("CVT", {NER: "92.6 on test"}),
        _published_only("CSE", {NER: "93.1 on test"}),
    ]


def _step_rows(config: AblationConfig) -> list[Row]:
    """Returns the points of figure 5, along a masked LM and a left-to-right run."""
    every = config.num_steps // config.num_points
    presets = (f"--eval_every={every}", f"--preset_every={every}")
    return [
        Row(
            f"{model} {step} steps",
            (model, f"{step:,}"),
            run,
            config.num_steps,
            pretraining=(*flags, *presets),
            preset=f"presets/step_{step:09}",
            line=model,
            step=step,
        )
        for model, run, flags in (("MLM", "mlm", ()), ("LTR", "ltr", ("--causal",)))
        for step in range(every, config.num_steps + 1, every)
    ]


STUDIES: Mapping[str, Study] = {
    "tasks": Study(("",), _task_rows),
    "size": Study(
        ("layers x hidden x heads", "budget", "steps"),
        _size_rows,
        size_figure,
        {
            "parameters": ("million parameters", lambda count: f"{count / 1e6:.2f}"),
            "flops": ("FLOPs", format_flops),
            "perplexity": ("perplexity", "{:.1f}".format),
        },
    ),
    "masking": Study(("MASK", "SAME", "RND"), _masking_rows),
    "features": Study(("",), _feature_rows),
    "steps": Study(("", "pre-training steps"), _step_rows, steps_figure),
}
