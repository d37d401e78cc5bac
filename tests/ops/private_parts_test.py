# SPDX-License-Identifier: Apache-2.0
"""The private parts of other libraries that this package uses exist."""

import importlib
from importlib import metadata

import pytest

pytestmark = pytest.mark.on_tensorflow

# For each module: the library version in which its parts were read, and the user of each part
PARTS = {
    "keras_private": (
        "keras 3.15.1",
        {
            "DataAdapter": "tasks/batch_feeder.py: batches of unknown number; micro_batches.py",
            "LossFunctionWrapper": "tasks/objective.py: losses that are functions",
            "MetricsList": "tasks/objective.py: logs whose direction callbacks ask for",
            "get_data_adapter": "tasks/micro_batches.py",
            "get_torch_dataloader": "tasks/batch_feeder.py: batches of unknown number",
            "in_stateless_scope": "ops/optimizer_updates_torch.py",
            "module_utils.tensorflow": "ops/lazy_tensorflow.py: its attribute _available",
            "train_validation_split": "tasks/fit_plan.py: validation_split",
        },
    ),
    "tensorflow_private": (
        "tensorflow 2.21.0",
        {
            "GraphOrParentsInXlaContext": "ops/tensorflow_plain.py: is_compiled_as_a_whole",
            "apply_op": "ops/tensorflow_int8.py: oneDNN's products",
            "get_registered_kernels_for_op": "ops/tensorflow_int8.py: whether it has them",
        },
    ),
    "tflite_private": (
        "tensorflow 2.21.0",
        {
            "convert_object_to_bytearray": "export/tflite_metadata.py",
            "read_model_from_bytearray": "export/tflite_metadata.py",
        },
    ),
    "jax_private": (
        "jax 0.10.2",
        {
            "_jax.get_distributed_runtime_client": "on_lost_process of this module",
            "distributed.global_state.client": "training/engine/connection.py: messages",
        },
    ),
    "torch_private": (
        "torch 2.13.0",
        {
            "foreach_add_": "ops/optimizer_updates_torch.py: accumulate",
            "foreach_mul": "ops/optimizer_updates_torch.py: clipping",
            "foreach_norm": "ops/optimizer_updates_torch.py: global_norm",
            "fused_adamw_": "ops/optimizer_updates_torch.py: update_variables",
        },
    ),
}


@pytest.mark.parametrize("module", PARTS)
def test_private_parts_exist(module):
    read_in, parts = PARTS[module]
    library = read_in.split()[0]
    pytest.importorskip(library)
    advice = (
        f"keras_bert/ops/{module}.py was read in {read_in}, and {metadata.version(library)} is "
        "installed. Look for the part in its source, and at "
    )
    try:
        loaded = importlib.import_module(f"keras_bert.ops.{module}")
    except (ImportError, AttributeError) as error:
        pytest.fail(f"{error}. {advice}{parts}")
    for name, user in parts.items():
        part = loaded
        for attribute in name.split("."):
            assert hasattr(part, attribute), f"{name} is gone. {advice}{user}"
            part = getattr(part, attribute)
