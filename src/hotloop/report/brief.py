"""A brief as Markdown."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hotloop.report.html import environment


def render(brief: Mapping[str, Any]) -> str:
    """The document of ``flow.brief``, to be read by a person or given to a coding agent."""
    template = environment().overlay(autoescape=False).get_template("brief.md.j2")
    return template.render(brief=brief, cwd=brief["cwd"])
