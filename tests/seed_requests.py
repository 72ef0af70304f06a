"""The requests of `test_seeds`, word for word as the clients of those servers send them."""

from __future__ import annotations

from typing import Any

ALICE = {
    "name": "alice-smith",
    "entityType": "person",
    "observations": [
        "Senior data scientist",
        "PhD in Machine Learning from Stanford",
        "Expert in NLP and computer vision",
        "Published 15+ research papers",
    ],
}
LAB = {
    "name": "ai-research-lab",
    "entityType": "organization",
    "observations": [
        "Leading AI research institution",
        "Founded in 2020",
        "Focus on ethical AI development",
    ],
}
WORKS_FOR = {"from": "alice-smith", "to": "ai-research-lab", "relationType": "works_for"}
WITH_JOHN = {"from": "alice-smith", "to": "john-doe", "relationType": "collaborates_with"}

PORTFOLIO: dict[str, Any] = {
    "entities": [
        {
            "name": "Andrii",
            "entityType": "Person",
            "observations": ["Works at Google", "Author of MCP Memory Server", "Uses Windows"],
            "relations": [
                {"targetEntity": "Python Scripts", "relationType": "created"},
                {"targetEntity": "Portfolio", "relationType": "updates for"},
            ],
            "importance": 1.0,
        },
        {
            "name": "Python Scripts",
            "entityType": "CodeArtifact",
            "observations": [
                "update_portfolio.py is main script",
                "Uses python-docx 1.2.0",
                "Uses lxml 6.0.2",
            ],
            "relations": [
                {"targetEntity": "Andrii", "relationType": "created by"},
                {"targetEntity": "Portfolio", "relationType": "modifies"},
            ],
            "importance": 0.6,
        },
        {
            "name": "Portfolio",
            "entityType": "Document",
            "observations": [
                "Final file: shevchenko-viktoria-yevgenivna-v4.docx",
                "Contains 2 main tables",
                "Total 21 records",
            ],
            "relations": [
                {"targetEntity": "Python Scripts", "relationType": "modified by"},
                {"targetEntity": "Andrii", "relationType": "updated by"},
            ],
            "importance": 0.9,
        },
    ],
    "threadId": "portfolio-update-2026",
}
TOO_LONG = (
    "This is a very long observation that contains multiple facts and exceeds the maximum allowed "
    "length of 150 characters which will cause validation to fail"
)
DECISION: dict[str, Any] = {
    "type": "decision",
    "content": {
        "summary": "Adopt Blue/Green deploy for service-x",
        "rationale": ["zero-downtime", "fast rollback"],
        "owners": ["alice", "bob"],
        "next_steps": ["create runbook", "add health probes"],
    },
    "source": "chat://claude/session-2025-09-17",
    "tags": ["project:service-x", "topic:release", "status:accepted"],
    "confidence": 0.9,
}
HEALTH = {
    "type": "note",
    "content": {"text": "Use /healthz for readiness; /livez for liveness"},
    "source": "agent://pipeline/step-42",
    "tags": ["project:alpha", "topic:observability", "env:prod"],
    "confidence": 0.9,
}
BACKUP = {
    "type": "runbook",
    "content": {"title": "Restore from backup", "steps": ["stop traffic", "restore", "verify"]},
    "source": "agent://pipeline/backup",
    "tags": ["project:alpha", "topic:resilience"],
    "confidence": 0.95,
}
ROLLBACK = {
    "type": "runbook",
    "content": {"title": "Service-X Rollback v2", "steps": ["drain", "switch back", "verify"]},
    "source": "chat://claude/session-2025-09-17",
    "tags": ["project:service-x", "topic:release", "status:accepted"],
    "confidence": 0.95,
}
