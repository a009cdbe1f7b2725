"""The models of sessions: one for each protocol, before strict fakes that answer with thought and signatures."""

import json
from dataclasses import replace
from typing import Any

from contract import vendors
from contract.vendors import Say, Vendor
from fakes import bedrock, openai
from fakes.anthropic_checks import sign
from fakes.openai_checks import check_body, check_reasoned_calls, parse

from gateway.catalogue import loader

Json = dict[str, Any]


class FakeCompatible(openai.FakeOpenAI):
    """A server with OpenAI's format, older names of parameters and thought in `reasoning_content`."""

    thinks = False

    def check(self, environ: Json, headers: dict[str, str], payload: bytes) -> Json:
        body = parse(environ, headers, payload)
        if self.thinks:
            check_reasoned_calls(body)
        bare = {name: value for name, value in body.items() if name != "thinking"}
        bare["messages"] = [
            {name: value for name, value in message.items() if name != "reasoning_content"}
            for message in body.get("messages") or ()
        ]
        check_body({**bare, "model": "gpt-4"})
        return body


class FakeThinking(FakeCompatible):
    """A server that refuses a turn with calls and without its thought, as DeepSeek, Moonshot and Xiaomi do."""

    thinks = True


def _script_thinking(say: Say) -> openai.Answer:
    return replace(vendors.VENDORS["openai"].script(say), thought=say.thinking)


def _script_bedrock(say: Say) -> bedrock.Answer:
    answer = vendors.VENDORS["bedrock"].script(say)
    return replace(answer, reasoning=(say.thinking, sign(say.thinking))) if say.thinking else answer


def _script_or_break(name: str) -> Any:
    """Return the script function of a vendor, with statuses of errors."""

    def script(say: Say) -> Any:
        answer = vendors.FURTHER[name].script(say)
        return replace(answer, status=say.broken) if say.broken else answer

    return script


def _with_quirks_of(provider: str) -> str:
    return f"quirks = {json.dumps(loader.load().providers[provider].quirks)}\n"


VENDORS: dict[str, Vendor] = {
    **{name: vendors.VENDORS[name] for name in ("openai", "responses", "anthropic", "google")},
    "bedrock": replace(vendors.VENDORS["bedrock"], script=_script_bedrock),
    **{name: replace(vendor, script=_script_or_break(name)) for name, vendor in vendors.FURTHER.items()},
    "deepseek": Vendor(
        FakeThinking, _script_thinking, "openai", "deepseek-flash", provider=_with_quirks_of("deepseek")
    ),
    "compatible": Vendor(FakeCompatible, _script_thinking, "openai", "qwen-4", provider=_with_quirks_of("custom")),
}
