import pytest

from gateway.surfaces.google.schema import camel, with_camel_names


def test_names_are_converted_and_the_callers_own_content_stays() -> None:
    raw = b'{"system_instruction": 1, "contents": [{"parts": [{"function_call": {"args": {"a_b": {"c_d": 1}}}}]}]}'
    wire = {"system_instruction": 1, "contents": [{"parts": [{"function_call": {"args": {"a_b": {"c_d": 1}}}}]}]}
    renamed = with_camel_names(wire, raw)
    call = {"functionCall": {"args": {"a_b": {"c_d": 1}}}}
    assert renamed == {"systemInstruction": 1, "contents": [{"parts": [call]}]}


@pytest.mark.parametrize(
    "name",
    [
        *("args", "response", "parameters", "labels", "part_metadata"),
        *("parameters_json_schema", "response_schema", "response_json_schema"),
    ],
)
def test_names_that_the_caller_chose_stay_as_they_are(name: str) -> None:
    raw = b'{"%b": {"due_date": {"day_of_month": 1}}}' % name.encode()
    assert with_camel_names({name: {"due_date": {"day_of_month": 1}}}, raw) == {
        camel(name): {"due_date": {"day_of_month": 1}}
    }


def test_a_body_without_such_names_is_returned_itself() -> None:
    wire = {"contents": [{"parts": [{"text": "a_b"}]}]}
    assert with_camel_names(wire, b'{"contents": [{"parts": [{"text": "a_b"}]}]}') is wire
    assert camel("response_json_schema") == "responseJsonSchema"
