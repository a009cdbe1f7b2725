"""Subtitles from segments, whatever times a provider returns."""

import pytest

from gateway.surfaces.openai.transcriptions import write_subtitles


@pytest.mark.parametrize(
    ("seconds", "written"),
    [(1.5, "00:00:01,500"), (-3, "00:00:00,000"), (1e308, "999:59:59,999"), (3_600, "01:00:00,000")],
)
def test_times_that_no_recording_has_are_written_as_the_nearest_that_can_be(seconds: float, written: str) -> None:
    assert write_subtitles("srt", [{"start": seconds, "end": seconds, "text": " x "}]) == (
        f"1\n{written} --> {written}\nx\n\n"
    )
