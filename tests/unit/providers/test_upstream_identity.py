"""The cache of tokens: one fetch at a time, renewal ahead of the expiry, and failures."""

import gevent
import pytest

from gateway.catalogue import loader
from gateway.catalogue.entries import Mapping
from gateway.catalogue.environment_credentials import settings_for
from gateway.clock import Clock
from gateway.errors import IdentityFailed
from gateway.providers.identities import upstream_identity
from gateway.providers.identities.entra_tokens import EntraIdentity
from gateway.providers.identities.role_credentials import AwsIdentity
from gateway.providers.identities.upstream_identity import IssuedToken, UpstreamIdentities
from gateway.providers.protocol import Credential, Target
from gateway.providers.upstream_calls import signed_in, signed_in_again
from gateway.runtime.state_changes import StateLog

PROVIDER = loader.load().provider("vertex-anthropic")
UNFILLED = "https://api.example/v1/projects/{project}/x"


class Source:
    """A vendor in memory. Each fetch returns a new token, or raises `failure`; `wait_s` delays it."""

    settings = ("role",)
    auth = "bearer"

    def __init__(self) -> None:
        self.fetched = 0
        self.lifetime_s = 3600.0
        self.failure = ""
        self.wait_s = 0.0
        self.repeats = False

    def fetch(self, settings):
        gevent.sleep(self.wait_s)
        if self.failure:
            raise IdentityFailed(self.failure)
        if not self.repeats:
            self.fetched += 1
        return IssuedToken(f"t{self.fetched}", self.lifetime_s, "source in memory", {"project": "acme"})

    def is_rejected(self, reply):
        return reply.status == 401


class Reply:
    def __init__(self, status: int) -> None:
        self.status = status


class Changes:
    def __init__(self) -> None:
        self.log = StateLog()
        self.events: list[str] = []
        self.log.subscribe(lambda change: self.events.append(change.event))


@pytest.fixture
def source() -> Source:
    return Source()


@pytest.fixture
def changes() -> Changes:
    return Changes()


@pytest.fixture
def identities(source, changes, clock) -> UpstreamIdentities:
    return UpstreamIdentities({"google": source}, clock, changes.log)


@pytest.fixture
def target(identities) -> Target:
    identity = identities.find("google", {})
    return Target(PROVIDER, Mapping("vertex-anthropic", "m", "m"), Credential("", identity=identity), UNFILLED)


def maintain(identities: UpstreamIdentities) -> None:
    """Renew what is due, and wait for the renewal."""
    identities.maintain()
    while identities.find("google", {})._renewing:
        gevent.sleep(0)


def test_a_target_is_signed_in_once_for_each_token(target, source, clock):
    signed = signed_in(target)
    assert signed.credential.secret == "t1" and signed.provider.auth == "bearer"
    assert signed.address == "https://api.example/v1/projects/acme/x"
    assert signed_in(target) is signed
    clock.advance(3600)
    assert signed_in(target).credential.secret == "t2"


@pytest.mark.parametrize(
    ("provider", "variable"),
    [
        ("aws-bedrock", "LLM_AWS_BEDROCK_REGION"),
        ("aws-bedrock", "LLM_AWS_BEDROCK_ROLE_ARN"),
        ("aws-bedrock", "LLM_AWS_BEDROCK_EXTERNAL_ID"),
        ("azure", "LLM_AZURE_TOKEN_SCOPE"),
        ("azure-ai-foundry", "LLM_AZURE_AI_FOUNDRY_TOKEN_SCOPE"),
        ("azure-anthropic", "LLM_AZURE_ANTHROPIC_TOKEN_SCOPE"),
    ],
)
def test_a_setting_of_a_provider_decides_which_token_it_gets(provider: str, variable: str, clock: Clock) -> None:
    entry = loader.load().provider(provider)
    identities = UpstreamIdentities({"aws": AwsIdentity, "entra": EntraIdentity}, clock, StateLog())
    assert "=mine" in identities.find(entry.identity, settings_for(entry, {variable: "mine"})).name


def test_requests_share_one_fetch_while_there_is_no_token(target, source):
    source.wait_s = 0.01
    waiting = [gevent.spawn(signed_in, target) for _ in range(20)]
    assert {one.get().credential.secret for one in waiting} == {"t1"}


def test_another_request_fetches_when_the_first_one_ends(target, source):
    source.wait_s = 0.01
    first, second = (gevent.spawn(signed_in, target) for _ in range(2))
    gevent.sleep(0)
    first.kill()
    assert second.get().credential.secret == "t1"


def test_a_token_is_renewed_in_the_background_before_it_expires(identities, target, source, clock):
    maintain(identities)
    assert source.fetched == 1
    clock.advance(3600 - upstream_identity.RENEW_BEFORE_S - 5)
    maintain(identities)
    assert source.fetched == 1
    clock.advance(6)
    maintain(identities)
    assert source.fetched == 2 and signed_in(target).credential.secret == "t2"


def test_a_short_token_is_renewed_in_its_last_third(identities, target, source, clock):
    source.lifetime_s = 300
    maintain(identities)
    clock.advance(199)
    maintain(identities)
    assert source.fetched == 1
    clock.advance(2)
    maintain(identities)
    assert source.fetched == 2


def test_a_metadata_server_that_repeats_its_token_is_not_called_at_every_tick(identities, target, source, clock):
    source.lifetime_s = 500
    maintain(identities)
    source.repeats = True
    clock.advance(400)
    calls = []
    fetch = source.fetch
    source.fetch = lambda settings: calls.append(1) or fetch(settings)
    source.lifetime_s = 100
    for _ in range(29):
        maintain(identities)
        clock.advance(1)
    assert len(calls) == 1
    clock.advance(40)
    maintain(identities)
    assert len(calls) == 2


def test_a_failed_renewal_leaves_the_valid_token_in_use(identities, target, source, changes, clock):
    maintain(identities)
    source.failure = "The source did not answer."
    clock.advance(3100)
    maintain(identities)
    state = identities.find("google", {}).state()
    assert signed_in(target).credential.secret == "t1"
    assert state.failure == "The source did not answer." and state.expires_us > clock.now_us()
    assert changes.events == ["workload_identity.failing"]
    source.failure = ""
    clock.advance(upstream_identity.RENEWAL_INTERVAL_S + 1)
    maintain(identities)
    assert signed_in(target).credential.secret == "t2"
    assert changes.events == ["workload_identity.failing", "workload_identity.works"]


def test_a_failure_without_a_token_is_remembered_for_a_moment(target, source, clock):
    clock.freeze()
    source.failure = "The source did not answer."
    for _ in range(3):
        with pytest.raises(IdentityFailed, match="did not answer"):
            signed_in(target)
    source.failure = ""
    with pytest.raises(IdentityFailed):
        signed_in(target)
    clock.advance(upstream_identity.FIRST_RETRY_S + 0.1)
    assert signed_in(target).credential.secret == "t1"


def test_an_expired_token_is_not_used(target, source, clock):
    source.lifetime_s = upstream_identity.EXPIRY_MARGIN_S
    with pytest.raises(IdentityFailed, match="has expired"):
        signed_in(target)


def test_a_rejected_token_is_replaced_once(target, source, clock):
    signed = signed_in(target)
    assert signed_in_again(signed, Reply(403)) is None
    renewed = signed_in_again(signed, Reply(401))
    assert renewed is not None and renewed.credential.secret == "t2"
    # A second request that used the first token gets the second one without a fetch.
    assert signed_in_again(signed, Reply(401)).credential.secret == "t2"
    assert signed_in_again(renewed, Reply(401)) is None and source.fetched == 2
    clock.advance(upstream_identity.RENEWAL_INTERVAL_S + 1)
    assert signed_in_again(renewed, Reply(401)).credential.secret == "t3"


def test_a_server_that_repeats_the_rejected_token_causes_no_second_attempt(target, source):
    signed = signed_in(target)
    source.repeats = True
    assert signed_in_again(signed, Reply(401)) is None


def test_a_key_is_never_replaced(clock):
    plain = Target(PROVIDER, Mapping("vertex-anthropic", "m", "m"), Credential("key"), "https://api.example")
    assert signed_in(plain) is plain and signed_in_again(plain, Reply(401)) is None


def test_providers_with_the_same_settings_share_an_identity(identities):
    assert identities.find("google", {"region": "a"}) is identities.find("google", {"region": "b"})
    assert identities.find("google", {"role": "a"}) is not identities.find("google", {"role": "b"})


def test_a_token_stands_in_no_representation(target):
    signed = signed_in(target)
    token = target.memo[upstream_identity.SIGNED_IN][0]
    assert "t1" not in repr((signed, token, target.credential))


def test_a_missing_project_is_a_clear_error(target, source):
    source.fetch = lambda settings: IssuedToken("t", 3600, "source in memory")
    with pytest.raises(IdentityFailed, match="does not say the project"):
        signed_in(target)
