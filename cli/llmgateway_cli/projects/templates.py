"""The templates of `init`: their table, and their files.

The files of a template are those of its language's folder and those of its own folder, which take precedence. A name
that begins with `_` stands for one that begins with a dot. Texts in `{{ }}` are replaced by the project's values.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Language = Literal["python", "typescript"]
PACKAGE = Path(__file__).resolve().parents[1]
# The folder lies in the package of an installed client, and beside the package in a checkout.
FOLDER = next((place for place in (PACKAGE / "templates", PACKAGE.parent / "templates") if place.is_dir()), PACKAGE)
SKIPPED = frozenset(("__pycache__", "node_modules", ".pytest_cache"))


@dataclass(frozen=True, slots=True)
class Template:
    """A kind of project. `category` is web, bot, agent or script; `dev` is the command that starts it."""

    name: str
    description: str
    category: str
    language: Language
    dev: tuple[str, ...]

    def read_files(self, values: Mapping[str, str]) -> dict[str, str]:
        """Return the texts of the project's files by path, with `values` filled in."""
        files: dict[str, str] = {}
        for folder in (FOLDER / f"_{self.language}", FOLDER / self.name):
            for path in sorted(folder.rglob("*")):
                relative = path.relative_to(folder)
                if path.is_file() and SKIPPED.isdisjoint(relative.parts):
                    files["/".join(_shown(part) for part in relative.parts)] = filled(path.read_text("utf-8"), values)
        return files


TEMPLATES: dict[str, Template] = {
    template.name: template
    for template in (
        Template(
            "image-generation", "Make images from prompts, and save them.", "script", "python", ("python", "main.py")
        ),
        Template(
            "chat-web-app", "A web page that talks to a model and streams its answers.", "web", "python",
            ("python", "app.py"),
        ),
        Template(
            "agent-with-tools", "An agent in the terminal that calls your functions.", "agent", "python",
            ("python", "agent.py"),
        ),
        Template(
            "rag-embeddings", "Answer questions about your documents, found by embeddings.", "script", "python",
            ("python", "rag.py"),
        ),
        Template(
            "batch-script", "Answer a file of prompts in parallel, and continue after an interruption.", "script",
            "python", ("python", "batch.py"),
        ),
        Template(
            "mcp-client", "Call the gateway's tools through the Model Context Protocol.", "agent", "typescript",
            ("npm", "run", "dev"),
        ),
    )
}  # fmt: skip
DEFAULT = "image-generation"


def filled(text: str, values: Mapping[str, str]) -> str:
    """Return the text with `{{name}}` replaced by each value."""
    for name, value in values.items():
        text = text.replace("{{" + name + "}}", value)
    return text


def _shown(part: str) -> str:
    """Return a part of a path as the project has it; `__init__.py` keeps its name."""
    if part.startswith("_") and not part.startswith("__"):
        return f".{part[1:]}"
    return part
