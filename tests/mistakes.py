"""The mistakes that models make with these tools, what is said to them, and the call that mends each.

In texts, `$seattle`, `$austin` and `$boise` stand for ids of memories of the world of `test_mistakes`:
Seattle was superseded by Austin.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

Arguments = dict[str, Any]

ANN: Arguments = {
    "name": "Ann",
    "entityType": "Person",
    "observations": ["Works at Acme"],
    "relations": [{"targetEntity": "Acme", "relationType": "works at"}],
}
ACME: Arguments = {
    "name": "Acme",
    "entityType": "Organization",
    "observations": ["Makes anvils"],
    "relations": [{"targetEntity": "Ann", "relationType": "employs"}],
}
JON = {"name": "jon", "entityType": "person"}
EDGE = {"from": "john-doe", "to": "techcorp", "relationType": "works_for"}
FACTS = {"entityName": "john-doe", "contents": ["Likes tea"]}
RECORD: Arguments = {
    "type": "note",
    "content": {"text": "tea"},
    "source": "chat://1",
    "confidence": 0.9,
}
LONG = (
    "Works at Acme as a senior engineer in the platform team, which has 12 members, and lives in "
    "Rome together with two cats, a dog and a parrot that speaks three languages"
)
JSON_TEXT = json.dumps([JON])


class Mistake(NamedTuple):
    """A wrong call; the code, the place and parts of the problem and of the advice; the right call."""

    tool: str
    wrong: Arguments
    code: str
    path: str
    said: str
    advice: str
    right: Arguments


def saved(*entities: Any, **others: Any) -> Arguments:
    return {"threadId": "t1", "entities": list(entities), **others}


def ann(**changed: Any) -> Arguments:
    """Ann and Acme as `save_memory` takes them, with something of Ann's changed."""
    return saved(ANN | changed, ACME)


def without(key: str, of: Arguments) -> Arguments:
    return {name: value for name, value in of.items() if name != key}


def entity(**changed: Any) -> Arguments:
    return {"entities": [JON | changed]}


def edge(**changed: Any) -> Arguments:
    return {"relations": [EDGE | changed]}


BAD, FULL = "INVALID_PARAMETER", "LIMIT_EXCEEDED"

# fmt: off
KEYS = [
    Mistake("create_entities", {"entites": [JON]}, BAD, "entites",
        "unknown key 'entites'", "Did you mean 'entities'?", entity()),
    Mistake("create_entities", {"entities": [{"name": "jon", "type": "person"}]}, BAD,
        "entities[0].type", "unknown key 'type'", "Did you mean 'entityType'?", entity()),
    Mistake("create_entities", {"Entities": [JON]}, BAD, "Entities",
        "unknown key 'Entities'", "Did you mean 'entities'?", entity()),
    Mistake("create_entities", entity(entity_type="person"), BAD, "entities[0].entity_type",
        "given twice, as 'entityType' and as 'entity_type'", "Keep 'entityType' only.", entity()),
    Mistake("create_entities", JON, BAD, "arguments", "belong in an item of 'entities'",
        'Pass {"entities": [{"name": …, "entityType": …}]}.', entity()),
    Mistake("add_observations", FACTS, BAD, "arguments", "belong in an item of 'observations'",
        'Pass {"observations": [{"entityName": …, "contents": …}]}.', {"observations": [FACTS]}),
    Mistake("add_observations", {"observations": [{"entityName": "john-doe", "observations": ["x"]}]},
        BAD, "observations[0].observations", "unknown key", "Did you mean 'contents'?",
        {"observations": [FACTS]}),
    Mistake("add_observations", {"observations": [FACTS | {"contents": [{"text": "Likes tea"}]}]}, BAD,
        "observations[0].contents[0].text", "unknown key 'text'", "Did you mean 'content'?",
        {"observations": [FACTS | {"contents": [{"content": "Likes tea"}]}]}),
    Mistake("delete_entities", {"entities": ["john-doe"]}, BAD, "entities",
        "unknown key", "Did you mean 'entityNames'?", {"entityNames": ["john-doe"]}),
    Mistake("create_relations", {"relations": [{"source": "john-doe"} | without("from", EDGE)]}, BAD,
        "relations[0].source", "unknown key 'source'", "Did you mean 'from'?", edge()),
    Mistake("create_relations", {"relations": [{"fromEntity": "john-doe"} | without("from", EDGE)]}, BAD,
        "relations[0].fromEntity", "unknown key 'fromEntity'", "Did you mean 'from'?", edge()),
    Mistake("create_relations", {"relations": [{"targetEntity": "techcorp"} | without("to", EDGE)]}, BAD,
        "relations[0].targetEntity", "unknown key 'targetEntity'", "Did you mean 'to'?", edge()),
    Mistake("create_entities", {"entities": [{"entityName": "jon"} | without("name", JON)]}, BAD,
        "entities[0].entityName", "unknown key 'entityName'", "Did you mean 'name'?", entity()),
    Mistake("search_nodes", {"q": "tea"}, BAD, "q", "unknown key", "Did you mean 'query'?",
        {"query": "tea"}),
    Mistake("search_nodes", {"query": "tea", "k": 5}, BAD, "k", "unknown key",
        "Did you mean 'limit'?", {"query": "tea", "limit": 5}),
    Mistake("get_current_project", {"verbose": True}, BAD, "verbose", "unknown key 'verbose'",
        "No keys are known here; leave it out.", {}),
    Mistake("supersede_memory", {"old_memory_id": "$austin", "new_memory_id": "$boise", "why": "x"}, BAD,
        "why", "unknown key 'why'", "Known keys: 'old_memory_id', 'new_memory_id', 'threadId', 'project'.",
        {"old_memory_id": "$austin", "new_memory_id": "$boise"}),
    Mistake("store_memory", {"memory": "User likes tea"}, BAD, "memory", "unknown key",
        "Did you mean 'content'?", {"content": "User likes tea"}),
    Mistake("query_nodes", {"type": "Person"}, BAD, "type", "unknown key",
        "Did you mean 'entityType'?", {"entityType": "Person"}),
    Mistake("update_observation",
        {"entityName": "john-doe", "oldContent": "Lives in Paris", "newContent": "Lives in Rome"},
        BAD, "oldContent", "unknown key", "Did you mean 'observation'?",
        {"entityName": "john-doe", "observation": "Lives in Paris", "newContent": "Lives in Rome"}),
    Mistake("update_observation",
        {"entityName": "john-doe", "observation": "Lives in Paris", "newObservation": "Lives in Rome"},
        BAD, "newObservation", "unknown key", "Did you mean 'newContent'?",
        {"entityName": "john-doe", "observation": "Lives in Paris", "newContent": "Lives in Rome"}),
    Mistake("supersede_memory", {"id": "$austin", "new_memory_id": "$boise"}, BAD, "id", "unknown key",
        "Did you mean 'old_memory_id'?", {"old_memory_id": "$austin", "new_memory_id": "$boise"}),
    Mistake("forget_memory", {"memoryId": "$austin"}, BAD, "memoryId", "unknown key",
        "Did you mean 'id'?", {"id": "$austin"}),
    Mistake("switch_project", {"projectName": "default"}, BAD, "projectName", "unknown key",
        "Did you mean 'name'?", {"name": "default"}),
    Mistake("search_memories", {"query": "tea", "sessionId": "planning-2026"}, BAD, "sessionId",
        "unknown key", "Did you mean 'threadId'?", {"query": "tea"}),
    Mistake("merge_entities", {"names": ["techcorp"], "target": "john-doe"}, BAD, "target", "unknown key",
        "Did you mean 'into'?", {"names": ["techcorp"], "into": "john-doe"}),
    Mistake("save_memory", ann(observations=ANN["observations"], observation="x"), BAD,
        "entities[0].observation", "unknown key", "Did you mean 'observations'?", ann()),
]

MISSING = [
    Mistake("create_entities", {}, BAD, "entities", "required, but missing",
        'Add "entities": [{"name":"john-doe","entityType":"person"}].', entity()),
    Mistake("create_entities", {"entities": [{"name": "jon"}]}, BAD, "entities[0].entityType",
        "required, but missing", 'Add "entityType": "person".', entity()),
    Mistake("create_relations", {"relations": [without("to", EDGE)]}, BAD, "relations[0].to",
        "required, but missing", 'Add "to": "techcorp".', edge()),
    Mistake("save_memory", {"entities": [ANN, ACME]}, BAD, "threadId", "required, but missing",
        'Add "threadId": "planning-2026".', ann()),
    Mistake("save_memory", saved(without("relations", ANN), ACME), BAD, "entities[0].relations",
        "required, but missing",
        'Add "relations": [{"targetEntity":"Acme","relationType":"works at"}].', ann()),
    Mistake("store_memory", {}, BAD, "content", "required, but missing",
        'Add "content": "User moved to Austin".', {"content": "User likes tea"}),
    Mistake("memory_create", without("confidence", RECORD), BAD, "confidence",
        "required, but missing", 'Add "confidence": 0.9.', RECORD),
    Mistake("supersede_memory", {"old_memory_id": "$austin"}, BAD, "new_memory_id",
        "required, but missing", 'Add "new_memory_id": "mem_',
        {"old_memory_id": "$austin", "new_memory_id": "$boise"}),
    Mistake("search_memories", {"query": ""}, BAD, "query", "too short (0 characters). Min 1.",
        'For example: "where does the user live".', {"query": "where does the user live"}),
    Mistake("create_entities", entity(name=""), BAD, "entities[0].name",
        "too short (0 characters). Min 1.", 'For example: "john-doe".', entity()),
]

TYPES = [
    Mistake("create_entities", {"entities": JON}, BAD, "entities",
        "expected a list of objects, got an object", "Pass a list: [{…}]", entity()),
    Mistake("create_entities", {"entities": JSON_TEXT[:-1]}, BAD, "entities",
        "expected a list of objects, got the string", "Pass a list of objects, for example", entity()),
    Mistake("create_entities", {"entities": ["jon"]}, BAD, "entities[0]",
        'expected an object, got the string "jon"',
        'Pass an object, for example {"name":"john-doe","entityType":"person"}.', entity()),
    Mistake("create_entities", entity(observations="Likes tea"), BAD, "entities[0].observations",
        "expected a list of strings, got the string", 'Pass a list: ["Likes tea"]',
        entity(observations=["Likes tea"])),
    Mistake("create_entities", entity(observations=[{"content": "Likes tea"}]), BAD,
        "entities[0].observations[0]", "expected a string, got an object",
        'Pass what is in it, by itself: "Likes tea"', entity(observations=["Likes tea"])),
    Mistake("create_entities", entity(name=None), BAD, "entities[0].name",
        "expected a string, got null", 'Pass a string, for example "john-doe".', entity()),
    Mistake("create_entities", entity(name=7), BAD, "entities[0].name",
        "expected a string, got the number 7", 'Pass it in quotes: "7"', entity(name="7")),
    Mistake("open_nodes", {"names": "john-doe"}, BAD, "names",
        "expected a list of strings, got the string", 'Pass a list: ["john-doe"]',
        {"names": ["john-doe"]}),
    Mistake("search_nodes", {"query": "tea", "limit": "five"}, BAD, "limit",
        'expected an integer, got the string "five"', "Pass an integer from 1 to",
        {"query": "tea", "limit": 5}),
    Mistake("list_recent_memories", {"limit": "all"}, BAD, "limit",
        'expected an integer, got the string "all"', "Pass an integer from 1 to 50",
        {"limit": 50}),
    Mistake("store_memory", {"content": "User likes tea", "confidence": "high"}, BAD, "confidence",
        'expected a number, got the string "high"', "Pass a number from 0 to 1, for example 0.9.",
        {"content": "User likes tea", "confidence": 0.9}),
    Mistake("create_relations", edge(to=["techcorp"]), BAD, "relations[0].to",
        "expected a string, got a list of 1", 'Pass what is in it, by itself: "techcorp"', edge()),
    Mistake("create_relations", {"relations": [["john-doe", "works_for", "techcorp"]]}, BAD,
        "relations[0]", "expected an object, got a list of 3",
        '{"from":"john-doe","to":"techcorp","relationType":"works_for"}', edge()),
    Mistake("save_memory", ann(relations=["Acme"]), BAD, "entities[0].relations[0]",
        'expected an object, got the string "Acme"',
        '{"targetEntity":"Acme","relationType":"works at"}', ann()),
    Mistake("memory_create", RECORD | {"tags": "project:shop"}, BAD, "tags",
        "expected a list of strings, got the string", 'Pass a list: ["project:shop"]',
        RECORD | {"tags": ["project:shop"]}),
    Mistake("memory_create", RECORD | {"tags": "locking, Project: Shop"}, BAD, "tags",
        "expected a list of strings, got the string", 'Pass a list: ["locking","project:-shop"]',
        RECORD | {"tags": ["locking", "project:-shop"]}),
    Mistake("memory_search", {"query": "tea", "tags": "größe"}, BAD, "tags",
        "expected a list of strings, got the string", 'Pass a list: ["project:shop"]',
        {"query": "tea", "tags": ["project:shop"]}),
    Mistake("memory_create", RECORD | {"content": None}, BAD, "content",
        "expected an object or a string, got null", '{"summary":"Adopt blue/green"}', RECORD),
    Mistake("read_graph", {"asOf": 1.5}, BAD, "asOf",
        "expected a string or an integer, got the number 1.5", "Pass a whole number: 1 or 2.",
        {"asOf": 1}),
]

VALUES = [
    Mistake("create_entities", entity() | {"ifExists": "overwrite"}, BAD, "ifExists",
        'the string "overwrite" is not one of', 'Pass "error", "merge", "replace" or "skip".',
        entity() | {"ifExists": "replace"}),
    Mistake("create_entities", entity() | {"ifExists": "Merge"}, BAD, "ifExists",
        'the string "Merge" is not one of', 'Did you mean "merge"?',
        entity() | {"ifExists": "merge"}),
    Mistake("store_memory", {"content": "User likes tea", "source": "user"}, BAD, "source",
        'the string "user" is not one of', 'Pass "explicit" or "extracted".',
        {"content": "User likes tea", "source": "explicit"}),
    Mistake("store_memory", {"content": "User likes tea", "confidence": 95}, BAD, "confidence",
        "95 is out of range", "Pass a number from 0 to 1.",
        {"content": "User likes tea", "confidence": 0.95}),
    Mistake("search_nodes", {"query": "tea", "limit": 5000}, BAD, "limit", "5000 is out of range",
        "Pass an integer from 1 to 1000.", {"query": "tea", "limit": 1000}),
    Mistake("search_memories", {"query": "tea", "limit": 100}, BAD, "limit", "100 is out of range",
        "Pass an integer from 1 to 20.", {"query": "tea", "limit": 20}),
    Mistake("memory_search", {"query": "tea", "limit": 500}, FULL, "limit",
        "limit is 500. Max 100.", "Ask for less", {"query": "tea", "limit": 100}),
    Mistake("memory_create", RECORD | {"tags": ["Project Shop"]}, BAD, "tags[0]",
        "does not match ^[a-z0-9:_-]{1,100}$", 'Pass "project-shop".',
        RECORD | {"tags": ["project-shop"]}),
    Mistake("memory_create", RECORD | {"tags": ["größe"]}, BAD, "tags[0]", "does not match",
        'For example: "project:shop".', RECORD | {"tags": ["groesse"]}),
    Mistake("memory_create", RECORD | {"tags": [f"t{at}" for at in range(21)]}, FULL, "tags",
        "Too many tags (21). Max 20.", "Keep the tags that you will search by.",
        RECORD | {"tags": [f"t{at}" for at in range(20)]}),
    Mistake("memory_create", RECORD | {"content": {"text": "x" * 10_000}}, FULL, "content",
        "content is too long (10011 characters). Max 10000.", "Save a summary",
        RECORD | {"content": {"text": "x" * 9_989}}),
    Mistake("store_memory", {"content": "x" * 10_001}, FULL, "content",
        "too long (10001 characters). Max 10000.", "Shorten it, or split it up.",
        {"content": "x" * 10_000}),
    Mistake("search_nodes", {"query": "tea", "cursor": "page-2"}, BAD, "cursor",
        "not a cursor that an answer of this tool gave out", "`nextCursor` of the answer before",
        {"query": "tea"}),
    Mistake("read_graph", {"asOf": "yesterday"}, BAD, "asOf", "'yesterday' is not a time",
        "Pass a log position, as 12, or a time, as 2026-11-20T10:02:11Z or 2026-11-20.",
        {"asOf": "2026-11-20"}),
    Mistake("create_entities", {"entities": [{"name": "x", "entityType": "t",
        "observations": [{"content": "Likes tea"}]}]}, BAD, "entities[0].observations[0]",
        "expected a string, got an object with 1 key", 'Pass what is in it, by itself: "Likes tea"',
        {"entities": [{"name": "x", "entityType": "t", "observations": ["Likes tea"]}]}),
    Mistake("read_graph", {"asOf": "2999-01-01"}, BAD, "asOf", "2999-01-01 lies in the future",
        "Leave asOf out to ask for now.", {}),
    Mistake("get_history", {"since": "2999-01-01"}, BAD, "since", "2999-01-01 lies in the future",
        "Pass a moment that has passed.", {}),
    Mistake("query_nodes", {"createdAfter": "last week"}, BAD, "createdAfter",
        "'last week' is not a time", "2026-11-20", {"createdAfter": "2026-11-20"}),
]

SAVING = [
    Mistake("save_memory", ann(relations=[]), BAD, "entities[0].relations",
        "Entity 'Ann' must have at least 1 relation",
        "e.g., { targetEntity: 'Acme', relationType: 'relates to' }", ann()),
    Mistake("save_memory", ann(observations=[]), BAD, "entities[0].observations",
        "Entity 'Ann' must have at least 1 observation", '"observations": ["Works at Acme"]', ann()),
    Mistake("save_memory", ann(observations=[LONG]), BAD, "entities[0].observations[0]",
        "Observation too long (167 chars). Max 150.",
        "1) 'Works at Acme as a senior engineer in the platform team', 2) 'which has 12 members'",
        ann()),
    Mistake("save_memory", ann(observations=["Likes tea. Lives in Rome. Has a cat."]), BAD,
        "entities[0].observations[0]",
        "Too many sentences (3). Max 2. One fact per observation.",
        "Split into 3 observations: 1) 'Likes tea', 2) 'Lives in Rome', 3) 'Has a cat'",
        ann(observations=["Likes tea", "Lives in Rome", "Has a cat"])),
    Mistake("save_memory", ann(observations=["tea"]), BAD, "entities[0].observations[0]",
        "Observation too short (3 chars). Min 5.", "as in 'Works at Acme'", ann()),
    Mistake("save_memory", ann(relations=[{"targetEntity": "Akme", "relationType": "works at"}]),
        BAD, "entities[0].relations[0].targetEntity", "Target entity 'Akme' not found in request",
        "Did you mean 'Acme'?", ann()),
    Mistake("save_memory", saved(ANN), BAD, "entities[0].relations[0].targetEntity",
        "Target entity 'Acme' not found in request",
        "Add that entity to `entities`. targetEntity must name an entity in the same save_memory call",
        ann()),
    Mistake("save_memory", ann(entityType=""), BAD, "entities[0].entityType",
        "Entity type is empty", 'For example: "Person".', ann()),
    Mistake("save_memory", saved(), BAD, "entities", "too few items (0). Min 1.",
        'For example: [{"name":"Ann"', ann()),
    Mistake("save_memory", ann(entityType="x" * 51), BAD, "entities[0].entityType",
        "Entity type too long (51 chars). Max 50.", "Shorten it", ann()),
    Mistake("save_memory", ann(relations=[{"targetEntity": "Acme", "relationType": "x" * 51}]),
        BAD, "entities[0].relations[0].relationType", "Relation type too long (51 chars). Max 50.",
        "Shorten it", ann()),
]

NOT_THERE = [
    Mistake("add_observations", {"observations": [FACTS | {"entityName": "jon-doe"}]},
        "ENTITY_NOT_FOUND", "observations[0].entityName", "Entity with name jon-doe not found",
        "Did you mean 'john-doe'?", {"observations": [FACTS]}),
    Mistake("add_observations", {"observations": [FACTS | {"entityName": "zyx"}]},
        "ENTITY_NOT_FOUND", "observations[0].entityName", "Entity with name zyx not found",
        "Create it first with create_entities.", {"observations": [FACTS]}),
    Mistake("add_observations",
        {"observations": [FACTS | {"contents": [{"content": "x", "supersedes": "Lives in Pris"}]}]},
        "OBSERVATION_NOT_FOUND", "observations[0].contents[0].supersedes",
        "Observation 'Lives in Pris' not found on this entity", "Did you mean 'Lives in Paris'?",
        {"observations": [FACTS | {"contents": [{"content": "x", "supersedes": "Lives in Paris"}]}]}),
    Mistake("find_relation_path", {"from": "john-doe", "to": "tech-corp"}, "ENTITY_NOT_FOUND", "to",
        "Entity with name tech-corp not found", "Did you mean 'techcorp'?",
        {"from": "john-doe", "to": "techcorp"}),
    *(
        Mistake(tool, {**others, name: "zyx"}, "ENTITY_NOT_FOUND", name,
            "Entity with name zyx not found", "Look for it with search_nodes", {**others, name: "john-doe"})
        for tool, name, others in (
            ("get_history", "entityName", {}),
            ("get_observation_history", "entityName", {}),
            ("find_relation_path", "from", {"to": "techcorp"}),
            ("update_observation", "entityName", {"observation": "Lives in Paris", "newContent": "Lives in Rome"}),
            ("rename_entity", "name", {"newName": "jane-doe"}),
            ("merge_entities", "into", {"names": ["techcorp"]}),
        )
    ),
    Mistake("get_history", {"entityName": "jon-doe"}, "ENTITY_NOT_FOUND", "entityName",
        "Entity with name jon-doe not found", "Did you mean 'john-doe'?", {"entityName": "john-doe"}),
    Mistake("get_observation_history", {"entityName": "john-doe", "observationId": "obs_1"},
        "OBSERVATION_NOT_FOUND", "observationId", "Observation 'obs_1' not found on this entity",
        "Leave observationId out to see all facts", {"entityName": "john-doe"}),
    Mistake("supersede_memory", {"old_memory_id": "$austin", "new_memory_id": "mem_123"},
        "MEMORY_NOT_FOUND", "new_memory_id", "Memory with ID mem_123 not found",
        "Call search_memories or list_recent_memories to find it.",
        {"old_memory_id": "$austin", "new_memory_id": "$boise"}),
    Mistake("supersede_memory",
        {"old_memory_id": "User moved to Austin", "new_memory_id": "$boise"}, "MEMORY_NOT_FOUND",
        "old_memory_id", "Memory with ID User moved to Austin not found", "Did you mean '$austin'?",
        {"old_memory_id": "$austin", "new_memory_id": "$boise"}),
    Mistake("supersede_memory", {"old_memory_id": "$austinx", "new_memory_id": "$boise"},
        "MEMORY_NOT_FOUND", "old_memory_id", "not found", "Did you mean '$austin'?",
        {"old_memory_id": "$austin", "new_memory_id": "$boise"}),
    Mistake("create_entities", entity() | {"project": "defualt"}, "PROJECT_NOT_FOUND", "",
        "Project 'defualt' not found", "Did you mean 'default'?", entity() | {"project": "default"}),
    Mistake("search_nodes", {"query": "tea", "project": "old-app"}, "PROJECT_ARCHIVED", "",
        "Project 'old-app' is archived", 'Call restore_project with {"name": "old-app"}',
        {"query": "tea"}),
    Mistake("switch_project", {"name": "old-app"}, "PROJECT_ARCHIVED", "",
        "Project 'old-app' is archived", "or switch_project to another one.", {"name": "default"}),
]

CONFLICTS = [
    Mistake("create_entities", entity(name="john-doe") | {"ifExists": "error"}, "ENTITY_EXISTS",
        "entities[0].name", "Entity with name john-doe exists already",
        'Use add_observations to add to it, or pass "ifExists": "merge" or "replace".',
        entity(name="john-doe") | {"ifExists": "merge"}),
    Mistake("create_project", {"name": "old-app"}, "PROJECT_EXISTS", "",
        "Project 'old-app' exists already", "or choose another name", {"name": "new-app"}),
    Mistake("supersede_memory", {"old_memory_id": "$boise", "new_memory_id": "$boise"}, "CONFLICT",
        "", "Memory $boise cannot supersede itself",
        "Pass the id of the older memory and the id of the newer one.",
        {"old_memory_id": "$austin", "new_memory_id": "$boise"}),
    Mistake("supersede_memory", {"old_memory_id": "$seattle", "new_memory_id": "$boise"}, "CONFLICT",
        "", "Memory $seattle was superseded already by $austin",
        "Use its newest version instead: $austin.",
        {"old_memory_id": "$austin", "new_memory_id": "$boise"}),
    Mistake("supersede_memory", {"old_memory_id": "$austin", "new_memory_id": "$seattle"},
        "CONFLICT", "", "the other way round would close a circle",
        "Store what is true now with store_memory and supersede the others by it.",
        {"old_memory_id": "$austin", "new_memory_id": "$boise"}),
]
# fmt: on

MISTAKES = [*KEYS, *MISSING, *TYPES, *VALUES, *SAVING, *NOT_THERE, *CONFLICTS]
