"""The requests that a completions body stands for, and the format of completions."""

from collections.abc import Sequence

import orjson
import pytest

from gateway.errors import InvalidRequest
from gateway.neutral.chat import FinishReason
from gateway.surfaces.openai import completions
from gateway.surfaces.openai.completions_writer import Unfenced, _choice


def read(**fields: object) -> completions.ChatRequest:
    body = completions.decode(orjson.dumps({"model": "m", "prompt": "def f(", **fields}))
    return completions.read_completion(body, completions.prompts_of(body)[0])


def test_a_prompt_without_suffix_is_the_user_message() -> None:
    talk = read(max_tokens=9.0, stop="\n").conversation()
    assert [(message.role, message.parts[0].text) for message in talk.messages] == [("user", "def f(")]
    assert (talk.sampling.max_tokens, talk.sampling.stop) == (9, ("\n",))


def test_a_gap_is_explained_and_reasoning_is_disabled() -> None:
    request = read(suffix="):\n    pass")
    talk = request.conversation()
    assert talk.messages[0].role == "system" and talk.reasoning.effort == "none"
    assert talk.messages[1].parts[0].text == "<before>def f(</before>\n<after>):\n    pass</after>"
    assert request.completion.suffix == "):\n    pass" and request.requirements.effort == ""


@pytest.mark.parametrize("prompt", [[1, 2, 3], [[1, 2]], ["a", 1], [], ["a"] * 129])
def test_token_numbers_and_too_many_prompts_are_refused(prompt: list[object]) -> None:
    with pytest.raises(InvalidRequest) as caught:
        read(prompt=prompt)
    assert caught.value.param == "prompt"


def test_a_list_of_one_text_is_that_text() -> None:
    assert read(prompt=["x"]).completion.prompt == "x"


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("```python\na = 1\nb = 2\n```", "a = 1\nb = 2"),
        ("```\na = `x`\n```\n", "a = `x`"),
        ("a = 1", "a = 1"),
        ("`x` and ```y```", "`x` and ```y```"),
        ("", ""),
        ("``", "``"),
        ("```js\na\n```b\n\nc\n```", "a\n```b\n\nc"),
        ("\n  indented", "\n  indented"),
    ],
)
@pytest.mark.parametrize("size", [1, 2, 3, 7, 100])
def test_a_fence_around_the_whole_text_is_removed_however_it_is_split(text: str, kept: str, size: int) -> None:
    pieces: Sequence[str] = [text[at : at + size] for at in range(0, len(text), size)]
    state = Unfenced()
    assert "".join([*map(state.feed, pieces), state.end()]) == kept


@pytest.mark.parametrize(
    ("finish", "written"),
    [("stop", "stop"), ("length", "length"), ("refusal", "content_filter"), ("tool_calls", "stop"), (None, None)],
)
def test_a_completion_says_why_it_ended(finish: FinishReason | None, written: str | None) -> None:
    assert _choice(0, "x", finish)["finish_reason"] == written
