"""The app of the example manifests, with a job for each way to end."""

from holdfast import App, Context, Permanent

app = App()


@app.job("SEND_EMAIL", queue="mail")
async def send_email(to: str) -> str:
    return to


@app.job("BOUNCE", queue="mail")
async def bounce() -> None:
    raise Permanent("E_BOUNCED", "the mailbox does not exist")


@app.job("FLAKY", queue="mail", backoff_base_seconds=0.05)
async def flaky(ctx: Context) -> None:
    if ctx.attempt == 1:
        raise ConnectionError("the mail server does not answer")
