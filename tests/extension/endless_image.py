"""An app whose image jobs never end by themselves: in a child process, where nothing but a kill stops them."""

import time

from holdfast import App
from holdfast.control import control

app = App(name="endless-image")
app.include(control())


@app.job(lifecycle="images", isolation="process")
def computing() -> None:
    while True:
        pass


@app.job(lifecycle="images", isolation="process")
def sleeping() -> None:
    time.sleep(600)
