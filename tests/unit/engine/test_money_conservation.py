"""No nano-dollar is lost or spent twice, whatever fails between workers that share budgets."""

import dataclasses

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test
from support.billing import BillingIdentity, attempt_at, target

from gateway import ids
from gateway.accounts.discounts import EVERY, DiscountInfo
from gateway.accounts.models import MODELS as ACCOUNT_MODELS
from gateway.billing.reconciliation import doctor
from gateway.catalogue.catalogue import Catalogue
from gateway.errors import GatewayError, SpendingLimitReached, Unavailable
from gateway.limits.budgets import Limits
from gateway.limits.spending import CostBound
from gateway.neutral.usage import Usage
from gateway.providers.protocol import Credential

LIMIT = 3_000_000
WHICH = st.integers(0, 3)
CATALOGUE = Catalogue([], [target().provider], {})


class Machine(RuleBasedStateMachine):
    """Two workers, two limited keys of members who share a team with a lower limit, and an own provider key with a
    bound; only the test knows the true cost."""

    start_billing = None

    @initialize()
    def open(self) -> None:
        self.processes = [self.start_billing(), self.start_billing()]
        self.made = [*self.processes]
        self.own = dataclasses.replace(target(), credential=Credential("", "byok", ids.new("pkey"), bounded=True))
        self.team, self.running, self.over = (ids.new("team"), "Research"), [], 0
        first, organization = self.processes[0], ids.new("org")
        self.accounts = [BillingIdentity(organization=organization, teams=(self.team,)) for _ in range(2)]
        first.ledger.grant(organization, 10 * LIMIT, f"start:{organization}")
        first.budgets.set_limits("team", self.team[0], Limits(total_nusd=LIMIT * 3 // 2))
        first.database.write(lambda: first.budgets.write_bound(self.own.credential.ident, LIMIT // 2))
        for account in self.accounts:
            first.budgets.set_limits("key", account.key, Limits(total_nusd=LIMIT))

    @rule(which=WHICH, joins=st.booleans())
    def change_team(self, which: int, joins: bool) -> None:
        self.accounts[which % 2].teams = (self.team,) if joins else ()

    @rule(which=WHICH, bound=st.integers(100_000, 900_000), own=st.booleans())
    def begin(self, which: int, bound: int, own: bool) -> None:
        one = self.processes[which % 2]
        try:
            settlement = one.admit(self.accounts[which // 2], CostBound(bound, 0, 0, True))
        except GatewayError:
            return
        where = self.own if own else target()
        try:
            settlement.begin(0, where)
        except (SpendingLimitReached, Unavailable):
            settlement.close()
            return
        self.running.append((one, settlement, bound, where))

    @rule(which=WHICH, tokens=st.integers(0, 100))
    def settle(self, which: int, tokens: int) -> None:
        if self.running:
            _, settlement, _, where = self.running.pop(which % len(self.running))
            settlement.settle(attempt_at(where, usage=Usage(input=tokens), finish="stop"))
            settlement.close()

    @rule(which=WHICH)
    def overrun(self, which: int) -> None:
        if self.running:
            _, settlement, bound, where = self.running.pop(which % len(self.running))
            settlement.settle(attempt_at(where, usage=Usage(input=1000), finish="stop"))
            settlement.close()
            self.over += max(0, 1_000_000 - bound)

    @rule(which=WHICH)
    def void(self, which: int) -> None:
        if self.running:
            _, settlement, _, where = self.running.pop(which % len(self.running))
            settlement.unused(attempt_at(where))
            settlement.close()

    @rule(ppm=st.integers(0, 999_999))
    def discount(self, ppm: int) -> None:
        one = self.processes[0]
        one.database.bind(ACCOUNT_MODELS)  # they have one store, and this example's may be another one
        wanted = DiscountInfo(EVERY, "mock", EVERY, ppm)
        try:
            if ppm:
                one.discounts.put(wanted, CATALOGUE, actor="operator")
            for known in one.discounts.list_discounts() if not ppm else ():
                one.discounts.remove(known.id, actor="operator")
        except Unavailable:
            pass

    @rule(which=WHICH, after=st.booleans())
    def break_store(self, which: int, after: bool) -> None:
        self.processes[which % 2].fail_once(after)

    @rule(which=WHICH)
    def tend(self, which: int) -> None:
        one = self.processes[which % 2]
        one.journal.flush(60)
        try:
            one.settlements.reap()
            one.spending.tend(idle_s=-1.0, keep_s=-1.0)
        except Unavailable:
            pass

    @rule(which=WHICH)
    def crash(self, which: int) -> None:
        place = which % 2
        dead = self.processes[place]
        dead.journal.flush(60)
        dead.die()
        self.running = [entry for entry in self.running if entry[0] is not dead]
        self.processes[place] = self.start_billing()
        self.made.append(self.processes[place])

    @rule(which=WHICH)
    def recover(self, which: int) -> None:
        try:
            self.processes[which % 2].recovery.run()
        except Unavailable:
            pass

    @invariant()
    def never_beyond_the_limit(self) -> None:
        if not hasattr(self, "processes"):
            return
        database = self.processes[0].database
        sql = "SELECT id, settled_nusd + leased_nusd, limit_nusd FROM budget WHERE limit_nusd IS NOT NULL"
        for ident, used, limit in database.read(lambda: database.execute(sql).fetchall()):
            assert used <= limit + self.over, ident

    def teardown(self) -> None:
        if not hasattr(self, "processes"):
            return
        for _, settlement, _, _ in self.running:
            settlement.close()
        for process in self.processes:
            process.journal.flush(60)
            process.settlements.stop()
            process.stop()
        last = self.start_billing()
        last.recovery.run()
        leased = "SELECT COUNT(*) FROM budget WHERE leased_nusd <> 0"
        assert last.database.read(lambda: last.database.execute(leased).fetchone())[0] == 0
        assert doctor(last.database) == []
        self.check_rows(last)
        last.stop()
        for process in (*self.made, last):
            for store in (process.database, process.money):
                store.close()

    def check_rows(self, start_billing) -> None:
        """The billed and the saved amounts add up to the list price of the usage: 1,000 n$ a token."""
        listed = "cost_nusd + COALESCE(discount_nusd, 0)"
        sql = f"SELECT COUNT(*) FROM usage WHERE {listed} <> input * 1000 AND finish = 'stop'"
        assert start_billing.database.read(lambda: start_billing.database.execute(sql).fetchone())[0] == 0


@pytest.mark.slow
@pytest.mark.parametrize("examples", [6])
def test_whatever_fails_the_books_agree_and_no_budget_is_overdrawn(start_billing, examples):
    machine = type("Bound", (Machine,), {"start_billing": staticmethod(start_billing)})
    rules = settings(
        max_examples=examples, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck)
    )
    run_state_machine_as_test(machine, settings=rules)
