"""What a URI asks for, and what is wrong with one that asks for nothing."""

from __future__ import annotations

from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp.shared.uri_template import UriTemplate

from memlog.errors import InvalidParameter
from server.addresses import (
    FORMS,
    URI_CHARACTERS_MAX,
    Address,
    Form,
    GraphAddress,
    ItemAddress,
    ListAddress,
    UnknownResource,
    form_of,
    item_uri,
    read_address,
)

MEMORY = "mem_01h455vb4pex5vsknk084sn02q"


@pytest.mark.parametrize(
    ("uri", "address"),
    [
        ("memory://knowledge-graph", GraphAddress(None)),
        ("memory://knowledge-graph/?project=shop", GraphAddress("shop")),
        (f"mem://item/{MEMORY}", ItemAddress(MEMORY, None)),
        (f"MEM://Item/{MEMORY}?project=my%20app", ItemAddress(MEMORY, "my app")),
        ("mem://recent", ListAddress({}, 20)),
        ("mem://recent?", ListAddress({}, 20)),
        ("mem://recent?limit=", ListAddress({}, 20)),
        ("mem://recent?limit=5", ListAddress({"limit": 5}, 20)),
        ("mem://recent/?limit=5&project=a", ListAddress({"limit": 5, "project": "a"}, 20)),
        (
            "mem://by-tags/project:alpha,topic:etl?limit=50",
            ListAddress({"tags": ["project:alpha", "topic:etl"], "limit": 50}, 50),
        ),
        (
            "mem://by-tags/project%3Aalpha%2Ctopic%3Aetl",
            ListAddress({"tags": ["project:alpha", "topic:etl"]}, 50),
        ),
        ("mem://by-type/note?limit=100", ListAddress({"type": "note", "limit": 100}, 100)),
        ("mem://by-type/To%20do%2Flater", ListAddress({"type": "To do/later"}, 100)),
        ("mem://by-type/Überblick", ListAddress({"type": "Überblick"}, 100)),
    ],
)
def test_a_uri_asks_for_one_thing(uri: str, address: Address) -> None:
    assert read_address(uri) == address


@pytest.mark.parametrize(
    "uri",
    [
        "",
        "mem:",
        "mem://",
        "mem://item",
        "mem://item/",
        "mem://item//",
        f"mem://item/{MEMORY}/content",
        f"mem://item/../item/{MEMORY}",
        f"mem:///item/{MEMORY}",
        f"mem://item/{MEMORY}#content",
        f"mem://user@item/{MEMORY}",
        "mem://items/1",
        "mem://recent/20",
        "mem://by-tags",
        "mem://by-type/a/b",
        "memory://knowledge-graph/entities",
        "memory://item/1",
        "file:///etc/passwd",
        "http://[",
        " mem://recent",
    ],
)
def test_what_looks_like_no_form_is_unknown(uri: str) -> None:
    with pytest.raises(UnknownResource):
        read_address(uri)


@pytest.mark.parametrize(
    ("uri", "problem"),
    [
        (
            "mem://recent?limt=5",
            "unknown parameter 'limt'. The form is mem://recent{?limit,project}",
        ),
        ("mem://item/a?limit=5", "unknown parameter 'limit'"),
        ("mem://recent?limit=5&limit=6", "limit is given twice"),
        ("mem://item/100%", "% must be followed by two hexadecimal digits"),
        ("mem://item/%zz", "% must be followed by two hexadecimal digits"),
        ("mem://item/%ff", "its percent-encoding is not UTF-8"),
        ("mem://item/%ed%a0%80", "its percent-encoding is not UTF-8"),
        ("mem://item/\ud800", "its percent-encoding is not UTF-8"),
        ("mem://item/a%00b", "it contains a control character"),
        ("mem://by-type/a%0Ab", "it contains a control character"),
        ("mem://item/" + "x" * URI_CHARACTERS_MAX, f"Max {URI_CHARACTERS_MAX}"),
    ],
)
def test_what_is_wrong_with_a_uri_of_a_known_form_is_said(uri: str, problem: str) -> None:
    with pytest.raises(InvalidParameter) as refused:
        read_address(uri)
    assert problem in refused.value.message
    refused.value.message.encode()


def test_a_path_in_disguise_is_only_an_id_that_nothing_has() -> None:
    assert read_address("mem://item/%2e%2e%2f%2e%2e%2flog.mdb") == ItemAddress(
        "../../log.mdb", None
    )


@given(st.text())
def test_any_text_is_an_address_or_refused(text: str) -> None:
    for uri in (text, f"mem://item/{text}", f"mem://by-tags/{text}?limit={text}&project={text}"):
        try:
            read_address(uri)
        except (UnknownResource, InvalidParameter):
            continue


@given(st.text(st.characters(exclude_categories=("Cs", "Cc")), min_size=1, max_size=100))
def test_every_name_can_be_asked_for(name: str) -> None:
    encoded = quote(name, safe="")
    assert read_address(f"mem://by-type/{encoded}") == ListAddress({"type": name}, 100)
    assert read_address(item_uri(MEMORY, name, "")) == ItemAddress(MEMORY, name)


@pytest.mark.parametrize("form", FORMS.values(), ids=lambda form: form.place)
def test_a_template_expands_to_uris_that_are_read(form: Form) -> None:
    template = UriTemplate.parse(form.template)
    assert tuple(template.variable_names) == form.variables
    address = read_address(template.expand(dict.fromkeys(form.variables, "a:b,c d")))
    assert address.project == "a:b,c d"


@pytest.mark.parametrize("form", FORMS.values(), ids=lambda form: form.place)
def test_a_form_is_known_by_its_template_with_and_without_parameters(form: Form) -> None:
    assert form_of(form.template) is form
    assert form_of(form.template.partition("{?")[0]) is form
    assert form_of(form.template + "x") is None


def test_a_uri_names_the_project_only_where_it_has_to() -> None:
    assert item_uri(MEMORY, "shop", "shop") == f"mem://item/{MEMORY}"
    assert item_uri(MEMORY, "my/app", "shop") == f"mem://item/{MEMORY}?project=my%2Fapp"


def test_a_list_holds_what_has_all_its_labels() -> None:
    labels = frozenset({"type:note", "tag:a", "tag:b"})
    held = {
        uri: address.labels <= labels
        for uri in ("mem://recent", "mem://by-type/note", "mem://by-type/todo", "mem://by-tags/a,c")
        if isinstance(address := read_address(uri), ListAddress)
    }
    assert list(held.values()) == [True, True, False, False]
