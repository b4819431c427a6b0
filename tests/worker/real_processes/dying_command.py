"""The `holdfast` command; it exits with the test that started it."""

import runpy

from holdfast.worker.processes.parent_death import die_with_parent

die_with_parent()
runpy.run_module("holdfast.cli", run_name="__main__")
