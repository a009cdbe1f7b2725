"""Make an image from a prompt: python main.py "A red bicycle" -o bicycle.png"""

import argparse
import base64
import os
from pathlib import Path

from connection import connect

PROMPT = "A lighthouse in the morning light"


def make_image(prompt: str, target: Path, size: str = "1024x1024") -> Path:
    """Make an image and write it to `target`."""
    answer = connect().images.generate(
        model=os.environ["IMAGE_MODEL"], prompt=prompt, size=size, response_format="b64_json"
    )
    target.write_bytes(base64.b64decode(answer.data[0].b64_json))
    return target


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("prompt", nargs="?", default=PROMPT)
    parser.add_argument("-o", "--output", type=Path, default=Path("image.png"))
    parser.add_argument("--size", default="1024x1024")
    options = parser.parse_args()
    print(f"Wrote {make_image(options.prompt, options.output, options.size)}")


if __name__ == "__main__":
    main()
