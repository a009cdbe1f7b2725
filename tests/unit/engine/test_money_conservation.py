"""No nano-dollar is lost or spent twice, whatever fails between workers that share budgets."""

import dataclasses

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test
from support.billing import BillingIdentity, attempt_at, target

from gateway import ids
from gateway.billing.reconciliation import doctor
from gateway.callers.discount_book import ALL_SCOPES, DiscountInfo
from gateway.catalogue.catalogue import Catalogue
from gateway.errors import GatewayError, Unavailable
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
        first.ledger.grant(organization, 2 * LIMIT, f"start:{organization}")
        first.budgets.set_limits("team", self.team[0], Limits(total_nusd=LIMIT * 3 // 2))
        first.database.write(lambda: first.budgets.write_bound(self.own.credential.ident, LIMIT // 2))
        for account in self.accounts:
            first.budgets.set_limits("key", account.key, Limits(total_nusd=LIMIT))
        # The store also has the budgets of earlier examples; `over` does not count their overruns.
        self.scopes = {
            organization,
            self.team[0],
            self.own.credential.ident,
            *(account.key for account in self.accounts),
        }

    @rule(number=WHICH, joins=st.booleans())
    def change_team(self, number: int, joins: bool) -> None:
        self.accounts[number % 2].teams = (self.team,) if joins else ()

    @rule(number=WHICH, bound=st.integers(100_000, 900_000), own=st.booleans(), credits=st.booleans())
    def begin(self, number: int, bound: int, own: bool, credits: bool) -> None:
        """Begin a call; the credits are reserved for the request, or for a call of the platform's key."""
        process = self.processes[number % 2]
        try:
            settlement = process.admit(self.accounts[number // 2], CostBound(bound, 0, 0, True), credits)
        except GatewayError:
            return
        where = self.own if own else target()
        try:
            settlement.begin(0, where)
        except GatewayError:
            settlement.close()
            return
        self.running.append((process, settlement, bound, where))

    @rule(number=WHICH, tokens=st.integers(0, 100))
    def settle(self, number: int, tokens: int) -> None:
        if self.running:
            _, settlement, _, where = self.running.pop(number % len(self.running))
            settlement.settle(attempt_at(where, usage=Usage(input=tokens), finish="stop"))
            settlement.close()

    @rule(number=WHICH)
    def overrun(self, number: int) -> None:
        if self.running:
            _, settlement, bound, where = self.running.pop(number % len(self.running))
            settlement.settle(attempt_at(where, usage=Usage(input=1000), finish="stop"))
            settlement.close()
            self.over += max(0, 1_000_000 - bound)

    @rule(number=WHICH)
    def void(self, number: int) -> None:
        if self.running:
            _, settlement, _, where = self.running.pop(number % len(self.running))
            settlement.unused(attempt_at(where))
            settlement.close()

    @rule(ppm=st.integers(0, 999_999))
    def discount(self, ppm: int) -> None:
        process = self.processes[0]
        process.database.bind()  # they have one store, and this example's may be another one
        discount_info = DiscountInfo(ALL_SCOPES, "mock", ALL_SCOPES, ppm)
        try:
            if ppm:
                process.discounts.put(discount_info, CATALOGUE, actor="operator")
            for known in process.discounts.list_discounts() if not ppm else ():
                process.discounts.remove(known.id, actor="operator")
        except Unavailable:
            pass

    @rule(number=WHICH, after=st.booleans())
    def break_store(self, number: int, after: bool) -> None:
        self.processes[number % 2].fail_once(after)

    @rule(number=WHICH)
    def maintain(self, number: int) -> None:
        process = self.processes[number % 2]
        process.journal.flush(60)
        try:
            process.settlements.reap()
            process.spending.maintain(idle_s=-1.0, keep_s=-1.0)
        except Unavailable:
            pass

    @rule(number=WHICH)
    def crash(self, number: int) -> None:
        place = number % 2
        dead = self.processes[place]
        dead.journal.flush(60)
        dead.die()
        self.running = [entry for entry in self.running if entry[0] is not dead]
        self.processes[place] = self.start_billing()
        self.made.append(self.processes[place])

    @rule(number=WHICH)
    def recover(self, number: int) -> None:
        try:
            self.processes[number % 2].recovery.run()
        except Unavailable:
            pass

    @invariant()
    def never_beyond_the_limit(self) -> None:
        if not hasattr(self, "processes"):
            return
        database = self.processes[0].database
        sql = "SELECT id, settled_nusd + leased_nusd, limit_nusd FROM budget WHERE limit_nusd IS NOT NULL"
        for ident, used, limit in database.read(lambda: database.execute(sql).fetchall()):
            assert ident.partition(":")[0] not in self.scopes or used <= limit + self.over, ident

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


@pytest.mark.extended
@pytest.mark.parametrize("examples", [6])
def test_whatever_fails_the_books_agree_and_no_budget_is_overdrawn(start_billing, examples):
    machine = type("Bound", (Machine,), {"start_billing": staticmethod(start_billing)})
    rules = settings(
        max_examples=examples, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck)
    )
    run_state_machine_as_test(machine, settings=rules)
