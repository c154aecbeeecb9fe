"""The request bodies take what the OpenAPI document says they take, and nothing else."""

from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from service.api.diagnose_schemas import DiagnoseRequest
from service.api.openai_schemas import ChatRequest, CompletionRequest
from service.api.schemas import SolveRequest

QUESTION = "What is 2 + 3?"
REQUIRED: dict[type[BaseModel], dict[str, Any]] = {
    SolveRequest: {"question": QUESTION},
    DiagnoseRequest: {"question": QUESTION},
    ChatRequest: {"messages": [{"role": "user", "content": QUESTION}]},
    CompletionRequest: {"prompt": QUESTION},
}


def plain_types(field: dict[str, Any]) -> set[str]:
    """The JSON types that a field's schema names at its top; empty if it takes anything."""
    kinds = [field, *field.get("anyOf", [])]
    return {kind["type"] for kind in kinds if "type" in kind}


def wrong_values() -> list[Any]:
    """Every field that is a number or a boolean, with values that only a conversion could accept."""
    cases = []
    for body in REQUIRED:
        for name, field in body.model_json_schema()["properties"].items():
            types = plain_types(field)
            is_number = bool(types & {"number", "integer"})
            wrong: list[Any] = [False, True, "0", "1"] if is_number else []
            wrong += [0, 1, "true"] if "boolean" in types else []
            allowed = {bool: "boolean", str: "string"}
            cases += [
                pytest.param(body, name, value, id=f"{body.__name__}-{name}-{value!r}")
                for value in wrong
                if allowed.get(type(value)) not in types
            ]
    return cases


@pytest.mark.parametrize(("body", "name", "value"), wrong_values())
def test_a_value_of_another_type_is_refused_by_the_name_of_its_field(
    body: type[BaseModel], name: str, value: object
) -> None:
    with pytest.raises(ValidationError) as caught:
        body.model_validate({**REQUIRED[body], name: value})
    assert {error["loc"][0] for error in caught.value.errors()} == {name}


@pytest.mark.parametrize("body", [ChatRequest, CompletionRequest])
def test_a_whole_number_is_a_number(body: type[BaseModel]) -> None:
    neutral = {"top_p": 1, "frequency_penalty": 0, "presence_penalty": 0, "temperature": 1}
    body.model_validate({**REQUIRED[body], **neutral})
