# SPDX-License-Identifier: Apache-2.0
import dataclasses
import inspect

import pytest
from absl import flags

from training.engine.config_flags import (
    configuration,
    define_flags,
    define_program_flags,
    read_flags,
)
from training.jobs.classification import FinetuneConfig

pytestmark = pytest.mark.backend_independent


@dataclasses.dataclass(frozen=True)
class Recipe:
    """A recipe.

    Args:
        name: What it
            is called.
        rate: Its speed.
        sizes: Some words.
        fast: Whether to hurry.
    """

    name: str = "plain"
    rate: float = 0.5
    sizes: tuple[str, ...] = ("a", "b")
    fast: bool = False


def test_the_command_line_overrides_the_recipe():
    values = flags.FlagValues()
    define_flags(Recipe(rate=0.25), values)
    values(["program", "--name=other", "--sizes=c,d", "--fast"])
    assert read_flags(Recipe, values) == Recipe("other", 0.25, ("c", "d"), True)


@pytest.mark.parametrize("stored", [str, inspect.cleandoc])  # by Python up to 3.12, and later
def test_each_flag_is_explained_by_the_docstring(stored, monkeypatch):
    monkeypatch.setattr(Recipe, "__doc__", stored(Recipe.__doc__))
    values = flags.FlagValues()
    define_flags(Recipe(), values)
    assert values["name"].help == "What it is called."
    assert values["fast"].help == "Whether to hurry."


def test_a_recipe_is_changed_by_the_flags_that_were_given():
    def of(*arguments):
        values = flags.FlagValues()
        define_program_flags(FinetuneConfig(), values)
        values(["program", *arguments])
        return configuration(FinetuneConfig, values)

    assert of("--epochs=7") == FinetuneConfig(epochs=7)
    recipe = of("--recipe=minilm_sst2")
    assert recipe.task == "sst2"
    assert of("--recipe=minilm_sst2", "--epochs=7") == dataclasses.replace(recipe, epochs=7)
    with pytest.raises(ValueError, match="--recipe=x does not exist"):
        of("--recipe=x")


@pytest.mark.needs_tensorflow
def test_flags_need_to_fit_the_recipe_alone():
    pytest.importorskip("tensorflow")
    from training.pretraining.config import PretrainConfig

    values = flags.FlagValues()
    define_program_flags(PretrainConfig(), values)
    # Below the default number of warm-up updates, and above the recipe's
    values(["program", "--recipe=wikitext2_cpu", "--num_steps=600"])
    assert configuration(PretrainConfig, values).warmup_steps == 500
