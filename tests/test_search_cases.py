"""What people type and what they expect to find, case by case, in each way of searching."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from memlog.settings import Mode
from projections.passages import passages
from tests.service import Client, client_on, remembering

FACTS = {
    "ada": "prefers dark mode in editors",
    "bob": "fixed the crash X-4471-b last week",
    "cyd": "box 4471 holds b-sides and other records",
    "dan": "rewrote src/auth/login.py from scratch",
    "eve": "wrote the manual of the auth service",
    "fay": "adopted two puppies from the shelter",
    "gus": "is running a bakery near the river",
    "hal": "我在北京吃烤鸭",
    "ivy": "東京で寿司を食べました",
    "jan": "мешкає в Києві, любить каву",
    "kim": "يعيش في القاهرة ويحب القهوة",
    "leo": "won the race 🏆 on a rainy day 🌧",
    "mia": "takes vitamin C every morning",
    "ned": "is not allergic to peanuts",
    "oda": "never drinks alcohol",
    "pat": "to be or not to be, that is the question",
    "qiu": "plays the violin in an orchestra",
    "rui": "喜欢喝茶",
    "nur": "رقم الخزنة ٨٨٣٤٥ عند الســـائق",
    "gul": "İzmir'de kırmızı ev",  # noqa: RUF001
    "mar": "کتاب\u200cهای تازه را می\u200cخواند",  # noqa: RUF001
    "luc": "a écrit appliquerFidélitéÉtendue",
    "kai": "我们用React写前端, 3月底发布",
    "sam": "купив пам\u02bcятник на день народження",
    "tia": "calls calculateVatRate before each checkout",
    "uma": "Пётр живёт в Самаре",
    "vic": "फल खाता है और किताबें पढ़ता है",
    "yui": "สมชายชอบกาแฟดำ",
    "wim": "Do NOT deploy on Fridays",
    "xia": 'wrote "hello" world on the board',
    "zoe": "the payment_handler works on gas",
    "ola": "translates the documentation of the notifications",
    "ben": "the budget for the move is 48,500 EUR",
    "eva": "the invoice came to 1234567 yen",
    "lee": "2025-03-17: the lease of the flat was signed",
    "ron": "the neighbours moved out of the house on March 21st, 2025",
    "sue": "the roof was mended (04.11.2024)",
    "ted": "the call began at 2024-06-05T10:30Z",
    "wyn": "her visa came 7.9.2023",
    "una": "on 4 November, 2023 the boiler was replaced",
}


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    with client_on(tmp_path_factory.mktemp("cases"), embedder="minilm") as opened:
        entities = [
            {"name": name, "entityType": "person", "observations": [fact]}
            for name, fact in FACTS.items()
        ]
        opened("create_entities", entities=entities)
        yield opened


def note(client: Client, facts: Mapping[str, str]) -> None:
    """Each as the fact of an entity of that name."""
    client(
        "create_entities",
        entities=[
            {"name": name, "entityType": "note", "observations": [fact]}
            for name, fact in facts.items()
        ],
    )


def best(client: Client, query: str, mode: Mode) -> str | None:
    found = client("search_nodes", query=query, mode=mode)["entities"]
    return found[0]["name"] if found else None


CASES = {
    "an identifier": ("X-4471-b", "bob"),
    "an identifier in small letters": ("x-4471-b", "bob"),
    "an identifier within a question": ("what was wrong with X-4471-b?", "bob"),
    "a part of an identifier": ("4471-b", "bob"),
    "a path": ("src/auth/login.py", "dan"),
    "a path in a line of a stack": ('File "/app/src/auth/login.py", line 54, in issue', "dan"),
    "an identifier in a stack": (
        'Traceback (most recent call last):\n  File "/app/run.py", line 3, in <module>\nX-4471-b',
        "bob",
    ),
    "a file name": ("login.py", "dan"),
    "a part of a path": ("auth/login", "dan"),
    "words in another order": ("editors dark", "ada"),
    "words apart": ("dark editors", "ada"),
    "a plural": ("editor", "ada"),
    "an inflection": ("adopts puppy", "fay"),
    "another inflection": ("runs bakeries", "gus"),
    "Chinese, a word": ("北京", "hal"),
    "Chinese, two words apart": ("北京烤鸭", "hal"),
    "Chinese, characters apart": ("鸭 京", "hal"),
    "Chinese, characters with operators": ("京 AND 鸭 NOT 茶", "hal"),
    "Chinese, a character as a phrase": ('"鸭" OR zebra', "hal"),
    "Chinese, a character as a beginning, at the end of a run": ("鸭*", "hal"),
    "Chinese, a character beside a word, as a phrase": ('"们用React写"', "kai"),
    "Chinese, characters before and behind a word, as a phrase": ('"用React写"', "kai"),
    "Chinese, a character before the beginning of a word": ("用rea* NOT 茶", "kai"),
    "Chinese, a number and a character, as a phrase": ('"3月"', "kai"),
    "Japanese, a word": ("寿司", "ivy"),
    "Japanese, hiragana": ("食べました", "ivy"),
    "Ukrainian, a word": ("каву", "jan"),
    "Ukrainian, capitals": ("КИЄВІ", "jan"),
    "Arabic, a word": ("القاهرة", "kim"),
    "Arabic, two words": ("يحب القهوة", "kim"),
    "Arabic, a number in other digits": ("88345", "nur"),
    "Arabic, a number in Persian digits": ("۸۸۳۴۵", "nur"),
    "Arabic, a word that the text draws out": ("السائق", "nur"),
    "Turkish, small letters of a capital with a dot": ("izm", "gul"),
    "Turkish, capitals of a letter with no dot": ("KIRMI", "gul"),
    "a part of a word with humps beside accents": ("fidelite zorglub", "luc"),
    "words that another writes in one, with accents": ("étendue fidélité", "luc"),
    "Persian, a word without its ending": ("آن کتاب", "mar"),
    "Persian, what is kept apart written as words": ("می خواند", "mar"),
    "Persian, what is kept apart written in one": ("آن کتابهای", "mar"),
    "an emoji": ("🏆", "leo"),
    "an emoji and a word": ("🌧 race", "leo"),
    "an emoji beside a word that nobody said": ("zeppelin 🏆", "leo"),
    "an emoji as a keyboard writes it": ("🏆\ufe0f", "leo"),
    "emoji with operators": ("🏆 AND (race OR zebra) NOT ☕", "leo"),
    "an emoji before a question mark": ("who got the 🏆?", "leo"),
    "an emoji in a list, with operators": ("☕, 🏆! AND race", "leo"),
    "an emoji in quotes": ('"🏆"', "leo"),
    "the beginning of an emoji": ("🏆* NOT zebra", "leo"),
    "a soft hyphen": ("orches\u00adtra", "qiu"),
    "stop words with operators": ("be AND not AND that", "pat"),
    "a character that the model does not know": ("茶", "rui"),
    "characters that the model does not know": ("喝茶", "rui"),
    "one letter that is a word": ("C", "mia"),
    "stop words only": ("to be or not to be", "pat"),
    "a negation that is told": ("not allergic", "ned"),
    "an apostrophe as a keyboard writes it": ("пам'ятник", "sam"),
    "a phrase with an apostrophe": ('"пам\u2019ятник на"', "sam"),
    "a word with humps": ("calculateVatRate", "tia"),
    "words that another writes in one": ("calculate vat rate", "tia"),
    "a word written with underscores": ("calculate_vat_rate", "tia"),
    "a part of a word with humps": ("rate checkouts", "tia"),
    "Russian, without the dots": ('"петр живет"', "uma"),
    "Hindi, a word": ("किताबें", "vic"),
    "a sentence with an emphasis": ("Do NOT deploy on Fridays", "wim"),
    "a question with an emphasis": ("why do we NOT deploy on Fridays?", "wim"),
    "a question with a quotation": ('who said "works on gas"?', "zoe"),
    "a question with a quoted identifier": ('where is the "payment_handler" located', "zoe"),
    "a part with quotation marks": ('te "hello" worl', "xia"),
    "Thai, a word within a run": ("กาแฟ", "yui"),
    "Thai, a question": ("ใครชอบกาแฟดำ", "yui"),
    "a name": ("qiu", "qiu"),
    "a name and a word": ("qiu violin", "qiu"),
    "a part of a word": ("orchest", "qiu"),
    "a number that is written by thousands": ("is anything 48500?", "ben"),
    "a number by thousands as it is written": ("48,500", "ben"),
    "a number by thousands that is written in one": ("1,234,567", "eva"),
    "a number by thousands as others write it": ("something of 1.234.567 yen", "eva"),
    "a day by its month": ("what happened on 17 March 2025?", "lee"),
    "a day by its month before it": ("March 17th, 2025", "lee"),
    "a day of a month, of no year": ("anything on the 17th of March?", "lee"),
    "a day in the order of the standard": ("2025-03-21", "ron"),
    "a day in the order of the standard, told day first": ("2024-11-04", "sue"),
    "a day by its month, told day first": ("Nov 4, 2024", "sue"),
    "a day first": ("17.03.2025", "lee"),
    "a day to which a time is told": ("what was on 5 June 2024", "ted"),
    "a month by its name": ("June 2024", "ted"),
    "a month by its name, told day first": ("November 2024", "sue"),
    "a day by its month, told in as few digits as it has": ("7 September 2023", "wyn"),
    "a day in the order of the standard, told in few digits": ("2023-09-07", "wyn"),
    "a day first, in few digits": ("4.11.2024", "sue"),
}


@pytest.mark.parametrize("mode", ["text", "hybrid"])
@pytest.mark.parametrize("case", CASES)
def test_it_comes_first(client: Client, case: str, mode: Mode) -> None:
    query, name = CASES[case]
    assert best(client, query, mode) == name


@pytest.mark.parametrize("mode", ["text", "hybrid"])
@pytest.mark.parametrize(
    ("query", "days"),
    [("who was met on 7 March 2025?", {7}), ("who was met in March 2025?", set(range(1, 13)))],
)
def test_of_much_that_is_alike_but_for_its_date_that_of_the_date_comes_first(
    tmp_path: Path, mode: Mode, query: str, days: set[int]
) -> None:
    with client_on(tmp_path, embedder="minilm") as opened:
        for month in (2, 3, 4):
            for day in range(1, 13):
                fact = f"2025-{month:02}-{day:02}: met the team"
                entity = {"name": f"{month}/{day}", "entityType": "note", "observations": [fact]}
                opened("create_entities", entities=[entity], threadId=f"{month} {day}")
        found = opened("search_nodes", query=query, mode=mode)["entities"]
    names = [entity["name"] for entity in found[: len(days)]]
    assert set(names) == {f"3/{day}" for day in days}


@pytest.mark.parametrize("mode", ["text", "hybrid"])
@pytest.mark.parametrize("query", ["48500", "48,500", "48.500"])
def test_a_number_is_found_however_texts_write_it_also_where_they_do_so_in_two_ways(
    tmp_path: Path, mode: Mode, query: str
) -> None:
    facts = {"ben": "costs 48,500 EUR", "eva": "costs 48500 EUR", "ivy": "is for free"}
    with client_on(tmp_path, embedder="minilm") as opened:
        entities = [
            {"name": name, "entityType": "offer", "observations": [fact]}
            for name, fact in facts.items()
        ]
        opened("create_entities", entities=entities)
        found = opened("search_nodes", query=query, mode=mode)["entities"]
    assert {entity["name"] for entity in found[:2]} == {"ben", "eva"}


def test_a_year_is_not_outdone_by_a_number_by_thousands(tmp_path: Path) -> None:
    facts = {f"y{n}": f"went there in 2025, trip {n}" for n in range(5)} | {
        "eva": "has 2,025 sheep"
    }
    with client_on(tmp_path) as opened:
        for name, fact in facts.items():
            entity = {"name": name, "entityType": "note", "observations": [fact]}
            opened("create_entities", entities=[entity])
        found = opened("search_nodes", query="2025")["entities"]
    assert found[-1]["name"] == "eva"


MISSPELT = {
    "a letter too much": ("editorrs with dark mode", "ada"),
    "two letters swapped": ("voilin", "qiu"),
    "a letter missing": ("orchstra", "qiu"),
    "a wrong letter": ("vitamen", "mia"),
    "a wrong ending": ("alergies peanut", "ned"),
    "two letters swapped in an ending": ("documentatoin", "ola"),
    "two letters swapped before an ending": ("notificatoins", "ola"),
    "a letter missing in an ending": ("documentaion", "ola"),
}


@pytest.mark.parametrize("mode", ["text", "hybrid"])
@pytest.mark.parametrize("case", MISSPELT)
def test_a_typing_error_does_not_hide_it(client: Client, case: str, mode: Mode) -> None:
    query, name = MISSPELT[case]
    assert best(client, query, mode) == name


def test_a_word_with_another_meaning_is_no_slip(client: Client) -> None:
    assert best(client, "unadopted", "text") is None


MEANT = {
    "another word for it": ("musical instrument", "qiu"),
    "a kind of it": ("pets", "fay"),
    "a question without a word of it": ("who makes bread?", "gus"),
    "another word with a negation": ("who stays away from beer and wine?", "oda"),
}


@pytest.mark.parametrize("case", MEANT)
def test_what_is_meant_is_found_without_a_word_of_it(client: Client, case: str) -> None:
    query, name = MEANT[case]
    assert best(client, query, "hybrid") == name


@pytest.mark.parametrize("mode", ["hybrid", "semantic"])
@pytest.mark.parametrize("query", ["pets", "musical instrument", "bakery", "我在北京吃烤鸭"])
def test_no_score_of_what_was_found_says_that_it_matches_nothing(
    client: Client, query: str, mode: Mode
) -> None:
    """Some of these find one thing, some several, of which the last had nothing left."""
    found = client("search_nodes", query=query, mode=mode)["entities"]
    told = [entity["score"] for entity in found]
    assert told and min(told) > 0.02
    assert told == sorted(told, reverse=True)


@pytest.mark.parametrize("mode", ["text", "hybrid", "semantic"])
def test_what_is_kept_out_does_not_come(client: Client, mode: Mode) -> None:
    query = "person NOT (dark OR auth)"
    found = client("search_nodes", query=query, mode=mode, limit=len(FACTS))["entities"]
    names = {entity["name"] for entity in found}
    assert names == set(FACTS) - {"ada", "dan", "eve"}


@pytest.mark.parametrize("mode", ["text", "hybrid", "semantic"])
@pytest.mark.parametrize("query", ["🛰", "🛰🪐", "สวัสดี"])
def test_what_the_model_cannot_read_is_like_nothing(client: Client, query: str, mode: Mode) -> None:
    assert best(client, query, mode) is None


@pytest.mark.parametrize("mode", ["text", "hybrid"])
@pytest.mark.parametrize("query", ["?!", "\u200b", "()"])
def test_a_query_that_says_nothing_finds_nothing(client: Client, query: str, mode: Mode) -> None:
    assert best(client, query, mode) is None


def test_a_word_that_is_like_none_is_found_nowhere(client: Client) -> None:
    assert best(client, "zzqqxv", "text") is None


MATTERS = [
    "The budget for spring was agreed.",
    "Maria moves to the office in Lisbon in May.",
    "The printer on the second floor is broken again.",
    "Customers want their invoices as files.",
    "The rent goes up by four percent.",
    "Next time everybody brings numbers.",
    "The summer party is on a boat.",
]


@pytest.mark.parametrize("place", [0, 15, 30])
def test_what_is_meant_is_found_wherever_it_stands_in_a_long_text(
    tmp_path: Path, place: int
) -> None:
    minutes = MATTERS * 5
    told = [*minutes[:place], "Rex, a small dog, was adopted from a shelter.", *minutes[place:]]
    with client_on(tmp_path, embedder="minilm") as opened:
        entities = [
            {"name": name, "entityType": "meeting", "observations": [" ".join(sentences)]}
            for name, sentences in {"Mon": minutes, "Tue": told, "Fri": minutes[:2]}.items()
        ]
        opened("create_entities", entities=entities)
        assert best(opened, "which dog was adopted from a shelter?", "semantic") == "Tue"


def test_what_two_sentences_of_a_long_text_say_counts_wherever_it_is_cut(tmp_path: Path) -> None:
    told = ["Karl sold the green sofa to Ingrid.", "She paid with a cheque from a bank in Lisbon."]
    minutes = MATTERS * 3
    texts = [" ".join([*minutes[:at], *told, *minutes[at:]]) for at in range(len(MATTERS))]
    cut = [
        any(told[0] in each and told[1] not in each for each in passages(text)) for text in texts
    ]
    assert any(cut) and not all(cut)
    with client_on(tmp_path, embedder="minilm") as opened:
        for at, text in enumerate(texts):  # each in its own thread: those beside lend words, too
            entity = {"name": f"Meeting {at}", "entityType": "meeting", "observations": [text]}
            opened("create_entities", entities=[entity], threadId=f"{at}")
        searcher = opened.service.open("default").searcher
        hits = searcher.search(
            "green sofa sold, paid with a cheque from Lisbon", kinds=frozenset({"observation"})
        )
    told_by = [hit.late for hit in hits.hits]
    assert len(told_by) == len(texts)
    assert min(told_by) > 0.9 * max(told_by)


def test_nothing_answers_better_word_by_word_than_what_holds_the_question(tmp_path: Path) -> None:
    short, long = (
        "water that was cold is drunk there",
        f"{MATTERS[3]} Cold water drips in the cellar.",
    )
    with client_on(tmp_path, embedder="minilm") as opened:
        for fact in (short, long, MATTERS[0]):
            entity = {"name": "house", "entityType": "place", "observations": [fact]}
            opened("create_entities", entities=[entity], ifExists="merge", threadId=fact)
        hits = opened.service.open("default").searcher.search("cold water").hits
    answering = {hit.part > 0: hit.late for hit in hits if hit.bm25 > 0}
    assert answering[True] >= answering[False] > 0


@pytest.mark.parametrize("mode", ["text", "hybrid"])
@pytest.mark.parametrize("query", ["--no-index", "$INDEX", "size %d of", "files NOT indexed"])
def test_what_holds_a_query_with_its_signs_comes_before_what_has_its_words(
    tmp_path: Path, mode: Mode, query: str
) -> None:
    rest = "and this is how the script of the release calls it on Fridays, twice where it failed"
    with client_on(tmp_path, embedder="minilm") as opened:
        facts = {
            "one": "index size index files",
            "two": "ignore the index of files",
            "three": "size of the index",
            "four": "files to index",
            "wanted": f"diff takes {query} {rest}",
        }
        note(opened, facts)
        assert best(opened, query, mode) == "wanted"


def test_what_holds_a_query_comes_before_what_is_near_to_it_and_what_stands_beside_that(
    tmp_path: Path,
) -> None:
    with client_on(tmp_path, embedder="minilm") as opened:
        facts = {
            "wanted": "--no-OPTION turns off what another option implies, for instance --no-perms or --no-times; "
            "not every option has such a one, and the last that is given counts",
            "near": "--perms keeps the permissions",
            "beside": "--executability keeps whether a file can be executed when --perms is off",
        }
        note(opened, facts)
        assert best(opened, "--no-perms", "hybrid") == "wanted"


@pytest.mark.parametrize("mode", ["text", "hybrid"])
@pytest.mark.parametrize("told", ["retryDelay", "RETRY_DELAY", "retry-delay", "retry delay"])
@pytest.mark.parametrize("query", ["retry_delay", "retry-delay", "retryDelay"])
def test_an_identifier_is_found_however_its_words_are_joined(
    tmp_path: Path, mode: Mode, told: str, query: str
) -> None:
    with client_on(tmp_path, embedder="minilm") as opened:
        facts = {
            "one": "the delay of a retry",
            "two": "delay, then retry",
            "three": "no retry after the delay",
            "wanted": f"what reads the queue sleeps for {told} seconds before it looks at it once more",
        }
        note(opened, facts)
        assert best(opened, query, mode) == "wanted"
        assert best(opened, f"where is {query} told?", "text") == "wanted"


def test_another_form_of_an_identifier_is_no_part_of_other_words(tmp_path: Path) -> None:
    with client_on(tmp_path) as opened:
        note(opened, {"one": "a person called twice"})
        assert best(opened, "onCall", "text") is None


@pytest.mark.parametrize("mode", ["text", "hybrid"])
@pytest.mark.parametrize("phrase", ['"retry_delay"', '"retry delay"'])
def test_a_phrase_is_found_in_its_own_form_only(tmp_path: Path, mode: Mode, phrase: str) -> None:
    with client_on(tmp_path, embedder="minilm") as opened:
        note(opened, {"one": "sleeps for retryDelay seconds"})
        assert best(opened, phrase, mode) is None


@pytest.mark.parametrize("mode", ["text", "hybrid"])
def test_a_name_that_differs_by_a_stop_word_from_ever_so_many_is_found_by_it(
    tmp_path: Path, mode: Mode
) -> None:
    with client_on(tmp_path, embedder="minilm") as opened:
        names = [f"Team {number}" for number in range(1, 100)] + ["Team A"]
        entities = [
            {"name": name, "entityType": "team", "observations": ["plays at home"]}
            for name in names
        ]
        opened("create_entities", entities=entities)
        assert best(opened, "team a", mode) == "Team A"


NOTES = {
    "bond": "Die Datenbankverbindung bricht nach 30 Minuten ab",
    "card": "Krankenversicherungskarte ist abgelaufen, neue beantragt",
    "duty": "Zugriffsrechte werden pro Terminal vergeben, nicht pro Reederei",
    "fees": "Der Jahresbeitrag steigt auf 60 Euro",
    "karl": "Karl trinkt keinen Alkohol",
    "keep": "Les clés du garage sont dans le tiroir de l'entrée",
    "lock": "Wohnungsschlüssel liegt beim Hausmeister",
    "nuts": "Allergic to peanuts, so no satay at the team lunch",
    "paid": "Rechnungsnummern sind fortlaufend",
    "road": "Stockholm marathon in June",
    "seal": "Der Schlüssel zum Keller hängt im Flur",
    "slip": "Spendenquittungen liegen im grünen Ordner",
    "book": "Книга лежить на столі",
    "cafe": "Кава без цукру, але з молоком",
    "door": "Двері відчиняються двома ключами",
    "keys": "Ключ от гаража висит в прихожей",
    "read": "Старые книги по истории стоят рядом",
    "tram": "Трамвай приходит в восемь утра",
    "work": "Работает в банке по понедельникам",
    "wash": "Die Waschmaschine verliert Wasser",
    "ways": "Fährt lieber mit dem Nachtzug",
    "wren": "Has a daughter named Ella who is seven",
}


@pytest.fixture(scope="module")
def notes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    with client_on(tmp_path_factory.mktemp("notes"), embedder="minilm") as opened:
        entities = [
            {"name": name, "entityType": "note", "observations": [note]}
            for name, note in NOTES.items()
        ]
        opened("create_entities", entities=entities)
        yield opened


@pytest.mark.parametrize(
    ("word", "name"),
    [("Verbindung", "bond"), ("Karte", "card"), ("Rechte", "duty"), ("Quittung", "slip")],
)
@pytest.mark.parametrize("typed", ["{}", "{}?", "{}!", "{} ?", "{}..."])
def test_what_has_a_word_of_another_language_within_a_longer_one_comes_before_what_is_like_it(
    notes: Client, typed: str, word: str, name: str
) -> None:
    assert best(notes, typed.format(word), "hybrid") == name


@pytest.mark.parametrize("mode", ["text", "hybrid"])
@pytest.mark.parametrize(
    ("words", "name"),
    [
        ("Jahr Beitrag", "fees"),
        ("Kranken Karte", "card"),
        ("Quittung Spende", "slip"),
        ("Maschine waschen", "wash"),
    ],
)
def test_two_words_of_a_language_that_joins_them_find_what_has_them_within_longer_ones(
    notes: Client, mode: Mode, words: str, name: str
) -> None:
    assert best(notes, words, mode) == name


def test_a_mark_that_may_mean_something_is_typed_as_part_of_what_is_looked_for(
    notes: Client,
) -> None:
    """Not of a text without it, where that is short: nearly every one has an f."""
    assert best(notes, "f?", "text") is None


def test_what_has_a_word_by_itself_comes_before_what_has_it_within_a_longer_one(
    notes: Client,
) -> None:
    found = notes("search_nodes", query="Schlüssel", mode="hybrid")["entities"]
    assert [entity["name"] for entity in found[:2]] == ["seal", "lock"]


def test_what_has_another_form_of_a_word_comes_before_what_is_like_its_pieces(
    notes: Client,
) -> None:
    """Of the Russian and Ukrainian notes, those about keys and books."""
    for word, names in {"ключ": ["keys", "door"], "книга": ["book", "read"]}.items():
        found = notes("search_nodes", query=word, mode="hybrid")["entities"]
        assert [entity["name"] for entity in found[:2]] == names


@pytest.mark.parametrize(("word", "name"), [("Jahersbeitrag", "fees"), ("vergben", "duty")])
def test_what_a_misspelt_word_was_meant_for_comes_before_what_is_like_its_letters(
    notes: Client, word: str, name: str
) -> None:
    assert best(notes, word, "hybrid") == name


EXPIRING = [
    "User's passport expires on 3 September 2027",
    "User's driving licence expires on 11 May 2029",
    "PCR is done with 35 cycles at an annealing temperature of 58 degrees",
    "Halvorsen 2019 does not correct for water temperature",
    "eDNA decays twice as fast at a temperature of 10 degrees",
    "The Pro plan costs 49 euros per seat and month",
    "The Starter plan costs 29 euros per seat and month",
    "The Enterprise plan starts at 10000 euros a year",
    "Die Datenbankverbindung bricht nach 30 Minuten ab",
    "Die Verblendung am Haus bricht",
]


@pytest.fixture(scope="module")
def expiring(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    with remembering(tmp_path_factory.mktemp("expiring"), EXPIRING) as opened:
        yield opened


@pytest.mark.parametrize(
    ("query", "fact"),
    [
        ("pasport expiry", EXPIRING[0]),
        ("anealing temperature", EXPIRING[2]),
        ("Enterprize plan price", EXPIRING[7]),
        ("Verbindung bricht", EXPIRING[8]),
    ],
)
def test_a_word_with_a_slip_counts_beside_others_as_the_right_one(
    expiring: Client, query: str, fact: str
) -> None:
    assert expiring("search_memories", query=query)["memories"][0]["content"] == fact
