import pytest

from gateway.accounts.custom_providers import CustomProviders, ProviderCaps
from gateway.accounts.provider_keys import ProviderKeyChange, ProviderKeyDraft, ProviderKeys
from gateway.callers.vault import Vault
from gateway.control.version import Control
from gateway.errors import Conflict, Internal, InvalidRequest, NotFound, Unavailable

BY = {"actor": "operator"}
SECRET = "sk-" + "s" * 40


def vault_of(company) -> Vault:
    return Vault(company.secrets.encryption_keys)


@pytest.fixture
def provider_keys(company) -> ProviderKeys:
    return ProviderKeys(company.database, company.control, vault_of(company), company.bounds.__setitem__)


def test_a_bound_is_kept_in_the_transaction_of_its_key(company, provider_keys) -> None:
    provider_key = provider_keys.add(company.organization_id, ProviderKeyDraft("alpha", SECRET, max_spend_nusd=7), **BY)
    assert company.bounds == {provider_key.id: 7}
    for maximum in (9, None):
        change = ProviderKeyChange(bounded=True, max_spend_nusd=maximum)
        provider_keys.update(company.organization_id, provider_key.id, change, **BY)
        assert company.bounds == {provider_key.id: maximum}
    provider_keys.update(company.organization_id, provider_key.id, ProviderKeyChange(label="x"), **BY)
    assert company.bounds == {provider_key.id: None}


def test_an_unenforceable_bound_is_refused(company) -> None:
    keys = ProviderKeys(company.database, company.control, vault_of(company))
    with pytest.raises(Internal):
        keys.add(company.organization_id, ProviderKeyDraft("alpha", SECRET, max_spend_nusd=7), **BY)
    assert keys.list_keys(company.organization_id) == []


def test_a_kept_key_is_usable_and_encrypted_at_rest(company, provider_keys) -> None:
    draft = ProviderKeyDraft("alpha", SECRET, label="Main", allowed_models=["small"], max_spend_nusd=5)
    provider_key = provider_keys.add(company.organization_id, draft, **BY)
    (found,) = provider_keys.keys_for(company.organization_id, "alpha")
    assert (found.secret, found.info) == (SECRET, provider_key)
    assert (provider_key.label, provider_key.allowed_models, provider_key.max_spend_nusd) == ("Main", ("small",), 5)
    rows = company.database.read(lambda: company.database.execute("SELECT * FROM provider_key").fetchall())
    assert SECRET not in str(rows) and SECRET not in repr(found) and SECRET not in repr(draft)


def test_a_removed_key_is_unused_at_once_and_its_secret_is_gone(company, provider_keys) -> None:
    worker = Control(company.database, company.clock)
    worker.start()
    other_provider_keys = ProviderKeys(company.database, worker, vault_of(company))
    provider_key = provider_keys.add(company.organization_id, ProviderKeyDraft("alpha", SECRET), **BY)
    assert other_provider_keys.keys_for(company.organization_id, "alpha")
    provider_keys.remove(company.organization_id, provider_key.id, **BY)
    assert other_provider_keys.keys_for(company.organization_id, "alpha") == ()
    worker.stop()
    rows = company.database.read(lambda: company.database.execute("SELECT secret FROM provider_key").fetchall())
    assert [tuple(row) for row in rows] == [("",)]
    assert provider_keys.list_keys(company.organization_id) == []


def test_keys_of_one_provider_come_in_order_of_making_and_inactive_ones_not(company, provider_keys) -> None:
    provider_keys_ = [
        provider_keys.add(company.organization_id, ProviderKeyDraft("alpha", f"key-{n}"), **BY) for n in range(3)
    ]
    provider_keys.update(company.organization_id, provider_keys_[1].id, ProviderKeyChange(active=False), **BY)
    found = provider_keys.keys_for(company.organization_id, "alpha")
    assert [credential.secret for credential in found] == ["key-0", "key-2"]
    assert provider_keys.keys_for(company.organization_id, "beta") == ()
    assert provider_keys.keys_for("org_other", "alpha") == ()


def test_another_organization_cannot_touch_a_key(company, provider_keys) -> None:
    provider_key = provider_keys.add(company.organization_id, ProviderKeyDraft("alpha", SECRET), **BY)
    with pytest.raises(NotFound):
        provider_keys.remove("org_other", provider_key.id, **BY)
    with pytest.raises(NotFound):
        provider_keys.add("org_other", ProviderKeyDraft("alpha", SECRET), **BY)


@pytest.mark.parametrize("draft", [("", SECRET), ("alpha", "  "), ("alpha", SECRET, -1)])
def test_an_empty_key_or_a_negative_bound_is_refused(company, provider_keys, draft: tuple) -> None:
    bound = draft[2] if len(draft) > 2 else None
    with pytest.raises(InvalidRequest):
        provider_keys.add(company.organization_id, ProviderKeyDraft(*draft[:2], max_spend_nusd=bound), **BY)


def test_encryption_keys_are_rotated_by_resealing(company, provider_keys) -> None:
    provider_keys.add(company.organization_id, ProviderKeyDraft("alpha", SECRET), **BY)
    database, sealed = company.database, vault_of(company).seal("whsec_signs")
    assert database.write(lambda: database.execute("UPDATE project SET callback_secret = ?", (sealed,)).rowcount)
    both = Vault(("a-key-of-next-year", *company.secrets.encryption_keys))
    assert ProviderKeys(company.database, company.control, both).reseal() == 1
    new = Vault(("a-key-of-next-year",))
    found = ProviderKeys(company.database, company.control, new).keys_for(company.organization_id, "alpha")
    assert [credential.secret for credential in found] == [SECRET]
    row = database.read(lambda: database.execute("SELECT callback_secret FROM project").fetchone())
    assert new.open(row[0]) == "whsec_signs"
    with pytest.raises(Unavailable):
        ProviderKeys(company.database, company.control, vault_of(company)).keys_for(company.organization_id, "alpha")


@pytest.mark.parametrize(
    ("table", "column"),
    [
        ("project", "callback_secret"),
        ("alert_hook", "secret"),
        ("second_factor", "secret"),
        ("identity_provider", "client_secret"),
        ("sso_login", "refresh_token"),
        ("sso_login", "id_token_hint"),
    ],
)
def test_no_secret_needs_the_old_key_after_resealing(small_company, table: str, column: str) -> None:
    database = small_company.database

    def insert() -> None:
        (user_id,) = database.execute('SELECT id FROM "user"').fetchone()
        organization_id = small_company.organization_id
        owners = {"organization": organization_id, "organization_id": organization_id, "user_id": user_id}
        columns = database.execute(f"PRAGMA table_info({table})").fetchall()
        values = {name: owners.get(name, 0 if "INT" in kind else "") for _, name, kind, *_ in columns}
        values |= {"id": "one"} if "id" in values else {}
        values[column] = vault_of(small_company).seal("secret")
        database.execute(
            f"INSERT INTO {table} ({', '.join(values)}) VALUES ({', '.join('?' * len(values))})", [*values.values()]
        )

    database.write(insert)
    both = Vault(("a-key-of-next-year", *small_company.secrets.encryption_keys))
    ProviderKeys(database, small_company.control, both).reseal()
    (stored,) = database.read(lambda: database.execute(f"SELECT {column} FROM {table} WHERE {column} <> ''").fetchone())
    assert Vault(("a-key-of-next-year",)).open(stored) == "secret"


def test_a_secret_of_a_lost_key_does_not_stop_the_others(company, provider_keys) -> None:
    provider_keys.add(company.organization_id, ProviderKeyDraft("alpha", SECRET), **BY)
    lost = Vault(("a-key-of-last-year",)).seal("whsec_lost")
    company.database.write(lambda: company.database.execute("UPDATE project SET callback_secret = ?", (lost,)))
    assert provider_keys.reseal() == 1


def test_resealing_brings_no_destroyed_secret_back(company, provider_keys, monkeypatch) -> None:
    kept = provider_keys.add(company.organization_id, ProviderKeyDraft("alpha", SECRET), **BY)
    bump = company.control.bump

    def come_first() -> None:
        """Commit another caller's change while this one waits for its turn."""
        monkeypatch.setattr(company.control, "bump", bump)
        provider_keys.remove(company.organization_id, kept.id, **BY)

    monkeypatch.setattr(company.control, "bump", come_first)
    assert provider_keys.reseal() == 0
    row = company.database.read(lambda: company.database.execute("SELECT secret FROM provider_key").fetchone())
    assert row[0] == ""


def test_encrypting_twice_gives_different_texts_and_an_empty_text_stays_empty() -> None:
    vault = Vault(["some-encryption-key"])
    assert vault.seal("secret") != vault.seal("secret")
    assert vault.seal("") == "" == vault.open("")


def test_a_custom_provider_goes_together_with_its_keys(company, provider_keys) -> None:
    custom = CustomProviders(company.database, company.control)
    custom_provider = custom.add(company.organization_id, "own", "https://llm.example.com/", [{"id": "small"}], **BY)
    assert custom.providers_of(company.organization_id) == {"own": custom_provider}
    provider_keys.add(company.organization_id, ProviderKeyDraft(custom_provider.provider_id, SECRET), **BY)
    assert provider_keys.keys_for(company.organization_id, "custom:own")
    custom.remove(company.organization_id, "own", **BY)
    assert custom.providers_of(company.organization_id) == {}
    assert provider_keys.keys_for(company.organization_id, "custom:own") == ()
    with pytest.raises(NotFound):
        custom.remove(company.organization_id, "own", **BY)


@pytest.mark.parametrize(
    ("name", "address"),
    [
        ("Own", "https://example.com"),
        ("a/b", "https://example.com"),
        ("own", "ftp://example.com"),
        ("own", "https://user:secret@example.com"),
        ("own", "https:///v1"),
    ],
)
def test_an_ill_formed_custom_provider_is_refused(small_company, name: str, address: str) -> None:
    custom = CustomProviders(small_company.database, small_company.control)
    with pytest.raises(InvalidRequest):
        custom.add(small_company.organization_id, name, address, **BY)


def test_a_custom_provider_cannot_have_the_name_of_a_built_in_one(small_company) -> None:
    custom = CustomProviders(small_company.database, small_company.control)
    with pytest.raises(InvalidRequest, match="name of a built-in provider"):
        custom.add(small_company.organization_id, "mistral", "https://example.com", **BY, built_in={"mistral"})


@pytest.mark.parametrize("name", ["auto", "custom", "smart", "dynamic", "llmgateway"])
def test_a_custom_provider_cannot_have_a_name_that_means_something_else(small_company, name: str) -> None:
    custom = CustomProviders(small_company.database, small_company.control)
    with pytest.raises(InvalidRequest, match="reserved by the gateway"):
        custom.add(small_company.organization_id, name, "https://example.com", **BY)


def test_custom_providers_and_their_models_have_caps(company) -> None:
    custom = CustomProviders(company.database, company.control, ProviderCaps(1, 2))
    three = [{"id": name} for name in "abc"]
    with pytest.raises(InvalidRequest, match="may list 2 models; these are 3") as caught:
        custom.add(company.organization_id, "own", "https://example.com", three, **BY)
    assert (caught.value.code, caught.value.param) == ("custom_provider_cap_reached", "models")
    custom.add(company.organization_id, "own", "https://example.com", three[:2], **BY)
    with pytest.raises(InvalidRequest, match="may list 2 models"):
        custom.update(company.organization_id, "own", models=three, **BY)
    with pytest.raises(InvalidRequest, match="1 custom providers, which is the limit") as caught:
        custom.add(company.organization_id, "other", "https://example.com", **BY)
    assert caught.value.code == "custom_provider_cap_reached"
    custom.remove(company.organization_id, "own", **BY)
    custom.add(company.organization_id, "other", "https://example.com", **BY)


def test_a_custom_provider_that_did_not_change_stays_the_same_object(company) -> None:
    custom = CustomProviders(company.database, company.control)
    custom.add(company.organization_id, "own", "https://example.com", **BY)
    before = custom.providers_of(company.organization_id)["own"]
    custom.add(company.organization_id, "other", "https://example.com", **BY)
    assert custom.providers_of(company.organization_id)["own"] is before
    custom.update(company.organization_id, "own", models=[{"id": "a"}], **BY)
    assert custom.providers_of(company.organization_id)["own"].models == ({"id": "a"},)


def test_a_custom_name_can_be_used_once(company) -> None:
    custom = CustomProviders(company.database, company.control)
    custom.add(company.organization_id, "own", "https://example.com", **BY)
    with pytest.raises(Conflict):
        custom.add(company.organization_id, "own", "https://example.org", **BY)


def test_keys_of_one_provider_are_distinguished_by_their_last_characters(company, provider_keys) -> None:
    organization = company.organization_id
    first = provider_keys.add(organization, ProviderKeyDraft("alpha", "sk-proj-abcdefghijklmnopqrstuvwxyz-1111"), **BY)
    second = provider_keys.add(organization, ProviderKeyDraft("alpha", "sk-proj-abcdefghijklmnopqrstuvwxyz-2222"), **BY)
    assert (first.mask, second.mask) == ("sk-proj-abcd…1111", "sk-proj-abcd…2222")
    assert provider_keys.add(organization, ProviderKeyDraft("alpha", "abcdefghijklmnop"), **BY).mask == "ab…mnop"
    assert provider_keys.add(organization, ProviderKeyDraft("alpha", "abcdefghij"), **BY).mask == "ab…"


def test_documents_of_service_accounts_are_distinguished(company, provider_keys) -> None:
    drafts = [ProviderKeyDraft("alpha", f'{{"private_key_id": "{n}"}}') for n in range(2)]
    first, second = [provider_keys.add(company.organization_id, draft, **BY).mask for draft in drafts]
    assert first != second and first.startswith("{…")


def test_a_key_of_an_earlier_release_shows_its_last_characters_too(company, provider_keys) -> None:
    secret = "sk-proj-abcdefghijklmnopqrstuvwxyz-1111"
    provider_key = provider_keys.add(company.organization_id, ProviderKeyDraft("alpha", secret), **BY)

    def age() -> None:
        company.database.execute("UPDATE provider_key SET mask = 'sk-proj-abcd•••••'")

    company.database.write(age)
    assert [key.mask for key in provider_keys.list_keys(company.organization_id)] == [provider_key.mask]
    unreadable = ProviderKeys(company.database, company.control, Vault(["another-key" * 4]))
    assert [key.mask for key in unreadable.list_keys(company.organization_id)] == ["sk-proj-abcd•••••"]
    provider_keys.reseal()
    assert [key.mask for key in unreadable.list_keys(company.organization_id)] == [provider_key.mask]
