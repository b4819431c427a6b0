"""A periodic job: each execution enqueues the next one under an idempotency key, so that there is only one."""

from datetime import UTC, datetime, timedelta

from holdfast import App

app = App()
EVERY = timedelta(seconds=1)
START = datetime(2026, 1, 1, tzinfo=UTC)


@app.job(max_attempts=20)
async def report(due: datetime) -> str:
    """Enqueue the next one first: the series continues even if this one fails."""
    missed = datetime.now(UTC) - EVERY  # after an outage, older ones are skipped
    await schedule(max(due, missed))
    return f"report of {due:%H:%M:%S}"


async def schedule(after: datetime) -> None:
    due = START + ((after - START) // EVERY + 1) * EVERY
    await report.options(idempotency_key=f"report of {due:%FT%T}", run_at=due).enqueue(due)


if __name__ == "__main__":
    app.run_sync(lambda: schedule(datetime.now(UTC)))
