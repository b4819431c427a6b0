"""The image service as an app of its own: `holdfast dev --app holdfast.workloads.images:app`."""

from holdfast import App
from holdfast.workloads.images.included import ext

app = App(name="images")
app.include(ext)
