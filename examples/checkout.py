"""Durable steps: a completed step is not repeated when a later one fails or the worker crashes."""

from holdfast import App, Context

app = App()
ledger: list[str] = []  # stands for external systems: what really happened there


@app.job(max_attempts=10, backoff_base_seconds=0.1)
async def checkout(ctx: Context, order: int, cents: int) -> list[str]:
    payment = await ctx.step("charge", charge, cents, key=ctx.job_id)
    parcel = await ctx.step("ship", ship, order, ctx.attempt)
    await ctx.step("thank", thank, payment, parcel)
    return ledger


async def charge(cents: int, key: str) -> str:
    """The key lets the bank recognize a retry: after a crash right here it is called once more."""
    ledger.append(f"charged {cents} cents")
    return "payment-1"


async def ship(order: int, attempt: int) -> str:
    if attempt < 3:
        ledger.append("the carrier does not answer")
        raise ConnectionError("the carrier does not answer")
    ledger.append(f"shipped order {order}")
    return "parcel-1"


def thank(payment: str, parcel: str) -> None:
    ledger.append(f"thanked for {payment}, sent {parcel}")


if __name__ == "__main__":
    for line in checkout.enqueue_sync(order=17, cents=4200).result_sync(timeout=60):
        print(line)
