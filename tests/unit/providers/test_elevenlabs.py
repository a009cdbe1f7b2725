import pytest

from gateway.catalogue.entries import Mapping, Provider
from gateway.errors import NotSupported
from gateway.neutral.request import Requirements
from gateway.neutral.speech import SpeechInput, SpeechRequest
from gateway.providers.elevenlabs import ElevenLabsSpeech
from gateway.providers.protocol import Call, Credential, Target


def call(sound_format: str, voice: str = "21m00Tcm4TlvDq8ikWAM", own_voice: bool = False) -> Call:
    mapping = Mapping("elevenlabs", "eleven-v3", "eleven_v3")
    provider = Provider("elevenlabs", "ElevenLabs", "elevenlabs", auth="xi-api-key")
    target = Target(provider, mapping, Credential("sk-x"), "https://api.elevenlabs.io/v1", {})
    content = SpeechInput("Hello", voice=voice, format=sound_format, own_voice=own_voice)
    return ElevenLabsSpeech().write(SpeechRequest("eleven-v3", Requirements(), lambda: content), target)


@pytest.mark.parametrize(
    ("sound_format", "theirs"),
    [("mp3", "mp3_44100_128"), ("wav", "wav_32000"), ("pcm", "pcm_32000"), ("opus", "opus_48000_128")],
)
def test_a_format_has_the_providers_name_with_rate_and_bits(sound_format: str, theirs: str) -> None:
    address = "https://api.elevenlabs.io/v1/text-to-speech/21m00Tcm4TlvDq8ikWAM/stream"
    assert call(sound_format).url == f"{address}?output_format={theirs}"


def test_a_format_that_the_provider_lacks_is_refused() -> None:
    with pytest.raises(NotSupported):
        call("flac")


@pytest.mark.parametrize("voice", [".", ".."])
def test_a_voice_that_leads_elsewhere_in_the_path_is_refused(voice: str) -> None:
    with pytest.raises(NotSupported):
        call("mp3", voice, own_voice=True)
