# SPDX-License-Identifier: Apache-2.0
import dataclasses
import inspect

import pytest
from absl import flags

from training.engine.config_flags import (
    configuration,
    define_flags,
    define_recipe_flag,
    given_flags,
)
from training.engine.options import CommandConfig, UnusedFlagError
from training.jobs.classification import FinetuneConfig
from training.pretraining.config import PretrainConfig

pytestmark = pytest.mark.backend_independent


@dataclasses.dataclass(frozen=True)
class Speed(CommandConfig):
    """Options of a subject.

    Args:
        rate: Its speed.
        fast: Whether to hurry.
    """

    rate: float = 0.5
    fast: bool = False


@dataclasses.dataclass(frozen=True)
class Recipe(CommandConfig):
    """A recipe.

    Args:
        name: What it
            is called.
        speed: How it moves.
        sizes: Some words.
    """

    name: str = "plain"
    sizes: tuple[str, ...] = ("a", "b")
    speed: Speed = dataclasses.field(default_factory=Speed)


def test_command_line_overrides_defaults():
    values = flags.FlagValues()
    define_flags(Recipe, values)
    values(["program", "--name=other", "--sizes=c,d", "--fast"])
    assert configuration(Recipe, values) == Recipe("other", ("c", "d"), Speed(0.5, True))


def test_nested_options_are_flat_flags():
    recipe = Recipe.from_flags(rate=0.25, name="other")
    assert recipe == Recipe("other", speed=Speed(0.25))
    assert recipe.to_dict() == {"name": "other", "sizes": ("a", "b"), "rate": 0.25, "fast": False}
    assert recipe.replace(fast=True).speed == Speed(0.25, True)
    with pytest.raises(ValueError, match=r"--rate must be a finite number\. Received: nan"):
        recipe.replace(rate=float("nan"))
    with pytest.raises(TypeError, match="'speedy'"):
        Recipe.from_flags(speedy=True)


@pytest.mark.parametrize("clean", [str, inspect.cleandoc])  # Python up to 3.12, and later
def test_flag_help_is_the_docstring(clean, monkeypatch):
    monkeypatch.setattr(Recipe, "__doc__", clean(Recipe.__doc__))
    values = flags.FlagValues()
    define_flags(Recipe(), values)
    assert values["name"].help == "What it is called."
    assert values["fast"].help == "Whether to hurry."


def test_flags_override_the_recipe():
    def make_config(*arguments):
        values = flags.FlagValues()
        define_recipe_flag(values)
        define_flags(FinetuneConfig(), values)
        values(["program", *arguments])
        return configuration(FinetuneConfig, values)

    assert make_config("--epochs=7") == FinetuneConfig(epochs=7)
    recipe = make_config("--recipe=minilm_sst2")
    assert recipe.task == "sst2"
    assert make_config("--recipe=minilm_sst2", "--epochs=7") == dataclasses.replace(
        recipe, epochs=7
    )


@pytest.mark.needs_tensorflow
def test_flags_are_checked_with_the_recipe():
    pytest.importorskip("tensorflow")
    from training.pretraining.config import PretrainConfig

    values = flags.FlagValues()
    define_recipe_flag(values)
    define_flags(PretrainConfig(), values)
    # 600 steps are fewer than the default warm-up steps, but more than the recipe's warm-up steps.
    values(["program", "--recipe=wikitext2_cpu", "--num_steps=600"])
    assert configuration(PretrainConfig, values).optimization.warmup_steps == 500
    # A vocabulary file replaces the recipe's vocabulary size, and excludes a size on the command
    # line.
    values(["program", "--recipe=wikitext2_cpu", "--vocabulary=vocab.txt"])
    assert configuration(PretrainConfig, values).text.vocabulary_size == 30522
    values(["program", "--vocabulary=vocab.txt", "--vocabulary_size=9"])
    with pytest.raises(UnusedFlagError, match="--vocabulary_size=9 is given, but --vocabulary="):
        configuration(PretrainConfig, values)


def test_home_is_expanded_in_paths(monkeypatch):
    monkeypatch.setenv("HOME", "/home/me")
    values = flags.FlagValues()
    define_flags(PretrainConfig, values)
    values(["pretrain", "--input_files=~/a.txt,b~c.txt", "--output_dir=~", "--model=x=~/m,~/n"])
    values(["pretrain", "--field=~"])
    assert given_flags(PretrainConfig, values) == {
        "input_files": ("/home/me/a.txt", "b~c.txt"),
        "output_dir": "/home/me",
        "model": "x=/home/me/m,/home/me/n",
        "field": "~",
    }
