"""One job becomes many: it hands in a job for each photo, then sleeps until they have ended, and sums up."""

from collections import Counter

from holdfast import App, Context, Permanent, Snooze

app = App()


@app.job()
async def album(ctx: Context, photos: list[str]) -> dict[str, int] | Snooze:
    children = await ctx.step("hand in", hand_in, ctx.job_id, photos)
    states = Counter([await app.job_handle(child).status() for child in children])
    waiting = states["PENDING"] + states["RUNNING"]
    await ctx.progress(100 * (len(children) - waiting) / len(children))
    if waiting:
        return ctx.snooze(0.2)  # given back: it takes no slot from its children, and no attempt is spent
    return dict(states)


async def hand_in(parent: str, photos: list[str]) -> list[str]:
    """The keys make a repeat harmless: were this cut off half-way, the next attempt would find these jobs."""
    return [(await shrink.options(idempotency_key=f"{parent}/{photo}").enqueue(photo)).id for photo in photos]


@app.job(isolation="process", memory_mb=512, timeout=60)
def shrink(photo: str) -> str:
    if photo.endswith(".txt"):
        raise Permanent("E_NO_PHOTO", photo)
    return f"small-{photo}"


if __name__ == "__main__":
    job = album.enqueue_sync(["a.jpg", "b.jpg", "c.jpg", "notes.txt"])
    print(sorted(job.result_sync(timeout=60).items()))
