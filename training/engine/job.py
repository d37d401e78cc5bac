# SPDX-License-Identifier: Apache-2.0
"""The interface of fine-tuning tasks, for `training.engine.finetuning`."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from keras_bert.text.word_search import count_words

from .finetuning_config import LabeledFilesConfig, fill_defaults
from .output_directory import NotFiniteError

if TYPE_CHECKING:
    import keras

    from ..plots import page
    from ..scores.baselines import Baselines
    from .seed_runs import FitEpoch

# Maps the name of the validation set to the name of the metric to the score
DevScores = dict[str, dict[str, float]]


def finite(outputs: np.ndarray) -> np.ndarray:
    """Checks that a model's outputs are finite, and returns them.

    For example, the argmax of NaN outputs would be meaningless.

    Raises:
        NotFiniteError: If an output is NaN or infinite.
    """
    count = outputs.size - np.count_nonzero(np.isfinite(outputs))
    if count:
        raise NotFiniteError(f"{count} of {outputs.size} outputs of the model are not finite")
    return outputs


def read_probabilities(rows: Sequence[dict[str, Any]]) -> list[float] | None:
    """Returns the probability of each prediction, or `None` if a prediction has no probability."""
    return [float(row["score"]) for row in rows] if all("score" in row for row in rows) else None


@dataclasses.dataclass(frozen=True)
class Training:
    """A compiled model and a function that trains it.

    Args:
        model: The compiled model.
        fit_epoch: Trains the model for (the rest of) an epoch, see `SeedRun.fit`.
        num_rows: Number of examples per epoch, used to report the speed.
        epoch_flops: Returns the matmul FLOPs per epoch. `None` if unknown.
    """

    model: keras.Model
    fit_epoch: FitEpoch
    num_rows: int
    epoch_flops: Callable[[], int] | None = None


@dataclasses.dataclass(frozen=True)
class JobData:
    """A run's data. Tasks add further fields.

    Args:
        train: The training examples.
        dev: The validation examples, or multiple validation sets by name. The first set selects the
            best epoch.
        test: The examples to predict after training, or `None`. They do not affect the training.
    """

    train: Any
    dev: Any
    test: Any = dataclasses.field(compare=False)

    def parts(self) -> dict[str, Any]:
        """Returns the data sets by name, in the order train, validation, test."""
        dev = self.dev if isinstance(self.dev, dict) else {"dev": self.dev}
        return {"train": self.train, **dev} | ({"test": self.test} if self.test else {})

    @property
    def has_test_labels(self) -> bool:
        """Whether the data includes a labeled test set, which can be scored."""
        return self.test is not None and self.test.labels is not None

    def scored(self) -> dict[str, Any]:
        """Returns the validation sets and, if it has labels, the test set, by name."""
        left_out = {"train"} if self.has_test_labels else {"train", "test"}
        return {name: part for name, part in self.parts().items() if name not in left_out}


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """Scores of a model or a prediction file on labeled data.

    Args:
        scores: The score of each metric.
        sections: Returns the sections of the error report.
        table: Further scores as text to print, or empty.
    """

    scores: dict[str, float]
    sections: Callable[[], list[page.Html]]
    table: str = ""


@dataclasses.dataclass(frozen=True)
class InsightRows:
    """Examples for an interpretability report.

    Args:
        inputs: The model input of each example.
        texts: The text or text pair of each example.
        labels: The label of each example as displayed. Empty for unlabeled files.
    """

    inputs: Sequence[Any]
    texts: Sequence[str | tuple[str, str]]
    labels: Sequence[str] = ()

    def words(self, index: int) -> int:
        """Returns the number of words in an example. Some scripts have one word per character."""
        return count_words(self.texts[index])


class Job:
    """A fine-tuning task. Subclasses read the data, build the model, score it and report.

    All other steps are the same for every task. `training.engine.finetuning.run` trains with all
    seeds, writes checkpoints, selects the best epoch, plots curves, exports the model and writes
    `results.json`.

    Args:
        config: The settings, an instance of `config_class`.
        data: The result of `read(config)`.
        preset: The checkpoint to start from, a directory or a name.
    """

    config_class: ClassVar[type]
    # The prediction method of the task, such as "classify"
    predict_method: ClassVar[str] = ""
    # File name for the suggested `training.predict` command. Empty if it cannot load the model.
    example_input: ClassVar[str] = ""
    # The fields of each instance in server requests
    fields: ClassVar[tuple[str, ...]] = ("text",)
    # The loss on the validation set in the last call of `score`, or `None` if it is unknown
    dev_loss: float | None = None

    def __init__(self, config: LabeledFilesConfig, data: Any, preset: str) -> None:
        num_classes = getattr(data.train, "num_classes", 1)
        self.config: Any = fill_defaults(config, len(data.train), preset, num_classes)
        self.data = data
        self.preset = preset
        self.title = Path(config.train_file).name

    @staticmethod
    def read(config: Any) -> Any:
        """Reads and validates all of the config's files before training starts.

        Returns:
            A `JobData` whose data sets `data_inspection.text_rows` accepts.

        Raises:
            FileNotFoundError: If a file does not exist.
            ValueError: If a file is invalid. The message contains the file, the line and the
                reason.
        """
        raise NotImplementedError

    def baselines(self) -> dict[str, Baselines]:
        """Returns the scores of simple baselines on each data set in `JobData.scored`."""
        raise NotImplementedError

    def build(self, seed: int) -> Training:
        """Returns the pretrained encoder with a new head, compiled and ready to train."""
        raise NotImplementedError

    def task(self, model: Any) -> Any:
        """Returns the task to score and save after an epoch. Defaults to the model itself."""
        return model

    def score(self, model: Any) -> DevScores:
        """Returns the scores on each validation set. The first set selects the best epoch."""
        raise NotImplementedError

    def selection_score(self, scores: Mapping[str, float]) -> float:
        """Returns the score for comparing epochs and seeds. Higher is better.

        Args:
            scores: The scores on the first validation set.
        """
        from ..scores import classifier_scores

        return classifier_scores.selection_score(scores)

    def keep(self, directory: Path) -> None:
        """Writes further files for the best epoch so far next to its model."""

    def weights_to_save(self, task: Any) -> contextlib.AbstractContextManager[None]:
        """Returns a context in which the task has the weights to save, by default its own."""
        return contextlib.nullcontext()

    def load(self, path: str) -> Any:
        """Loads the model from a `.keras` file."""
        from keras_bert import load_model

        return load_model(path)

    def report(self, load: Callable[[], Any], best: Path, directory: Path) -> dict[str, Any]:
        """Writes the predictions of the best model.

        Args:
            load: Returns the best model.
            best: The directory of the seed with the best model.
            directory: The output directory.

        Returns:
            Entries to add to `results.json`. `test` contains the scores on a labeled test set, and
            `by_class` the scores by class on the test set, or on the validation set without a test
            set.
        """
        return {}

    def export(self, model: Any, directory: Path) -> None:
        """Writes a SavedModel."""
        model.export(directory, overwrite=True)

    # === Used by `evaluate` and `insight` ===

    @staticmethod
    def evaluate(config: Any, model: Any) -> Evaluation:
        """Scores a model, or a file of predictions, on a labeled file.

        Without a model, the predictions are read from `config.predictions`.
        """
        raise NotImplementedError

    @staticmethod
    def read_insight_inputs(config: Any, model: Any) -> InsightRows:
        """Reads the examples for an interpretability report."""
        raise NotImplementedError

    @staticmethod
    def predict_for_attribution(model: Any, row: Any) -> tuple[Any, Any, str]:
        """Predicts one example, and returns the inputs for `keras_bert.insight.attributions`.

        Returns:
            A tuple `(input, target, prediction)`: the input and target of `attributions`, and the
            prediction as displayed.
        """
        raise NotImplementedError
