"""A script inside ``gpuprof.profile``: the two lines its quickstart asks for, without touching the script."""

import runpy
import sys

import gpuprof

sys.argv = sys.argv[1:]
with gpuprof.profile("case"):
    runpy.run_path(sys.argv[0], run_name="__main__")
