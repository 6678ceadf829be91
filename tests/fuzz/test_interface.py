"""Requests that schemathesis makes from the dashboard's OpenAPI description, and their answers.

Each request of the description is made with values that fit it and with values that do not. The
answer has a status, a type and a form that the description names, and is never an internal error.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import given
from hypothesis import strategies as st
from schemathesis import GenerationMode, checks
from schemathesis.core.failures import FailureGroup

from tests.fuzz import cases, within_limits
from tests.fuzz.test_files import journal_lines
from tidegate.dashboard import app as module
from tidegate.dashboard.journals import JournalList
from tidegate.dashboard.security import Access
from tidegate.loop.controls import ControlFile
from tidegate.policies import create

TOKEN = "fuzz-the-gate-fuzz"
BASE = "http://localhost"
BEARER = {"authorization": f"Bearer {TOKEN}"}
TURNS = 4


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Any, ControlFile]]:
    """The described application, with a journal whose loop listens."""
    path = tmp_path_factory.mktemp("interface") / "run.jsonl"
    path.write_bytes(journal_lines())
    controls = ControlFile(path, create("drs"))
    journals = JournalList([path])
    journals.refresh()
    ended = threading.Event()
    ended.set()  # a stream of events ends after its first one
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "GUESS_S", 0.0)
        made = module.make_app(journals, Access(None, True, TOKEN, 1), ended)
        schema = schemathesis.openapi.from_dict(made.openapi())
        schema.app = made
        yield schema, controls
    controls.close()


def described() -> list[tuple[str, GenerationMode]]:
    """Every request, with values that fit; those with parameters also with values that do not."""
    paths = module.make_app(JournalList([]), Access(None, True)).openapi()["paths"]
    return [
        (f"{method.upper()} {path}", mode)
        for path, methods in paths.items()
        for method, said in methods.items()
        for mode in GenerationMode
        if mode is GenerationMode.POSITIVE or "parameters" in said
    ]


REQUESTS = described()


def test_the_checks_find_an_answer_that_is_not_described(served: tuple[Any, ControlFile]) -> None:
    schema, _ = served
    case = schema["/api/journals"]["GET"].Case()
    answer = case.call(base_url=BASE)
    case.validate_response(answer)
    for change in ({"status_code": 500}, {"status_code": 418}, {"content": b'{"id": 1}'}):
        wrong = case.call(base_url=BASE)
        for name, value in change.items():
            setattr(wrong, name, value)
        with pytest.raises(FailureGroup):
            case.validate_response(wrong)


@pytest.mark.parametrize(("operation", "mode"), REQUESTS)
def test_an_answer_is_as_described(
    served: tuple[Any, ControlFile], operation: str, mode: GenerationMode
) -> None:
    schema, controls = served
    method, _, path = operation.partition(" ")
    strategy = schema[path][method].as_strategy(generation_mode=mode)
    # What a control may say depends on the loop, so the schema allows more than is accepted.
    excluded = [checks.positive_data_acceptance] if operation.startswith("POST /api") else []

    @cases(0.4 / len(REQUESTS))
    @given(case=strategy, there=st.booleans(), known=st.booleans())
    def check(case: schemathesis.Case[Any], there: bool, known: bool) -> None:
        if there and mode is GenerationMode.POSITIVE:
            for name, most in (("number", 1), ("index", TURNS)):
                if name in case.path_parameters:
                    case.path_parameters[name] %= most
        headers = BEARER if known else {}
        with within_limits():
            answer = case.call(base_url=BASE, headers=headers)
        asked = len(controls.take())
        assert asked == (answer.status_code == 202), answer.text
        assert known or not asked
        case.validate_response(answer, headers=headers, excluded_checks=excluded)

    check()
