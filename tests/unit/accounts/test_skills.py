import pytest

from gateway.accounts import skills
from gateway.errors import InvalidRequest, NotFound

TEXT = "---\nname: code-review\ndescription: Reviews code.\n---\n# Review\n"


def publish(company, text: str = TEXT, files: tuple = ()) -> skills.SkillInfo:
    return skills.publish_skill(
        company.database, company.control, company.organization_id, text, files, actor="operator"
    )


def test_a_skill_is_published_under_the_name_in_its_front_matter(company) -> None:
    skill = publish(company, files=({"path": "lib/a.py", "content": "pass"},))
    found = skills.find_skill(company.database, company.organization_id, skill.id)
    assert (found.name, found.description, found.content) == ("code-review", "Reviews code.", TEXT)
    assert found.files == [{"path": "lib/a.py", "content": "pass"}]


def test_publishing_again_replaces_the_text_and_keeps_the_id(small_company) -> None:
    first = publish(small_company)
    second = publish(small_company, TEXT + "more\n")
    assert first.id == second.id
    assert len(skills.list_skills(small_company.database, small_company.organization_id)) == 1


@pytest.mark.parametrize("text", ["# no front matter", "---\nname: Bad Name\ndescription: x\n---\n",
                                  "---\nname: fine\n---\n", "---\nname: fine\ndescription: x\n"])  # fmt: skip
def test_a_skill_without_proper_front_matter_is_refused(small_company, text) -> None:
    with pytest.raises(InvalidRequest):
        publish(small_company, text)


@pytest.mark.parametrize("path", ["../evil", "/etc/passwd", "a//b", "a/./b", "SKILL.md", "", "a b"])
def test_a_file_outside_of_the_skill_is_refused(small_company, path) -> None:
    with pytest.raises(InvalidRequest):
        publish(small_company, files=({"path": path, "content": ""},))


def test_a_skill_of_another_organization_is_out_of_reach(small_company) -> None:
    skill = publish(small_company)
    with pytest.raises(NotFound):
        skills.find_skill(small_company.database, "org_other", skill.id)
    with pytest.raises(NotFound):
        skills.remove_skill(small_company.database, small_company.control, "org_other", skill.id, actor="o")
