from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from msgspec.structs import fields

from memlog.configuration import allowed
from memlog.settings import SETTINGS, TOOLSETS, Settings
from projections.embedding import fastembed, openai
from server.manual import DOCS, PAGES, settings_page, tools_page
from server.registry import tools


@pytest.mark.parametrize(("name", "page"), PAGES.items())
def test_a_generated_page_is_up_to_date(name: str, page: Callable[[], str]) -> None:
    assert (DOCS / name).read_text() == page(), "run scripts/docs"


def test_where_texts_go_and_by_which_model_is_told_where_nothing_is_set() -> None:
    page = settings_page()
    assert openai.BASE_URL_DEFAULT in page
    assert openai.MODEL_DEFAULT in page and fastembed.MODEL_DEFAULT in page


def test_every_tool_has_its_part_with_every_argument() -> None:
    page = tools_page()
    for name, tool in tools(TOOLSETS).items():
        part = page.partition(f"\n### {name}\n")[2].partition("\n### ")[0]
        assert f"**{tool.title}.**" in part
        for field in tool.arguments.__struct_encode_fields__:
            assert f"| `{field}` |" in part


def test_arguments_within_lists_are_listed_with_their_limits() -> None:
    page = tools_page()
    assert "| `entities[].relations[].relationType` | string | yes |  | 1–50 characters |" in page
    assert "| `observations[].contents[].confidence` | number |  | `1.0` | 0–1 |" in page
    assert "`^[a-z0-9:_-]{1,100}$`" in page


def test_limits_that_are_too_far_for_a_list_to_show_are_listed() -> None:
    page = tools_page()
    assert "| `content` | string | yes |  | 1–10,000 characters |" in page
    assert "| `entities[].observations` | list of strings |  | `[]` | up to 1,000 items," in page


def test_what_a_tool_answers_is_sketched_with_what_may_be_absent() -> None:
    part = tools_page().partition("\n### save_memory\n")[2].partition("\n### ")[0]
    assert "Writes: takes nothing away" in part
    assert "  created: {entities: integer, relations: integer}\n" in part
    part = tools_page().partition("\n### search_nodes\n")[2].partition("\n### ")[0]
    assert "Reads only." in part
    assert "  nextCursor?\n" in part


def test_a_setting_that_takes_one_of_several_words_is_told_of_with_each_of_them() -> None:
    readme = (DOCS.parent / "README.md").read_text()
    takes = {field.name: allowed(field.type) for field in fields(Settings)}
    for setting in SETTINGS:
        if (words := takes[setting.field]) != allowed(bool) and len(words) > 1:
            (row,) = re.findall(rf"^\| `{setting.variables[0]}` \|.*", readme, re.MULTILINE)
            for word in words:
                assert re.search(rf"\b{word}\b", setting.about), (setting.field, word)
                assert f"`{word}`" in row, (setting.field, word)


def test_every_setting_is_listed_with_its_variables_and_default() -> None:
    rows = {setting.field for setting in SETTINGS}
    assert rows == set(Settings.__struct_fields__), "each field of Settings has a row of SETTINGS"
    page = settings_page()
    for setting in SETTINGS:
        assert f"| `{setting.field}` | `{setting.variables[0]}`" in page
    assert (
        "| `search_limit` | `MEMLOG_SEARCH_LIMIT`, `SEARCH_DEFAULT_LIMIT` "
        "| an integer from 1 to 1000000 | `10` |" in page
    )
    assert "| `1` or `0` | `0` |" in page
    assert "(never shown or logged)" in page
