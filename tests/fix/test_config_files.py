"""One value of a configuration file changes, and nothing else does, or the reason is said."""

from __future__ import annotations

from pathlib import Path

import pytest

from hotloop.fix.config_files import change, in_command
from hotloop.fix.scene import Cannot
from hotloop.source.text import decoded, edited


@pytest.mark.parametrize(
    ("name", "text", "key", "value", "after"),
    [
        ("a.yaml", "a: {b: 1, c: 1}  # x\n", "a.c", 8, "a: {b: 1, c: 8}  # x\n"),
        ("a.yaml", "a:\r\n  b:   1 # x\r\n", "a.b", 8, "a:\r\n  b:   8 # x\r\n"),
        ("a.yaml", "größe: ü\nworkers: '1'\n", "workers", 8, "größe: ü\nworkers: '8'\n"),
        ("a.yaml", "pin: off\n", "pin", True, "pin: on\n"),
        ("a.yaml", "pin: False\n", "pin", True, "pin: True\n"),
        ("a.yaml", "x: !include b.yaml\nworkers: 1", "workers", 8, "x: !include b.yaml\nworkers: 8"),
        ("a.yaml", "prefetch: 4\n", "prefetch", None, "prefetch: null\n"),
        ("a.json", '{"a": [1, {"b": 1}],\n\t"b": 1}', "b", 8, '{"a": [1, {"b": 1}],\n\t"b": 8}'),
        ("a.json", '{"pin": false}\n', "pin", True, '{"pin": true}\n'),
        ("a.toml", "[a]\nb = 1\n[c]\nb = 1 # x\n", "c.b", 8, "[a]\nb = 1\n[c]\nb = 8 # x\n"),
        ("a.toml", "a.b = 1\r\n", "a.b", 8, "a.b = 8\r\n"),
        ("a.toml", "a = { b = 1, c = 1 }\n", "a.c", 8, "a = { b = 1, c = 8 }\n"),
        ("a.toml", '["a"]\n"b" = 1\n', "a.b", 8, '["a"]\n"b" = 8\n'),
        ("a.toml", "x = [\n 'b = 1',\n]\nb = 1\n", "b", 8, "x = [\n 'b = 1',\n]\nb = 8\n"),
    ],
)
def test_one_value_changes(name: str, text: str, key: str, value: object, after: str) -> None:
    found = decoded(Path(name), text.encode())
    assert edited(text, [change(found, key, value)]) == after


@pytest.mark.parametrize(
    ("name", "text", "key", "why"),
    [
        ("a.yaml", "x: &x {b: 1}\na: *x\n", "a.b", "x.b would change with it"),
        ("a.yaml", "x: &x {b: 1}\na:\n  <<: *x\n", "a.b", "x.b would change with it"),
        ("a.yaml", "b: &x 1\nc: *x\n", "b", "not written plainly"),
        ("a.yaml", "b: 1\n---\nb: 1\n", "b", "a.yaml"),
        ("a.yaml", "b: ${oc.env:N}\n", "b.c", "not written plainly"),
        ("a.json", "{'b': // no\n 1}", "b", "a.json"),
        ("a.toml", "[[a]]\nb = 1\n", "a.b", "not written plainly"),
        ("a.toml", "b = \n", "b", "a.toml"),
    ],
)
def test_what_cannot_be_changed_alone_is_refused(name: str, text: str, key: str, why: str) -> None:
    with pytest.raises(Cannot, match=why):
        change(decoded(Path(name), text.encode()), key, 8)


def test_toml_has_no_null() -> None:
    with pytest.raises(Cannot, match="would have to go: TOML has no null"):
        change(decoded(Path("a.toml"), b"[a]\nb = 1\n"), "a.b", None)


@pytest.mark.parametrize(
    ("script", "after"),
    [
        ("python t.py --workers 2 --lr 1\n", "python t.py --workers 8 --lr 1\n"),
        ("python t.py --workers=2\n", "python t.py --workers=8\n"),
        ("python t.py \\\n  --workers \\\n  2\n", "python t.py \\\n  --workers \\\n  8\n"),
        ("t --workers-per-node 2 --workers '2'\n", "t --workers-per-node 2 --workers '8'\n"),
    ],
)  # fmt: skip
def test_an_option_of_a_shell_script(script: str, after: str) -> None:
    text = decoded(Path("go.sh"), script.encode())
    start, end = in_command(text, "--workers", "2")
    assert script[:start] + "8" + script[end:] == after


@pytest.mark.parametrize("script", ["t --workers ${N:-2}\n", "t --workers 2\nt --workers 2\n", "x\n"])
def test_an_option_that_is_not_written_plainly(script: str) -> None:
    with pytest.raises(Cannot, match="not written plainly"):
        in_command(decoded(Path("go.sh"), script.encode()), "--workers", "2")
