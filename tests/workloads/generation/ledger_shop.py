"""Another app that includes the generation service."""

from holdfast import App
from holdfast.workloads.generation import ext

app = App(name="shop")
app.include(ext)
