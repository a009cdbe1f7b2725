from typing import get_args

from openai.types.audio_response_format import AudioResponseFormat

from gateway.surfaces.openai.transcriptions import FORMATS


def test_each_format_of_openais_library_can_be_requested() -> None:
    assert set(FORMATS) == set(get_args(AudioResponseFormat))
