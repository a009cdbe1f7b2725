"""Reservation of audio in realtime sessions, by its bytes."""

from gateway.neutral.realtime import MIN_TRANSCRIBED_MS, transcription_units


def test_telephone_sound_that_is_transcribed_is_reserved_at_its_own_rate() -> None:
    """Telephone audio has a sixth of the bytes of PCM: ten minutes were reserved as two."""
    ten_minutes = 600 * 8_000
    assert transcription_units(ten_minutes).maximum.audio_ms == 600_000
    assert transcription_units(0).maximum.audio_ms == MIN_TRANSCRIBED_MS
