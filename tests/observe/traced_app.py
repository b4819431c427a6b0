"""Jobs of every kind, each of which makes a span of its own."""

from opentelemetry import trace

from holdfast import App, Context, Retry, SyncContext

app = App()
tracer = trace.get_tracer("the app")

SECRET = "canary-4711-never-told"


@app.job()
async def mail(to: str) -> str:
    with tracer.start_as_current_span("inside mail"):
        await print_label.enqueue(to=to)
    return to


@app.job(queue="labels")
def print_label(ctx: SyncContext, to: str) -> None:
    with tracer.start_as_current_span("inside print_label"):
        pass


@app.job(backoff_base_seconds=0)
async def flaky(ctx: Context, secret: str = SECRET) -> None:
    if ctx.attempt == 1:
        raise Retry("E_BUSY", f"come back later, {secret}", after=0)


@app.job(isolation="process")
def apart(secret: str = SECRET) -> None:
    with tracer.start_as_current_span("inside apart"):
        pass
