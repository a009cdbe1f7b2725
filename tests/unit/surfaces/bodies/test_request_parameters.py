import msgspec
import pytest

from gateway.errors import InvalidRequest
from gateway.neutral.parameters import PARAMETERS, Sampling, words_in
from gateway.surfaces.anthropic.schema import MessagesBody
from gateway.surfaces.bodies.request_parameters import ParameterReader, with_parameters
from gateway.surfaces.openai.chat_schema import ChatBody, decode
from gateway.surfaces.openai.completions import CompletionBody
from gateway.surfaces.responses.schema import ResponsesBody, TextConfig

BODIES = {
    "openai": {"": ChatBody},
    "completions": {"": CompletionBody},
    "responses": {"": ResponsesBody, "text": TextConfig},
    "anthropic": {"": MessagesBody},
}
PLACES = [(dialect, row) for row in PARAMETERS.values() for dialect in row.callers if dialect in BODIES]


@pytest.mark.parametrize(("dialect", "row"), PLACES, ids=lambda value: getattr(value, "name", value))
def test_every_field_of_a_row_is_a_field_of_its_bodies(dialect, row):
    holder, _, name = row.callers[dialect].rpartition(".")
    if holder == "tool_choice":
        return  # the tool choices of this dialect have it
    assert name in BODIES[dialect][holder].__struct_fields__


def test_declared_fields_stay_and_the_others_are_added():
    @with_parameters("openai")
    class Body(msgspec.Struct, kw_only=True):
        """A body."""

        temperature: str

    assert {"temperature", "verbosity", "n"} <= set(Body.__struct_fields__)
    assert msgspec.convert({"temperature": "warm", "verbosity": "low"}, Body).temperature == "warm"
    assert Body.__doc__ == "A body."


def test_a_reader_reads_fields_and_leaves_absent_ones_out():
    reader = ParameterReader("responses")
    body = msgspec.convert({"model": "m", "text": {"verbosity": "low"}, "top_p": 0.5}, ResponsesBody)
    assert reader.read(body, stop=("x",)) == Sampling(top_p=0.5, verbosity="low", stop=("x",))
    assert reader.read(msgspec.convert({"model": "m"}, ResponsesBody)) == Sampling()


@pytest.mark.parametrize("path", sorted({"tool_choice", *words_in("openai")} - {"reasoning_effort"}))
def test_words_are_read_in_any_case_and_others_are_refused_with_the_list(path):
    question = {"model": "m", "messages": [{"role": "user", "content": "Hello"}]}
    word = {"tool_choice": "auto"}.get(path) or words_in("openai")[path][0]
    assert getattr(decode(msgspec.json.encode({**question, path: word.upper()})), path) == word
    with pytest.raises(InvalidRequest, match="is not one of"):
        decode(msgspec.json.encode({**question, path: "something"}))
