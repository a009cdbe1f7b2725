"""The rules of the architecture: imports between layers, libraries of each layer, and the size of files."""

import re
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest
from support.python_sources import read_source

ROOT = Path(__file__).resolve().parent.parent
GATEWAY = ROOT / "gateway"
FILES = sorted(GATEWAY.rglob("*.py"))
MAX_LINES = 600

# The layers, lowest first. A folder imports only folders of lower layers; modules at the root of the package are below
# all of them. The longest prefix decides.
LAYERS = (
    ("runtime", "configuration"),
    ("neutral", "store", "transport"),
    ("catalogue", "control", "dialects", "guardrails", "media"),
    ("callers", "limits", "routes"),
    ("accounts", "metering", "routing"),
    ("oauth", "providers", "reports", "sso"),
    ("billing",),
    ("engine", "jobs", "telemetry"),
    ("admin", "files", "videos"),
    ("batches",),
    ("worker",),
    ("surfaces.web",),
    ("server", "surfaces.bodies", "surfaces.description", "surfaces.oauth", "surfaces.scim", "surfaces.visitors"),
    (
        "surfaces.aisdk",
        "surfaces.anthropic",
        "surfaces.cohere",
        "surfaces.google",
        "surfaces.management",
        "surfaces.openai",
        "surfaces.responses",
    ),
    ("operator", "surfaces.agents", "surfaces.console", "surfaces.mcp"),
    ("surfaces",),
    ("application",),
)
RANKS = {
    "gateway": 0,
    **{f"gateway.{folder}": rank for rank, folders in enumerate(LAYERS, start=1) for folder in folders},
}

# The data plane knows callers by `gateway.callers` alone.
DATA_PLANE = (
    *(
        "neutral",
        "dialects",
        "media",
        "guardrails",
        "catalogue",
        "providers",
        "routing",
        "limits",
        "routes",
        "metering",
        "billing",
        "engine",
    ),
    *("surfaces.web", "surfaces.bodies", "surfaces.openai", "surfaces.anthropic", "surfaces.responses"),
    *("surfaces.google", "surfaces.cohere", "surfaces.aisdk"),
)
CONTROL_PLANE = ("accounts", "admin", "oauth", "sso", "surfaces.management", "surfaces.console")

# Lower layers that a layer must nevertheless not import.
FORBIDDEN = {
    "gateway.surfaces": ("gateway.providers",),
    "gateway.worker.recurring_jobs": ("gateway.providers",),
    "gateway.routing": ("gateway.dialects",),
    "gateway.limits": ("gateway.dialects",),
    "gateway.metering": ("gateway.dialects",),
    "gateway.engine": ("gateway.dialects",),
    "gateway.billing": ("gateway.dialects",),
    "gateway.admin": ("gateway.dialects",),
    "gateway.batches": ("gateway.dialects",),
    "gateway.files": ("gateway.dialects",),
    "gateway.jobs": ("gateway.dialects",),
    "gateway.videos": ("gateway.dialects",),
}

# Library → the layers that may import it.
LIBRARIES = {
    "flask": ("gateway.surfaces", "gateway.application", "gateway.operator.command"),
    "marshmallow": ("gateway.surfaces", "gateway.operator.derived_commands"),
    "apispec": ("gateway.surfaces",),
    "msgspec": ("gateway",),  # value classes are structs
    "orjson": (
        "gateway.surfaces",
        "gateway.providers",
        "gateway.transport",
        "gateway.store",
        "gateway.catalogue",
        "gateway.metering",
        "gateway.engine",
        "gateway.billing",
        "gateway.admin",
        "gateway.callers",
        "gateway.accounts",
        "gateway.telemetry",
        "gateway.worker.recurring_jobs",
        "gateway.server.logging_setup",
        "gateway.neutral.long_json",
        "gateway.neutral.tool_arguments",
        "gateway.guardrails",
        "gateway.reports.invoices",
    ),
    "peewee": (
        "gateway.store",
        "gateway.callers",
        "gateway.accounts",
        "gateway.oauth",
        "gateway.limits",
        "gateway.metering",
    ),
    "playhouse": ("gateway.store",),
    "psycopg": ("gateway.store",),
    "redis": ("gateway.store.redis", "gateway.store.redis"),
    "multipart": ("gateway.surfaces.web.forms", "gateway.providers.sandbox"),
    "authlib": ("gateway.oauth", "gateway.sso.openid_client"),
    "pypdf": ("gateway.media.pdf_program",),
    "httptools": ("gateway.transport", "gateway.server"),
    "cryptography": ("gateway.callers", "gateway.accounts", "gateway.providers"),
    "joserfc": ("gateway.callers", "gateway.accounts", "gateway.providers", "gateway.sso", "gateway.videos"),
    "argon2": ("gateway.accounts",),
    "apscheduler": ("gateway.worker.recurring_jobs",),
    "segno": ("gateway.surfaces.console",),
    "webauthn": ("gateway.accounts.passkeys",),
    "prometheus_client": ("gateway.surfaces.prometheus_text",),
    "genai_prices": ("gateway.catalogue.build",),
    "wsproto": ("gateway.transport.websockets", "gateway.transport.sock_sockets"),
    "simple_websocket": ("gateway.transport.sock_sockets", "gateway.surfaces.web.sock_upgrades"),
    "flask_sock": ("gateway.surfaces.web.sock_upgrades",),
    "h11": ("gateway.transport.websockets",),
    "gevent": (
        "gateway.server",
        "gateway.transport",
        "gateway.runtime.threads",
        "gateway.runtime.loop_turns",
        "gateway.runtime.loop_turns",
        "gateway.runtime.merged_iterators",
        "gateway.runtime.send_batch",
        "gateway.runtime.fair_threads",
        "gateway.runtime.disconnects",
        "gateway.runtime.early_answers",
        "gateway.media.pdf_reader",
        "gateway.runtime.process",
    ),
    "gunicorn": ("gateway.server",),
    "opentelemetry": ("gateway.telemetry.otel",),
    "re2": ("gateway.guardrails.detectors",),
    "phonenumbers": ("gateway.guardrails.value_checks",),
    "yaml": ("gateway.operator.migration",),
    "click": ("gateway.operator.command", "gateway.operator"),
}

# Attributes of the module `os` that only `gateway.configuration.settings` may use.
ENVIRONMENT = {"environ", "getenv"}


def module_of(path: Path) -> str:
    parts = list(path.relative_to(ROOT).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def within(module: str, layer: str) -> bool:
    return module == layer or module.startswith(layer + ".")


@cache
def layer_of(module: str) -> str:
    return max((layer for layer in RANKS if layer != "gateway" and within(module, layer)), key=len, default="gateway")


@cache
def is_module(name: str) -> bool:
    place = ROOT / name.replace(".", "/")
    return place.is_dir() or place.with_name(f"{place.name}.py").exists()


@cache
def imports_of(path: Path) -> list[tuple[str, int]]:
    """Return every module that is imported, also for types alone or when it is first used, with its line."""
    return [(imported_module(module, name), line) for module, name, line in read_source(path).imports]


def imported_module(module: str, name: str) -> str:
    """Return the module that `from module import name` imports: a module of this name in a package, or `module`."""
    full = f"{module}.{name}"
    return full if name and is_module(full) else module


def violations_of(path: Path) -> list[str]:
    module = module_of(path)
    found = []
    for imported, line in imports_of(path):
        where = f"{path.relative_to(ROOT)}:{line}"
        if within(imported, "gateway"):
            found += [f"{where} {reason}" for reason in import_violations(module, imported)]
        elif imported.split(".")[0] in LIBRARIES:
            allowed = LIBRARIES[imported.split(".")[0]]
            if not any(within(module, layer) for layer in allowed):
                found.append(f"{where} imports {imported}, which belongs in {', '.join(allowed)}")
    return found


def import_violations(module: str, imported: str) -> list[str]:
    mine, theirs = layer_of(module), layer_of(imported)
    if mine == theirs:
        return []
    if any(within(module, layer) and any(within(imported, f) for f in never) for layer, never in FORBIDDEN.items()):
        return [f"{module} must never see {imported}"]
    if RANKS[theirs] >= RANKS[mine]:
        return [f"{module} (rank {RANKS[mine]}) imports {imported} (rank {RANKS[theirs]})"]
    return []


def test_a_module_imports_only_what_its_layer_may() -> None:
    assert [violation for path in FILES for violation in violations_of(path)] == []


def test_the_data_plane_imports_callers_and_nothing_else_of_accounts() -> None:
    crossed = [
        f"{path.relative_to(ROOT)}:{line} imports {imported}"
        for path in FILES
        if any(within(module_of(path), f"gateway.{folder}") for folder in DATA_PLANE)
        for imported, line in imports_of(path)
        if any(within(imported, f"gateway.{folder}") for folder in CONTROL_PLANE)
    ]
    assert crossed == []


def test_a_module_stays_readable_at_one_sitting() -> None:
    lengths = {str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for path in FILES}
    assert {name: length for name, length in lengths.items() if length >= MAX_LINES} == {}


def test_only_settings_read_the_environment() -> None:
    others = [path for path in FILES if not within(module_of(path), "gateway.configuration.settings")]
    found = [
        f"{path.relative_to(ROOT)}:{line}"
        for path in others
        for name, line in read_source(path).os_attributes
        if name in ENVIRONMENT
    ]
    assert found == []


NOT_IMPLEMENTED = "NotImplementedError"


def test_methods_that_derived_classes_must_implement_are_abstract() -> None:
    """Abstract methods let mypy find a class that lacks one, before a request does."""
    raised = [f"{path}:{line}" for path in FILES for name, line in read_source(path).raised if name == NOT_IMPLEMENTED]
    assert raised == []


@pytest.mark.parametrize("statement", ["raise NotImplementedError", "raise NotImplementedError('later') from None"])
def test_the_check_finds_a_method_that_is_not_implemented(statement: str, tmp_path: Path) -> None:
    path = tmp_path / "unfinished.py"
    path.write_text(f"def write():\n    {statement}\n")
    assert read_source(path).raised == [(NOT_IMPLEMENTED, 2)]


def test_every_layer_of_the_tables_exists() -> None:
    modules = {module_of(path) for path in FILES}
    named = {*RANKS, *FORBIDDEN, *(layer for layers in (*FORBIDDEN.values(), *LIBRARIES.values()) for layer in layers)}
    assert {layer for layer in named if not any(within(module, layer) for module in modules)} == set()


def test_every_module_has_a_layer() -> None:
    assert [
        module_of(path) for path in FILES if layer_of(module_of(path)) == "gateway" and path.parent != GATEWAY
    ] == []


def test_every_library_of_the_table_is_imported() -> None:
    imported = {name.split(".")[0] for path in FILES for name, _ in imports_of(path)}
    assert set(LIBRARIES) - imported == set()


def circles_of(imports: dict[str, set[str]]) -> list[list[str]]:
    """Return modules that import each other directly or indirectly."""
    left = {module: set(named) for module, named in imports.items()}
    while True:
        done = {module for module, named in left.items() if not named & left.keys()}
        if not done:
            break
        left = {module: named - done for module, named in left.items() if module not in done}
    return [sorted(left)] if left else []


def test_no_modules_import_each_other_in_a_circle() -> None:
    modules = {module_of(path): path for path in FILES}
    imports = {
        module: {one for one, _ in imports_of(path) if one in modules and one != module}
        for module, path in modules.items()
    }
    assert circles_of(imports) == []
    assert circles_of({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": set()}) == [["a", "b", "c"]]


def test_an_import_for_types_alone_counts(tmp_path: Path) -> None:
    path = tmp_path / "typed.py"
    path.write_text("if TYPE_CHECKING:\n    from gateway.billing import settlement\n")
    assert imports_of(path) == [("gateway.billing.settlement", 2)]


def test_migrations_import_nothing_of_the_gateway() -> None:
    for path in (ROOT / "migrations").glob("*.py"):
        assert [name for name, _ in imports_of(path) if within(name, "gateway")] == [], path


def test_text_of_an_upstream_is_read_by_protocols_alone() -> None:
    # Texts of upstreams reach errors only through `failures`, which scrubs and caps them.
    scrubbing = GATEWAY / "providers" / "failures.py"
    assert "scrub" in scrubbing.read_text()
    readers = {module_of(path) for path in FILES if re.search(r"\.read_all\(", path.read_text())}
    assert {module for module in readers if not within(module, "gateway.providers")} <= {"gateway.transport.client"}


def test_the_check_finds_an_upward_import() -> None:
    assert import_violations("gateway.neutral.chat", "gateway.engine.chat_engine")
    assert import_violations("gateway.surfaces.openai.chat", "gateway.providers.upstream")
    assert not import_violations("gateway.engine.chat_engine", "gateway.neutral.chat")


def test_no_file_names_a_folder_of_a_developers_machine() -> None:
    homes = re.compile(r"/(home|root|Users)/\w")
    kinds = {".py", ".md", ".toml", ".txt", ".conf", ".c", ".html"}
    skipped = {".venv", "data", ".git", "node_modules"}
    for path in ROOT.rglob("*"):
        if path.suffix not in kinds or skipped & set(path.relative_to(ROOT).parts) or path == Path(__file__):
            continue
        text = path.read_text(errors="ignore")
        assert not homes.search(text), path


PROVIDER_NAMES = {path.stem for path in ROOT.glob("config/catalogue/providers/*.toml")} - {"custom", "sandbox"}


def conditions_of(path: Path) -> list[str]:
    """Return the comparisons and patterns of a module that contain the name of a provider."""
    return [
        f"{path.relative_to(ROOT)}: {condition}"
        for texts, condition in read_source(path).conditions
        if texts & PROVIDER_NAMES
    ]


def test_no_condition_names_a_provider() -> None:
    # A provider's folder and dialect table may contain its name. Protocols with a vendor's name are compared as
    # protocols.
    shared = [path for path in FILES if PROVIDER_NAMES.isdisjoint((*path.relative_to(GATEWAY).parts, path.stem))]
    named = [one for path in shared for one in conditions_of(path) if "protocol ==" not in one]
    assert named == []


WIRE = "what this wire calls it; each surface has its own shape of it"
TWICE = {
    "Meta": "the inner class in which peewee and marshmallow look for options",
    **dict.fromkeys(
        [
            "AssistantMessage",
            "AudioPart",
            "AutoChoice",
            "CacheControl",
            "CustomCall",
            "DeveloperMessage",
            "FilePart",
            "FunctionCall",
            "ImagePart",
            "InputAudio",
            "JsonObjectFormat",
            "JsonSchemaFormat",
            "Location",
            "Named",
            "PromptCacheOptions",
            "RefusalPart",
            "Shape",
            "SystemMessage",
            "TextFormat",
            "TextPart",
            "ToolMessage",
            "UserMessage",
            "WebSearchTool",
        ],
        WIRE,
    ),
    **dict.fromkeys(
        ["CustomTool", "FunctionTool", "Message", "Reasoning", "ToolChoice"],
        "the neutral form of what surfaces read in their own shapes",
    ),
    **dict.fromkeys(
        ["CustomModel", "NewInvitation", "NewKey"], "the body of a management route, and what is made of it"
    ),
    "Answer": "to a request, of the transport, and out of the rollups: never imported one beside the other",
    "Prompt": "the sandbox's view of a request, and the Messages body that tokens are counted of",
}


def test_no_class_name_stands_twice_without_a_reason() -> None:
    places: dict[str, list[str]] = {}
    for path in FILES:
        for name, line in read_source(path).classes:
            if not name.startswith("_"):
                places.setdefault(name, []).append(f"{path.relative_to(ROOT)}:{line}")
    assert {name: where for name, where in places.items() if len(where) > 1 and name not in TWICE} == {}
    assert {name for name in TWICE if len(places.get(name, ())) < 2} == set()


@pytest.mark.parametrize("name", sorted(name for name, reason in TWICE.items() if reason == WIRE))
def test_names_of_the_wire_are_of_different_surface_modules(name: str) -> None:
    modules = [path for path in FILES if re.search(rf"^class {name}\b", path.read_text(), re.M)]
    assert len(modules) > 1 and all(path.is_relative_to(GATEWAY / "surfaces") for path in modules)


# Base names that several folders have, because the modules implement one interface: an operation of several protocols
# or dialects, a part of every dialect or protocol, the tables of a package.
INTERFACE_NAMES = {
    *("chat", "decisions", "embeddings", "images", "moderations", "ocr", "realtime"),
    *("batches", "files", "speech", "structured", "transcriptions", "videos"),
    *("routes", "schema", "reader", "writer", "stream", "table", "opaque_tokens", "model_list"),
    *("request", "reply", "conversation", "content"),
    *("models", "__init__"),
}


def test_no_two_modules_share_a_base_name() -> None:
    places: dict[str, list[str]] = {}
    for path in FILES:
        places.setdefault(path.stem, []).append(str(path.relative_to(ROOT)))
    shared = {name: files for name, files in places.items() if len(files) > 1 and name not in INTERFACE_NAMES}
    assert shared == {}


def test_modules_of_an_interface_are_where_it_is_implemented() -> None:
    """A folder of a provider or surface, the neutral form, or for the tables of the database any package."""
    misplaced = []
    for path in FILES:
        folders = path.relative_to(GATEWAY).parts[:-1]
        if path.stem not in INTERFACE_NAMES - {"models", "__init__"} or folders == ("neutral",):
            continue
        if len(folders) != 2 or folders[0] not in ("providers", "surfaces"):
            misplaced.append(str(path.relative_to(ROOT)))
    assert misplaced == []


def test_every_interface_name_is_used_by_several_modules() -> None:
    stems = [path.stem for path in FILES]
    assert {name for name in INTERFACE_NAMES if stems.count(name) < 2} == set()


ARCHITECTURE = (ROOT / "docs" / "architecture.md").read_text()


def drawn_layers() -> list[list[str]]:
    """Return the packages and modules in each line of the drawing, from top to bottom."""
    drawing = ARCHITECTURE.split("## The layers")[1].split("```")[1]
    known = {path.stem for path in GATEWAY.glob("*.py")} | {path.parent.name for path in GATEWAY.glob("*/__init__.py")}
    lines = [re.split(r"\s{2,}", line.strip(" │")) for line in drawing.splitlines()]
    return [[name for name in line if name in known] for line in lines]


def test_the_drawing_shows_every_package_once() -> None:
    known = {path.stem for path in GATEWAY.glob("*.py")} | {path.parent.name for path in GATEWAY.glob("*/__init__.py")}
    drawn = [name for line in drawn_layers() for name in line]
    assert sorted(drawn) == sorted(known - {"__init__"})


def test_the_drawing_has_the_order_of_the_ranks() -> None:
    def ranks_in(name: str) -> list[float]:
        layer = f"gateway.{name}"
        return [rank for known, rank in RANKS.items() if known == layer or known.startswith(f"{layer}.")]

    lines = [[rank for name in line for rank in ranks_in(name)] for line in drawn_layers() if line]
    for upper, lower in pairwise(lines):
        assert min(upper) >= max(lower), (upper, lower)
