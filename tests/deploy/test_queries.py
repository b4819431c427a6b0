"""Every query of the dashboard and of the alerts names metrics that servers and workers really expose."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy.installation import SERVER, WORKER, do_some_work, installation, scraped
from tests.deploy.manifests import DEPLOY
from tests.deploy.promql import Scrape, Wrong, labels_of
from tests.docs.pages import anchors, section

DASHBOARD = json.loads((DEPLOY / "grafana" / "holdfast.json").read_text(encoding="utf-8"))
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
VARIABLES = DASHBOARD["templating"]["list"]
ALERTS = yaml.safe_load((DEPLOY / "prometheus" / "alerts.yml").read_text(encoding="utf-8"))
RULES = [rule for group in ALERTS["groups"] for rule in group["rules"]]
SCRAPING = yaml.safe_load((DEPLOY / "prometheus" / "scrape.yml").read_text(encoding="utf-8"))
RUNBOOK = "docs/operate/alerts.md"
GRAFANAS_OWN = {"__rate_interval": "5m", "__range": "1h", "__interval": "30s"}


@pytest.fixture(scope="module")
def scrape(tmp_path_factory: pytest.TempPathFactory) -> Scrape:
    with installation(tmp_path_factory.mktemp("installation")) as (server, worker):
        do_some_work(server, worker)
        return scraped(server, worker)


def expression(text: str) -> str:
    """With numbers for the variables that are Grafana's own."""
    return re.sub(r"\$(__\w+)", lambda found: GRAFANAS_OWN[found[1]], text)


# -- what is asked ----------------------------------------------------------------------------------------------


def test_every_panel_queries_existing_metrics(scrape: Scrape) -> None:
    """Issue 5: each query checked against a real scrape."""
    for panel in PANELS:
        for target in panel["targets"]:
            labels = labels_of(expression(target["expr"]), scrape)
            shown = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
            assert shown <= labels, f"{panel['title']}: the legend has {shown}, the answer {labels}"


def test_every_alert_queries_existing_metrics(scrape: Scrape) -> None:
    for rule in RULES:
        labels = labels_of(rule["expr"], scrape)
        told = set(re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"]))
        assert told <= labels, f"{rule['alert']}: the summary has {told}, the answer {labels}"


def test_every_query_of_the_scaling_page_uses_existing_metrics(scrape: Scrape) -> None:
    queries = re.findall(
        r"(?m)^\| [\w ]+ \| `(.+)` \|$", section("docs/operate/scaling.md", "Scaling by a Prometheus metric")
    )
    assert len(queries) == 3
    for query in queries:
        labels_of(query, scrape)


def test_a_query_of_a_renamed_metric_is_reported(scrape: Scrape) -> None:
    """The check of both can fail, also on a real scrape."""
    [wait, *_] = [rule["expr"] for rule in RULES if rule["alert"] == "HoldfastJobsWait"]
    assert labels_of(wait, scrape) == {"queue"}
    for wrong in (wait.replace("oldest_wait", "longest_wait"), wait.replace("(queue)", "(tenant)")):
        with pytest.raises(Wrong):
            labels_of(wrong, scrape)


def test_the_dashboard_variables_query_existing_metrics(scrape: Scrape) -> None:
    for variable in VARIABLES:
        if variable["type"] == "query":
            [(metric, label)] = re.findall(r"^label_values\((\w+), (\w+)\)$", variable["query"]["query"])
            assert label in labels_of(f"max by ({label}) ({metric})", scrape)


# -- the dashboard ----------------------------------------------------------------------------------------------


def test_every_dashboard_variable_that_is_used_is_defined() -> None:
    used = set(re.findall(r"\$\{?(\w+)", json.dumps(DASHBOARD)))
    defined = {variable["name"] for variable in VARIABLES}
    assert used - GRAFANAS_OWN.keys() - {"__all"} == defined


def test_panels_have_unique_ids_and_do_not_overlap() -> None:
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(set(ids)) == len(ids)
    taken: dict[tuple[int, int], str] = {}
    for panel in DASHBOARD["panels"]:
        for cell in cells(panel["gridPos"]):
            assert cell not in taken, f"{panel['title']} lies on {taken[cell]}"
            taken[cell] = panel["title"]


def cells(place: dict[str, int]) -> list[tuple[int, int]]:
    assert place["x"] + place["w"] <= 24
    return [(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])]


def test_every_panel_has_a_title_a_description_and_a_unit() -> None:
    for panel in PANELS:
        assert panel["description"], panel["title"]
        assert panel["fieldConfig"]["defaults"]["unit"], panel["title"]
        for named in re.findall(r"docs/alerts\.md, (\w+)", panel["description"]):
            assert named in {rule["alert"] for rule in RULES}, panel["title"]


# -- the alerts -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_every_alert_has_a_severity_and_a_runbook(rule: dict[str, Any]) -> None:
    assert rule["labels"]["severity"] in ("warning", "critical")
    assert rule["for"]
    page, _, anchor = rule["annotations"]["runbook"].partition("#")
    assert page == RUNBOOK
    assert anchor == rule["alert"].lower()
    assert anchor in anchors(page)


def test_the_alerts_page_describes_no_removed_alerts() -> None:
    assert {anchor for anchor in anchors(RUNBOOK) if anchor.startswith("holdfast")} == {
        rule["alert"].lower() for rule in RULES
    }


# -- what Prometheus reads ------------------------------------------------------------------------------------


def test_the_alerts_use_the_names_of_the_scrape_jobs() -> None:
    jobs = {job["job_name"] for job in SCRAPING["scrape_configs"]}
    assert jobs == {SERVER, WORKER}
    named = {job for rule in RULES for job in re.findall(r'job="([^"]+)"', rule["expr"])}
    assert named == jobs
    assert {job["metrics_path"] for job in SCRAPING["scrape_configs"]} == {"/metrics"}, "as the test asks for them"
    assert [(DEPLOY / "prometheus" / Path(name)).is_file() for name in SCRAPING["rule_files"]] == [True]
