from gateway.neutral.parts import sound_format


def test_formats_of_sound_have_one_name_under_all_media_types_that_clients_send() -> None:
    names = {
        "mp3": ("mpeg", "mpeg3", "x-mpeg", "mp3"),
        "wav": ("wav", "x-wav", "wave", "vnd.wave"),
        "m4a": ("mp4", "x-m4a", "m4a"),
        "aiff": ("aiff", "x-aiff"),
        "flac": ("flac", "x-flac"),
        "ogg": ("ogg",),
        "": ("",),
    }
    for name, subtypes in names.items():
        assert {sound_format(f"audio/{subtype}") for subtype in subtypes} == {name}
    assert sound_format("audio") == ""
