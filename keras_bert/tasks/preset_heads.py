# SPDX-License-Identifier: Apache-2.0
"""Decides whether a task created from a checkpoint uses the head stored in the checkpoint."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from typing import Any

from keras_bert.checkpoints import Checkpoint
from keras_bert.checkpoints.errors import warn
from keras_bert.data.labels import join_names
from keras_bert.layers.top_layers import top_layer_options


@dataclasses.dataclass(frozen=True)
class HeadChoice:
    """A task's head options, and whether a stored head matches them.

    Args:
        options: Arguments of the task's class.
        mismatch: Why the stored head does not match. Empty if it matches or does not exist.
        outputs: For each output, the index of the stored output. `None` for the stored order.
    """

    options: dict[str, Any]
    mismatch: str = ""
    outputs: list[int] | None = None


@dataclasses.dataclass(frozen=True)
class _HeadShape:
    """The properties that must match before a stored head is used.

    Args:
        top_layers: The layers below the head, as described by `top_layer_options`.
        num_classes: Number of outputs. `None` for a task without `num_classes`.
        multi_label: Whether each output is a separate label.
    """

    top_layers: dict[str, Any] | None
    num_classes: int | None
    multi_label: bool

    def mismatch_with(self, wanted: _HeadShape) -> str:
        """Describes in a warning that this stored head does not match the requested head."""
        if wanted.num_classes is None:
            return f"has a head{self._layers()} instead of a head{wanted._layers()}"
        return f"has a classifier for {self._outputs()} instead of {wanted._outputs()}"

    def _outputs(self) -> str:
        kind = "labels" if self.multi_label else "classes"
        return f"{self.num_classes} {kind}{self._layers()}"

    def _layers(self) -> str:
        if self.top_layers is None:
            return " (other top_layers)"
        values = [f"{name}={value}" for name, value in self.top_layers.items()]
        return f" ({', '.join(values)})" if values else ""


def choose_head(
    task_class: Any,
    checkpoint: Checkpoint,
    saved: Mapping[str, Any],
    given: Mapping[str, Any],
    load_weights: bool,
) -> HeadChoice:
    """Decides the head's options and whether the stored head is used.

    Given options are used. The other options are:

    | stored head | `top_layers` | `num_classes` | `multi_label` | others |
    |---|---|---|---|---|
    | matches | stored | stored | stored | stored |
    | does not match | stored | stored | `False` | `None` |
    | does not exist | none | `None`, an error | saved | `None` |
    | `load_weights=False` | saved | `None`, an error | saved | `None` |

    The others are `thresholds`, `min_score`, `scheme` and `class_names`.

    Args:
        task_class: The task's class.
        checkpoint: The checkpoint.
        saved: The task's options in the checkpoint.
        given: The options passed to `from_preset`.
        load_weights: Whether the weights will be loaded.
    """
    has_head = load_weights and task_class.head_name in checkpoint.heads
    stored = _stored_shape(task_class, checkpoint, saved, has_head, load_weights)
    wanted = _wanted_shape(stored, given)
    fits = has_head and wanted == stored
    if has_head and not fits and "multi_label" not in given:
        wanted = dataclasses.replace(wanted, multi_label=False)
    mismatch = stored.mismatch_with(wanted) if has_head and not fits else ""
    names = task_class.options
    options: dict[str, Any] = {}
    if "top_layers" in names and "top_layers" not in given:
        options["top_layers"] = stored.top_layers
    if "num_classes" not in names:
        return HeadChoice(options, mismatch)
    options["num_classes"] = wanted.num_classes
    if fits:
        return _match_class_names(options, checkpoint, saved, given)
    if "scheme" in names:
        options["scheme"] = given.get("scheme")
    if "multi_label" in names:
        options["multi_label"] = wanted.multi_label
        limits = [name for name in ("thresholds", "min_score") if name in names]
        options |= {name: given.get(name) for name in limits}
    return HeadChoice(options, mismatch)


def _stored_shape(
    task_class: Any,
    checkpoint: Checkpoint,
    saved: Mapping[str, Any],
    has_head: bool,
    load_weights: bool,
) -> _HeadShape:
    """Returns the stored head's shape, or its known properties if no head is stored."""
    uses_layers = has_head or not load_weights
    has_classes = has_head and "num_classes" in task_class.options
    return _HeadShape(
        (saved.get("head_options") or {}) if uses_layers else {},
        checkpoint.num_classes(task_class.head_name) if has_classes else None,
        bool(saved.get("multi_label")),
    )


def _wanted_shape(stored: _HeadShape, given: Mapping[str, Any]) -> _HeadShape:
    """Returns the shape for the task's head: the stored shape, with the given options."""
    changes = {name: given[name] for name in ("num_classes", "multi_label") if name in given}
    if "num_classes" not in given and given.get("class_names"):
        changes["num_classes"] = len(given["class_names"])
    if "top_layers" in given:
        changes["top_layers"] = top_layer_options(given["top_layers"])
    return dataclasses.replace(stored, **changes)


def _match_class_names(
    options: dict[str, Any],
    checkpoint: Checkpoint,
    saved: Mapping[str, Any],
    given: Mapping[str, Any],
) -> HeadChoice:
    """Decides the names and the order of the outputs if the stored head matches.

    | `class_names` | outputs and `thresholds` | names |
    |---|---|---|
    | not given | as stored | stored |
    | the stored names in a different order | in the given order | given |
    | different names | as stored, with a warning | given |
    """
    if "class_names" not in given:
        return HeadChoice({**options, "class_names": checkpoint.class_names})
    outputs = _stored_outputs(checkpoint.class_names, given["class_names"], checkpoint.directory)
    thresholds = saved.get("thresholds")
    if outputs is not None and thresholds and "thresholds" not in given:
        options = {**options, "thresholds": [thresholds[index] for index in outputs]}
    return HeadChoice(options, outputs=outputs)


def _stored_outputs(
    names: Sequence[str] | None,
    class_names: Sequence[str],
    preset: str | os.PathLike[str],
) -> list[int] | None:
    """Returns the index of the stored output for each class, or `None` if the order is the same.

    `names` is `None` if the checkpoint has no names, or only placeholders such as `LABEL_0`. If the
    names differ, the outputs are renamed, with a warning.
    """
    if names is None or list(names) == list(class_names):
        return None
    if sorted(names) == sorted(class_names):
        index_of = {name: index for index, name in enumerate(names)}
        return [index_of[name] for name in class_names]
    warn(
        f"{os.fspath(preset)} has a trained head for the classes {join_names(names)}. class_names "
        f"renames its outputs, in this order, to {join_names(class_names)}. If these are different "
        "classes instead of just different names, use only the encoder: save it with "
        "`backbone.save_to_preset`, and load that preset.",
    )
    return None
