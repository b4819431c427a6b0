"""The generation service as an app of its own: `holdfast dev --app holdfast.workloads.generation:app`."""

from holdfast import App
from holdfast.workloads.generation.included import ext

app = App(name="generation")
app.include(ext)
