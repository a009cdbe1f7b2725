"""Calls are written in time by the size of what they say: no search through all that was said before, for any part."""

from collections.abc import Callable

import pytest
from support.clock import FakeClock
from support.steps import count_steps

from gateway.catalogue.entries import Mapping, Provider
from gateway.errors import NotSupported
from gateway.neutral import cache_marks
from gateway.neutral.chat import ChatRequest, Conversation, FunctionTool, Requirements, VendorTool
from gateway.neutral.parts import CacheMark, File, Image, Media, Message, Reasoning, Text, ToolCall, ToolResult
from gateway.providers.protocol import Credential, Target
from gateway.providers.quirks import QUIRKS
from gateway.providers.registry import FACTORIES, Resources

FEW, TIMES = 60, 4
GROWTH = 5.5  # of steps when all is four times as much; by the square it would be sixteen
MARK = CacheMark()


def talk(*said: Message, tools: tuple = ()) -> Conversation:
    return Conversation((Message("user", (Text("Begin."),)), *said), tools=tools)


def calls(count: int) -> Conversation:
    """Calls in one turn, and their results in another order, each a message."""
    asked = tuple(ToolCall(f"c{n}", f"look{n % 7}", "{}") for n in range(count))
    told = [Message("tool", (ToolResult(f"c{n}", (Text("x"),), f"look{n % 7}"),)) for n in reversed(range(count))]
    return talk(Message("assistant", asked), *told)


def turns(count: int) -> Conversation:
    """A call and its result again and again, under ids that come twice."""
    said: list[Message] = []
    for n in range(count):
        said.append(Message("assistant", (ToolCall(f"c{n // 2}", "look", '{"a": [1]}'),)))
        said.append(Message("tool", (ToolResult(f"c{n // 2}", (Text(f"{n}"),), "look"),)))
    return talk(*said)


def empty_turns(count: int) -> Conversation:
    """Results, then turns that say nothing."""
    return Conversation((*calls(count).messages, *(Message("assistant", (Text(""),)) for _ in range(count))))


SHAPES: dict[str, Callable[[int], Conversation]] = {
    "messages": lambda count: talk(*(Message(("user", "assistant")[n % 2], (Text("hi"),)) for n in range(count))),
    "one role": lambda count: talk(*(Message("user", (Text("hi"),), name=f"n{n}") for n in range(count))),
    "instructions": lambda count: talk(*(Message(("system", "user")[n % 2], (Text("hi"),)) for n in range(count))),
    "parts": lambda count: talk(Message("user", tuple(Text(f"{n}", cache=MARK) for n in range(count)))),
    "images": lambda count: talk(
        Message("user", tuple(Image(Media(media_type="image/png", data=f"AAA{n}")) for n in range(count)))
    ),
    "addresses": lambda count: talk(
        Message("user", tuple(Image(Media(url=f"https://images.example/{n}.png")) for n in range(count)))
    ),
    "documents": lambda count: talk(
        Message(
            "user",
            tuple(
                File(Media(media_type="text/plain", data=f"AAA{n}"), f"f{n}.txt", title=f"t{n}", context="c")
                for n in range(count)
            ),
        )
    ),
    "reasoning": lambda count: talk(
        *(Message("assistant", (Reasoning(f"{n}", signature=f"s{n}", vendor="other"), Text("a"))) for n in range(count))
    ),
    "calls": calls,
    "turns": turns,
    "empty turns": empty_turns,
    "images in results": lambda count: talk(
        Message("assistant", (ToolCall("c", "look", "{}"),)),
        Message(
            "tool",
            (ToolResult("c", tuple(Image(Media(media_type="image/png", data=f"A{n}")) for n in range(count)), "look"),),
        ),
    ),
    "tools": lambda count: talk(
        tools=tuple(
            FunctionTool(f"a tool {n}", "d", {"type": "object", "properties": {"a": {"type": "string"}}})
            for n in range(count)
        )
    ),
    "tools of others": lambda count: talk(
        tools=tuple(VendorTool("other", f"kind_{n}", {"type": f"kind_{n}"}) for n in range(count))
    ),
}


WIRES = {name: make(Resources(None, FakeClock(), lambda secret: "t")) for name, make in FACTORIES.items()}  # type: ignore[arg-type]
CODECS = {name: wire.codecs["chat"] for name, wire in WIRES.items() if "chat" in wire.codecs}


def target_of(protocol: str, *quirks: str) -> Target:
    provider = Provider("acme", "Acme", protocol, "http://127.0.0.1:1/v1", quirks=quirks)
    mapping = Mapping("acme", "m", "m-1", tools=True, vision=True, context_length=10**9, max_output=10**6)
    return Target(provider, mapping, Credential("k"), provider.address)


def growths(target: Target) -> dict[str, float]:
    """By how much more steps come, for each shape that the format carries."""

    def steps_of(shape: str, count: int) -> int:
        content = SHAPES[shape](count)
        request = ChatRequest("m", Requirements(max_tokens=100), lambda: content)
        return count_steps(lambda: CODECS[target.protocol].write(request, target))

    found = {}
    for shape in SHAPES:
        try:
            steps_of(shape, 2)  # what is made once
            found[shape] = steps_of(shape, FEW * TIMES) / steps_of(shape, FEW)
        except NotSupported:
            continue
    return found


@pytest.mark.parametrize("protocol", CODECS)
def test_four_times_as_much_takes_four_times_the_steps(protocol: str) -> None:
    found = growths(target_of(protocol))
    assert len(found) > 6 and {shape: growth for shape, growth in found.items() if growth > GROWTH} == {}


@pytest.mark.extended
@pytest.mark.slow
def test_no_quirk_takes_more_than_its_share() -> None:
    found = {
        (quirk, shape): growth for quirk in QUIRKS for shape, growth in growths(target_of("openai", quirk)).items()
    }
    assert {name: growth for name, growth in found.items() if growth > GROWTH} == {}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("policy", ["automatic", "disabled"])
def test_a_policy_on_cache_marks_takes_steps_by_the_size_of_the_talk(policy: str, shape: str) -> None:
    def steps(count: int) -> int:
        content = SHAPES[shape](count)
        request = ChatRequest("m", Requirements(messages=count), lambda: content)
        return count_steps(lambda: cache_marks.apply_policy(request, policy).conversation())

    assert steps(FEW * TIMES) < steps(FEW) * GROWTH
