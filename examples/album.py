"""Fan-out: a job enqueues a job for each photo, snoozes until they have ended, and sums up."""

from collections import Counter

from holdfast import App, Context, Permanent, Snooze

app = App()


@app.job()
async def album(ctx: Context, photos: list[str]) -> dict[str, int] | Snooze:
    children = await ctx.step("enqueue photos", enqueue_photos, ctx.job_id, photos)
    states = Counter([await app.job_handle(child).status() for child in children])
    waiting = states["PENDING"] + states["RUNNING"]
    await ctx.progress(100 * (len(children) - waiting) / len(children))
    if waiting:
        return ctx.snooze(0.2)  # released meanwhile: it occupies no slot and uses no attempt
    return dict(states)


async def enqueue_photos(parent: str, photos: list[str]) -> list[str]:
    """The idempotency keys make a retry harmless: after an interruption it finds these jobs again."""
    return [(await shrink.options(idempotency_key=f"{parent}/{photo}").enqueue(photo)).id for photo in photos]


@app.job(isolation="process", memory_mb=512, timeout=60)
def shrink(photo: str) -> str:
    if photo.endswith(".txt"):
        raise Permanent("E_NO_PHOTO", photo)
    return f"small-{photo}"


if __name__ == "__main__":
    job = album.enqueue_sync(["a.jpg", "b.jpg", "c.jpg", "notes.txt"])
    print(sorted(job.result_sync(timeout=60).items()))
