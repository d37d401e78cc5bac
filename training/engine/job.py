# SPDX-License-Identifier: Apache-2.0
"""The interface of a fine-tuning task: `training.engine.finetuning` trains any of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from .finetuning_config import LabeledFilesConfig, fill_defaults
from .output_folder import NotFiniteError

if TYPE_CHECKING:
    import keras

    from ..plots import page
    from ..scores.baselines import Baselines
    from .seed_runs import FitEpoch

# Name of the development set -> name of the metric -> score
DevScores = dict[str, dict[str, float]]


def finite(outputs: np.ndarray) -> np.ndarray:
    """Returns a model's outputs, whose largest value would be meaningless if one were NaN.

    Raises:
        NotFiniteError: If one is NaN or infinite.
    """
    count = outputs.size - np.count_nonzero(np.isfinite(outputs))
    if count:
        raise NotFiniteError(f"{count} of {outputs.size} outputs of the model are not finite")
    return outputs


def read_probabilities(rows: Sequence[dict[str, Any]]) -> list[float] | None:
    """Returns the probability of each prediction, or `None` if a file of predictions has none."""
    return [float(row["score"]) for row in rows] if all("score" in row for row in rows) else None


@dataclasses.dataclass(frozen=True)
class Training:
    """A model that is ready to be trained.

    Args:
        model: The compiled model.
        fit_epoch: Fits the model for one epoch or the rest of one, as for `SeedRun.fit`.
        num_rows: Number of examples in an epoch, used to report the speed.
        epoch_flops: Returns the FLOPs of the matrix products of an epoch; `None` if unknown.
    """

    model: keras.Model
    fit_epoch: FitEpoch
    num_rows: int
    epoch_flops: Callable[[], int] | None = None


@dataclasses.dataclass(frozen=True)
class JobData:
    """The data of a run; a task adds to it what it needs besides.

    Args:
        train: The training rows.
        dev: The development rows, or several sets by name; the first one selects the best epoch.
        test: The rows to predict at the end, or `None`.
    """

    train: Any
    dev: Any
    test: Any

    def parts(self) -> dict[str, Any]:
        """Returns the parts by name."""
        dev = self.dev if isinstance(self.dev, dict) else {"dev": self.dev}
        return {"train": self.train, **dev} | ({"test": self.test} if self.test else {})

    @property
    def has_test_labels(self) -> bool:
        """Whether there is a test set that can be scored."""
        return self.test is not None and self.test.labels is not None

    def scored(self) -> dict[str, Any]:
        """Returns the parts to score by name: the development sets, and a labeled test set."""
        left_out = {"train"} if self.has_test_labels else {"train", "test"}
        return {name: part for name, part in self.parts().items() if name not in left_out}


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """The scores of a model, or of a file of predictions, on a labeled file.

    Args:
        scores: The score of each metric.
        sections: Returns the sections of the error report.
        table: More scores, as lines of text to print; empty if there are none.
    """

    scores: dict[str, float]
    sections: Callable[[], list[page.Html]]
    table: str = ""


@dataclasses.dataclass(frozen=True)
class InsightRows:
    """The rows of a file, for a report about a model.

    Args:
        inputs: What the task takes for each row.
        texts: The text or the pair of each row.
        labels: The label of each row as it is shown; empty for unlabeled files.
    """

    inputs: Sequence[Any]
    texts: Sequence[str | tuple[str, str]]
    labels: Sequence[str] = ()

    def words(self, index: int) -> int:
        """Returns the number of words of a row."""
        text = self.texts[index]
        return len((text if isinstance(text, str) else " ".join(text)).split())


class Job:
    """A fine-tuning task: how it reads data, builds a model, scores it and reports.

    `training.engine.finetuning.run` does the rest, in the same way for every task: seeds,
    checkpoints, selection of the best epoch, curves, `results.json` and the export.

    Args:
        config: The settings, an instance of `config_class`.
        data: The data that `read` returned for the config.
        preset: The checkpoint, a folder or a name.
    """

    config_class: ClassVar[type]
    # The verb of the tasks that are trained
    predict_method: ClassVar[str] = ""
    # File name for the suggested `training.predict` command; empty if it cannot load the model.
    example_input: ClassVar[str] = ""
    # The fields of a row that is sent to a server of the model
    fields: ClassVar[tuple[str, ...]] = ("text",)
    # The loss on the development set at the last `score`; `None` if it is unknown
    dev_loss: float | None = None

    def __init__(self, config: LabeledFilesConfig, data: Any, preset: str) -> None:
        self.config: Any = fill_defaults(config, len(data.train), preset)
        self.data = data
        self.preset = preset
        self.title = Path(config.train_file).name

    @staticmethod
    def read(config: Any) -> Any:
        """Reads and validates every file that the config names, before anything is trained.

        Returns:
            A `JobData`, of rows as for `data_inspection.text_rows`.

        Raises:
            FileNotFoundError: If a file does not exist.
            ValueError: If a file is malformed; the message names the file, the line and the reason.
        """
        raise NotImplementedError

    def baselines(self) -> dict[str, Baselines]:
        """Returns the scores of simple baselines on each part of `JobData.scored`."""
        raise NotImplementedError

    def build(self, seed: int) -> Training:
        """Returns the pretrained encoder with a new head, compiled."""
        raise NotImplementedError

    def task(self, model: Any) -> Any:
        """Returns the task that is scored and saved after an epoch, by default the model."""
        return model

    def score(self, model: Any) -> DevScores:
        """Returns the scores on every development set; the first set selects the best epoch."""
        raise NotImplementedError

    def selection_score(self, scores: Mapping[str, float]) -> float:
        """Returns the number by which epochs and seeds are compared.

        The scores are those on the first development set.
        """
        from ..scores import classifier_scores

        return classifier_scores.selection_score(scores)

    def keep(self, folder: Path) -> None:
        """Writes files that belong to the best epoch so far, beside its model."""

    def load(self, path: str) -> Any:
        """Loads the model of a `.keras` file."""
        from keras_bert import load_model

        return load_model(path)

    def report(self, load: Callable[[], Any], best: Path, folder: Path) -> dict[str, Any]:
        """Writes the predictions of the best model of all seeds.

        `best` is the folder of its seed, and `folder` the one to write to.

        Returns:
            Entries to add to `results.json`. Of these, `test` has the scores on a labeled test
            set, and `by_class` those by class of the test set, or else of the development set.
        """
        return {}

    def export(self, model: Any, folder: Path) -> None:
        """Writes a SavedModel."""
        model.export(folder, overwrite=True)

    # === What `evaluate` and `insight` ask ===

    @staticmethod
    def evaluate(config: Any, model: Any) -> Evaluation:
        """Scores a model, or a file of predictions, on a labeled file.

        Without a model, the predictions are in `config.predictions`.
        """
        raise NotImplementedError

    @staticmethod
    def read_insight_inputs(config: Any, model: Any) -> InsightRows:
        """Reads the rows that a report about a model explains."""
        raise NotImplementedError

    @staticmethod
    def predict_for_attribution(model: Any, row: Any) -> tuple[Any, Any, str]:
        """Answers a row, and returns what `keras_bert.insight.attributions` is to explain of it.

        Returns:
            A tuple of the input and the target of `attributions`, and of the answer as it is shown.
        """
        raise NotImplementedError
