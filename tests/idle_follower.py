"""In place of the follower: nothing is caught up in the background, but who is behind is noted."""

from __future__ import annotations


class Idle:
    def __init__(self, *_: object) -> None:
        self.told: list[object] = []

    def behind(self, opened: object) -> None:
        self.told.append(opened)

    def stop(self) -> None:
        return None
