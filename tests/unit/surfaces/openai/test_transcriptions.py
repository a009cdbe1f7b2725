from typing import get_args

import pytest
from openai.types.audio_response_format import AudioResponseFormat

from gateway.surfaces.openai.transcriptions import RESPONSE_FORMATS, _flag
from gateway.surfaces.web.forms import Form


def test_each_format_of_openais_library_can_be_requested() -> None:
    assert set(RESPONSE_FORMATS) == set(get_args(AudioResponseFormat))


@pytest.mark.parametrize(("text", "value"), [("True", True), ("1", True), ("false", False), ("0", False), ("", False)])
def test_a_switch_of_the_form_has_the_spellings_of_clients(text: str, value: bool) -> None:
    assert _flag(Form([("diarize", text)], []), "diarize") is value
