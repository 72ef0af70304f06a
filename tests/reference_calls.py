"""What a client may do to the reference memory server, and the calls to which we answer otherwise."""

from __future__ import annotations

from typing import Any, NamedTuple

Arguments = dict[str, Any]
Calls = list[tuple[str, Arguments]]

JON = {"name": "Jon", "entityType": "person", "observations": ["was a banker", "Likes dancing"]}
GINA = {"name": "Gina", "entityType": "person", "observations": ["sells clothes"]}
STUDIO = {"name": "dance studio", "entityType": "place", "observations": []}
ODD = {"name": " Ünï—cödé 東京 🙂 ", "entityType": "a/b\\c", "observations": ["x\ty", '"q"', "é"]}
OWNS = {"from": "Jon", "to": "dance studio", "relationType": "owns"}
KNOWS = {"from": "Jon", "to": "Gina", "relationType": "knows"}
LOOSE = {"from": "Gina", "to": "nobody", "relationType": "waits for"}


def add(name: str, *contents: str) -> dict[str, Any]:
    return {"entityName": name, "contents": list(contents)}


def drop(name: str, *observations: str) -> dict[str, Any]:
    return {"entityName": name, "observations": list(observations)}


SCRIPT: Calls = [
    ("read_graph", {}),
    ("search_nodes", {"query": "anything"}),
    ("open_nodes", {"names": ["Jon"]}),
    ("create_entities", {"entities": []}),
    ("create_entities", {"entities": [JON, GINA]}),
    ("create_entities", {"entities": [{**JON, "observations": ["other"]}, STUDIO, ODD]}),
    ("create_entities", {"entities": [JON]}),
    ("read_graph", {}),
    ("create_relations", {"relations": [OWNS, KNOWS, LOOSE]}),
    ("create_relations", {"relations": [KNOWS, {**KNOWS, "relationType": "likes"}]}),
    ("create_relations", {"relations": [KNOWS]}),
    ("create_relations", {"relations": [{**KNOWS, "to": "Jon"}]}),
    ("add_observations", {"observations": [add("Jon", "was a banker", "is a dancer")]}),
    ("add_observations", {"observations": [add("Jon", "is a dancer"), add("Gina", "smiles")]}),
    ("add_observations", {"observations": [add("Gina", "hums"), add("Jon"), add("Gina", "hums")]}),
    ("add_observations", {"observations": [add("Gina")]}),
    ("add_observations", {"observations": [add("Gina", "sings"), add("Mia", "sings")]}),
    ("add_observations", {"observations": [add("jon", "x")]}),
    ("read_graph", {}),
    ("open_nodes", {"names": ["Gina"]}),
    ("open_nodes", {"names": ["Jon", "Gina", "Jon", "Mia"]}),
    ("open_nodes", {"names": []}),
    ("open_nodes", {"names": [ODD["name"]]}),
    ("search_nodes", {"query": "dancing"}),
    ("search_nodes", {"query": "DANC"}),
    ("search_nodes", {"query": "person"}),
    ("search_nodes", {"query": "ance stud"}),
    ("search_nodes", {"query": "a banke"}),
    ("search_nodes", {"query": "on"}),
    ("search_nodes", {"query": "京"}),
    ("search_nodes", {"query": "—c"}),
    ("search_nodes", {"query": "/b\\"}),
    ("search_nodes", {"query": "🙂"}),
    ("search_nodes", {"query": "no such thing"}),
    ("delete_observations", {"deletions": [drop("Jon", "was a banker", "never")]}),
    ("delete_relations", {"relations": [OWNS, {**OWNS, "from": "Mia"}]}),
    ("read_graph", {}),
    ("delete_entities", {"entityNames": ["Gina", "Mia"]}),
    ("read_graph", {}),
    ("search_nodes", {"query": "Gina"}),
    ("create_entities", {"entities": [GINA]}),
    ("open_nodes", {"names": ["Gina"]}),
    ("delete_entities", {"entityNames": ["Jon", "Gina", "dance studio", ODD["name"]]}),
    ("read_graph", {}),
]
"""What a client may do to either server, duplicates and missing things included."""


class Difference(NamedTuple):
    """A call after `before` whose answers differ: what each gives back, at `path` of the answer."""

    why: str
    before: Calls
    call: tuple[str, Arguments]
    path: str
    theirs: Any
    ours: Any


TWICE = {"name": "Mia", "entityType": "person", "observations": ["sings", "sings"]}
MANY = [{"name": f"e{n:02}", "entityType": "t", "observations": []} for n in range(30)]

DIFFERENCES = {
    "a name twice in one call": Difference(
        "a name means one entity",
        [("create_entities", {"entities": [GINA, {**GINA, "observations": ["other"]}]})],
        ("open_nodes", {"names": ["Gina"]}),
        "entities.observations",
        [["sells clothes"], ["other"]],
        [["sells clothes", "other"]],
    ),
    "facts to delete that are not there": Difference(
        "a message that all went well would mislead",
        [],
        ("delete_observations", {"deletions": [drop("Mia", "x")]}),
        "message",
        "Observations deleted successfully",
        "No observations deleted: none was found",
    ),
    "relations to delete that are not there": Difference(
        "a message that all went well would mislead",
        [],
        ("delete_relations", {"relations": [OWNS]}),
        "message",
        "Relations deleted successfully",
        "No relations deleted: none was found",
    ),
    "a fact twice in one entity": Difference(
        "an entity holds a fact once",
        [],
        ("create_entities", {"entities": [TWICE]}),
        "entities.observations",
        [["sings", "sings"]],
        [["sings"]],
    ),
    "a fact twice in one addition": Difference(
        "an entity holds a fact once",
        [("create_entities", {"entities": [GINA]})],
        ("add_observations", {"observations": [add("Gina", "sings", "sings")]}),
        "results.addedObservations",
        [["sings", "sings"]],
        [["sings"]],
    ),
    "a relation twice in one call": Difference(
        "an edge is from, to and type",
        [],
        ("create_relations", {"relations": [KNOWS, KNOWS]}),
        "relations.relationType",
        ["knows", "knows"],
        ["knows"],
    ),
    "relations of a name that is no entity": Difference(
        "what is not there is not deleted; the answer names the relations that remain",
        [
            ("create_entities", {"entities": [GINA]}),
            ("create_relations", {"relations": [LOOSE]}),
            ("delete_entities", {"entityNames": ["nobody"]}),
        ],
        ("read_graph", {}),
        "relations.relationType",
        [],
        ["waits for"],
    ),
    "text of a deletion": Difference(
        "every answer in text is JSON, and says what was deleted and what was not there",
        [("create_entities", {"entities": [GINA]})],
        ("delete_entities", {"entityNames": ["Gina"]}),
        "content.text",
        "no JSON",
        "JSON",
    ),
    "an empty query": Difference(
        "what is not relevant is not returned; read_graph returns everything",
        [("create_entities", {"entities": [GINA]})],
        ("search_nodes", {"query": ""}),
        "entities.name",
        ["Gina"],
        [],
    ),
    "words in another order": Difference(
        "search goes by words, and by a substring only besides",
        [("create_entities", {"entities": [JON]})],
        ("search_nodes", {"query": "dancing likes"}),
        "entities.name",
        [],
        ["Jon"],
    ),
    "an operator in a query": Difference(
        "AND, OR and NOT are understood",
        [("create_entities", {"entities": [JON, GINA]})],
        ("search_nodes", {"query": "nothing OR sells"}),
        "entities.name",
        [],
        ["Gina"],
    ),
    "many matches": Difference(
        "an answer has 25 entities unless `limit` asks for more; nextCursor leads on",
        [("create_entities", {"entities": MANY})],
        ("search_nodes", {"query": "e"}),
        "count",
        30,
        25,
    ),
    "the order of opened names": Difference(
        "they come in the order asked for",
        [("create_entities", {"entities": [JON, GINA]})],
        ("open_nodes", {"names": ["Gina", "Jon"]}),
        "entities.name",
        ["Jon", "Gina"],
        ["Gina", "Jon"],
    ),
    "an unknown argument": Difference(
        "a misspelt key must not make data vanish silently",
        [],
        ("create_entities", {"entities": [{**GINA, "observation": ["x"]}]}),
        "isError",
        False,
        True,
    ),
    "an empty name": Difference(
        "an entity is found by its name",
        [],
        ("create_entities", {"entities": [{**GINA, "name": ""}]}),
        "isError",
        False,
        True,
    ),
    "a text that is very long": Difference(
        "every text has a largest size",
        [],
        ("create_entities", {"entities": [{**GINA, "observations": ["x" * 10_001]}]}),
        "isError",
        False,
        True,
    ),
    "a control character": Difference(
        "a terminal that shows it would obey it",
        [],
        ("create_entities", {"entities": [{**GINA, "observations": ["\x1b[2J"]}]}),
        "isError",
        False,
        True,
    ),
    "an answer about much that was written": Difference(
        "an answer is cut to a size; everything is stored",
        [],
        (
            "create_entities",
            {"entities": [{**each, "observations": ["x" * 3_000]} for each in MANY]},
        ),
        "count",
        30,
        6,
    ),
    "an entity without observations": Difference(
        "no facts are written as none",
        [],
        ("create_entities", {"entities": [{"name": "Mia", "entityType": "person"}]}),
        "isError",
        True,
        False,
    ),
    "letters composed otherwise": Difference(
        "names that a person cannot tell apart are one name",
        [("create_entities", {"entities": [{**GINA, "name": "e\u0301lan"}]})],
        ("open_nodes", {"names": ["élan"]}),
        "entities.entityType",
        [],
        ["person"],
    ),
}
