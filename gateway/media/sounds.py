"""How long a sound lasts: likely, and at the most. A header is never believed."""

from gateway.files import StoredFile
from gateway.neutral.file_types import HEAD, type_of

SECOND_MS = 1000
LIKELY_BYTES_A_SECOND = 4_000
# The fewest bytes that a second takes in each format: constant silence of FLAC, frames of AAC without content, packets
# of Opus that say "nothing is sent" within Ogg and WebM, empty frames of AMR, the lowest rate of MPEG audio.
LEAST_BYTES_A_SECOND = {
    "audio/flac": 9,
    "audio/aac": 55,
    "audio/ogg": 25,
    "video/webm": 25,
    "audio/amr": 50,
    "audio/mpeg": 1_000,
}
LEAST_OF_ANY = 55


def length_of(file: StoredFile) -> tuple[int, int]:
    """Milliseconds: likely, and at the most."""
    size = len(file)
    least = LEAST_BYTES_A_SECOND.get(type_of(file.read(HEAD)), LEAST_OF_ANY)
    likely = -(-size * SECOND_MS // LIKELY_BYTES_A_SECOND)
    return likely, max(likely, -(-size * SECOND_MS // least))
