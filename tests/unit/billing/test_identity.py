import dataclasses

from support.billing import BillingIdentity

from gateway.billing.context import billing_identity_of


def test_the_account_of_a_caller_is_made_once_and_ends_with_it(account: BillingIdentity) -> None:
    caller = account.context().caller
    assert billing_identity_of(caller) is billing_identity_of(caller)
    assert billing_identity_of(dataclasses.replace(caller)) is not billing_identity_of(caller)


def test_an_account_names_its_caller_and_who_pays() -> None:
    account = BillingIdentity(teams=(("team_1", "Research"),))
    found = billing_identity_of(account.context().caller)
    names = (account.organization, account.project, account.key, account.member)
    assert [raw.hex() for raw in found.ids] == [name.rpartition("_")[2] for name in names]
    assert found.project == found.ids[1]
    assert found.payer == (account.key, account.member, account.organization, True, account.teams, "", (), None)
    assert found.without_credits == found.payer._replace(credits=False)
