# SPDX-License-Identifier: Apache-2.0
"""What a task says of itself, so that one engine fine-tunes all of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from .options import SeedsConfig

if TYPE_CHECKING:
    import keras

    from ..scores.baselines import Baselines
    from .seed_runs import FitEpoch

# The scores by the name of the metric, by the name of the development set.
DevScores = dict[str, dict[str, float]]


@dataclasses.dataclass(frozen=True)
class Training:
    """A model that is ready to be trained.

    Args:
        model: the compiled model.
        fit_epoch: fits it for an epoch, or the rest of one, as `SeedRun.fit` asks for it.
        num_rows: examples in an epoch, which the speed is reported of.
    """

    model: keras.Model
    fit_epoch: FitEpoch
    num_rows: int


class Job:
    """A fine-tuning task: what it reads, builds, scores and reports.

    `training.engine.finetuning.run` does the rest, the same for every task: seeds, checkpoints, the
    best epoch, curves, `results.json` and the export.

    Args:
        config: what to do, of the class `config_class`.
        data: what `read` returned for it.
        preset: the checkpoint, a folder or a name.
    """

    config_class: ClassVar[type]
    # What the input of `training.predict` may be called; empty where it does not know the model.
    example_input: ClassVar[str] = ""

    def __init__(self, config: SeedsConfig, data: Any, preset: str) -> None:
        self.config: Any = config
        self.data = data
        self.preset = preset
        self.title = Path(config.train_file).name

    @staticmethod
    def read(config: Any) -> Any:
        """Reads and checks every file that a config names, before anything is trained.

        Returns:
            A dataclass with a method `counts`.

        Raises:
            FileNotFoundError: if a file is not there.
            ValueError: if a file is malformed; the message names file, line and reason.
        """
        raise NotImplementedError

    def baselines(self) -> dict[str, Baselines]:
        """By the name of a development set, the scores that a model must beat on it."""
        raise NotImplementedError

    def build(self, seed: int) -> Training:
        """The pretrained encoder with a new head, compiled."""
        raise NotImplementedError

    def score(self, model: Any) -> DevScores:
        """The scores on every development set; the first set selects the best epoch."""
        raise NotImplementedError

    def selection_score(self, scores: Mapping[str, float]) -> float:
        """The number by which epochs and seeds are compared, of the scores on the first set."""
        from ..scores import classifier_scores

        return classifier_scores.selection_score(scores)

    def keep(self, folder: Path) -> None:
        """Writes what belongs to the best epoch so far, beside its model."""

    def load(self, path: str) -> Any:
        """The model of a `.keras` file."""
        from keras_bert import load_model

        return load_model(path)

    def report(self, load: Callable[[], Any], best: Path, folder: Path) -> dict[str, Any]:
        """Writes the answers of the best model of all seeds.

        Args:
            load: loads that model.
            best: the folder of its seed.
            folder: where to write to.

        Returns:
            What to add to `results.json`.
        """
        return {}

    def export(self, model: Any, folder: Path) -> None:
        """Writes a SavedModel."""
        model.export(folder, overwrite=True)
