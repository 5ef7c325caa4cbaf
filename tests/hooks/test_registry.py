"""Whatever is patched comes back as the identical object, and nothing of ours reaches the caller."""

from __future__ import annotations

import importlib
import sys
import threading
import traceback
import types
import warnings
from pathlib import Path
from typing import Any

import pytest

from hotloop.hooks.registry import Hooks
from hotloop.hooks.wrapping import RAISED


class Base:
    def method(self, x: int) -> int:
        """Doc."""
        return x + 1

    @staticmethod
    def static(x: int) -> int:
        return x * 2

    @classmethod
    def cls(cls) -> str:
        return cls.__name__


class Child(Base):
    pass


@pytest.fixture
def failures() -> list[tuple[str, BaseException]]:
    return []


@pytest.fixture
def hooks(failures: list[tuple[str, BaseException]]) -> Any:
    made = Hooks(lambda name, error: failures.append((name, error)))
    made.owner = threading.get_ident()
    yield made
    made.undo()


def watch(hooks: Hooks, owner: Any, name: str, **options: Any) -> list[Any]:
    seen: list[Any] = []
    hooks.around(
        owner,
        name,
        "test",
        lambda args, kwargs, frame: (args[-1:], frame.f_code.co_name),
        lambda token, start, stop, result: seen.append((*token, stop >= start, result)),
        **options,
    )
    return seen


@pytest.mark.parametrize(
    ("owner", "name"), [(Base, "method"), (Base, "static"), (Base, "cls"), (Child, "method")]
)
def test_undo_restores_the_identical_objects(hooks: Hooks, owner: type, name: str) -> None:
    before = dict(vars(owner))
    watch(hooks, owner, name)
    hooks.undo()
    assert {k: id(v) for k, v in vars(owner).items()} == {k: id(v) for k, v in before.items()}


def test_a_wrapper_reports_and_returns(hooks: Hooks) -> None:
    seen = watch(hooks, Base, "method")
    assert Base().method(4) == 5
    assert seen == [((4,), "test_a_wrapper_reports_and_returns", True, 5)]
    assert (Base.method.__name__, Base.method.__doc__) == ("method", "Doc.")


def test_static_and_class_methods_stay_what_they_are(hooks: Hooks) -> None:
    seen = watch(hooks, Base, "static") + watch(hooks, Base, "cls")
    assert (Base.static(3), Base().static(3), Child.cls()) == (6, 6, "Child")
    assert isinstance(vars(Base)["static"], staticmethod)
    assert seen == [] or len(seen) == 3


def test_exceptions_of_the_call_pass_through(hooks: Hooks) -> None:
    seen = watch(hooks, Base, "method")
    with pytest.raises(TypeError):
        Base().method("x")  # type: ignore[arg-type]
    assert seen[0][-1] is RAISED


@pytest.mark.parametrize(
    "calls", [watch, lambda hooks, *at: watch(hooks, *at, unseen=True)], ids=["around", "unseen"]
)
@pytest.mark.parametrize("recorded", [True, False])
def test_a_traceback_is_what_it_is_without_a_wrapper(hooks: Hooks, calls: Any, recorded: bool) -> None:
    calls(hooks, Base, "method")
    hooks.owner = hooks.owner if recorded else 0
    with pytest.raises(TypeError) as caught:
        Base().method("x")  # type: ignore[arg-type]
    (original,) = traceback.extract_tb(caught.tb)[1:]
    assert original.line == "return x + 1"
    with pytest.raises(TypeError) as caught:
        Base().method()  # type: ignore[call-arg]
    assert len(traceback.extract_tb(caught.tb)) == 1


def test_the_traceback_of_an_error_that_is_raised_again_is_kept(hooks: Hooks) -> None:
    def raises(error: BaseException) -> None:
        raise error

    owner = types.SimpleNamespace(raises=raises)
    watch(hooks, owner, "raises")
    error = ValueError()
    for times in (1, 2):
        try:
            owner.raises(error)
        except ValueError as caught:
            assert caught.__context__ is None
            lines = [frame.name for frame in traceback.extract_tb(caught.__traceback__)]
            own = "test_the_traceback_of_an_error_that_is_raised_again_is_kept"
            assert lines == [own, "raises"] * times


def test_another_thread_is_not_observed(hooks: Hooks) -> None:
    seen = watch(hooks, Base, "method")
    thread = threading.Thread(target=Base().method, args=(1,))
    thread.start()
    thread.join()
    assert seen == []


@pytest.mark.parametrize("where", ["begin", "end"])
def test_an_error_of_ours_switches_its_observer_off(
    hooks: Hooks, failures: list[tuple[str, BaseException]], where: str
) -> None:
    def fail(*_: Any) -> None:
        raise ZeroDivisionError

    begin, end = (fail, lambda *_: None) if where == "begin" else (lambda *_: 1, fail)
    hooks.around(Base, "method", "mine", begin, end)
    assert [Base().method(i) for i in range(3)] == [1, 2, 3]
    assert [name for name, _ in failures] == ["mine"]
    assert hooks.switch("mine").off


def test_an_interrupt_between_is_not_swallowed(hooks: Hooks) -> None:
    def stop(*_: Any) -> None:
        raise SystemExit(0)

    hooks.around(Base, "method", "stop", stop, lambda *_: None)
    with pytest.raises(SystemExit):
        Base().method(1)


def test_a_patch_made_on_top_of_ours_stays(hooks: Hooks) -> None:
    original = vars(Base)["method"]
    seen = watch(hooks, Base, "method")
    ours = Base.method
    theirs = lambda self, x: ours(self, x) * 10  # noqa: E731
    Base.method = theirs  # type: ignore[method-assign]
    try:
        hooks.undo()
        assert Base.method is theirs
        assert Base().method(1) == 20
        assert seen == []
    finally:
        Base.method = original  # type: ignore[method-assign]


def test_the_same_function_in_two_places_gets_one_wrapper(hooks: Hooks) -> None:
    def function() -> int:
        return 1

    one, two = types.SimpleNamespace(function=function), types.SimpleNamespace(function=function)
    watch(hooks, one, "function", also=(two,))
    assert one.function is two.function
    hooks.undo()
    assert one.function is two.function is function


def test_warnings_of_an_unseen_wrapper_name_the_callers_line(hooks: Hooks) -> None:
    def warn() -> None:
        warnings.warn("look", stacklevel=2)

    place = types.SimpleNamespace(warn=warn)
    hooks.around(place, "warn", "test", lambda *_: 1, lambda *_: None, unseen=True)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        place.warn()
    assert caught[0].filename == __file__


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    for name in ("hl_good", "hl_bad"):
        sys.modules.pop(name, None)


def test_a_callback_runs_after_the_import_and_before_the_importer(hooks: Hooks, package: Path) -> None:
    (package / "hl_good.py").write_text("value = 1\n")
    hooks.on_import("hl_good", lambda module: setattr(module, "value", module.value + 1))
    module = importlib.import_module("hl_good")
    assert module.value == 2
    assert "exec_module" not in vars(module.__spec__.loader)
    hooks.on_import("hl_good", lambda module: setattr(module, "value", 10))
    assert module.value == 10


def test_a_failing_callback_does_not_fail_the_import(
    hooks: Hooks, package: Path, failures: list[tuple[str, BaseException]]
) -> None:
    (package / "hl_good.py").write_text("value = 1\n")
    hooks.on_import("hl_good", lambda module: module.missing)
    assert importlib.import_module("hl_good").value == 1
    assert len(failures) == 1


def test_the_traceback_of_a_failing_import_does_not_show_us(hooks: Hooks, package: Path) -> None:
    (package / "hl_bad.py").write_text("import hl_nowhere\n")
    hooks.on_import("hl_bad", lambda module: None)
    with pytest.raises(ModuleNotFoundError, match="hl_nowhere") as caught:
        import hl_bad  # type: ignore[import-not-found]  # noqa: F401
    files = [frame.filename for frame in traceback.extract_tb(caught.tb)]
    assert files == [__file__, str(package / "hl_bad.py")]
