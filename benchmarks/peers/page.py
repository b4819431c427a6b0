"""docs/performance.md and its plots, from the results of a run: `python -m benchmarks.peers.page RESULTS.json`."""
from benchmarks.report import ROOT
PLACE = ROOT / "docs/performance"
def publish(path): ...
