"""One active project with what is derived from it, as long as it is open here."""

from __future__ import annotations

from collections.abc import Callable
from weakref import ref

from memlog.projects.project import Project
from projections.embeddings import Embeddings
from projections.follow import Projections
from projections.search.searcher import Searcher
from server.answering.cutting import together


class Opened:
    """It and its indexes: who has it, has them open."""

    def __init__(
        self, project: Project, embeddings: Embeddings, behind: Callable[[Opened], None]
    ) -> None:
        """`behind` is told where a search finds texts that wait to be embedded."""
        itself = ref(self)  # else it would be let go only when Python looks for circles

        def lagging() -> None:
            if (opened := itself()) is not None:
                behind(opened)

        self.project = project
        self.project_id = project.folder.name
        self.projections = Projections(project, embeddings)
        self.searcher = Searcher(self.projections, embeddings, lagging)

    def noticed(self, notice: str | None) -> str | None:
        """A notice of a search, behind what a damaged log makes of all that is found in it."""
        damage = self.project.damage
        return notice if damage is None else together(damage.message, notice)
