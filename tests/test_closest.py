"""What is offered in the place of a name that is not there, also where names are too many to look at each closely."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from msgspec.structs import replace
from rapidfuzz import fuzz, process, utils

from memlog.closest import (
    CLOSELY_MAX,
    COMPARISONS_MAX,
    NAMES_COMPARED_MAX,
    NOT_LOOKED_FOR,
    Names,
    Suggestions,
)
from memlog.decisions.facts import Facts
from memlog.decisions.superseding import Superseded
from memlog.rows import Observation
from memlog.state import State
from memlog.storage.tables import MemoryRows, Timeline, Version
from tests.service import Refused, client_on

GIVEN = [
    "Ann",
    "Bela",
    "Carl",
    "Dora",
    "Emil",
    "Gina",
    "Hans",
    "Ivan",
    "Jane",
    "Lena",
    "Nils",
    "Otto",
]
THINGS = ["server", "database", "meeting", "budget", "design", "report", "release", "garden"]
NAMES = [
    f"{one} {other} {thing} {number}"
    for one in GIVEN
    for other in GIVEN
    for thing in THINGS
    if one != other
    for number in range(101, 106)
]
SOME = Random(12).sample(NAMES, 20)


@pytest.mark.parametrize(
    ("name", "typed"),
    [
        ("Łódź", "lodz"),
        ("Łódź", "LODZ"),
        ("Hà Nội Đỗ", "ha noi do"),
        ("ＡＰＩ", "api"),  # noqa: RUF001
        ("ｻｰﾊﾞｰ", "サーバー"),
        ("مُحَمَّدٌ", "محمد"),
        ("שָׁלוֹם", "שלום"),
        ("ΑΘΗΝΑ", "Αθήνα"),
        ("Straße", "STRASSE"),
    ],
)
def test_a_name_is_near_to_how_others_type_it(name: str, typed: str) -> None:
    for stored, wanted in ((name, typed), (typed, name)):
        assert Names([stored, "Bela Bartok"]).closest(wanted) == [stored]


def misspelt(name: str) -> str:
    any_ = Random(name)
    at = any_.randrange(len(name) - 4)
    return name[:at] + any_.choice(["", "q", name[at] * 2]) + name[at + 1 :]


def looked_at_closely(wanted: str) -> list[float]:
    """How near the nearest are, each of all looked at closely."""
    ready = map(utils.default_process, NAMES)
    found = process.extract(utils.default_process(wanted), ready, scorer=fuzz.WRatio, limit=1)
    return [score for _, score, _ in found]


@pytest.fixture(scope="module")
def many() -> Names:
    assert len(NAMES) > CLOSELY_MAX
    return Names(NAMES)


@pytest.mark.parametrize("name", SOME)
def test_a_misspelt_name_is_found_among_many(many: Names, name: str) -> None:
    assert many.closest(misspelt(name))[0] == name


@pytest.mark.parametrize("name", SOME)
def test_a_name_is_found_among_many_by_its_words_in_another_order(many: Names, name: str) -> None:
    assert name in many.closest(" ".join(reversed(name.lower().split())))


@pytest.mark.parametrize("name", SOME)
def test_what_is_offered_first_is_as_near_as_anything_among_many(many: Names, name: str) -> None:
    for wanted in (misspelt(misspelt(name)), misspelt(name[:-4]), name.partition(" ")[2]):
        (first, *_) = map(utils.default_process, many.closest(wanted))
        assert [fuzz.WRatio(utils.default_process(wanted), first)] == looked_at_closely(wanted)


@pytest.mark.parametrize("wanted", ["Tomasz", "the house of Tomasz", "omas"])
def test_a_name_is_found_among_many_by_a_word_of_it_or_a_part(wanted: str) -> None:
    names = Names([*NAMES, "Tomasz K. (who moved to Krakow in the spring)"])
    assert names.closest(wanted)[0].startswith("Tomasz")


@pytest.mark.parametrize("wanted", ["", "!?", "\n", "xyzzyx"])
def test_nothing_is_offered_among_many_where_nothing_is_near(many: Names, wanted: str) -> None:
    assert many.closest(wanted) == []
    assert many.did_you_mean(wanted) is None


@pytest.mark.parametrize("wanted", ["🙂", "???", ""])
def test_a_name_without_a_letter_is_not_near_to_another(wanted: str) -> None:
    assert Names(["🎉", "***", "Ann"]).closest(wanted) == []


def test_a_long_text_is_found_by_how_it_begins() -> None:
    texts = [f"{name} {' '.join(Random(name).sample(NAMES, 300))}" for name in NAMES[:200]]
    assert Names(texts).closest(misspelt(texts[70]))[0] == texts[70]


def test_of_very_many_names_the_first_missed_are_compared_and_the_rest_says_so() -> None:
    names = [f"{name} {number}" for number in range(20) for name in NAMES][:NAMES_COMPARED_MAX]
    near = Suggestions()
    told = [near.did_you_mean(f"{name}q 7", "names", lambda: names) for name in NAMES[:12]]
    compared = COMPARISONS_MAX // NAMES_COMPARED_MAX
    assert all("Did you mean" in (each or "") for each in told[:compared])
    assert set(told[compared:]) == {NOT_LOOKED_FOR}


def test_the_versions_of_a_chain_are_read_once_however_many_of_them_were_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    chain = [f"obs_{version}" for version in range(101)]
    first = Observation("", "ent_1", "tea", 1, 1, 1, None, None, None, None, 1.0, 0.5)
    rows = {
        each: replace(first, id=each, superseded_by=following)
        for each, following in zip(chain, [*chain[1:], None], strict=True)
    }
    read: list[str] = []

    def noting(_: State, observation_id: str) -> Observation | None:
        read.append(observation_id)
        return rows.get(observation_id)

    monkeypatch.setattr(State, "observation", noting)
    state = State(Timeline(MemoryRows(), MemoryRows()))
    superseded, facts = Superseded(state), Facts(state, "ent_1")
    named = ["obs_50", "obs_0", *chain]
    found = {newest.id for each in named for newest in superseded.newest(each, facts)}
    assert found == {"obs_100"}
    assert len(read) == len(named) + 100


def test_where_a_name_was_lost_is_looked_for_once_however_often_it_was_missed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[bytes] = []
    versions = State.versions

    def noting(state: State, prefix: bytes) -> Iterator[Version]:
        read.append(prefix)
        return versions(state, prefix)

    with client_on(tmp_path) as client:
        client("create_entities", entities=[{"name": "Ann", "entityType": "person"}])
        client("delete_entities", entityNames=["Ann"])
        monkeypatch.setattr(State, "versions", noting)
        with pytest.raises(Refused) as refused:
            missed = [{"entityName": "Ann", "contents": ["Likes tea"]}] * 100
            client("add_observations", observations=missed)
    told = [each["suggestion"] for each in refused.value.error["problems"]]
    *missed_told, left_out = told
    assert len(missed_told) > 1 and "It was there" not in left_out
    assert all("It was there until position 3" in each for each in missed_told)
    assert len(read) == 1


def test_a_short_name_goes_before_a_long_text_that_holds_what_was_typed_within_a_word() -> None:
    long = "a long text about jonathan and his friends"
    assert Names([long, "john"]).closest("jon") == ["john", long]


def test_a_text_that_says_nearly_the_same_goes_before_long_ones_with_a_word_in_common() -> None:
    long = "Woah, that picture is from when I danced with my crew last year, it was amazing with all of them!"
    place = "Visited place number 201 with Ben in Oslo"
    assert Names([long, place]).closest("visited place 201 with Ben") == [place]
    quoted = "Hey! Lost my job as a banker yesterday, so I am taking a shot at my own business."
    assert Names([long, quoted, place]).closest("Lost my job as a banker") == [quoted]
