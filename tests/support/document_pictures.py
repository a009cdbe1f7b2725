"""Writes the pictures of README.md and docs/ from the screenshots of the console (`make screenshots`)."""

import sys
from pathlib import Path

from PIL import Image

# Picture → the screenshot.
PICTURES = {
    "console-overview": "overview-1400-light",
    "console-explore": "explore-1400-dark",
    "console-session": "session-1400-light",
    "console-outcomes": "outcomes-1400-dark",
    "console-playground": "playground-answers-1400-light",
}
QUALITY = 82


def write_pictures(screenshots: Path, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, screenshot in PICTURES.items():
        with Image.open(screenshots / f"{screenshot}.png") as image:
            image.convert("RGB").save(folder / f"{name}.webp", quality=QUALITY, method=6)


if __name__ == "__main__":
    write_pictures(Path(sys.argv[1]), Path(sys.argv[2]))
