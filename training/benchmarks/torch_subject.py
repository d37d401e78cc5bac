# SPDX-License-Identifier: Apache-2.0
"""Runs workloads with `transformers` in a plain PyTorch loop."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from .keras_subjects import LEARNING_RATE, WEIGHT_DECAY
from .peers import transformers_class, transformers_config
from .subject import Round
from .workload import Workload

_PRECISIONS = ("float32", "bfloat16", "mixed_bfloat16")


def transformers_work(workload: Workload) -> Callable[[int], Round]:
    """Returns a function that runs a number of steps.

    Raises:
        ValueError: If the precision is unknown. Otherwise float32 would be measured.
    """
    if workload.precision not in _PRECISIONS:
        raise ValueError(
            f"--precision must be one of {', '.join(_PRECISIONS)}. Received: {workload.precision!r}"
        )
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = _model(workload).to(device)
    if workload.precision == "bfloat16":
        model = model.to(torch.bfloat16)
    if "compiled" in workload.options:
        # Batches of random ids have a single shape, so PyTorch can compile faster kernels.
        model.compile(dynamic=True if workload.texts else None)
    batches = _batches(workload)
    if workload.what == "forward":
        return _forward(model.eval(), batches, workload, device)
    return _train(model.train(), batches, workload, device)


def _batches(workload: Workload) -> list[dict[str, torch.Tensor]]:
    """Returns the inputs of each batch, with `labels`."""
    if workload.texts:
        names = {"token_ids": "input_ids", "padding_mask": "attention_mask", "labels": "labels"}
        return [
            {names[name]: torch.from_numpy(array).long() for name, array in batch.items()}
            for batch in workload.text_batches()
        ]
    batch = {"input_ids": torch.from_numpy(workload.token_ids()), "labels": _labels(workload)}
    if workload.padding > 0:
        batch["attention_mask"] = torch.from_numpy(workload.padding_mask())
    return [batch]


def _model(workload: Workload) -> torch.nn.Module:
    config = workload.architecture
    ending = {
        "forward": "Model",
        "classify": "ForSequenceClassification",
        "pretrain": "ForMaskedLM",
    }[workload.what]
    return transformers_class(config, ending)(transformers_config(config))


def _autocast(workload: Workload, device: str) -> AbstractContextManager[Any]:
    if workload.precision != "mixed_bfloat16":
        return nullcontext()
    return torch.autocast(device, dtype=torch.bfloat16)


def _forward(
    model: torch.nn.Module,
    batches: list[dict[str, torch.Tensor]],
    workload: Workload,
    device: str,
) -> Callable[[int], Round]:
    def run_step(step: int) -> None:
        batch = _on_device(batches[step % len(batches)], device)
        del batch["labels"]
        with torch.inference_mode(), _autocast(workload, device):
            hidden = model(**batch).last_hidden_state
        hidden.float().mean(1).cpu().numpy()

    return workload.timed(run_step)


def _on_device(batch: dict[str, torch.Tensor], device: str) -> dict[str, torch.Tensor]:
    return {name: tensor.to(device) for name, tensor in batch.items()}


def _train(
    model: torch.nn.Module,
    batches: list[dict[str, torch.Tensor]],
    workload: Workload,
    device: str,
) -> Callable[[int], Round]:
    # On a GPU, use the fused optimizer, as the Trainer of transformers does.
    optimizer = torch.optim.AdamW(
        model.parameters(),
        LEARNING_RATE,
        weight_decay=WEIGHT_DECAY,
        fused=device == "cuda" or None,
    )

    def run(steps: int) -> Round:
        start = workload.now()
        for step in range(steps):
            batch = _on_device(batches[step % len(batches)], device)
            with _autocast(workload, device):
                loss = model(**batch).loss
            loss.backward()
            if workload.clip_norm:
                torch.nn.utils.clip_grad_norm_(model.parameters(), workload.clip_norm)
            optimizer.step()
            optimizer.zero_grad()
        loss.item()  # Wait for the device.
        return Round(workload.now() - start, steps)

    return run


def _labels(workload: Workload) -> torch.Tensor:
    labels = torch.from_numpy(workload.labels()).long()
    if workload.what != "pretrain":
        return labels
    # `transformers` requires a label for every token, and ignores -100.
    everywhere = torch.full((workload.batch_size, workload.sequence_length), -100)
    return everywhere.scatter_(1, torch.from_numpy(workload.mask_positions()).long(), labels)
