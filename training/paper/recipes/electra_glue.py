# SPDX-License-Identifier: Apache-2.0
"""GLUE with ELECTRA-base and layer-wise learning rates, as in the paper (appendix B).

    python -m training.paper.finetune_glue --recipe=electra_glue --data_dir=DIR

For ELECTRA-small, add
`--preset=hf://google/electra-small-discriminator --learning_rate=3e-4`. For ELECTRA-large, add
`--preset=hf://google/electra-large-discriminator --learning_rate=5e-5 --layer_decay=0.9`.

Score and time: not run here.
Hardware: one GPU.
"""

from ..glue_grid import FinetuneGlueConfig

CONFIG = FinetuneGlueConfig.from_flags(
    preset="hf://google/electra-base-discriminator",
    learning_rate=(1e-4,),
    epochs_of=("rte=10", "stsb=10"),
    weight_decay=0.0,
    layer_decay=0.8,
    output_dir="runs/electra_glue",
)
