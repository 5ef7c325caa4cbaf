"""What is looked at of a class or a function, as text."""

from __future__ import annotations

from textwrap import dedent

from hotloop.source.loops import definitions

TEXT = dedent(
    """
    class Signals:
        def __init__(self, seed):
            self.x = np.random.default_rng(seed).normal(size=9)

        def __getitem__(self, i):
            return self.x[i]

    def other():
        pass
    """
)


def test_what_a_class_does_when_it_is_made_is_no_part_of_its_samples() -> None:
    (text,) = definitions(TEXT, {"Signals"})
    assert "default_rng" not in text and "self.x[i]" in text
    assert definitions(TEXT, {"other"}) == ["def other():\n    pass"]
