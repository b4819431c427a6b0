"""One job that asks for nothing."""

from holdfast import App

app = App()


@app.job()
async def nothing() -> None: ...
