"""A job in the same transaction as an order: both or neither. A repeated request is one order and one job."""

import sqlite3
from contextlib import closing

from holdfast import App

FILE = "shop.db"
app = App(database_url=f"sqlite:///{FILE}")


@app.job()
def ship(order: str) -> str:
    return f"shipped {order}"


def place_order(connection: sqlite3.Connection, request: str, *, in_stock: bool = True) -> str:
    """Returns the id of the job. A client that got no response can retry its request."""
    with connection:  # commits, or rolls back on an error
        connection.execute("INSERT INTO orders (request) VALUES (?) ON CONFLICT DO NOTHING", [request])
        job = ship.options(connection=connection, idempotency_key=request).enqueue_sync(order=request)
        if not in_stock:
            raise LookupError(f"{request}: out of stock")
    return job.id


def main() -> None:
    app.run_sync(app.engine)  # migrates the database before the first transaction
    with closing(sqlite3.connect(FILE)) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS orders (request text PRIMARY KEY)")
        first, again = place_order(connection, "order-1"), place_order(connection, "order-1")
        try:
            place_order(connection, "order-2", in_stock=False)
        except LookupError as error:
            print(error)
        print("orders:", [request for (request,) in connection.execute("SELECT request FROM orders")])
    print("the same job:", first == again)
    print(app.job_handle(first).result_sync(timeout=60))


if __name__ == "__main__":
    main()
