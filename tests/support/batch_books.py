"""The holds and the books of an organization after its batches."""

from support.fleet import wait_until
from support.shared import Tenant, usage_of


def settled(gateway: Tenant) -> None:
    """Check that nothing is held any more, and that the books agree with the rows."""
    services = gateway.services
    services.store.journal.flush(10)
    database = services.store.database
    assert database.query_rows("SELECT id FROM hold WHERE organization = ?", (gateway.organization_id,)) == []
    sql = "SELECT b.id, b.settled_nusd FROM budget b WHERE b.scope_id = ?"

    def agree() -> bool:
        services.billing.settlements.maintain()
        spent = sum(row.cost_nusd for row in usage_of(gateway))
        budgets = dict(database.query_rows(sql, (gateway.organization_id,)))
        return all(settled == spent for ident, settled in budgets.items() if ident.endswith(":credits"))

    wait_until(agree)  # a recurring job may be posting at this moment what lines settled
