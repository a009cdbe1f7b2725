"""Writes subtitles from segments: SubRip (srt) and WebVTT (vtt)."""

from collections.abc import Iterable
from typing import Any

SUBTITLES = ("srt", "vtt")
HOUR_MS = 3_600_000
MINUTE_MS = 60_000
SECOND_MS = 1000
MAX_TIME_S = 3_599_999.999  # the largest time with three digits of hours


def write_subtitles(kind: str, segments: Iterable[dict[str, Any]]) -> str:
    """Return subtitles; `kind` is one of SUBTITLES. A segment has start and end in seconds, and text."""
    mark = "," if kind == "srt" else "."
    blocks = []
    for number, one in enumerate(segments, 1):
        start = _time(one.get("start", 0), mark)
        end = _time(one.get("end", 0), mark)
        head = f"{number}\n" if kind == "srt" else ""
        blocks.append(f"{head}{start} --> {end}\n{str(one.get('text', '')).strip()}\n\n")
    return ("" if kind == "srt" else "WEBVTT\n\n") + "".join(blocks)


def _time(seconds: float, mark: str) -> str:
    rest = round(min(max(0.0, float(seconds)), MAX_TIME_S) * SECOND_MS)
    hours, rest = divmod(rest, HOUR_MS)
    minutes, rest = divmod(rest, MINUTE_MS)
    whole, thousandths = divmod(rest, SECOND_MS)
    return f"{hours:02}:{minutes:02}:{whole:02}{mark}{thousandths:03}"
