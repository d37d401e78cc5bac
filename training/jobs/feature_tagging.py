# SPDX-License-Identifier: Apache-2.0
"""What decides a run of the feature-based approach: one typed, frozen record."""

from __future__ import annotations

import dataclasses

from training.jobs.tagging import check_files

# The rows of the paper's table 7, as slices of (embeddings, layer 1, …, last layer), and whether
# the layers are summed with learnt weights.
ROWS: dict[str, tuple[slice, bool]] = {
    "embeddings": (slice(0, 1), False),
    "second_to_last": (slice(-2, -1), False),
    "last": (slice(-1, None), False),
    "weighted_last_4": (slice(-4, None), True),
    "concatenated_last_4": (slice(-4, None), False),
    "weighted_all": (slice(1, None), True),
}


@dataclasses.dataclass(frozen=True)
class FeatureTaggingConfig:
    """A BiLSTM on frozen features of words in columns.

    Args:
        data_dir: the folder that the files lie in, where they are named without one.
        train_file: words and labels in columns, as the shared tasks of CoNLL have them.
        dev_file: likewise, to select the best epoch by; empty holds a tenth of train_file out, at
            random and with the share of each type.
        test_file: words to tag at the end, scored if label_column is there; empty for none.
        word_column: the words' column from 0, or from the end with a negative number.
        label_column: the labels' column.
        separator: what stands between columns: auto, tab or space.
        comments: whether lines that begin with # before a sentence are comments (CoNLL-U).
        scheme: what labels of spans are turned into for training: IOB1, IOB2 or BIOES; keep
            leaves them as they are.
        context: whether a sentence's window is filled with its neighbours in the document; the
            files must mark documents.
        preset: a checkpoint: a folder, hf://organisation/model, or a name KerasHub knows; empty
            takes the MiniLM of the extra `quickstart`.
        features: which hidden states: embeddings, second_to_last, last, weighted_last_4,
            concatenated_last_4 or weighted_all.
        cache_dir: where features are kept.
        sequence_length: the longest window in tokens; longer sentences have several.
        precision: of the encoder: float32, bfloat16 or mixed_bfloat16; auto takes mixed_bfloat16,
            and float32 for JAX on a CPU, where bfloat16 is the slower.
        lstm_layers: layers of the BiLSTM.
        lstm_units: width of each of its directions.
        dropout: rate on the features, and before the classifier.
        epochs: passes over the training data.
        batch_size: sentences in an optimizer step.
        learning_rate: the peak, reached at the end of the warm-up.
        warmup: share of the steps in which the learning rate rises.
        weight_decay: decoupled decay, of all but biases.
        seed: of the first run; it decides the weights, dropout and the order.
        num_seeds: how many runs, with seeds counting up, to report a mean and an interval.
        patience: epochs without a better dev score after which a run stops; 0 never stops early.
        output_dir: where models, scores and plots go.
        tensorboard: whether to log for TensorBoard, into output_dir.
        checkpoint_seconds: of training between two checkpoints, from which the same command goes on
            if it was killed; 0 writes one after each batch.
    """

    data_dir: str = ""
    train_file: str = ""
    dev_file: str = ""
    test_file: str = ""
    word_column: int = 0
    label_column: int = -1
    separator: str = "auto"
    comments: bool = False
    scheme: str = "IOB2"
    context: bool = False
    preset: str = ""
    features: str = "concatenated_last_4"
    cache_dir: str = "runs/features"
    sequence_length: int = 128
    precision: str = "auto"
    lstm_layers: int = 2
    lstm_units: int = 768
    dropout: float = 0.3
    epochs: int = 10
    batch_size: int = 32
    learning_rate: float = 1e-3
    warmup: float = 0.1
    weight_decay: float = 0.01
    seed: int = 1
    num_seeds: int = 1
    patience: int = 0
    output_dir: str = "runs/feature_tagging"
    tensorboard: bool = False
    checkpoint_seconds: float = 180.0

    # What `finetuning.make_optimizer` asks for besides, and these runs do not need
    layer_decay = 1.0
    accumulation = 1

    def __post_init__(self) -> None:
        check_files(self)
        if self.features not in ROWS:
            raise ValueError(f"--features is {self.features!r}, expected one of {', '.join(ROWS)}")
        for name in ("epochs", "batch_size", "num_seeds", "lstm_layers", "lstm_units"):
            if getattr(self, name) < 1:
                raise ValueError(f"--{name} is {getattr(self, name)}, expected at least 1")
        if not 0 <= self.warmup < 1:
            raise ValueError(f"--warmup is {self.warmup}, expected a share in [0, 1)")
