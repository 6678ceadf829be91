"""The OpenAPI description of the dashboard's interface: what each request takes and answers.

FastAPI makes the description from the routes. What it cannot know from their signatures is here:
bodies that a route reads itself, and the schemas of answers.
"""

from __future__ import annotations

from typing import Any

from tidegate.errors import LONGEST_SENTENCE

__all__ = [
    "ANSWERS",
    "CONTROL",
    "CONTROLS",
    "EVENTS",
    "FORM",
    "JOURNALS",
    "SERIES",
    "TURN",
    "WRONG",
]

Json = dict[str, Any]
TEXT: Json = {"type": "string"}


def _json(description: str, schema: Json) -> Json:
    return {"description": description, "content": {"application/json": {"schema": schema}}}


def _text(description: str, kind: str = "text/plain") -> Json:
    return {"description": description, "content": {kind: {"schema": TEXT}}}


def _object(**properties: Json) -> Json:
    return {"type": "object", "properties": properties, "required": list(properties)}


ERROR = _object(error={"type": "string", "minLength": 1, "maxLength": LONGEST_SENTENCE})
STEERING: Json = {"type": "object", "description": "the controls in effect; see the journal"}
ABOUT: Json = {
    "name": TEXT,
    "policy": TEXT,
    "turns": {"type": "integer", "minimum": 0},
    "read": {"type": "number", "minimum": 0, "maximum": 1},
    "edition": TEXT,
    "clock": {"enum": ["wall", "run"]},
    "live": {"type": "boolean"},
    "steering": STEERING,
}
"""What is known of a journal."""
COLUMNS: Json = {"type": "object", "additionalProperties": {"type": "array"}}

_REFUSED = _json("no token, or a wrong one", ERROR)
_REFUSED["content"]["text/plain"] = {"schema": TEXT}
ANSWERS: dict[int | str, Json] = {
    401: _REFUSED,
    403: _text("a request that changes something and comes from another site"),
    404: _json("there is nothing with this number or at this path", ERROR),
    421: _text("on loopback, a request for a host that is not this machine"),
    422: _json("a request that cannot be used; the sentence says why", ERROR),
}
"""Answers that every request can have."""

JOURNALS = _json(
    "the journals, in the order of their numbers",
    {"type": "array", "items": _object(id={"type": "integer", "minimum": 0}, **ABOUT)},
)
SERIES = _json("the journal and its rows as columns", _object(**ABOUT, rows=COLUMNS))
TURN = _json(
    "the turn",
    _object(index={"type": "integer", "minimum": 0}, totals={"type": "object"}),
)
WRONG = _text("the form, after a token that is not valid", "text/html")
EVENTS = _text("`begin` when other rows are shown, `turns` with new rows", "text/event-stream")
CONTROLS = _json(
    "whether the loop accepts controls, and which",
    _object(
        enabled={"type": "boolean"},
        why=TEXT,
        sign_in={"type": "boolean"},
        steering=STEERING,
        heard={"type": "array"},
        policies={"type": "array", "items": _object(name=TEXT, parameters={"type": "array"})},
    ),
)
CONTROL: Json = {
    "responses": {
        202: _json("the loop was asked", _object(asked=TEXT)),
        409: _json("no loop listens", ERROR),
        415: _json("the body is not declared as JSON", ERROR),
    },
    "openapi_extra": {
        "requestBody": {
            "required": True,
            "content": {
                "application/json": {
                    "schema": {
                        "type": "object",
                        "properties": {
                            "do": {"enum": ["pause", "dry-run", "policy"]},
                            "value": TEXT,
                            "parameters": {"type": "object"},
                        },
                        "required": ["do", "value"],
                        "additionalProperties": False,
                    }
                }
            },
        },
    },
}
"""A control: its body and its answers."""
FORM: Json = {
    "responses": {303: {"description": "to the dashboard, or back to the form"}},
    "openapi_extra": {
        "requestBody": {
            "required": True,
            "content": {
                "application/x-www-form-urlencoded": {
                    "schema": {"type": "object", "properties": {"token": TEXT}}
                }
            },
        }
    },
}
"""The form that takes the token: its body and its answers."""
