from __future__ import annotations

import pickle

import pytest

from tidegate import errors
from tidegate.errors import (
    CheckFailed,
    Infeasible,
    InputError,
    LatencyUnreachable,
    NotEnoughProcessors,
    SettingError,
    TidegateError,
    TopologyError,
)


def test_everything_public_is_in_one_tree() -> None:
    for name in errors.__all__:
        assert issubclass(getattr(errors, name), TidegateError)


def test_bad_input_is_also_a_value_error_and_a_failed_check_an_assertion_error() -> None:
    assert issubclass(InputError, ValueError)
    assert issubclass(CheckFailed, AssertionError)
    assert not issubclass(Infeasible, ValueError)


def test_a_message_names_key_value_range_and_remedy() -> None:
    error = TopologyError("rate", "fast", "a number", "write 4.5")
    assert str(error) == "rate is 'fast'; it must be a number: write 4.5"
    assert str(InputError("rate", -1, "at least 0")) == "rate is -1; it must be at least 0"


def test_infeasible_answers_carry_their_numbers() -> None:
    short = NotEnoughProcessors(needed=7, available=5)
    assert (short.needed, short.available) == (7, 5)
    assert "5 processors are not enough: the load needs at least 7" in str(short)
    late = LatencyUnreachable(bound_s=0.1, floor_s=0.4)
    assert "0.1 s cannot be reached: the best is 0.4 s" in str(late)


@pytest.mark.parametrize(
    "error",
    [
        InputError("a", 1, "2", "three"),
        TopologyError("a", None, "2"),
        NotEnoughProcessors(3, 2),
        LatencyUnreachable(0.5, 1.0),
    ],
)
def test_errors_survive_the_way_to_another_process(error: TidegateError) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert str(again) == str(error)
    assert vars(again) == vars(error)


def test_a_message_shows_the_ends_of_a_long_key() -> None:
    error = SettingError("first" + "x" * 10_000 + "last", 1, "a parameter of this policy", "remedy")
    assert len(str(error)) < 300
    assert str(error).startswith("firstx") and "xlast is 1; it must be" in str(error)
    assert len(error.key) == 10_009, "who catches it has all of it"


def test_of_a_value_that_repeats_itself_only_the_beginning_is_written() -> None:
    """A YAML file of aliases describes gigabytes, and all of it would be made before it is cut."""
    written = []

    class Part:
        def __repr__(self) -> str:
            written.append(1)
            return "part"

    assert len(str(InputError("key", [[Part()] * 1000] * 1000, "small"))) < 300
    assert 0 < len(written) <= 2500
