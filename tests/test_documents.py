"""Checks that names in the documents exist: paths, symbols, tests of rules, and packages."""

import ast
import itertools
import os
import re
import shlex
from pathlib import Path

import click
import pytest
from support.pages import spans

from gateway.accounts import alert_hooks, changes, sessions, skills
from gateway.catalogue import loader
from gateway.configuration import settings
from gateway.configuration.document import read_comments, without_names, write_reference
from gateway.dialects.hosted_tools import HOSTED_TOOLS
from gateway.engine import idempotency
from gateway.metering.rollups import rollup_table
from gateway.neutral.units import UNITS
from gateway.oauth import clients, grants
from gateway.operator import command as manage
from gateway.store import mailboxes
from gateway.store.database import Database
from gateway.surfaces import surface_table
from gateway.surfaces.management import table as management_table
from gateway.telemetry import alert_delivery
from gateway.worker import accepted_configuration

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "docs/architecture.md").read_text()
PATH = re.compile(r"`((?:gateway|tests|config|migrations)/[\w./-]*)")
SYMBOL = re.compile(r"`(gateway/[\w/]+\.py)`: `([\w.]+)`")
TEST = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")
LINK = re.compile(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)")
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *ROOT.glob("docs/**/*.md")])
# Lists of former changes keep the names that they had then.
CHANGE_LISTS = {ROOT / "CHANGELOG.md", *ROOT.glob("docs/changes/*.md")}


def has(body: list[ast.stmt], names: list[str]) -> bool:
    """Whether a module or class defines the first name, and in it the following ones."""
    for node in body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name == names[0]:
            return len(names) == 1 or has(node.body, names[1:])
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and [node.target.id] == names:
            return True
    return False


@pytest.mark.parametrize("path", sorted(set(PATH.findall(PAGE))))
def test_a_path_that_the_architecture_names_exists(path: str) -> None:
    assert (ROOT / path).exists()


@pytest.mark.parametrize(("path", "name"), sorted(set(SYMBOL.findall(PAGE) + TEST.findall(PAGE))))
def test_a_symbol_or_test_that_the_architecture_names_exists(path: str, name: str) -> None:
    assert has(ast.parse((ROOT / path).read_text()).body, name.split("."))


def test_every_package_has_its_line() -> None:
    packages = {path.parent.name for path in ROOT.glob("gateway/*/__init__.py")}
    assert {name for name in packages if f"| `gateway/{name}/` |" not in PAGE} == set()


@pytest.mark.parametrize(
    "question",
    [
        *("cleanup of cached", "price of an image", "retry decision", "consent to a device", "lease of a budget"),
        *("after its 429", "reset of a budget", "requests a person may see", "refresh token that is used twice"),
        *("how long it is stored", "hash of an API key", "SSRF guard", "migrations", "temporary file of an upload"),
        *("hours to compute again", "signature of a webhook", "who may read it", "error in a caller's dialect"),
    ],
)
def test_a_stranger_finds_it_in_one_row(question: str) -> None:
    rows = [line for line in PAGE.split("## Where is …?")[1].splitlines() if question in line]
    assert len(rows) == 1 and SYMBOL.search(rows[0])


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_link_of_a_page_leads_to_a_file(page: Path) -> None:
    assert [link for link in LINK.findall(page.read_text()) if not (page.parent / link).exists()] == []


def test_the_readme_leads_to_every_page() -> None:
    text = (ROOT / "README.md").read_text()
    assert [page.name for page in sorted((ROOT / "docs").glob("*.md")) if f"(docs/{page.name})" not in text] == []


def test_the_reference_of_the_settings_is_that_of_their_table() -> None:
    """`make pages` updates the page."""
    page = ROOT / "docs" / "configuration.md"
    text = page.read_text()
    found = re.search(r"<!-- The tables are written[^\n]*-->\n\n", text)
    assert found is not None
    defaults = (ROOT / "config" / "default.toml").read_text()
    tables = write_reference(defaults, settings.SECTIONS, settings.PLAIN_NAMES, accepted_configuration.RESTART_SETTINGS)
    if os.environ.get("WRITE_GOLDENS"):
        page.write_text(text[: found.end()] + tables)
    assert page.read_text()[found.end() :] == tables


def price_table() -> str:
    """Return the table of prices: one row for each unit, with its cost in answers and in reports."""
    lines = [
        "| Key | Price of one | When absent | In `cost_details` | In `/activity` |",
        "|---|---|---|---|---|",
    ]
    for unit in UNITS:
        meaning = unit.meaning
        if unit.tool is not None:
            meaning += f" (tool `{unit.tool.type}`)"
        figures = [figure.member for figure in (*unit.figures, unit.cost) if figure]
        cells = [f"`{unit.price}`", meaning, code(unit.absent), code(unit.detail), ", ".join(map(code, figures))]
        lines.append(f"| {' | '.join(cell or '–' for cell in cells)} |")
    return "\n".join(lines) + "\n"


def tool_table() -> str:
    """Return the table of hosted tools: one row for each that a vendor runs."""
    prices = {unit.count: unit.price for unit in UNITS}
    lines = [
        "| Format | Tool | Price | Most uses reserved | Counted by |",
        "|---|---|---|---|---|",
    ]
    for row in HOSTED_TOOLS:
        if row.payment == "caller":
            continue
        names = ", ".join(code(prices[count]) for count in row.units) or "its tokens"
        most = code(row.limit) + ", else " * bool(row.limit) + str(row.uses) if row.uses else "one context"
        kind = code(row.type + "…" * row.type.endswith("_"))
        lines.append(f"| `{row.vendor}` | {kind} | {names} | {most} | {row.counted or 'usage'} |")
    return "\n".join(lines) + "\n"


def test_the_table_of_hosted_tools_is_that_of_the_code() -> None:
    """`make pages` updates the page."""
    page = ROOT / "docs" / "providers.md"
    text = page.read_text()
    head, marker, rest = text.partition("from gateway/dialects/hosted_tools.py. -->\n\n")
    table, gap, tail = rest.partition("\nA container counts once")
    assert marker and gap
    if os.environ.get("WRITE_GOLDENS"):
        page.write_text(head + marker + tool_table() + gap + tail)
        table = tool_table()
    assert table == tool_table()


def code(text: str) -> str:
    if text:
        return f"`{text}`"
    return ""


def test_the_table_of_prices_is_that_of_the_units() -> None:
    """`make pages` updates the page."""
    page = ROOT / "docs" / "catalogue.md"
    text = page.read_text()
    head, marker, rest = text.partition("from gateway/neutral/units.py. -->\n\n")
    table, gap, tail = rest.partition("\n```toml\n# Tiers by the number")
    assert marker and gap
    if os.environ.get("WRITE_GOLDENS"):
        page.write_text(head + marker + price_table() + gap + tail)
        table = price_table()
    assert table == price_table()


def command_name(usage: str) -> str:
    """Return the first words of a usage line, which name the command."""
    return " ".join(itertools.takewhile(re.compile(r"[a-z-]+").fullmatch, usage.split()))


def operation_tables() -> str:
    """Return a table for each subject of the management API: its operations and the commands that run them."""
    tables: dict[str, list[str]] = {}
    for row in management_table.OPERATIONS:
        head = [f"### {row.about.tag}", "", "| Operation | | Command |", "|---|---|---|"]
        commands = [command_name(usage) for usage in getattr(row, "commands", ())]
        shown = ", ".join(map(code, dict.fromkeys(commands)))
        path = re.sub(r"<(?:\w+:)?(\w+)>", r"{\1}", row.path)
        tables.setdefault(row.about.tag, head).append(f"| `{row.method} {path}` | {row.about.summary} | {shown} |")
    return "\n\n".join("\n".join(lines) for lines in tables.values()) + "\n"


def test_the_page_of_the_management_api_has_all_operations() -> None:
    """`make pages` updates the page."""
    page = ROOT / "docs" / "management.md"
    text = page.read_text()
    head, marker, rest = text.partition("from gateway/surfaces/management/table.py. -->\n\n")
    tables, gap, tail = rest.partition("\n## Errors\n")
    if not gap:
        gap = "\n## Errors\n"
        tail = rest.removeprefix("## Errors\n")
    assert marker
    if os.environ.get("WRITE_GOLDENS"):
        page.write_text(head + marker + operation_tables() + gap + tail)
        tables = operation_tables()
    assert tables == operation_tables()


def test_the_page_of_alerts_names_their_events() -> None:
    text = (ROOT / "docs" / "health.md").read_text()
    listed = text.partition("all of these are sent:")[2].partition(". Alerts contain")[0]
    named = [name for name in re.findall(r"`(\w+\.\w+)`", listed) if not name.startswith("alerts.")]  # a setting
    assert tuple(named) == alert_hooks.EVENTS


def test_every_setting_has_a_comment() -> None:
    comments = read_comments((ROOT / "config" / "default.toml").read_text())
    names = settings.known_names()
    assert {key for key in settings.known_keys() if not without_names(comments.get(key, ""), names)} == set()


def test_every_table_has_a_line_that_shows_what_bounds_it(sqlite_database: Database) -> None:
    """Every table that callers can fill has a documented bound: docs/storage.md, "Growing data and its limits"."""
    sql = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
    there = [row[0] for row in sqlite_database.read(lambda: sqlite_database.execute(sql).fetchall())]
    section = (ROOT / "docs" / "storage.md").read_text().split("By table of the database:")[1].split("\n## ")[0]
    rows = [line.split("|")[1:4] for line in section.splitlines() if line.startswith("| `")]
    assert sorted(name for tables, _, _ in rows for name in re.findall(r"`(\w+)`", tables)) == sorted(there)
    assert all(bound.strip() for _, _, bound in rows)


MB = 1 << 20
ROLLUP_NAMES = (
    *(rollup_table.MAX_SOURCES, rollup_table.MAX_SESSIONS, rollup_table.MAX_TAGS),
    rollup_table.MAX_VALUES,
)
FIGURES: dict[str, tuple[int, ...]] = {
    "sign-in sessions": (sessions.MAX_SESSIONS,),
    "answers under": (idempotency.MAX_STREAM_BYTES // MB,),
    "applications of OAuth": (clients.MAX_CLIENTS, grants.MAX_GRANTS, grants.MAX_CHANGES),
    "invitations": (changes.MAX_INVITATIONS,),
    "keys, custom providers": (skills.MAX_SKILLS, changes.MAX_KEYS),
    "projects, members": (changes.MAX_PROJECTS, changes.MAX_MEMBERS),
    "teams, provider keys": (changes.MAX_TEAMS, changes.MAX_PROVIDER_KEYS, changes.MAX_RULES, changes.MAX_NAMES),
    "rollups": ROLLUP_NAMES,
    "`invitation`": (changes.MAX_INVITATIONS,),
    "`session`": (sessions.MAX_SESSIONS,),
    "`oauth_grant`": (grants.MAX_GRANTS, grants.MAX_TOKENS),
    "`document`": (alert_delivery.MAX_HOURLY, mailboxes.OWNER_WAITING, mailboxes.OWNER_BYTES // MB),
    "`rollup`": ROLLUP_NAMES,
}


@pytest.mark.parametrize("what", FIGURES)
def test_the_figures_of_a_bound_are_those_of_the_code(what: str) -> None:
    """docs/storage.md, "Growing data and its limits"."""
    section = (ROOT / "docs" / "storage.md").read_text().split("## Growing data")[1].split("\n## ")[0]
    (line,) = (line for line in section.splitlines() if line.startswith(f"| {what}"))
    told = {int(figure.replace(",", "")) for figure in re.findall(r"\b\d[\d,]*\b", line)}
    assert set(FIGURES[what]) <= told


MANAGE = re.compile(r"(?:\./manage|llmgateway-manage) ")
PATHS = re.compile(r"(GET|POST|PUT|PATCH|DELETE) (/[^\s?]*)$")
VARIABLE = re.compile(r"(?<![A-Z_])(?:GATEWAY|LLM)_[A-Z_]+[A-Z]")


def commands_in(page: Path) -> list[str]:
    """Spans that are commands of the operator, with their arguments: they begin with ./manage, or with the name of a
    command and one more word."""
    return commands_of(spans(page))


def commands_of(written: list[str]) -> list[str]:
    found = []
    for span in written:
        words = MANAGE.sub("", span).split()
        named = bool(words) and words[0] in manage.COMMANDS and len(words) > 1
        if MANAGE.match(span) or (named and re.fullmatch(r"[a-z][a-z-]*|-.*|[\w./:]+", words[1])):
            found.append(MANAGE.sub("", span))
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_command_that_a_page_names_is_understood(page: Path, tmp_path: Path) -> None:
    """Parse a command with its options and arguments without running it."""
    (file := tmp_path / "file").touch()
    for text in commands_in(page):
        command: click.Command = manage.main
        words = shlex.split(text)
        if words[0] in ("…", "<command>", "--help", "--config"):
            continue
        while isinstance(command, click.Group) and words:
            name = words.pop(0)
            found = command.get_command(click.Context(command), name)
            assert found is not None, f"{text}: there is no {name}"
            command = found
        if words:  # a name alone speaks of the command
            named = [str(file) if "/backups/" in word or word == "FILE" else word for word in words]
            command.make_context(text, named)


# A table that lists the commands of a program names it once, above; the history keeps its words.
WITHOUT_PROGRAM = {ROOT / "docs/management.md", ROOT / "CONTRIBUTING.md", *CHANGE_LISTS}
# Pages for people in a clone of the project, which say how to call the client there.
IN_A_CLONE = {ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "docs/cli.md", *CHANGE_LISTS}


@pytest.mark.parametrize("page", [one for one in PAGES if one not in WITHOUT_PROGRAM], ids=lambda path: path.name)
def test_a_command_of_a_page_begins_with_its_program(page: Path) -> None:
    bare = [span for span in spans(page) if not MANAGE.match(span) and commands_of([span])]
    assert bare == [], "write ./manage or llmgateway before the command"


@pytest.mark.parametrize("page", [one for one in PAGES if one not in IN_A_CLONE], ids=lambda path: path.name)
def test_the_client_is_called_llmgateway(page: Path) -> None:
    assert "./llmgateway" not in page.read_text()


def test_the_help_of_the_client_calls_it_llmgateway() -> None:
    sources = [*ROOT.glob("cli/llmgateway_cli/**/*"), *ROOT.glob("gateway/surfaces/**/*.html")]
    found = [
        path.name for path in sources if path.suffix in (".py", ".html", ".toml") if "./llmgateway" in path.read_text()
    ]
    assert len(sources) > 100 and found == []


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_files_and_addresses_that_a_page_names_exist(page: Path) -> None:
    makefile = (ROOT / "Makefile").read_text()
    for span in spans(page):
        target = re.fullmatch(r"make ([a-z-]+)", span)
        assert target is None or re.search(rf"^{target[1]}:", makefile, re.MULTILINE), span
        called = PATHS.fullmatch(span)
        assert called is None or is_served(called[1], called[2]), span


def is_served(method: str, path: str) -> bool:
    """Whether an operation has that path; {x}, <x> and … stand for anything, a leading /v1 may be left out."""
    wanted = re.sub(r"[{<][^}>]*[}>]|…", "x", path).rstrip("/") or "/"
    for one in surface_table.operations():
        form = re.sub(r"<(path:)?\w+>", lambda m: ".+" if m[1] else "[^/]+", one.path).rstrip("/") or "/"
        if one.method == method and re.fullmatch(form, wanted):
            return True
    return False


@pytest.mark.parametrize("page", [one for one in PAGES if one not in CHANGE_LISTS], ids=lambda path: path.name)
def test_a_variable_that_a_page_names_is_read(page: Path) -> None:
    known = settings.known_names() | set(settings.SECRETS.values()) | set(settings.KNOWN_OTHERS)
    for name in set(VARIABLE.findall(page.read_text())):
        plain = name.removesuffix("_FILE")
        assert plain in known or plain.startswith("LLM_") or any(one.startswith(name) for one in known), name


def test_every_code_of_the_errors_is_found_by_its_symptom() -> None:
    """The page contains no entry that does not exist."""
    errors = (ROOT / "docs" / "errors.md").read_text()
    rows = [line.split("|")[2] for line in errors.splitlines() if re.match(r"\| \d", line)]
    codes = {code for row in rows for code in re.findall(r"`(\w+)`", row)}
    page = (ROOT / "docs" / "troubleshooting.md").read_text()
    assert {code for code in codes if f"`{code}`" not in page} == set(), (
        "docs/troubleshooting.md has no symptom of these"
    )
    cells = [line.split("|")[1] for line in page.splitlines() if re.match(r"\| [1-5]\d\d", line)]
    told = {code for cell in cells for code in re.findall(r"`([a-z]+_[a-z_]+)`", cell)}
    assert len(codes) > 80 and {code for code in told if f"`{code}`" not in errors} == set()


def test_no_page_has_you_call_a_model_that_its_vendor_ends() -> None:
    """Examples in the documents use models that do not end soon; the list in the settings falls back to its next
    model."""
    catalogue = loader.load()
    makers = {provider.id: provider.sources.get("maker") for provider in catalogue.providers.values()}
    ending = {
        model.id
        for model in catalogue.models.values()
        if model.mappings[0].deactivated and makers[model.mappings[0].provider] == model.family
    }
    named = re.compile(rf"(?<![\w.-])(?:{'|'.join(map(re.escape, sorted(ending)))})(?![\w-]|\.\d)")
    pages = [page for page in PAGES if page not in CHANGE_LISTS and page.name != "configuration.md"]
    assert ending and {page.name: found for page in pages if (found := set(named.findall(page.read_text())))} == {}


def test_the_page_of_the_sandbox_names_its_models():
    text = (ROOT / "docs/sandbox.md").read_text()
    rows = re.findall(r"^\| `([\w-]+)` \|", text.partition("## Models")[2].partition("\n## ")[0], re.MULTILINE)
    models = loader.load().models
    assert {f"sandbox-{name}" for name in rows} == {name for name in models if name.startswith("sandbox-")}
