"""An app that child processes can import: its jobs run in one."""

import os
from datetime import datetime

from holdfast import App

app = App(database_url="sqlite:////nowhere/real.db")  # what a test forgets to replace cannot be opened


@app.job()
async def delivered(number: int) -> int:
    return number


@app.job(isolation="process")
def square(number: int) -> int:
    if number < 0:
        raise ValueError("no negative numbers")
    delivered.enqueue_sync(number * number)
    return os.getpid()


@app.job(isolation="process")
def what_time_is_it() -> datetime:
    return app.clock.now()
