import dataclasses

from unit.engine.conftest import Account

from gateway.engine.account import account_of


def test_the_account_of_a_caller_is_made_once_and_ends_with_it(account: Account) -> None:
    caller = account.context().caller
    assert account_of(caller) is account_of(caller)
    assert account_of(dataclasses.replace(caller)) is not account_of(caller)


def test_an_account_names_its_caller_and_who_pays() -> None:
    account = Account(teams=(("team_1", "Research"),))
    found = account_of(account.context().caller)
    names = (account.organization, account.project, account.key, account.member)
    assert [raw.hex() for raw in found.ids] == [name.rpartition("_")[2] for name in names]
    assert found.project == found.ids[1]
    assert found.payer == (account.key, account.member, account.organization, True, account.teams, "")
    assert found.thrifty == found.payer._replace(credits=False)
