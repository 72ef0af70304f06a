"""One record saved a thousand times by four server processes at once."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from memlog.projects.store import Store
from tests.served import served

PROCESSES = 4
ROUNDS, IN_FLIGHT = 25, 10
TAGS_EACH = 5
CONFIDENCE_MAX = 0.97


def test_a_record_saved_a_thousand_times_by_four_processes_is_one_record(tmp_path: Path) -> None:
    """Tags are united and the highest confidence stays, whoever sent it and when."""
    answers = []
    with ExitStack() as stack:
        servers = [stack.enter_context(served(tmp_path / "data")) for _ in range(PROCESSES)]
        for turn in range(ROUNDS):
            for number, server in enumerate(servers):
                for call in range(IN_FLIGHT):
                    highest = (turn, number, call) == (ROUNDS // 2, 2, 3)
                    server.send_call(
                        "memory_create",
                        type="note",
                        content={"b": [1, {"y": 2, "x": 1}], "a": "tea"}
                        if number % 2
                        else {"a": "tea", "b": [1, {"x": 1, "y": 2}]},
                        source="test://processes",
                        tags=[f"from:{number}-{call % TAGS_EACH}"],
                        confidence=CONFIDENCE_MAX if highest else call / IN_FLIGHT,
                    )
            answers += [server.read() for server in servers for _ in range(IN_FLIGHT)]
        listed = [server("memory_list")["results"] for server in servers]

    created = [each["result"]["structuredContent"] for each in answers if each is not None]
    assert len(created) == PROCESSES * ROUNDS * IN_FLIGHT == 1_000
    assert sum(each["created"] for each in created) == 1
    (record,) = listed[0]
    assert listed == [[record]] * PROCESSES
    assert {each["id"] for each in created} == {record["id"]}
    assert set(record["tags"]) == {
        f"from:{number}-{tag}" for number in range(PROCESSES) for tag in range(TAGS_EACH)
    }
    assert len(record["tags"]) == PROCESSES * TAGS_EACH

    store = Store(tmp_path / "data")
    try:
        project = store.project("default")
        with project.read() as state:
            (row,) = state.memories()
        assert row.confidence == CONFIDENCE_MAX
        assert project.is_as_rebuilt()
    finally:
        store.close()
