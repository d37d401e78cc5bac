# SPDX-License-Identifier: Apache-2.0
"""Saved models of version 1, in whose blocks other layers had the weights: see `earlier_layout`.

A copy of the file with today's names is loaded. Optimizers are built for the variables in their
order of then, so that Keras assigns each state to its variable, and are then exchanged for those
that are built for today's order.
"""

from __future__ import annotations

import json
import re
import shutil
import tempfile
import warnings
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import h5py
import keras

from keras_bert.checkpoints.earlier_layout import (
    config_of_version_1,
    layer_of_version_1,
    rebuilt,
    variable_of_version_1,
)
from keras_bert.config import BertConfig
from keras_bert.tasks.objective import ObjectiveModel

_CONFIG_FILE, _WEIGHTS_FILE, _ASSETS = "config.json", "model.weights.h5", "assets/"
_BACKBONE = "keras_bert>Backbone"
# A block in a file of weights, and what is moved in it, in this order. The weights of a layer have
# the numbers of the order in which it created them.
_BLOCK = re.compile(r"(.+/)?transformer_block(_\d+)?")
_MOVES = {
    "attention_output": "attention/output_projection",
    "attention_norm/vars/0": "attention/vars/0",
    "attention_norm/vars/1": "attention_norm/vars/0",
    "attention_norm/vars/2": "attention_norm/vars/1",
    "intermediate": "feed_forward/intermediate",
    "intermediate_activation/vars/0": "feed_forward/vars/0",
    "feed_forward_output": "feed_forward/output_projection",
    "feed_forward_norm/vars/0": "feed_forward/vars/1",
    "feed_forward_norm/vars/1": "feed_forward_norm/vars/0",
    "feed_forward_norm/vars/2": "feed_forward_norm/vars/1",
}


def update_config(objects: Iterable[dict[str, Any]]) -> bool:
    """Updates the objects in the config of a model of version 1, in place.

    Args:
        objects: All dicts in the config, itself included.

    Returns:
        Whether the model is of version 1; others are left as they are.
    """
    objects = list(objects)
    backbones = [fields for fields in objects if fields.get("registered_name") == _BACKBONE]
    if all("norm_placement" in fields["config"]["config"] for fields in backbones):
        return False
    for fields in objects:
        _update_paths(fields)
        if isinstance(fields.get("compile_config"), dict) and fields["compile_config"]:
            fields["compile_config"]["format_version"] = 1
    for fields in backbones:
        config = config_of_version_1(BertConfig.from_dict(fields["config"]["config"]))
        fields["config"]["config"] = config.to_dict()
        if fields.pop("compile_config", None):
            warnings.warn(
                "A Backbone of an earlier version is loaded without its optimizer and loss: "
                "compile it again.",
                stacklevel=2,
            )
    return True


def _update_paths(fields: dict[str, Any]) -> None:
    """Updates the paths in the states of layers, which `keras_bert.models.layer_states` wrote."""
    for name in ("quantized", "lora", "policy_map"):
        if isinstance(fields.get(name), dict):
            renamed = [(layer_of_version_1(path)[0], state) for path, state in fields[name].items()]
            fields[name] = {path: state for path, state in renamed if path is not None}
    frozen = [variable_of_version_1(path) for path in fields.get("frozen_variables", ())]
    layers = []
    for path in fields.get("frozen_layers", ()):
        # Layers that were not built by themselves have no path.
        layer, bias = (None, None) if path is None else layer_of_version_1(path)
        layers += [layer] if layer or path is None else []
        frozen += [bias] if bias else []
    states = {"frozen_layers": layers, "frozen_variables": frozen}
    fields.update({name: state for name, state in states.items() if state})


def load(path: Path, config: dict[str, Any], *, compile: bool) -> Any:
    """Loads a saved model of version 1.

    Args:
        path: A `.keras` file whose sizes are checked, or the folder of one that is not zipped.
        config: Its config, updated.
        compile: Whether to compile the model with its saved optimizer, loss and metrics.

    Raises:
        ValueError: If the file has links, or other content than a config and weights.
    """
    with tempfile.TemporaryDirectory() as folder:
        weights = Path(folder) / _WEIGHTS_FILE
        _copy_weights(path, weights)
        with h5py.File(weights, "r+") as file:
            _move_weights(file)
        (Path(folder) / _CONFIG_FILE).write_text(json.dumps(config), encoding="utf-8")
        model = keras.models.load_model(folder, compile=compile)
    for part in model._flatten_layers():
        if isinstance(part, ObjectiveModel) and getattr(part, "optimizer", None) is not None:
            _use_order_of_model(part)
    return model


def _copy_weights(path: Path, target: Path) -> None:
    if path.is_dir():
        names = [item.relative_to(path).as_posix() for item in path.rglob("*") if item.is_file()]
        _check_names(names)
        shutil.copyfile(path / _WEIGHTS_FILE, target)
        return
    with zipfile.ZipFile(path) as archive:
        _check_names(archive.namelist())
        with archive.open(_WEIGHTS_FILE) as source, target.open("wb") as copy:
            shutil.copyfileobj(source, copy)


def _check_names(names: list[str]) -> None:
    assets = [name for name in names if name.startswith(_ASSETS)]
    if assets or _WEIGHTS_FILE not in names:
        raise ValueError(
            f"A model of an earlier version must have {_WEIGHTS_FILE} and no assets; found "
            f"{', '.join(sorted(assets or names)[:5])}."
        )


def _move_weights(file: h5py.File) -> None:
    """Moves the weights of blocks to where today's layers have them."""
    names = []

    def visit(name: str, item: h5py.Group | h5py.Dataset) -> None:
        names.append(name)
        if isinstance(item, h5py.Group):
            _check_links(item)

    _check_links(file)
    file.visititems(visit)
    found = set(names)
    for block in filter(_BLOCK.fullmatch, names):
        for source, target in _MOVES.items():
            if f"{block}/{source}" in found:
                file.move(f"{block}/{source}", f"{block}/{target}")


def _check_links(group: h5py.Group) -> None:
    """Checks that a file of weights has no names of what is in another file, or elsewhere in it."""
    for name in group:
        link = group.get(name, getlink=True)
        if not isinstance(link, h5py.HardLink):
            raise ValueError(
                f"{_WEIGHTS_FILE} has a {type(link).__name__} {name!r} in {group.name}; expected "
                "groups and datasets."
            )


def _use_order_of_model(model: Any) -> None:
    """Gives a model an optimizer of the same state that is built for today's order of variables.

    Training on JAX takes the optimizer's order to be that of the model, and so do files.
    """
    earlier = model.optimizer
    if not earlier.built:
        return
    built_for = earlier._trainable_variables
    ids = set(map(id, built_for))
    of_model = [variable for variable in model.variables if id(variable) in ids]
    # Variables that quantization replaced stay in their places.
    known, rest = set(map(id, of_model)), iter(of_model)
    order = [next(rest) if id(variable) in known else variable for variable in built_for]
    model.optimizer, states = rebuilt(earlier, order)
    for variable, state in zip(model.optimizer.variables, states, strict=True):
        variable.assign(state)
