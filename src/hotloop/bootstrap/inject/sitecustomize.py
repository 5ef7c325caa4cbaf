"""Runs in every Python process of an observed command: waits for torch, and otherwise stays out of the way.
Where what is computed is recorded, it seeds what the script may leave unseeded.

Does nothing where HOTLOOP_RAW is unset. The user's own sitecustomize runs as it would without us.
"""

import sys
from os import environ
from time import perf_counter_ns

_START_NS = perf_counter_ns()


class _Finder:
    """Wraps the loader of a package so that something is called right after its ``__init__.py`` ran: with
    torch hotloop starts.

    It stays until then: who asks whether there is a torch (``importlib.util.find_spec``) loads none yet.
    """

    def __init__(self, name, then):
        self.name, self.then = name, then
        self.searches = False  # the finders it asks may ask all others in turn

    def find_spec(self, name, path=None, target=None):
        if name != self.name or self.searches:
            return None
        self.searches = True
        try:
            spec = self._ask_others(name, path, target)
        finally:
            self.searches = False
        if spec is None:
            self.missed()
        elif "exec_module" not in getattr(spec.loader, "__dict__", ()):  # not one handed out before
            _attach(spec.loader, self)
        return spec

    def missed(self, error=None):
        """Leave word for the report: this interpreter looked for torch and has none that can be imported."""
        if self.name == "torch":
            _leave("without-torch", sys.executable)
            if error is not None and not isinstance(error, ImportError):  # that is for want of a library
                words = " ".join(str(error).split())[:200]
                _leave("torch-failed", f"import torch raised {type(error).__name__}: {words}")

    def _ask_others(self, name, path, target):
        for finder in list(sys.meta_path):
            find = getattr(finder, "find_spec", None) if finder is not self else None
            spec = find(name, path, target) if find is not None else None
            if spec is not None:
                return spec
        return None


def _attach(loader, finder):
    execute = getattr(loader, "exec_module", None)
    if execute is None:
        return

    def run(module):
        vars(loader).pop("exec_module", None)  # torch.__spec__.loader is what it always was
        if finder in sys.meta_path:
            sys.meta_path.remove(finder)
        start = perf_counter_ns()
        try:
            execute(module)
        except BaseException as error:
            finder.missed(error)
            raise
        finder.then(module, start)

    # The interpreter itself leaves frames of this name and file out of the traceback of a failing import.
    hidden = {"co_filename": "<frozen importlib._bootstrap>", "co_name": "_call_with_frames_removed"}
    run.__code__ = run.__code__.replace(**hidden)
    try:
        loader.exec_module = run
    except AttributeError:
        pass


def _leave(name, words):
    try:
        with open(environ["HOTLOOP_RAW"] + "/" + name, "a", encoding="utf-8") as file:
            file.write(f"{words}\n")
    except Exception:  # a full disk, an environment that was cleared: the script's own error is what counts
        pass


def _is_taken():
    """Whether the script has a package of its own that is called as ours."""
    from importlib.machinery import PathFinder
    from os.path import dirname, isdir

    module = sys.modules.get("hotloop")
    spec = PathFinder.find_spec("hotloop") if module is None else module.__spec__
    if spec is None:
        return False
    folders = list(spec.submodule_search_locations or ()) or [dirname(spec.origin or "")]
    return not any(isdir(folder + "/bootstrap") for folder in folders)


def _start_hotloop(torch, import_start_ns):
    try:
        if _is_taken():
            _leave("torch-failed", "nothing was observed: the script has a package called hotloop of its own")
            return
        if "hotloop" not in sys.modules:
            from importlib.util import module_from_spec, spec_from_file_location

            # Loaded from its own folder: sys.path stays what the script expects.
            spec = spec_from_file_location("hotloop", environ["HOTLOOP_SRC"] + "/hotloop/__init__.py")
            module = module_from_spec(spec)
            sys.modules["hotloop"] = module
            spec.loader.exec_module(module)
        from hotloop.bootstrap.start import torch_imported

        torch_imported(torch, _START_NS, import_start_ns)
    except Exception as error:  # whatever is wrong with hotloop, the script goes on
        print(f"hotloop: not observing this process: {type(error).__name__}: {error}", file=sys.__stderr__)


def _put_patch_in_force():
    try:
        import hotloop_patch  # noqa: F401 - beside this file
    except Exception as error:
        words = f"{type(error).__name__}: {error}"
        print(f"hotloop: the patch is not in force in this process: {words}", file=sys.__stderr__)


def _run_users_own():
    """Find the sitecustomize that ours hides, and run it under its own name."""
    from importlib.machinery import PathFinder
    from importlib.util import module_from_spec
    from os.path import abspath, dirname

    own = dirname(abspath(__file__))
    sys.path[:] = [path for path in sys.path if path != own]  # what the script sees is what it always was
    spec = PathFinder.find_spec("sitecustomize", sys.path)
    if spec is None or spec.loader is None:
        return
    module = module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


def _seed():
    """Seeds what has none of its own: the script's, set later, takes its place. Torch's comes with torch.

    Not in processes that a script spawns: they would all draw the same.
    """
    import random

    ranks = (environ.get(name, "") for name in ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK"))
    rank = next((int(text) for text in ranks if text.isdecimal()), 0)
    seed = (int(environ["HOTLOOP_SEED"]) << 16) + rank
    random.seed(seed)
    if "numpy" in sys.modules:
        _seed_numpy(sys.modules["numpy"], seed)
    else:
        sys.meta_path.insert(0, _Finder("numpy", lambda numpy, start: _seed_numpy(numpy, seed)))


def _seed_numpy(numpy, seed):
    try:
        numpy.random.seed(seed)
    except AttributeError:  # the script has something else of this name
        pass


if environ.get("HOTLOOP_RAW") and "torch" not in sys.modules:
    sys.meta_path.insert(0, _Finder("torch", _start_hotloop))
    if environ.get("HOTLOOP_EVIDENCE", "0") != "0" and "--multiprocessing-fork" not in sys.orig_argv:
        try:
            _seed()
        except Exception as error:  # a module of the script's is called random
            print(f"hotloop: no seed was set: {type(error).__name__}: {error}", file=sys.__stderr__)
if environ.get("HOTLOOP_PATCH"):
    _put_patch_in_force()
_run_users_own()
