"""OpenAI's endpoints over real HTTP: what comes back, how it streams, and what is refused."""

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from service.api.openai_schemas import ChatCompletion, TextCompletion
from tests.reasoners import QUESTIONS
from tests.service.server import RunningServer

QUESTION = QUESTIONS[0]
CHAT, TEXT = "/v1/chat/completions", "/v1/completions"


def chat_body(**fields: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": QUESTION}]
    return {"model": "counting", "messages": messages, "seed": 3, **fields}


def chat(http: httpx.Client, **fields: Any) -> ChatCompletion:
    answer = http.post(CHAT, json=chat_body(**fields))
    assert answer.status_code == 200, answer.text
    return ChatCompletion.model_validate_json(answer.content)


def text(http: httpx.Client, **fields: Any) -> TextCompletion:
    body = {"model": "counting", "prompt": QUESTION, "seed": 3, **fields}
    answer = http.post(TEXT, json=body)
    assert answer.status_code == 200, answer.text
    return TextCompletion.model_validate_json(answer.content)


def test_a_chat_is_answered_as_solve_answers(http: httpx.Client) -> None:
    found = chat(http, n=3, budget=32, vote="confidence", include=["trajectories"])
    body = {"question": QUESTION, "seed": 3, "budget": 32, "vote": "confidence"}
    solved = http.post("/solve", json={**body, "include": ["trajectories"]}).json()
    own = {key: value for key, value in solved.items() if key not in ("id", "timing_ms")}
    assert found.gts.model_dump(mode="json", exclude={"id", "timing_ms"}) == own
    candidates = [each["answer"] for each in solved["candidates"] if each["answer"] is not None]
    assert [each.message.content for each in found.choices] == candidates[:3]
    assert [each.index for each in found.choices] == list(range(len(found.choices)))
    assert found.usage.prompt_tokens == solved["usage"]["prompt_tokens"]
    assert found.usage.completion_tokens == solved["usage"]["answer_tokens"]
    assert found.usage.total_tokens == sum(
        solved["usage"][k] for k in ("prompt_tokens", "answer_tokens")
    )
    assert found.id == f"chatcmpl-{found.gts.id}"


def test_the_last_user_message_is_the_question(http: httpx.Client) -> None:
    parts = [{"type": "text", "text": QUESTION}]
    turns = [
        {"role": "system", "content": ""},
        {"role": "user", "content": "What is the capital of France?"},
        {"role": "assistant", "content": None, "tool_calls": []},
        {"role": "user", "content": parts, "name": "me"},
    ]
    assert chat(http, messages=turns).gts.candidates == chat(http).gts.candidates


def test_a_model_id_may_hold_the_sampler_and_the_budget(http: httpx.Client) -> None:
    found = chat(http, model="counting@gaussian:0.5:16")
    assert (found.gts.sampler, found.gts.budget) == ("gaussian:0.5", 16)
    assert found.model == "counting@gaussian:0.5:16"
    fields = chat(http, sampler="gaussian:0.5", budget=16)
    assert fields.gts.candidates == found.gts.candidates
    assert chat(http, model="counting@gts:64", budget=4).gts.budget_used == 4


def test_models_lists_variants_and_finds_any_by_its_id(http: httpx.Client) -> None:
    listed = http.get("/v1/models").json()["data"]
    assert {"counting@gts:8", "counting@gts:64", "counting@dropout:0.1:64"} <= {
        model["id"] for model in listed
    }
    for model in listed:
        assert http.get(f"/v1/models/{model['id']}").json() == model
    other = http.get("/v1/models/counting%40dropout:0.3:5").json()
    assert other["parent"] == "counting"
    assert (other["sampler"], other["budget"]) == ("dropout:0.3", 5)


@pytest.mark.parametrize(
    "model_id",
    [
        "gpt-5",
        "counting@",
        "counting@gts",
        "counting@gts:0",
        "counting@gts:257",
        "counting@gts:9³",
        "counting@magic:8",
        "counting@gts:../x:8",
        "counting@token:1:8",
        "Counting@gts:8",
    ],
)
def test_a_model_that_is_not_served_is_a_404(http: httpx.Client, model_id: str) -> None:
    for answer in (
        http.get(f"/v1/models/{model_id}") if "/" not in model_id else None,
        http.post(CHAT, json=chat_body(model=model_id)),
    ):
        if answer is not None:
            assert answer.status_code == 404
            error = answer.json()["error"]
            assert (error["code"], error["param"]) == ("model_not_found", "model")


def test_logprobs_are_those_of_the_most_confident_trajectory(http: httpx.Client) -> None:
    found = chat(http, n=2, budget=16, logprobs=True, include=["tokens"])
    for choice, candidate in zip(found.choices, found.gts.candidates, strict=False):
        best = max(
            (each for each in found.gts.trajectories or () if each.index in candidate.trajectories),
            key=lambda each: each.confidence,
        )
        assert choice.logprobs is not None
        sent = [(each.token, each.logprob) for each in choice.logprobs.content]
        assert sent == [(each.token, each.logprob) for each in best.tokens or ()]
        assert best.text.strip() in "".join(token for token, _ in sent)
    plain = text(http, budget=16, logprobs=0)
    assert plain.choices[0].logprobs is not None
    assert found.choices[0].logprobs is not None
    tokens = [each.token for each in found.choices[0].logprobs.content]
    assert plain.choices[0].logprobs.tokens == tokens
    assert plain.choices[0].logprobs.text_offset[1] == len(tokens[0])
    assert plain.gts.model_dump()["trajectories"] is None, "only what was asked for"


def test_a_choice_longer_than_the_limit_is_cut_and_says_so(http: httpx.Client) -> None:
    enough = chat(http, logprobs=True).choices[0].logprobs
    assert enough is not None
    length = len(enough.content)
    whole = chat(http, max_completion_tokens=length).choices[0]
    cut = chat(http, max_tokens=length - 1, logprobs=True).choices[0]
    assert (whole.finish_reason, cut.finish_reason) == ("stop", "length")
    assert whole.message.content
    assert cut.message.content == ""
    assert cut.logprobs is not None
    assert len(cut.logprobs.content) == length - 1


def test_stop_is_a_certainty_or_texts(http: httpx.Client) -> None:
    assert chat(http, budget=128, stop={"certainty": 0.6}).gts.stop_reason == "certainty"
    whole = chat(http).choices[0].message.content
    assert whole
    assert (
        chat(http, stop=["\n", whole[-1]]).choices[0].message.content
        == whole[:-1].split(whole[-1])[0]
    )
    assert chat(http, stop="Question:").choices[0].message.content == whole


def test_completions_take_several_prompts(http: httpx.Client) -> None:
    found = text(http, prompt=[QUESTION, QUESTIONS[1]], n=2, best_of=16)
    assert {each.index // 2 for each in found.choices} == {0, 1}
    one = text(http, prompt=QUESTIONS[1], n=2, budget=16)
    second = [each.text for each in found.choices if each.index >= 2]
    assert second == [each.text for each in one.choices]
    results = found.model_dump()["gts"]["results"]
    assert [each["budget_used"] for each in results] == [16, 16]
    assert found.usage.completion_tokens == sum(each["usage"]["answer_tokens"] for each in results)


def chunks(http: httpx.Client, path: str, body: dict[str, Any]) -> Iterator[dict[str, Any]]:
    with http.stream("POST", path, json={**body, "stream": True}) as answer:
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/event-stream")
        lines = [line for line in answer.iter_lines() if line and not line.startswith(":")]
    assert lines[-1] == "data: [DONE]"
    for line in lines[:-1]:
        yield json.loads(line.removeprefix("data: "))


def test_a_stream_sends_progress_then_the_settled_answers(http: httpx.Client) -> None:
    body = chat_body(n=2, budget=256, stream_options={"include_usage": True}, logprobs=True)
    sent = list(chunks(http, CHAT, body))
    whole = chat(http, n=2, budget=256, logprobs=True)
    said = ["", ""]
    for chunk in sent[:-1]:
        assert chunk["object"] == "chat.completion.chunk"
        for choice in chunk["choices"]:
            said[choice["index"]] += choice["delta"].get("content") or ""
    assert said[: len(whole.choices)] == [each.message.content for each in whole.choices]
    logprobs = [c["logprobs"] for chunk in sent for c in chunk["choices"] if c["logprobs"]]
    assert logprobs == [each.model_dump()["logprobs"] for each in whole.choices]
    used = [chunk["gts"]["budget_used"] for chunk in sent if "gts" in chunk]
    assert used == sorted(used)
    assert used[-1] == 256
    assert {c["finish_reason"] for c in sent[-2]["choices"]} == {"stop"}
    assert sent[-1]["choices"] == []
    assert sent[-1]["usage"] == whole.usage.model_dump()


def test_a_completion_streams_too(http: httpx.Client) -> None:
    sent = list(chunks(http, TEXT, {"prompt": QUESTION, "seed": 3, "model": "counting"}))
    assert (
        "".join(c["text"] for chunk in sent for c in chunk["choices"]) == text(http).choices[0].text
    )
    assert sent[-1]["choices"][0]["finish_reason"] == "stop"
    assert "usage" not in sent[-1]


def test_a_failure_inside_a_stream_is_a_chunk_with_an_error(http: httpx.Client) -> None:
    messages = [{"role": "user", "content": "word " * 400}]
    *_, last = chunks(http, CHAT, chat_body(messages=messages))
    assert last["error"]["param"] == "messages"


USER = {"role": "user", "content": QUESTION}


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "assistant", "content": "hi"}]}, "messages"),
        ({"messages": [{"role": "system", "content": "Be brief."}, USER]}, "messages"),
        ({"messages": [USER, {"role": "tool", "content": "7", "tool_call_id": "x"}]}, "messages"),
        ({"messages": [{"role": "user", "content": " "}]}, "messages"),
        ({"messages": [{"role": "user", "content": "word " * 400}]}, "messages"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "messages"),
        ({"messages": [{"role": "king", "content": "hi"}]}, "messages"),
        ({"tools": [{"type": "function", "function": {"name": "f"}}]}, "tools"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"functions": [{"name": "f"}]}, "functions"),
        ({"response_format": {"type": "json_object"}}, "response_format"),
        ({"modalities": ["text", "audio"]}, "modalities"),
        ({"temperature": 2.5}, "temperature"),
        ({"temperature": 0.5, "sampler": "dropout:0.1"}, "temperature"),
        ({"top_p": 0.9}, "top_p"),
        ({"presence_penalty": 1}, "presence_penalty"),
        ({"logit_bias": {"50256": -100}}, "logit_bias"),
        ({"top_logprobs": 5, "logprobs": True}, "top_logprobs"),
        ({"reasoning_effort": "high"}, "reasoning_effort"),
        ({"n": 0}, "n"),
        ({"n": True}, "n"),
        ({"max_completion_tokens": 0}, "max_completion_tokens"),
        ({"stop": {"certainty": 2}}, "stop"),
        ({"stop": ["a"] * 5}, "stop"),
        ({"budget": 257}, "budget"),
        ({"sampler": "magic"}, "sampler"),
        ({"vote": "best", "stop": {"certainty": 0.9}}, "stop"),
        ({"surprise": 1}, "surprise"),
    ],
)
def test_what_cannot_be_done_is_refused_by_name(
    http: httpx.Client, fields: dict[str, Any], param: str
) -> None:
    answer = http.post(CHAT, json=chat_body(**fields))
    assert answer.status_code == 422, answer.text
    assert answer.json()["error"]["param"] == param
    assert "Value error" not in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"prompt": []}, "prompt"),
        ({"prompt": [1, 2, 3]}, "prompt"),
        ({"prompt": ""}, "prompt"),
        ({"prompt": ["Q"] * 65}, "prompt"),
        ({"prompt": ["Q", "Q"], "stream": True}, "stream"),
        ({"echo": True}, "echo"),
        ({"suffix": "."}, "suffix"),
        ({"logprobs": 5}, "logprobs"),
    ],
)
def test_what_a_completion_cannot_do_is_refused_by_name(
    http: httpx.Client, fields: dict[str, Any], param: str
) -> None:
    answer = http.post(TEXT, json={"prompt": QUESTION, **fields})
    assert answer.status_code == 422, answer.text
    assert answer.json()["error"]["param"] == param


@pytest.mark.parametrize(
    ("model", "temperature", "sampler"),
    [
        ("counting", 0, "deterministic"),
        ("counting", 0.5, "gts@0.5"),
        ("texting", 0.5, "token:0.5"),
        ("texting", 0, "deterministic"),
    ],
)
def test_a_temperature_scales_the_models_own_sampler(
    http: httpx.Client, model: str, temperature: float, sampler: str
) -> None:
    body = {"model": model, "messages": [USER], "seed": 3, "budget": 4}
    heated = http.post(CHAT, json={**body, "temperature": temperature}).json()
    named = http.post(CHAT, json={**body, "sampler": sampler}).json()
    assert heated["gts"]["sampler"] == sampler
    assert heated["choices"] == named["choices"]


def test_what_changes_nothing_is_taken(http: httpx.Client) -> None:
    neutral = {
        "temperature": 1,
        "top_p": 1.0,
        "frequency_penalty": 0,
        "tools": [],
        "tool_choice": "none",
        "response_format": {"type": "text"},
        "user": "me",
        "store": False,
        "metadata": {"a": "b"},
        "logprobs": None,
        "stop": None,
        "n": None,
        "stream": False,
    }
    assert chat(http, **neutral).choices == chat(http).choices


def test_an_answer_that_cannot_be_read_has_no_content(http: httpx.Client) -> None:
    fields: dict[str, Any] = {"model": "texting", "sampler": "deterministic"}
    found = chat(http, **fields)
    assert found.gts.stop_reason == "unreadable"
    assert [each.message.content for each in found.choices] == [None]
    assert [each.text for each in text(http, **fields).choices] == [""]


def test_a_server_with_tokens_asks_for_one(narrow: RunningServer) -> None:
    refused = httpx.post(f"{narrow.url}{CHAT}", json=chat_body(), timeout=60)
    assert refused.status_code == 401
    answer = httpx.post(f"{narrow.url}{CHAT}", json=chat_body(), headers=narrow.headers, timeout=60)
    assert answer.status_code == 200
