"""The check of the expressions can fail: each way of being wrong is found."""

import pytest

from tests.deploy.promql import Scrape, Wrong, labels_of

SCRAPED = """\
# HELP holdfast_waits How long.
# TYPE holdfast_waits gauge
holdfast_waits{queue="mail"} 4.0
# HELP holdfast_runs_total How many.
# TYPE holdfast_runs_total counter
holdfast_runs_total{job_type="SEND",outcome="dead"} 4.0
# HELP holdfast_seconds How long.
# TYPE holdfast_seconds histogram
holdfast_seconds_bucket{job_type="SEND",le="1.0"} 4.0
holdfast_seconds_bucket{job_type="SEND",le="+Inf"} 4.0
holdfast_seconds_sum{job_type="SEND"} 4.0
holdfast_seconds_count{job_type="SEND"} 4.0
# HELP both On two targets, with other labels on each.
# TYPE both gauge
both{here="1"} 4.0
"""


@pytest.fixture
def scrape() -> Scrape:
    scrape = Scrape()
    scrape.add(SCRAPED, "server")
    scrape.add('# TYPE both gauge\nboth{there="1"} 4.0\n', "worker")
    return scrape


@pytest.mark.parametrize(
    ("expression", "labels"),
    [
        ("max by (queue) (holdfast_waits) > 30", {"queue"}),
        ('holdfast_waits{queue=~"$queue"}', {"queue", "job", "instance"}),
        ("sum(rate(holdfast_runs_total[5m]))", set()),
        ('sum by (job_type) (rate(holdfast_runs_total{outcome="dead"}[5m]))', {"job_type"}),
        ("histogram_quantile(0.95, sum by (le, job_type) (rate(holdfast_seconds_bucket[5m])))", {"job_type"}),
        ("rate(holdfast_seconds_sum[5m]) / rate(holdfast_seconds_count[5m])", {"job_type", "job", "instance"}),
        ('absent(up{job="server"})', set()),
        ('sum without (instance) (both{here!=""})', {"here", "job"}),
        ("max by (queue) (max_over_time(holdfast_waits[10m]))", {"queue"}),
        ("sum(holdfast_waits) > 0 unless sum(up) > 0", set()),
    ],
)
def test_a_query_of_existing_metrics_and_labels_is_accepted(scrape: Scrape, expression: str, labels: set[str]) -> None:
    assert labels_of(expression, scrape) == labels


@pytest.mark.parametrize(
    ("expression", "why"),
    [
        ("holdfast_wait", "no process exposes holdfast_wait"),
        ("sum(rate(holdfast_runs[5m]))", "no process exposes holdfast_runs"),
        ("sum by (tenant) (holdfast_waits)", "no label tenant"),
        ('holdfast_waits{tenant="acme"}', "never seen with tenant"),
        ('rate(holdfast_runs_total{outcome="died"}[5m])', "never seen with outcome='died'"),
        ('up{job="elsewhere"}', "never seen with job"),
        ("rate(holdfast_waits[5m])", "is a gauge"),
        ("sum(holdfast_runs_total)", "is a counter"),
        ("max_over_time(holdfast_runs_total[5m])", "is a counter"),
        ("histogram_quantile(0.5, sum by (job_type) (rate(holdfast_seconds_bucket[5m])))", "by le"),
        ("histogram_quantile(0.5, sum by (le) (rate(holdfast_seconds_count[5m])))", "no label le"),
        ("sum by (queue) (holdfast_waits) / sum by (job_type) (rate(holdfast_runs_total[5m]))", "nothing matches"),
        ("sum by (queue) (holdfast_waits) * on (job_type) sum by (queue) (holdfast_waits)", "must have job_type"),
        ("sum by (here) (both)", "no label here"),
        ("sum(", "no PromQL"),
    ],
)
def test_a_query_of_missing_metrics_or_labels_is_reported(scrape: Scrape, expression: str, why: str) -> None:
    with pytest.raises(Wrong, match=why):
        labels_of(expression, scrape)
