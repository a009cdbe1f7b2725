"""Sandbox answers are repeatable, have the shape of the wire format, and are counted by the sandbox's own rule."""

import base64
import os
import subprocess
import sys
from collections import defaultdict

import fastjsonschema
import orjson
import pytest
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from gateway.clock import Clock
from gateway.configuration.settings import ROOT
from gateway.providers.protocol import Call
from gateway.providers.sandbox.prose import write_answer, write_thoughts
from gateway.providers.sandbox.sandbox_server import SandboxServer

WEATHER = {
    "type": "object",
    "properties": {"city": {"type": "string", "minLength": 3}, "days": {"type": "integer", "minimum": 2}},
    "required": ["city"],
}
TOOLS = [
    {"type": "function", "function": {"name": "get_weather", "parameters": WEATHER}},
    {"type": "function", "function": {"name": "get_time"}},
]
PIXEL = base64.b64encode(b"x" * 68).decode()


def post(text, model, **body):
    messages = text if isinstance(text, list) else [{"role": "user", "content": text}]
    raw = orjson.dumps({"model": model, "messages": messages, **body})
    server = SandboxServer(Clock(), lambda seconds: None)
    call = Call("POST", "http://sandbox.invalid/v1/chat/completions", {}, raw)
    return server.open(call, deadline=float("inf"), heartbeat_s=10)


def ask(text, model="echo", **body):
    reply = post(text, model, **body)
    whole = reply.read_all()
    assert reply.status == 200, whole
    return ChatCompletion.model_validate_json(whole)


def stream(text, model="echo", **body):
    chunks = list(post(text, model, stream=True, **body).chunks())
    assert chunks[-1] == b"data: [DONE]\n\n"
    return [ChatCompletionChunk.model_validate_json(chunk.removeprefix(b"data: ")) for chunk in chunks[:-1]]


def joined(chunks, name="content"):
    texts = defaultdict(str)
    for chunk in chunks:
        for choice in chunk.choices:
            texts[choice.index] += getattr(choice.delta, name, None) or ""
    return dict(texts)


def said(answer, index=0):
    return answer.choices[index].message.content


def called(answer):
    return answer.choices[0].message.tool_calls


def test_echo_repeats_the_last_user_text_without_directives():
    history = [{"role": "user", "content": "one"}, {"role": "assistant", "content": "two"}]
    assert said(ask([*history, {"role": "user", "content": "three [[sandbox: pace=1]]"}])) == "three"


def test_same_request_gets_the_same_answer():
    assert ask("why?", "template", n=2) == ask("why?", "template", n=2)


WRITE = (
    "from gateway.providers.sandbox.prose import write_answer, write_thoughts\n"
    "print(write_answer('snow', 'seed', 500, None), write_thoughts('snow', 'seed', 500), end='')"
)


def test_prose_is_the_same_in_every_process():
    """Callers compare answers with those that they recorded."""
    prose = f"{write_answer('snow', 'seed', 500, None)} {write_thoughts('snow', 'seed', 500)}"
    environment = {**os.environ, "PYTHONHASHSEED": "7"}
    assert subprocess.check_output([sys.executable, "-c", WRITE], cwd=ROOT, env=environment, text=True) == prose


def test_other_request_gets_another_id_and_text():
    first, second = ask("why?", "template"), ask("how?", "template")
    assert first.id != second.id
    assert said(first) != said(second)


def test_streamed_answer_is_the_plain_answer_in_pieces():
    plain, chunks = ask("why? é", "template"), stream("why? é", "template")
    assert joined(chunks)[0] == said(plain)
    assert {chunk.id for chunk in chunks} == {plain.id}
    assert chunks[-1].choices[0].finish_reason == plain.choices[0].finish_reason


def test_usage_counts_four_bytes_a_token_rounded_up():
    usage = ask("12345é").usage  # seven bytes
    assert (usage.prompt_tokens, usage.completion_tokens, usage.total_tokens) == (2, 2, 4)


def test_streamed_usage_comes_last_and_on_request_only():
    assert all(chunk.usage is None for chunk in stream("hello"))
    chunks = stream("hello", stream_options={"include_usage": True})
    assert chunks[-1].choices == []
    assert chunks[-1].usage == ask("hello").usage


def test_cached_directive_counts_cached_tokens_up_to_the_prompt():
    assert ask("x" * 100 + "[[sandbox: cached=5]]").usage.prompt_tokens_details.cached_tokens == 5
    usage = ask("[[sandbox: cached=5000]]").usage
    assert usage.prompt_tokens_details.cached_tokens == usage.prompt_tokens


def test_max_tokens_cuts_the_answer_and_says_length():
    answer = ask("x" * 100, max_completion_tokens=5)
    assert (said(answer), answer.choices[0].finish_reason) == ("x" * 20, "length")
    assert answer.usage.completion_tokens == 5


def test_max_tokens_never_cuts_a_character_in_two():
    assert said(ask("ééééé€", max_tokens=2)) == "éééé"
    assert said(ask("€€€", max_tokens=1)) == "€"


def test_template_fills_max_tokens_with_whole_sentences():
    answer = ask("tea", "template", max_tokens=200)
    assert answer.choices[0].finish_reason == "stop"
    assert 150 < answer.usage.completion_tokens <= 200
    assert said(answer).endswith(".")


def test_tokens_directive_sets_the_exact_length():
    for model in ("echo", "template", "reasoning"):
        answer = ask("tea [[sandbox: tokens=200 reasoning=0]]", model)
        assert answer.usage.completion_tokens == 200


def test_too_many_tokens_over_all_choices_are_refused():
    assert post("[[sandbox: tokens=20000]]", "template", n=2).status == 400


def test_stop_sequence_ends_the_text_before_it():
    assert said(ask("one, two, three", stop=[" three", ", two"])) == "one"


def test_each_of_n_choices_has_its_index_in_a_stream():
    texts = joined(stream("why?", "template", n=3))
    answer = ask("why?", "template", n=3)
    assert texts == {index: said(answer, index) for index in range(3)}
    assert len(set(texts.values())) == 3


def test_reasoning_comes_before_content_and_is_counted():
    chunks = stream("why?", "reasoning", reasoning_effort="low")
    kinds = ["r" if getattr(c.choices[0].delta, "reasoning_content", None) else "c" for c in chunks[1:-1]]
    assert kinds == sorted(kinds, reverse=True)
    answer = ask("why?", "reasoning", reasoning_effort="low")
    assert answer.usage.completion_tokens_details.reasoning_tokens == 32
    assert joined(chunks, "reasoning_content")[0] == answer.choices[0].message.reasoning_content


def test_reasoning_effort_none_does_not_reason():
    message = ask("why?", "reasoning", reasoning_effort="none").choices[0].message
    assert getattr(message, "reasoning_content", None) is None


def test_more_effort_reasons_longer():
    def thought(**effort):
        return ask("why?", "reasoning", **effort).usage.completion_tokens_details.reasoning_tokens

    rising = [thought(reasoning_effort=effort) for effort in ("minimal", "low", "medium", "high", "xhigh", "max")]
    assert rising == sorted(set(rising)) and thought() == rising[2]


def test_tools_model_calls_the_named_tool_with_arguments_of_its_schema():
    answer = ask("please get_weather now", "tools", tools=TOOLS)
    (call,) = called(answer)
    assert (call.function.name, answer.choices[0].finish_reason) == ("get_weather", "tool_calls")
    fastjsonschema.compile(WEATHER)(orjson.loads(call.function.arguments))


def test_several_named_tools_are_called_in_parallel_unless_forbidden():
    calls = called(ask("get_weather and get_time", "tools", tools=TOOLS))
    assert [call.function.name for call in calls] == ["get_weather", "get_time"]
    assert calls[0].id != calls[1].id
    assert len(called(ask("get_weather and get_time", "tools", tools=TOOLS, parallel_tool_calls=False))) == 1


def test_parallel_directive_sets_the_number_of_calls():
    assert len(called(ask("go [[sandbox: parallel=3]]", tools=TOOLS))) == 3


def test_tool_directive_names_the_tool_and_must_be_on_offer():
    assert called(ask("go [[sandbox: tool=get_time]]", tools=TOOLS))[0].function.name == "get_time"
    assert post("go [[sandbox: tool=other]]", "echo", tools=TOOLS).status == 400
    assert post("go [[sandbox: tool=other]]", "echo").status == 400


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ("none", None),
        ("required", "get_weather"),
        ({"type": "function", "function": {"name": "get_time"}}, "get_time"),
        ({"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": TOOLS[1:]}}, "get_time"),
    ],
)
def test_tool_choice_is_honoured(choice, expected):
    calls = called(ask("go", "tools", tools=TOOLS, tool_choice=choice))
    assert (calls[0].function.name if calls else None) == expected


def test_echo_calls_no_tool_unless_forced():
    assert said(ask("get_weather", tools=TOOLS)) == "get_weather"
    assert called(ask("go", tools=TOOLS, tool_choice="required"))


def test_answer_after_a_tool_result_quotes_it():
    first = ask("get_weather", "tools", tools=TOOLS)
    call = called(first)[0]
    history = [
        {"role": "user", "content": "get_weather"},
        {"role": "assistant", "content": None, "tool_calls": [call.model_dump()]},
        {"role": "tool", "tool_call_id": call.id, "content": "18 degrees"},
    ]
    answer = ask(history, "tools", tools=TOOLS)
    assert "18 degrees" in said(answer)
    assert answer.choices[0].finish_reason == "stop"


def test_streamed_tool_call_joins_to_the_plain_one():
    plain = called(ask("go", "tools", tools=TOOLS))[0]
    parts = [p for c in stream("go", "tools", tools=TOOLS) for p in c.choices[0].delta.tool_calls or ()]
    assert (parts[0].id, parts[0].function.name) == (plain.id, plain.function.name)
    assert "".join(part.function.arguments for part in parts) == plain.function.arguments
    assert len(parts) > 2


def test_custom_tool_gets_the_text_as_its_input():
    tools = [{"type": "custom", "custom": {"name": "run"}}]
    assert called(ask("ls -l", "tools", tools=tools))[0].custom.input == "ls -l"


@pytest.mark.parametrize("model", ["json", "template"])
def test_an_answer_satisfies_the_response_schema(model):
    reply_format = {"type": "json_schema", "json_schema": {"name": "weather", "schema": WEATHER}}
    fastjsonschema.compile(WEATHER)(orjson.loads(said(ask("go", model, response_format=reply_format))))


def test_json_object_is_an_object_from_any_model():
    answer = ask("give json", "template", response_format={"type": "json_object"})
    assert orjson.loads(said(answer))["reply"] == "give json"


def test_attachments_are_acknowledged_with_type_and_size():
    content = [
        {"type": "text", "text": "look"},
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}"}},
        {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}},
        {"type": "input_audio", "input_audio": {"data": PIXEL, "format": "mp3"}},
        {"type": "file", "file": {"filename": "a.pdf", "file_data": f"data:application/pdf;base64,{PIXEL}"}},
    ]
    assert said(ask([{"role": "user", "content": content}])).split("\n") == [
        "look",
        "[image: image/png, 68 bytes]",
        "[image: https://example.com/a.png]",
        "[audio: audio/mp3, 68 bytes]",
        "[file: a.pdf, application/pdf, 68 bytes]",
    ]


def test_attachments_cost_tokens_by_kind():
    content = [
        {"type": "input_audio", "input_audio": {"data": base64.b64encode(b"x" * 2001).decode(), "format": "wav"}}
    ]
    usage = ask([{"role": "user", "content": content}]).usage
    assert (usage.prompt_tokens, usage.prompt_tokens_details.audio_tokens) == (3, 3)


def test_broken_base64_is_refused():
    content = [{"type": "image_url", "image_url": {"url": "data:image/png;base64,@@@"}}]
    assert post([{"role": "user", "content": content}], "echo").status == 400


def test_finish_directive_sets_the_finish_reason():
    assert ask("hi [[sandbox: finish=content_filter]]").choices[0].finish_reason == "content_filter"


def test_refusal_directive_refuses_in_words():
    message = ask("hi [[sandbox: refusal]]").choices[0].message
    assert message.refusal and message.content is None
    assert joined(stream("hi [[sandbox: refusal]]"), "refusal")[0] == message.refusal
