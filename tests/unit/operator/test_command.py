import io
import json
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from support.commands import SECRETS, Run, command_runner

from gateway.build_stamp import full_version
from gateway.errors import InvalidRequest
from gateway.operator import command as manage
from gateway.operator.command_usage import ORGANIZATION, CommandUsage, read_usages
from gateway.operator.output import NEVER, print_table, read_expiry
from gateway.surfaces.management.managed_operation import ManagedOperation
from gateway.surfaces.management.table import OPERATIONS

ROOT = Path(__file__).resolve().parents[3]
DAY_US = 86_400 * 1_000_000


@pytest.fixture(params=["sqlite", "postgresql"])
def run(request, tmp_path, monkeypatch, capsys) -> Run:
    """Run a command on an empty store of this test's own and return what it printed; the status must be as given."""
    if request.param == "sqlite":  # as in a new installation: nothing is set
        return command_runner(monkeypatch, capsys, tmp_path)
    url = request.getfixturevalue("postgresql_url")
    return command_runner(monkeypatch, capsys, tmp_path, DATABASE_URL=url, **SECRETS)


@pytest.fixture
def seeded(run) -> Run:
    run("serve-info")
    return run


def column(text: str, number: int = 0) -> list[str]:
    """A column of a printed table, without its header."""
    return [line.split()[number] for line in text.splitlines()[1:]]


def test_a_newcomer_gets_address_key_and_a_first_request_once(run) -> None:
    output = run("serve-info")
    token = next(line for line in output.splitlines() if line.startswith("API key: ")).removeprefix("API key: ")
    assert output.startswith("Gateway: http://127.0.0.1:") and len(token) == 48
    assert "Save it now" in output and "Credits: $100 prepaid." in output
    words = shlex.split(output.partition("Try:\n")[2].replace("\\\n", " "))
    assert words[:2] == ["export", f"LLMGATEWAY_API_KEY={token}"]
    assert words[2] == "curl" and json.loads(words[-1])["model"] == "auto"
    assert f"{output.partition('Gateway: ')[2].split()[0]}/v1/chat/completions" in words
    again = run("serve-info")
    assert token not in again and token[:12] in again and "keys create" in again


@pytest.mark.parametrize("run", ["sqlite"], indirect=True)
def test_a_start_without_a_key_says_so_and_names_a_key_that_it_does_not_know(seeded, monkeypatch) -> None:
    seeded("keys", "delete", column(seeded("keys", "list"))[0])
    monkeypatch.setenv("GATEWAY_BOOTSTRAP_API_KEY", "llmgtwy_" + "k" * 40)
    output = seeded("serve-info")
    assert "API key: none is active. Create one: ./manage keys create" in output
    assert "Warning: GATEWAY_BOOTSTRAP_API_KEY is not a key of this installation" in output


def test_the_first_start_prints_the_sign_in_address_and_how_to_set_a_password(run) -> None:
    output = run("serve-info")
    assert (
        "/console (sign in as owner@localhost; set a password first: " in output
        and "members set-password owner@localhost" in output
    )
    again = run("serve-info")
    assert "/console (to set a password: ./manage members set-password <e-mail>)" in again


@pytest.mark.parametrize("run", ["sqlite"], indirect=True)
@pytest.mark.parametrize(
    ("host", "shown"), [("0.0.0.0", "127.0.0.1"), ("::", "127.0.0.1"), ("[::]", "127.0.0.1"), ("::1", "[::1]")]
)
def test_an_address_that_means_all_is_shown_as_one_that_can_be_opened(run, monkeypatch, host: str, shown: str) -> None:
    monkeypatch.setenv("HOST", host)
    assert run("serve-info").startswith(f"Gateway: http://{shown}:")


def test_owners_with_a_password_have_to_sign_in_with_it(run, monkeypatch) -> None:
    monkeypatch.setenv("GATEWAY_BOOTSTRAP_PASSWORD", "a-long-pass-phrase")
    monkeypatch.setenv("GATEWAY_BOOTSTRAP_EMAIL", "ada@example.com")
    output = run("serve-info")
    assert "sign in as ada@example.com with the password in GATEWAY_BOOTSTRAP_PASSWORD" in output
    assert "a-long-pass-phrase" not in output


@pytest.mark.parametrize("run", ["sqlite"], indirect=True)
def test_a_first_start_over_a_file_that_is_no_database_says_what_to_do_with_it(run, tmp_path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "gateway.db").write_text("no database" * 100)
    output = run("serve", status=1)
    assert (
        "file is not a database. Move it, or configure another file" in output
        and "Start the database server" not in output
    )


@pytest.mark.parametrize("run", ["sqlite"], indirect=True)  # the suite's PostgreSQL databases are migrated already
def test_an_unmigrated_database_is_named_in_one_line(run, tmp_path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "gateway.db").touch()
    output = run("keys", "list", status=1)
    assert output.startswith("error: ") and "manage migrate" in output and "\n" not in output
    assert "applied 0002_accounts" in run("migrate")
    assert run("migrate") == "The database is up to date."
    assert run("keys", "list") == "There are no keys."


def test_keys_live_their_life_through_commands(seeded) -> None:
    token = seeded("keys", "create", "--description", "Mine", "--expires", "30d")
    assert token.startswith("llmgtwy_") and len(token) == 48
    key_id = column(seeded("keys", "list"))[1]
    assert column(seeded("keys", "deactivate", key_id), 1) == ["inactive"]
    assert column(seeded("keys", "activate", key_id, "--expires", "never"), 1) == ["active"]
    assert seeded("keys", "roll", key_id) != token
    assert "is revoked" in seeded("keys", "revoke", key_id)
    assert seeded("keys", "activate", key_id, status=1).startswith("error: ")
    seeded("keys", "delete", key_id)
    assert key_id not in seeded("keys", "list")


def test_organizations_projects_and_members_are_made_and_listed(seeded) -> None:
    organization = seeded("organizations", "create", "Acme")
    project = seeded("projects", "create", organization, "Apps", "--mode", "hybrid")
    assert seeded("members", "add", organization, "boss@example.com", "--role", "owner").startswith("member_")
    assert "several projects" in seeded("keys", "create", "--description", "x", status=1)
    assert seeded("keys", "create", "--description", "x", "--project", project).startswith("llmgtwy_")
    assert column(seeded("projects", "set", project, "--cache", "--cache-ttl", "90"), 4) == ["90"]
    assert seeded("projects", "archive", project) == "Project archived."
    assert column(seeded("projects", "restore", project), 1) == ["active"]
    assert "is blocked" in seeded("organizations", "block", organization)
    assert column(seeded("organizations", "list"), 1) == ["active", "blocked"]
    assert "The password" in seeded("members", "set-password", "boss@example.com", typed="a long enough one\n")


def test_rules_and_policies_are_kept(seeded) -> None:
    organization = column(seeded("organizations", "list"))[0]
    rule = seeded("rules", "add", "organization", organization, "deny_models", '{"models": ["large"]}')
    assert column(seeded("rules", "list", organization), 1) == ["active"]
    seeded("rules", "switch", organization, rule, "off")
    assert column(seeded("rules", "list", organization), 1) == ["inactive"]
    seeded("rules", "remove", organization, rule)
    assert seeded("rules", "list", organization) == "There are no rules."
    assert "requireSoc2" in seeded("organizations", "policy", organization, "--set", '{"requireSoc2": true}')
    assert "not JSON" in seeded("organizations", "policy", organization, "--set", "{", status=1)
    assert "must be a JSON object" in seeded("organizations", "policy", organization, "--set", "[1]", status=1)


def test_a_provider_key_is_read_from_standard_input_and_shown_masked(seeded) -> None:
    organization = column(seeded("organizations", "list"))[0]
    secret = "sk-" + "s" * 40
    added = seeded("provider-keys", "add", organization, "groq", "--max-spend", "1.50", typed=f"{secret}\n")
    key_id = added.splitlines()[0]
    output = seeded("provider-keys", "list", organization)
    assert key_id in output and secret not in output and secret[:12] in output
    assert seeded("provider-keys", "reseal").startswith("1 key is encrypted")
    seeded("provider-keys", "remove", key_id)
    assert seeded("provider-keys", "list", organization) == "There are no provider keys."
    assert "Invalid value for 'token'" in seeded("provider-keys", "add", organization, "groq", status=1)


def test_the_audit_trail_is_listed_and_verified(seeded) -> None:
    assert "api_key.create" in seeded("audit", "list")
    assert seeded("audit", "verify").splitlines()[1].startswith("yes")


@pytest.mark.parametrize("run", ["sqlite"], indirect=True)
def test_an_interrupted_command_is_one_line(seeded, monkeypatch, capsys) -> None:
    class Interrupted(io.StringIO):
        def readline(self, size: int | None = -1) -> str:
            raise KeyboardInterrupt

    monkeypatch.setattr(sys, "stdin", Interrupted())
    assert manage.run(["members", "set-password", "owner@localhost"]) == 1
    assert "error: aborted" in capsys.readouterr().err.splitlines()


@pytest.mark.parametrize("missing", [None, "none", NEVER])
def test_numbers_are_aligned_right_beside_missing_ones(missing: str | None, capsys) -> None:
    print_table(("AMOUNT",), [("1,234.50",), (missing,)], "")
    assert [len(line) for line in capsys.readouterr().out.splitlines()] == [8, 8, 8]


def test_an_unknown_command_or_setting_is_one_line_and_status_1(run, monkeypatch) -> None:
    program = "python -m gateway.operator.command"
    assert run("nonsense", status=1) == f"error: No such command 'nonsense'. See {program} --help."
    assert run("key", "list", status=1) == f"error: No such command 'key'; did you mean keys? See {program} --help."
    assert run("keys", "roll", status=1) == f"error: Missing argument 'KEY_ID'. See {program} keys roll --help."
    output = run("members", "invite", "ada@example.com", status=1)
    assert output.startswith("error: Missing argument 'EMAIL'. Arguments: ORGANIZATION_ID EMAIL. See ")
    monkeypatch.setenv("PORT", "many")
    assert run("serve-info", status=1).startswith("error: [server] port")


def test_every_command_of_the_table_can_be_loaded() -> None:
    context = click.Context(manage.main)
    for name in manage.COMMANDS:
        assert isinstance(manage.main.get_command(context, name), click.Command)


def test_listing_the_commands_loads_none_of_them() -> None:
    code = (
        "import sys, gateway.operator.command as m; m.run(['--help']); print([n for n in sys.modules if 'peewee' in n])"
    )
    shown = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert shown.splitlines()[-1] == "[]" and "provider-keys" in shown


@pytest.mark.parametrize(
    ("text", "expiry"),
    [
        ("12h", 5 * DAY_US + DAY_US // 2),
        ("30d", 35 * DAY_US),
        ("2w", 19 * DAY_US),
        ("1mo", 35 * DAY_US),
        ("1970-02-01", 31 * DAY_US),
        ("1970-02-01T01:00:00+01:00", 31 * DAY_US),
        ("never", None),
    ],
)
def test_an_expiry_is_a_span_a_date_or_never(text: str, expiry: int | None) -> None:
    assert read_expiry(text, 5 * DAY_US) == expiry


@pytest.mark.parametrize("text", ["", "tomorrow", "30", "-1d", "1y", "３0d"])
def test_another_expiry_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest):
        read_expiry(text, 0)


@pytest.mark.parametrize("run", ["sqlite"], indirect=True)
def test_an_id_that_means_nothing_is_no_empty_list(run, monkeypatch) -> None:
    run("migrate")
    run("seed")
    for words in (
        "keys list --project proj_x",
        "projects list --organization org_x",
        "members list --organization org_x",
        "teams list --organization org_x",
        "rules list org_x",
        "provider-keys list org_x",
        "custom-providers list org_x",
        "discounts list --organization org_x",
        "audit list --organization org_x",
        "spend --organization org_x",
        "limits show key_x",
    ):
        assert run(*words.split(), status=1).startswith("error: There is no "), words


@pytest.mark.parametrize("run", ["sqlite"], indirect=True)
def test_the_version_is_shown_without_an_installed_package(run, monkeypatch) -> None:
    monkeypatch.setattr("importlib.metadata.version", lambda name: 1 / 0)
    assert run("--version") == f"llmgateway {full_version()}"


def test_a_group_alone_shows_its_help_and_not_errors(run) -> None:
    for words in ((), ("keys",)):
        output = run(*words, status=1)
        assert (
            output.startswith("Usage: ") and "Commands:" in output and "error" not in output.replace("each error", "")
        )


def test_numbers_of_a_table_stand_one_below_the_other(run) -> None:
    run("migrate")
    run("seed")
    run("credits", "grant", "1234.5")
    header, balance = run("credits", "balance").splitlines()
    assert balance.index("1334.5 ") + len("1334.5") == header.index("CREDITS") + len("CREDITS")
    header, job = run("jobs", "list").splitlines()[:2]
    assert job.rstrip().rfind("-") == header.index("ERROR")


def test_names_cannot_steer_the_terminal_of_an_operator(run) -> None:
    run("migrate")
    run("seed")
    run("organizations", "create", "red \x1b[31m\nerror: gone")
    output = run("organizations", "list") + run("alerts", "add", "https://ops.example.com", status=1)
    assert "\x1b" not in output and "red \\x1b[31m\\nerror: gone" in output
    assert run("alerts", "add", "https://ops.example.com", status=1).count("error: There are several") == 1


def test_a_command_that_is_nearly_right_is_named(run) -> None:
    assert "did you mean status?" in run("stauts", status=1)


def each_command(command: click.Command, name: str = "") -> Iterator[tuple[str, click.Command]]:
    if not isinstance(command, click.Group):
        yield name, command
        return
    ctx = click.Context(command)
    for one in command.list_commands(ctx):
        yield from each_command(command.get_command(ctx, one), f"{name} {one}".strip())


def test_every_command_says_what_it_does_with_each_option_and_speaks_json() -> None:
    for name, command in each_command(manage.main):
        assert command.help, name
        options = [parameter for parameter in command.params if isinstance(parameter, click.Option)]
        assert [option.name for option in options if not option.help] == [], name
        assert any("--json" in option.opts for option in options), name


def test_numbers_are_typed_in_decimal_digits() -> None:
    def walk(one: click.Command) -> Iterator[click.Parameter]:
        yield from one.params
        if isinstance(one, click.Group):
            for name in one.list_commands(click.Context(one)):
                child = one.get_command(click.Context(one), name)
                assert child is not None
                yield from walk(child)

    numbers = [option for option in walk(manage.main) if isinstance(option.type, click.types.IntParamType)]
    assert numbers
    for option in numbers:
        for typed in ("１２0", "1_50", "²"):
            with pytest.raises(click.UsageError):
                option.type.convert(typed, option, None)


def listing_usages() -> list[CommandUsage]:
    """Return the usages that read something of an organization and need no argument."""
    operations = [operation for operation in OPERATIONS if isinstance(operation, ManagedOperation)]
    usages = [usage for operation in operations for usage in read_usages(operation)]
    return [
        usage
        for usage in usages
        if usage.operation.method == "GET"
        and usage.chooses_organization
        and not usage.required
        and usage.optional >= set(usage.arguments)
        and usage.variables == [ORGANIZATION]
    ]


def test_what_an_organization_has_is_listed_with_and_without_its_id(seeded: Run) -> None:
    organization = column(seeded("organizations", "list"))[0]
    usages = listing_usages()
    assert len(usages) > 8
    for usage in usages:
        with_id = seeded(usage.group, usage.name, "--organization", organization)
        assert seeded(usage.group, usage.name).splitlines()[0] == with_id.splitlines()[0], usage
    seeded("organizations", "create", "Beta")
    for usage in usages:
        seeded(usage.group, usage.name)
