"""Completion in real shells: bash always, zsh and fish where they are installed."""

from __future__ import annotations

import os
import pty
import shutil
import subprocess
from pathlib import Path

import pytest

from hotloop.cli import completion
from hotloop.cli.main import VERBS, main


@pytest.fixture(scope="module")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("completion")
    for shell in ("bash", "zsh", "fish"):
        (folder / shell).write_text(completion.render(shell))
    return folder


def test_a_tab_in_a_real_bash_gives_words_and_files(scripts: Path, tmp_path: Path) -> None:
    for folder in ("docs", "numbers", "hotloop-runs/one"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "my data.yaml").touch()
    typed = {
        "what": "what-if ", "run --until": "run --until-sure ", "tune --allow n": "tune --allow numeric ",
        "docs tu": "docs tune ", "docs input/slow-sa": "docs input/slow-sample ",
        "run --apply num-w": "run --apply num-workers ", "run --apply docs": "run --apply docs",
        "run --export js": "run --export jsonl= ",
        "run --export jsonl=my": r"run --export jsonl=my\ data.yaml ", "run --steps nu": "run --steps nu",
        "audit --config my": r"audit --config my\ data.yaml ", "run -- numb": "run -- numbers/",
        "run -- python --st": "run -- python --st", "report hotloop-runs/o": "report hotloop-runs/one/",
    }  # fmt: skip
    line = f"bind 'set bell-style none'; source {scripts / 'bash'}; hotloop() {{ :; }}\n"
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(tmp_path)
        os.execvpe(
            "bash", ["bash", "--norc", "--noprofile", "-i"], {**os.environ, "PS1": "READY ", "TERM": "dumb"}
        )
    until(terminal, "READY ")
    os.write(terminal, line.encode())
    until(terminal, "READY ")
    for before, after in typed.items():
        os.write(terminal, f"hotloop {before}\t#\n".encode())
        seen = until(terminal, "READY ")
        assert seen.startswith(f"hotloop {after}#\r\n"), seen
    os.write(terminal, b"exit\n")
    os.waitpid(pid, 0)


def until(terminal: int, end: str) -> str:
    seen = ""
    while not seen.endswith(end):
        seen += os.read(terminal, 4096).decode()
    return seen


@pytest.mark.skipif(shutil.which("zsh") is None, reason="no zsh here")
def test_zsh_reads_its_script(scripts: Path) -> None:
    defined = f'autoload -U compinit; compinit -u -D; eval "$(<{scripts / "zsh"})"; print $_comps[hotloop]'
    done = subprocess.run(["zsh", "-f", "-c", defined], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("_shtab_hotloop\n", "")


@pytest.mark.skipif(shutil.which("fish") is None, reason="no fish here")
def test_fish_completes_values(scripts: Path) -> None:
    ask = f"source {scripts / 'fish'}; complete -C 'hotloop tune --allow n'; complete -C 'hotloop wha'"
    done = subprocess.run(["fish", "--no-config", "-c", ask], capture_output=True, text=True, check=True)
    assert [line.split("\t")[0] for line in done.stdout.splitlines()] == ["numeric", "what-if"]


def test_zsh_gets_its_line_first_and_tcsh_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "zsh"]) == 0
    told = capsys.readouterr().out
    assert told.startswith("#compdef hotloop\n# Put into ~/.zshrc") and "--lang" in told
    assert all(f"{verb}:" in told for verb in VERBS)
    with pytest.raises(SystemExit) as ended:
        main(["completion", "tcsh"])
    assert ended.value.code == 2 and "tcsh" in capsys.readouterr().err
