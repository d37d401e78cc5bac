# SPDX-License-Identifier: Apache-2.0
"""Fine-tunes a right-to-left encoder on a GLUE task or on labeled text, as in an ablation.

    python -m training.paper.directional_finetuning --task=sst2 --data_dir=glue \\
        --preset=runs/right_to_left/preset

The flags and the output are the same as in `finetune`. The encoder of --preset is pre-trained with
`pretrain --causal --right_to_left`. With --forward_preset, a left-to-right encoder reads the same
text, and the outputs of both are concatenated, as in ELMo.
"""

from __future__ import annotations

import dataclasses

from ..engine import program
from ..engine.job import Training
from ..jobs.classification import ClassificationJob, FinetuneConfig, new_classifier


@dataclasses.dataclass(frozen=True)
class DirectionalConfig(FinetuneConfig):
    """Fine-tuning a right-to-left encoder.

    Args:
        forward_preset: Checkpoint of a left-to-right encoder with the same architecture and
            vocabulary. Empty only uses the right-to-left encoder.
    """

    forward_preset: str = ""


class DirectionalJob(ClassificationJob):
    """Classification with a `DirectionalBackbone`."""

    config_class = DirectionalConfig
    example_input = ""  # Other commands cannot load the encoder.
    config: DirectionalConfig

    def build(self, seed: int) -> Training:
        from keras_bert import Backbone, TextClassifier

        from ..engine import finetuning
        from .directional_backbone import DirectionalBackbone

        config, train = self.config, self.data.train
        task = new_classifier(config, train, self.preset, None)
        dtype = task.backbone.dtype_policy
        encoders = {"backward": task.backbone}
        if config.forward_preset:
            encoders["forward"] = Backbone.from_preset(
                config.forward_preset, load_weights=config.pretrained, dtype=dtype
            )
        backbone = DirectionalBackbone(
            task.config, concatenates=bool(config.forward_preset), dtype=dtype
        )
        for name, encoder in encoders.items():
            backbone.get_layer(name).set_weights(encoder.get_weights())
        options = {name: getattr(task, name) for name in TextClassifier.options}
        task = TextClassifier(backbone, preprocessor=task.preprocessor, **options)
        return finetuning.training_of_text(task, train.inputs, train.labels, config, len(train))


def main(config: DirectionalConfig) -> None:
    program.fine_tune(config, DirectionalJob)


if __name__ == "__main__":
    program.run(main, DirectionalConfig)
