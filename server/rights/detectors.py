"""The detectors of detect-secrets that know one service's credentials by sight, as those are today.

Left out are those that go by entropy or by words such as "password", which take prose for secrets; those of assignments
to one vendor's variables, and those of patterns that take time in the square of a text; and those of which `shapes` has
the newer form.
"""

from __future__ import annotations

import logging
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from server.rights.shapes import stands_for_one

if TYPE_CHECKING:
    from detect_secrets.plugins.base import RegexBasedDetector


class Detector(NamedTuple):
    """One of them, as a shape."""

    detector: RegexBasedDetector

    @property
    def kind(self) -> str:
        return str(self.detector.secret_type)

    def may_be_in(self, small: str) -> bool:
        return True

    def found_in(self, text: str) -> bool:
        """Whether a part of `text` is one and more than a placeholder."""
        matches = (each for shape in self.detector.denylist for each in shape.finditer(text))
        return any(not stands_for_one(each[0]) for each in matches)


@cache
def detectors() -> tuple[Detector, ...]:
    """The first call imports them, some 60 ms: after the first answer, or with the first write if that comes sooner."""
    from detect_secrets.plugins.discord import DiscordBotTokenDetector
    from detect_secrets.plugins.github_token import GitHubTokenDetector
    from detect_secrets.plugins.gitlab_token import GitLabTokenDetector
    from detect_secrets.plugins.mailchimp import MailchimpDetector
    from detect_secrets.plugins.pypi_token import PypiTokenDetector
    from detect_secrets.plugins.sendgrid import SendGridDetector
    from detect_secrets.plugins.slack import SlackDetector
    from detect_secrets.plugins.telegram_token import TelegramBotTokenDetector
    from detect_secrets.plugins.twilio import TwilioKeyDetector

    logging.captureWarnings(False)  # which its own log turns on for the whole process

    return (
        Detector(DiscordBotTokenDetector()),
        Detector(GitHubTokenDetector()),
        Detector(GitLabTokenDetector()),
        Detector(MailchimpDetector()),
        Detector(PypiTokenDetector()),
        Detector(SendGridDetector()),
        Detector(SlackDetector()),
        Detector(TelegramBotTokenDetector()),
        Detector(TwilioKeyDetector()),
    )
