"""Rules of the test suite."""

import ast
import itertools
import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from support import late_imports, prepared, warm

from gateway.catalogue import loader
from gateway.catalogue.layers import read_folder

TESTS = Path(__file__).resolve().parent


@cache
def import_nodes(path: Path) -> list[ast.Import | ast.ImportFrom]:
    """Return every import of a file, including those in functions; imports of the module come first."""
    found: list[Any] = [ast.parse(path.read_text())]
    for node in found:
        for part in ("body", "orelse", "finalbody", "handlers", "cases"):
            found += getattr(node, part, ())
    return [node for node in found if isinstance(node, ast.Import | ast.ImportFrom)]


def imports_of(path: Path) -> set[str]:
    nodes = import_nodes(path)
    plain = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    return plain | {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}


def test_shared_helpers_are_imported_from_no_conftest_and_no_test() -> None:
    for path in TESTS.rglob("*.py"):
        last = {name.rpartition(".")[2] for name in imports_of(path)}
        assert not {name for name in last if name == "conftest" or name.startswith("test_")}, path


ROOT = TESTS.parent

# Modules (by the prefix of their path in gateway/) that no unit test imports, and the tests that exercise them through
# the surface above.
TRIED_THROUGH = {
    "callers/models.py": (
        *("unit/callers/test_authentication.py", "unit/accounts/test_keys.py"),
        *("unit/oauth/test_access_tokens.py", "flows/test_oauth.py"),
    ),
    "callers/scopes.py": ("flows/test_oauth.py",),
    "runtime/early_answers.py": ("unit/server/test_response_writer.py", "flows/test_early_blanks.py"),
    "accounts/authority.py": ("unit/surfaces/management/test_changes_table.py", "flows/test_planted_authority.py"),
    "accounts/key_tags.py": ("unit/surfaces/management/test_key_tags.py",),
    "accounts/route_changes.py": (
        "unit/surfaces/management/test_model_route_pages.py",
        "flows/test_model_routes.py",
    ),
    "routes/": ("unit/routes/test_compiled.py", "flows/test_model_routes.py"),
    "callers/guardrail_rows.py": ("flows/test_guardrails.py",),
    "engine/guardrail_replay.py": ("flows/test_guardrail_replay.py",),
    "providers/bedrock/applied_guardrails.py": ("flows/test_guardrail_checkers.py",),
    "accounts/agent_budgets.py": ("flows/test_agent_sessions.py",),
    "admin/key_setters.py": (
        "unit/surfaces/management/test_session_routes.py",
        "unit/surfaces/management/test_key_pages.py",
    ),
    "callers/credential_sources.py": ("flows/test_routing.py",),
    "admin/account_changes.py": ("unit/surfaces/management/test_change_quota.py",),
    "accounts/playground_presets.py": ("unit/surfaces/management/test_playground_page.py",),
    "callers/page_tokens.py": ("unit/surfaces/management/test_playground_page.py",),
    "accounts/outcome_settings.py": ("unit/surfaces/management/test_outcome_routes.py",),
    "reports/outcomes.py": ("unit/surfaces/management/test_outcome_routes.py",),
    "metering/cross_sums.py": ("unit/surfaces/management/test_explore_drawn.py",),
    "accounts/limit_drafts.py": ("unit/surfaces/management/test_organization_limits.py",),
    "accounts/request_shares.py": ("unit/surfaces/management/test_shared_requests.py",),
    "accounts/chosen_columns.py": ("unit/surfaces/management/test_request_list.py",),
    "accounts/spending_limits.py": ("unit/billing/test_request_limits.py",),
    "admin/owned_limit_changes.py": ("unit/surfaces/management/test_owned_limits.py",),
    "limits/owned_limits.py": ("unit/surfaces/management/test_owned_limits.py",),
    "surfaces/management/owned_limit_access.py": ("unit/surfaces/management/test_owned_limits.py",),
    "surfaces/console/organization_choice.py": ("unit/surfaces/management/test_model_pages.py",),
    "accounts/models.py": (
        *("unit/accounts/test_client_ids.py", "unit/accounts/test_workload_callers.py"),
        "unit/accounts/test_provisioning.py",
    ),
    "accounts/group_rules.py": ("unit/admin/test_group_grants.py",),
    "callers/discount_book.py": ("unit/accounts/test_discounts.py",),
    "callers/stored_keys.py": ("unit/accounts/test_provider_keys.py",),
    "callers/stored_providers.py": ("unit/accounts/test_provider_keys.py",),
    "accounts/identity_domains.py": ("unit/surfaces/management/test_sso_settings_pages.py",),
    "accounts/identity_providers.py": ("flows/test_sso.py",),
    "accounts/sso_": ("flows/test_sso.py",),
    "admin/sso_": ("flows/test_sso.py",),
    "accounts/mail_queue.py": ("unit/surfaces/management/test_account_mails.py",),
    "accounts/second_factor.py": ("unit/surfaces/management/test_session_routes.py",),
    "admin/": ("unit/surfaces/management",),
    "billing/": ("unit/billing/test_settlement.py", "unit/billing/test_rerating.py"),
    "catalogue/": ("unit/catalogue/test_loader.py", "unit/catalogue/test_prices.py"),
    "configuration/": ("unit/configuration/test_file.py", "unit/operator/test_config.py"),
    "surfaces/console/": ("unit/surfaces/management/test_access_table.py", "flows/test_management.py"),
    "guardrails/": ("unit/guardrails/test_detectors.py", "unit/guardrails/test_windows.py"),
    "runtime/disconnects.py": ("unit/engine/test_streaming.py", "unit/engine/test_unary.py"),
    "dialects/": ("contract/test_every_protocol.py", "contract/test_nothing_dropped_silently.py"),
    "engine/": ("flows/test_chat.py", "flows/test_retention.py", "flows/test_idempotency.py", "contract/test_lanes.py"),
    "limits/": ("unit/limits/test_spending.py",),
    "routing/decision.py": ("unit/surfaces/management/test_routing_page.py",),
    "runtime/merged_iterators.py": ("flows/test_several_answers.py",),
    "application/": ("flows/test_boot.py", "flows/test_health_and_edges.py"),
    "neutral/": ("unit/neutral/test_json_extraction.py", "contract/test_every_protocol.py"),
    "oauth/": ("unit/oauth/test_grants.py", "flows/test_oauth.py"),
    "operator/": ("unit/operator/test_command.py", "unit/operator/test_money.py"),
    "providers/": (
        "contract/test_every_protocol.py",
        "contract/test_truncated_streams.py",
        "unit/providers",
    ),
    "reports/": ("unit/reports/test_usage_reports.py",),
    "routing/": ("unit/routing/test_plan.py", "unit/routing/test_provider_health.py"),
    "server/launch.py": ("flows/test_boot.py",),
    "server/ports.py": ("unit/operator/test_start.py", "flows/test_boot.py"),
    "server/": ("unit/server/test_worker.py", "unit/server/test_express.py"),
    "sso/": ("flows/test_sso.py",),
    "runtime/zstd.py": ("unit/surfaces/web/test_request_decompression.py",),
    "store/disk.py": ("unit/operator/test_start.py", "flows/test_health_and_edges.py"),
    "store/": ("unit/store/test_database.py", "unit/store/test_outage.py"),
    "surfaces/management/": ("unit/surfaces/management",),
    "surfaces/": ("contract/test_every_protocol.py", "contract/test_lanes.py", "flows/test_surfaces.py"),
    "batches/": ("flows/test_batches.py",),
    "surfaces/batch_port.py": ("flows/test_batches.py",),
    "files/": ("flows/test_files.py",),
    "jobs/": ("flows/test_videos.py", "flows/test_video_callbacks.py"),
    "videos/": ("flows/test_videos.py", "flows/test_video_callbacks.py"),
    "telemetry/": ("flows/test_request_line.py", "flows/test_metrics.py", "flows/test_traces.py"),
    "clock.py": ("unit/limits/test_spending.py",),
    "worker/extensions.py": ("flows/test_contributing.py",),
    "runtime/lazy_import.py": ("unit/test_footprint.py",),
    "neutral/operations.py": ("flows/test_health_and_edges.py",),
    "worker/service_base.py": ("unit/worker/test_wiring.py", "flows/test_boot.py"),
}


def find_tests(module: Path) -> list[Path]:
    """Return the unit tests of the module's package that have its name or import it."""
    inner = module.relative_to(ROOT / "gateway")
    folder = TESTS / "unit" / inner.parts[0] if len(inner.parts) > 1 else TESTS / "unit"
    dotted = ".".join(("gateway", *inner.with_suffix("").parts))
    tests = folder.rglob("test_*.py") if len(inner.parts) > 1 else folder.glob("test_*.py")
    return [test for test in tests if test.name == f"test_{module.stem}.py" or dotted in names_in(test)]


@cache
def names_in(path: Path) -> frozenset[str]:
    """Return the modules that a file imports, including `from package import module`."""
    nodes = import_nodes(path)
    inner = {f"{node.module}.{one.name}" for node in nodes if isinstance(node, ast.ImportFrom) for one in node.names}
    return frozenset(imports_of(path) | inner)


def test_each_module_has_its_test_or_a_line_that_says_which_tests_go_through_it() -> None:
    used = set()
    for module in sorted((ROOT / "gateway").rglob("*.py")):
        if module.name == "__init__.py" or find_tests(module):
            continue
        inner = str(module.relative_to(ROOT / "gateway"))
        found = max((start for start in TRIED_THROUGH if inner.startswith(start)), key=len, default=None)
        assert found is not None, f"{inner} has no test: write one, or say in TRIED_THROUGH what tries it"
        used.add(found)
    assert set(TRIED_THROUGH) == used


def test_the_tests_that_modules_are_tried_through_exist() -> None:
    for tests in TRIED_THROUGH.values():
        assert [name for name in tests if not (TESTS / name).exists()] == []


def test_a_warm_program_has_its_own_environment_and_ends_as_a_cold_one(tmp_path: Path) -> None:
    given = {"GATEWAY_ENV": "test", "GATEWAY_DATA_DIR": str(tmp_path / "data"), "GATEWAY_SERVER_PORT": "4321"}
    shown = warm.run(["gateway.operator.command", "config", "show"], given)
    assert shown.returncode == 0 and "4321" in shown.stdout and str(tmp_path) in shown.stdout
    unknown = warm.run(["gateway.operator.command", "sing"], given)
    assert unknown.returncode == 1 and unknown.stdout == "" and unknown.stderr.startswith("error: ")
    served = warm.run(["gateway.operator.command", "serve"], {**given, "DATABASE_URL": "mysql://localhost/gateway"})
    assert served.returncode == 1 and "mysql" in served.stderr
    command, descriptor = warm.shell_command("gateway.operator.command")
    scripted = subprocess.run(["sh", "-c", f"{command} sing"], capture_output=True, text=True, pass_fds=[descriptor])
    assert (scripted.returncode, scripted.stdout, scripted.stderr) == (1, "", unknown.stderr)


def test_a_warm_program_takes_signals(tmp_path: Path) -> None:
    with (tmp_path / "log").open("w") as log:
        given = {"GATEWAY_ENV": "test", "GATEWAY_DATA_DIR": str(tmp_path / "data"), "PORT": "0"}
        program = warm.WarmProcess(["gateway.operator.command", "serve"], given, log, log)
    assert program.poll() is None
    program.kill()
    assert program.wait(60) == -9 and program.poll() == -9


def imported_early(path: Path) -> list[str]:
    """Return libraries with attributes that a module uses during its import."""
    top = [node for node in import_nodes(path) if isinstance(node, ast.ImportFrom) and not node.col_offset]
    libraries = [name for name in late_imports.LATE if not name.startswith("fakes.")]
    return [
        f"{path.relative_to(TESTS)}:{node.lineno} {name}"
        for node in top
        for name in libraries
        if f"{node.module}.".startswith(f"{name}.")
    ]


def test_no_module_imports_names_of_late_libraries_directly() -> None:
    """`import anthropic`, and `anthropic.types.Message` in the function; modules of types alone are late too."""
    types = {TESTS / f"{name.replace('.', '/')}.py" for name in late_imports.LATE if name.startswith("fakes.")}
    own = {TESTS / "support" / "described.py"}  # which its tests import late
    assert [line for path in sorted({*TESTS.rglob("*.py")} - types - own) for line in imported_early(path)] == []


def test_collecting_imports_none_of_the_libraries_that_few_tests_need() -> None:
    """Such a module uses `import anthropic`, accesses its attributes only in functions, and has `from __future__ import
    annotations`, so that annotations are not evaluated."""
    assert late_imports.too_early == []


def test_a_late_library_is_whole_once_something_of_it_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(late_imports, "LATE", ("wsgiref.validate", "no_such_library"))
    monkeypatch.delitem(sys.modules, "wsgiref.validate", raising=False)
    late_imports.put_off()
    module = sys.modules["wsgiref.validate"]
    assert type(module) is late_imports.LateModule and not hasattr(module, "__all__") and not hasattr(module, "_x")
    assert vars(module).keys().isdisjoint({"validator"}) and "no_such_library" not in sys.modules

    from wsgiref.validate import validator

    assert type(module) is ModuleType and module.validator is validator and module.__all__ == ["validator"]
    assert late_imports.imported[-1].startswith("wsgiref.validate for /test_suite.py:")


def test_pinned_models_are_those_that_a_provider_retires_or_reprices() -> None:
    pinned = read_folder(Path(prepared.PINNED)).mappings
    mappings = [mapping for model in loader.load().models.values() for mapping in model.mappings]
    changing = [mapping for mapping in mappings if mapping.deactivated or mapping.prices[1:]]
    assert pinned and pinned.keys() <= {(mapping.provider, mapping.model, mapping.region) for mapping in changing}


def test_make_browser_runs_every_module_that_needs_a_browser() -> None:
    command = next(line for line in (ROOT / "Makefile").read_text().splitlines() if "EVERY_VIEW=1" in line)
    run = {path for word in command.split() if word.startswith("tests/") for path in ROOT.glob(word)}
    assert run == {path for path in TESTS.rglob("test_*.py") if "support.chromium.MARKS" in names_in(path)}


# The recipe of a target that runs the tests of a selection, wherever they are.
RECIPE = re.compile(r'^(\w+): .*\n\t\$\(BIN\)/pytest \$\(PARALLEL\) -m "([^"]+)"$', re.M)


def test_ci_runs_each_test_in_one_target() -> None:
    """`make browser` runs the tests in a browser (the test above); tests that take minutes run in no target of CI."""
    selections = dict(RECIPE.findall((ROOT / "Makefile").read_text()))
    targets = re.findall(r"^make (\w+)$", (ROOT / ".ci" / "run").read_text(), re.M)
    assert set(targets) == {*selections, "browser"}
    for browser, extended in itertools.product((False, True), repeat=2):
        marks = {"soak": False, "browser": browser, "extended": extended}
        running = [target for target, selection in selections.items() if eval(selection, marks.copy())]
        assert len(running) == (0 if browser else 1), marks
