"""Limits of any subject: what a request charges, all of its limits together or none, and what the books say."""

from collections.abc import Callable

import pytest
from support.billing import DOLLAR, BillingIdentity, BillingProcess, admission_of, attempt_at, target

from gateway import ids
from gateway.accounts.limit_drafts import LimitDraft
from gateway.accounts.spending_limits import MAX_REQUESTS, SpendingLimits
from gateway.billing.old_limits import forget_limits
from gateway.billing.reconciliation import doctor
from gateway.clock import DAY_US
from gateway.errors import BudgetInUse, GatewayError, SpendingLimitReached
from gateway.ids import digest
from gateway.limits.budgets import MAX_MEMBERS_SHOWN, find_spent
from gateway.limits.cost_bound import CostBound, Payer
from gateway.limits.holds import Holds
from gateway.limits.limit_rules import MAX_MEMBERS, LimitAction, LimitSet, Subject
from gateway.limits.limit_states import MAX_SORTED, note_top_members
from gateway.neutral.usage import Usage

COST = 20_000  # of `used`
BOUND = CostBound(COST, 0, 0, True)


@pytest.fixture
def process(start_billing: Callable[[], BillingProcess]) -> BillingProcess:
    return start_billing()


@pytest.fixture
def limits(process: BillingProcess) -> SpendingLimits:
    return SpendingLimits(process.database, process.control)


@pytest.fixture
def funded(process: BillingProcess, account: BillingIdentity) -> BillingIdentity:
    process.ledger.grant(account.organization, 100 * DOLLAR, "grant-1")
    return account


class Requests:
    """Requests of an account, each of which costs COST."""

    def __init__(self, process: BillingProcess, account: BillingIdentity) -> None:
        self.process, self.account = process, account

    def admit(self, bound: CostBound = BOUND, **facts):
        context = self.process.context = self.account.context()
        for name, value in facts.items():
            setattr(context, name, value)
        return self.process.settlements.admit(admission_of(context, bound))

    def pay(self, used: Usage = Usage(input=10, output=5), place=None, **facts) -> None:
        settlement = self.admit(**facts)
        try:
            attempt = attempt_at(place or target(), usage=used)
            settlement.begin(0, attempt.target)
            settlement.settle(attempt)
        finally:
            settlement.close()

    def count(self, most: int = 20, **facts) -> int:
        """Return how many requests are admitted before a limit refuses."""
        for number in range(most):
            try:
                self.pay(**facts)
            except (SpendingLimitReached, BudgetInUse):
                return number
            self.process.rest()
        return most


@pytest.fixture
def requests(process: BillingProcess, funded: BillingIdentity) -> Requests:
    return Requests(process, funded)


def of(kind: str, value: str = "", name: str = "", *, each: bool = False) -> Subject:
    return Subject(kind, value, name, each)


def put(limits: SpendingLimits, account: BillingIdentity, *subjects: Subject, calls: int = 2, name="one", **more):
    draft = LimitDraft(tuple(subjects), calls * COST, **more)
    return limits.put(account.organization, name, draft, actor="operator")


SUBJECTS = {
    "organization": (of("organization"), {}, {}),
    "application": (of("application", "cursor"), {"source": "cursor"}, {"source": "codex"}),
    "tag": (of("tag", "search", "team"), {"metadata": {"team": "search"}}, {"metadata": {"team": "ads"}}),
    "end user": (of("user", "ann"), {"end_user": "ann"}, {"end_user": "bob"}),
    "session": (of("session", "s1"), {"session": "s1"}, {"session": "s2"}),
    "run": (of("run", "r1"), {"metadata": {"run": "r1"}}, {"metadata": {"run": "r2"}}),
    "requests without a tag": (of("tag", "", "team"), {}, {"metadata": {"team": "ads"}}),
    "requests without an end user": (of("user"), {}, {"end_user": "bob"}),
    "model": (of("model", "m-1"), {}, None),
    "pattern of models": (of("model", "m-*"), {}, None),
    "model in capitals": (of("model", "M-1"), {}, None),
    "provider": (of("provider", "mock"), {}, None),
}


@pytest.mark.parametrize("subject", SUBJECTS)
def test_a_limit_stops_the_requests_of_its_subject_and_no_others(subject, process, limits, requests, funded):
    limited, inside, outside = SUBJECTS[subject]
    put(limits, funded, limited)
    assert requests.count(**inside) == 2
    if outside:
        assert requests.count(3, **outside) == 3
    process.rest()
    assert limits.find(funded.organization, "one").state.used_nusd == 2 * COST
    assert doctor(process.database) == []


@pytest.mark.parametrize("other", [of("model", "other-*"), of("provider", "openai"), of("customer", each=False)])
def test_a_limit_of_another_model_or_provider_stops_nothing(other, limits, requests, funded):
    if other.kind == "customer":
        other = of("customer", "")
        put(limits, funded, other, of("model", "other"))
    else:
        put(limits, funded, other)
    assert requests.count(3) == 3


def test_a_pair_limits_only_what_falls_under_both(process, limits, requests, funded):
    put(limits, funded, of("tag", "search", "team"), of("model", "m-*"))
    assert requests.count(3, metadata={"team": "ads"}) == 3
    assert requests.count(metadata={"team": "search"}) == 2
    process.rest()
    assert doctor(process.database) == []


def test_each_end_user_has_the_amount_and_those_without_a_name_share_it(process, limits, requests, funded):
    put(limits, funded, of("user", each=True))
    assert [requests.count(end_user=user) for user in ("ann", "bob", "", "ann")] == [2, 2, 2, 0]
    process.rest()
    info = limits.find(funded.organization, "one")
    assert {(one.member, one.used_nusd) for one in info.members} == {(name, 2 * COST) for name in ("ann", "bob", "")}
    assert info.member_count == 3
    assert doctor(process.database) == []


def test_members_beyond_the_bound_share_one_amount(process, limits, requests, funded):
    put(limits, funded, of("user", each=True))
    assert requests.count(1, end_user="ann") == 1
    process.database.write(lambda: process.database.execute("UPDATE limits SET members = ?", (MAX_MEMBERS,)))
    assert [requests.count(1, end_user=user) for user in ("bob", "eve", "zoe", "ann", "ann")] == [1, 1, 0, 1, 0]
    process.rest()
    assert limits.find(funded.organization, "one").member_count == MAX_MEMBERS
    assert doctor(process.database) == []


def test_all_limits_are_reserved_or_none(process, limits, requests, funded):
    put(limits, funded, of("organization"), calls=5, name="wide")
    put(limits, funded, of("user", each=True), calls=1, name="narrow", period="1d")
    put(limits, funded, of("model", "m-1"), calls=4, name="called")
    assert requests.count(end_user="ann") == 1
    assert requests.count(5, end_user="bob") == 1
    process.rest()
    states = {info.rule.name: info.state for info in limits.list_limits(funded.organization)}
    assert {name: (state.used_nusd, state.held_nusd) for name, state in states.items()} == {
        "wide": (2 * COST, 0),
        "narrow": (COST, 0),
        "called": (2 * COST, 0),
    }


def test_a_call_that_its_limit_refuses_leaves_nothing_reserved(process, limits, requests, funded):
    put(limits, funded, of("organization"), calls=5, name="wide")
    put(limits, funded, of("model", "m-1"), calls=0, name="called")
    settlement = requests.admit()
    with pytest.raises(SpendingLimitReached) as refusal:
        settlement.begin(0, target())
    settlement.close()
    assert refusal.value.limit == "called"
    assert process.spending.reserved_nusd() == 0


def test_several_windows_of_one_subject_hold_together(process, limits, requests, funded, clock):
    put(limits, funded, of("organization"), calls=2, name="day", period="1d")
    put(limits, funded, of("organization"), calls=3, name="month", period="month@Europe/Berlin")
    assert requests.count() == 2
    process.database.write(
        lambda: process.database.execute(
            "UPDATE budget SET window_start = window_start - ? WHERE period = '1d'", (DAY_US,)
        )
    )
    clock.advance(1.0)  # a shortage is remembered for a moment
    assert requests.count() == 1
    process.rest()
    assert doctor(process.database) == []
    states = {info.rule.name: info.state.used_nusd for info in limits.list_limits(funded.organization)}
    assert states["day"] == COST and states["month"] == 3 * COST


def test_the_refusal_names_the_limit_what_is_used_and_when_it_renews(limits, requests, funded, clock):
    put(limits, funded, of("tag", "search", "team"), period="1d", name="team-search")
    assert requests.count(metadata={"team": "search"}) == 2
    with pytest.raises(SpendingLimitReached) as refusal:
        requests.pay(metadata={"team": "search"})
    text = refusal.value.message
    assert '"team-search" (tag:team=search)' in text and "0.00004 USD are used" in text and "resets at" in text
    assert (refusal.value.code, refusal.value.limit) == ("spending_limit_reached", "team-search")


@pytest.mark.parametrize(
    ("subject", "code"),
    [(of("key", each=True), "key_limit_reached"), (of("member", each=True), "member_limit_reached")],
)
def test_a_limit_of_todays_subject_keeps_its_code(subject, code, limits, requests, funded):
    put(limits, funded, subject, calls=0)
    with pytest.raises(SpendingLimitReached) as refusal:
        requests.pay()
    assert refusal.value.code == code


def test_a_limit_that_only_warns_counts_and_refuses_nothing(process, limits, requests, funded):
    put(limits, funded, of("organization"), actions=(LimitAction(80, "warn"),), period="1d")
    assert requests.count(4) == 4
    process.rest()
    assert limits.find(funded.organization, "one").state.used_nusd == 4 * COST
    assert doctor(process.database) == []


def test_a_limit_refuses_at_its_share(limits, requests, funded):
    put(limits, funded, of("organization"), calls=4, actions=(LimitAction(50, "refuse"),))
    assert requests.count() == 2


def test_another_amount_keeps_what_was_used_and_another_window_begins_anew(process, limits, requests, funded):
    put(limits, funded, of("organization"))
    assert requests.count() == 2
    put(limits, funded, of("organization"), calls=3)
    assert requests.count() == 1
    put(limits, funded, of("organization"), calls=3, period="1d")
    assert requests.count() == 3
    process.rest()
    assert doctor(process.database) == []


def test_a_deleted_limit_stops_nothing_and_its_counters_go(process, limits, requests, funded):
    put(limits, funded, of("user", each=True))
    assert requests.count(end_user="ann") == 2
    limits.delete(funded.organization, "one", actor="operator")
    assert requests.count(3, end_user="ann") == 3
    process.rest()
    assert doctor(process.database) == []
    process.database.write(
        lambda: process.database.execute("UPDATE limits SET deleted_at = deleted_at - ?", (2 * DAY_US,))
    )
    assert forget_limits(process.database) == 1
    for table in ("limits", "group_usage"):
        assert process.database.read(lambda t=table: process.database.fetch(f"SELECT 1 FROM {t}")) == []
    assert doctor(process.database) == []


def test_members_that_spend_no_longer_are_forgotten(process, limits, requests, funded):
    put(limits, funded, of("user", each=True), period="1d")
    for user in ("ann", "bob"):
        requests.pay(end_user=user)
    process.rest()
    process.rest()
    assert forget_limits(process.database) == 0
    process.database.write(
        lambda: process.database.execute(
            "UPDATE budget SET window_start = window_start - ? WHERE member = 'ann'", (3 * DAY_US,)
        )
    )
    assert forget_limits(process.database) == 1
    info = limits.find(funded.organization, "one")
    assert ([one.member for one in info.members], info.member_count) == (["bob"], 1)
    assert doctor(process.database) == []


def test_a_raise_holds_until_its_time(process, limits, requests, funded):
    put(limits, funded, of("organization"))
    assert requests.count() == 2
    now = process.database.now_us()
    limits.grant_raise(funded.organization, "one", 2 * COST, now + DAY_US, actor="operator")
    assert requests.count() == 2
    process.database.write(lambda: process.database.execute("UPDATE limits SET raise_until = ?", (now - 1,)))
    assert limits.end_raises() == 1
    info = limits.find(funded.organization, "one")
    assert (info.rule.amount_nusd, info.raise_nusd, info.raise_until_us) == (2 * COST, 0, None)
    with pytest.raises(SpendingLimitReached):
        requests.pay()


def test_a_killed_worker_leaves_its_limits_exact(process, limits, requests, funded, start_billing):
    put(limits, funded, of("user", each=True), calls=3, name="users", period="1d")
    put(limits, funded, of("model", "m-*"), calls=5, name="models")
    settlement = requests.admit(end_user="ann")
    settlement.begin(0, target())
    process.die()
    second = start_billing()
    second.recovery.run()
    assert doctor(second.database) == []
    infos = SpendingLimits(second.database, second.control).list_limits(funded.organization)
    used = {info.rule.name: (info.state.used_nusd, info.state.held_nusd) for info in infos}
    assert used["users"] == used["models"]
    assert used["users"][0] > 0 and used["users"][1] == 0


def test_values_of_the_credential_cannot_be_chosen_by_the_caller(limits, requests, funded):
    put(limits, funded, of("tag", each=True, name="team"), values_of="credential")
    assert requests.count(metadata={"team": ids.new_hex()}) == 2
    assert requests.count(metadata={"team": ids.new_hex()}) == 0


def test_alerts_name_the_limit_its_member_and_its_organization(process, limits, requests, funded):
    warns = (LimitAction(50, "warn"), LimitAction(100, "refuse"))
    put(limits, funded, of("organization"), name="all", actions=(LimitAction(100, "warn"),))
    put(limits, funded, of("user", each=True), name="users", period="1d", actions=warns)
    put(limits, funded, of("user", "", each=True), name="quiet", calls=1)
    requests.pay(end_user="ann")
    process.rest()
    found = {(one.name, one.organization, one.percent, one.reached) for one in find_spent(process.database, 0)}
    assert found == {("users of ann", funded.organization, 50, 50)}
    put(limits, funded, of("organization"), name="all", calls=1, actions=(LimitAction(100, "warn"),))
    assert ("all", 100) in {(one.name, one.reached) for one in find_spent(process.database, 0)}


def test_a_refused_request_takes_no_place_among_the_members_of_a_limit(process, limits, requests, funded):
    put(limits, funded, of("user", each=True), name="users", period="1d")
    put(limits, funded, of("organization"), name="all", calls=0)
    assert [requests.count(1, end_user=f"u{number}") for number in range(3)] == [0, 0, 0]
    assert limits.find(funded.organization, "users").member_count == 0
    assert limits.find(funded.organization, "users").members == ()


def test_a_refused_job_takes_no_place_among_the_members_of_a_limit(process, limits, funded):
    put(limits, funded, of("user", each=True), name="users", calls=0)
    [rule] = [info.rule for info in limits.list_limits(funded.organization)]
    payer = Payer("", "", funded.organization, False, limits=LimitSet([rule.share_of(["ann"])]))
    with pytest.raises(SpendingLimitReached):
        Holds(process.database).place("job-1", payer, BOUND, patient=False)
    assert limits.find(funded.organization, "users").member_count == 0


def test_two_subjects_in_the_other_order_are_the_same_limit(limits, requests, funded):
    first, second = of("user", each=True), of("tag", each=True, name="team")
    put(limits, funded, first, second)
    assert requests.count(end_user="ann", metadata={"team": "search"}) == 2
    put(limits, funded, second, first, calls=3)
    assert requests.count(end_user="ann", metadata={"team": "search"}) == 1


def test_an_equal_period_keeps_what_was_used(limits, requests, funded):
    put(limits, funded, of("organization"), period="1d")
    assert requests.count() == 2
    put(limits, funded, of("organization"), period="24h", calls=3)
    assert requests.count() == 1


def test_a_member_whose_window_ended_hides_none_that_spends_now(process, limits, requests, funded):
    put(limits, funded, of("user", each=True), calls=4, period="1d")
    assert requests.count(3, end_user="yesterday") == 3
    process.rest()
    process.database.write(
        lambda: process.database.execute(
            "UPDATE budget SET window_start = window_start - ? WHERE member = 'yesterday'", (DAY_US,)
        )
    )
    requests.pay(end_user="today")
    process.rest()
    [info] = limits.list_limits(funded.organization)
    assert (info.state.member, info.state.used_nusd) == ("today", COST)


@pytest.mark.parametrize(
    ("period", "text"),
    [
        ("day@UTC", "0.00002 USD each day (UTC),"),
        ("month@Europe/Berlin", "0.00002 USD each month (Europe/Berlin),"),
        ("1d", "0.00002 USD per day,"),
        ("12h", "0.00002 USD per 12 hours,"),
        ("", "0.00002 USD in total,"),
    ],
)
def test_the_refusal_says_the_period_in_words(period, text, limits, requests, funded):
    put(limits, funded, of("organization"), calls=1, period=period)
    assert requests.count() == 1
    with pytest.raises(SpendingLimitReached) as refusal:
        requests.pay()
    assert text in refusal.value.message


def test_the_refusal_for_requests_in_progress_names_the_limit_too(process, limits, requests, funded):
    put(limits, funded, of("organization"), calls=1, name="all")
    running = requests.admit()
    with pytest.raises(BudgetInUse) as refusal:
        requests.admit()
    running.close()
    assert dict(refusal.value.headers)["x-llmgateway-limit"] == "all; action=refuse"


def test_the_audit_log_says_where_the_values_of_a_limit_come_from(process, limits, funded):
    put(limits, funded, of("user", each=True), values_of="credential")
    [(detail,)] = process.database.query_rows("SELECT detail FROM audit WHERE action = 'limit.set'")
    assert '"credential"' in detail


def test_members_of_a_limit_hide_no_alerts_of_others(process, limits, requests, funded):
    warns = (LimitAction(50, "warn"), LimitAction(100, "refuse"))
    put(limits, funded, of("user", each=True), name="users", period="1d", actions=warns, calls=1)
    requests.pay(end_user="ann")
    process.rest()
    columns = "scope, kind, limit_nusd, settled_nusd, leased_nusd, period, window_start, generation, alert_at, limit_id"
    copy = (
        f"INSERT INTO budget (id, scope_id, member, {columns}) SELECT 'lim_' || ?, 'lim_' || ?, ?, {columns} "
        "FROM budget WHERE member = 'ann'"
    )
    copies = [(f"{number:032x}:window", f"{number:032x}", f"user{number}") for number in range(2 * MAX_MEMBERS_SHOWN)]
    process.database.write(lambda: process.database.execute_many(copy, copies))
    found = [one.name for one in find_spent(process.database, 0)]
    assert sum(name.startswith("users of ") for name in found) == MAX_MEMBERS_SHOWN


def test_requests_for_more_that_are_over_leave_room_for_others(process, limits, funded):
    until = process.database.now_us() + DAY_US
    for name in ("one", "two"):
        put(limits, funded, of("organization"), name=name)
    for number in range(MAX_REQUESTS):
        limits.ask(funded.organization, "one", COST, until, "", actor=f"user_{number}")
    with pytest.raises(GatewayError):
        limits.ask(funded.organization, "two", COST, until, "", actor="user_last")
    process.database.write(lambda: process.database.execute("UPDATE limit_request SET until = 1"))
    limits.ask(funded.organization, "two", COST, until, "", actor="user_last")
    assert [asked.name for asked in limits.requests(funded.organization)] == ["two"]


def test_a_limit_that_warns_shows_what_it_saw_last_while_the_database_is_down(process, limits, requests, funded, clock):
    put(limits, funded, of("organization"))
    requests.pay()
    process.rest()
    [info] = limits.list_limits(funded.organization)
    book = process.settlements.limits
    share = info.rule.share_of(())
    assert book.used_nusd([share]) == {share.budget: COST}
    clock.advance(2.0)
    process.database.close()
    unknown = share._replace(budget="unknown")
    assert book.used_nusd([share, unknown]) == {share.budget: COST, "unknown": 0}


@pytest.mark.parametrize(
    ("subject", "facts"),
    [
        (of("user", "ann"), {"end_user": digest("ann")}),
        (of("session", "s1"), {"session": digest("s1")}),
    ],
)
def test_a_named_person_is_limited_where_digests_stand_for_names(subject, facts, limits, requests, funded):
    put(limits, funded, subject)
    assert requests.count(**facts) == 2
    assert requests.count(3, **{name: digest("other") for name in facts}) == 3


def test_members_beyond_the_bound_act_by_what_they_share(process, limits, requests, funded):
    put(limits, funded, of("user", each=True), calls=4, actions=(LimitAction(50, "warn"), LimitAction(100, "refuse")))
    process.database.write(lambda: process.database.execute("UPDATE limits SET members = ?", (MAX_MEMBERS,)))
    requests.pay(end_user="bob")
    requests.pay(end_user="eve")
    process.rest()
    [info] = limits.list_limits(funded.organization)
    zoe = info.rule.share_of(["zoe"])
    assert process.settlements.limits.used_nusd([zoe]) == {zoe.budget: 2 * COST}
    process.database.write(lambda: process.database.execute("UPDATE limits SET members = members - 1"))
    ned = info.rule.share_of(["ned"])
    assert process.settlements.limits.used_nusd([ned]) == {ned.budget: 0}


@pytest.mark.parametrize(("share", "used"), [(20, 1), (80, 4)])
def test_members_of_a_limit_are_reported_from_the_share_that_it_names(share, used, process, limits, requests, funded):
    warns = (LimitAction(share, "warn"), LimitAction(100, "refuse"))
    put(limits, funded, of("user", each=True), name="users", calls=5, period="1d", actions=warns)
    for number in range(used):
        assert find_spent(process.database, 0) == [], number
        requests.pay(end_user="ann")
        process.rest()
    assert [(one.name, one.reached) for one in find_spent(process.database, 0)] == [("users of ann", share)]


def test_the_list_of_limits_sorts_few_members(process, limits, requests, funded, monkeypatch):
    put(limits, funded, of("user", each=True), calls=9, period="1d")
    for user in ("ann", "bob", "bob", "eve"):
        requests.pay(end_user=user)
    process.rest()
    process.database.write(lambda: process.database.execute("UPDATE limits SET members = ?", (MAX_SORTED + 1,)))
    note_top_members(process.database)
    requests.pay(end_user="bob")
    process.rest()
    asked = []
    fetch = process.database.fetch
    monkeypatch.setattr(process.database, "fetch", lambda sql, *more: asked.append(sql) or fetch(sql, *more))
    [info] = limits.list_limits(funded.organization)
    assert (info.state.member, info.state.used_nusd) == ("bob", 3 * COST)
    assert [sql for sql in asked if "b.limit_id = ?" in sql and "b.id = ?" not in sql] == []
