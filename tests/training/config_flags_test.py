# SPDX-License-Identifier: Apache-2.0
import dataclasses

import pytest
from absl import flags

from training.config_flags import define_flags, read_flags

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


def test_each_flag_is_explained_by_the_docstring():
    values = flags.FlagValues()
    define_flags(Recipe(), values)
    assert values["name"].help == "What it is called."
    assert values["fast"].help == "Whether to hurry."
