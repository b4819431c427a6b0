"""How a table is made as narrow as the terminal."""

from rich.cells import cell_len
from rich.console import Console

from holdfast.cli.output import Styled
from holdfast.cli.table import lines
from holdfast.cli.table_layout import facts, fitted
from holdfast.cli.truncate import cut_end, cut_middle, truncated_distinct

JOB = "01985b2e-6f0a-7c31-9f5e-3d2a1b0c9e8f"


def drawn(titles: list[str], row: list[str], width: int, droppable: tuple[str, ...] = ()) -> list[str]:
    layout = fitted([[Styled(cell) for cell in row]], [Styled(title) for title in titles], width, droppable)
    return [line.plain for line in lines(layout, Console(width=width), titled=True)]


def test_a_long_text_is_shortened_in_the_middle() -> None:
    assert cut_middle("send_email", 10) == "send_email"
    assert cut_middle("send_emails", 10) == "send_…ails"
    assert cut_end("send_emails", 10) == "send_emai…"


def test_texts_that_differ_in_the_middle_are_shortened_elsewhere() -> None:
    names = [
        f"billing.invoices.generate_{each}_statement_pdf" for each in ("monthly", "yearly", "weekly_eu", "weekly_us")
    ]
    shown = truncated_distinct(names, 16)
    assert list(shown.values()) == ["bil…monthly_sta…", "bil…yearly_stat…", "bil…eu_statemen…", "bil…us_statemen…"]


def test_wide_characters_count_as_two_columns() -> None:
    assert {cell_len(each) for each in truncated_distinct(["請求書" * 9, "請求書" * 9 + "月次" * 9], 15).values()} <= {
        14,
        15,
    }


def test_a_message_without_room_is_printed_below_its_row() -> None:
    message = "connection refused: " + "pdf-renderer.internal.example.com " * 3
    assert drawn(["job", "type", "queue", "reason"], [JOB, "render" * 4, "default", message], 80) == [
        "job                 type                      queue",
        "01985b2e-6f0a-7c31  renderrenderrenderrender  default",
        "    reason: connection refused: pdf-renderer.internal.example.com",
        "    pdf-renderer.internal.example.com pdf-renderer.internal.example.com",
    ]


def test_a_message_is_wrapped_between_words() -> None:
    seen = drawn(["", "what", "finding"], ["ok", "workers", "every kind of job has a live worker that may take it"], 60)
    assert seen == [
        "    what     finding",
        "ok  workers  every kind of job has a live worker that may",
        "             take it",
    ]


def test_a_name_in_the_first_column_is_never_shortened() -> None:
    name = "billing-invoices-monthly-statements-eu-west-1"
    seen = drawn(["queue", "queued", "running", "claims"], [name, "1", "2", "open"], 40)
    assert seen == [
        "queue            queued  running  claims",
        name,
        "                 1       2        open",
    ]


def test_columns_are_left_out_before_names_become_unreadable() -> None:
    row = [JOB, "a-name-of-twenty-one-", "remote", "gpu, codecs, codecs:h264, codecs:vp9", "active"]
    titles = ["worker", "name", "kind", "offers", "status"]
    assert drawn(titles, row, 60, ("offers", "kind")) == [
        "worker              name                   kind    status",
        "01985b2e-6f0a-7c31  a-name-of-twenty-one-  remote  active",
    ]


def test_fact_values_are_never_shortened() -> None:
    layout = facts([[Styled("job"), Styled(JOB)], [Styled("error"), Styled("E_BROKEN: it broke\nand then some")]])
    assert [line.plain for line in lines(layout, Console(width=30), titled=False)] == [
        "job    01985b2e-6f0a-7c31-9f5e",
        "       -3d2a1b0c9e8f",
        "error  E_BROKEN: it broke",
        "       and then some",
    ]
