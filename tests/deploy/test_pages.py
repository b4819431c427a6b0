"""What the pages on scaling and on alerts say is so."""

import json
import re
import shlex

import yaml

from holdfast.cli.commands import make_parser
from holdfast.model import NewJob
from tests.deploy.manifests import DEPLOY, kubernetes_errors, of_kind
from tests.deploy.scaler import asked_by_keda, reading_key
from tests.docs.pages import PAGES, blocks
from tests.docs.test_admin_http_page import check
from tests.server.steps import Served, bearer

SCALING, ALERTS = "docs/operate/scaling.md", "docs/operate/alerts.md"
SAID = [yaml.safe_load(block.text) for block in blocks(SCALING, "yaml")]
TRIGGERS = [trigger for said in SAID for trigger in said.get("triggers", ())]
COMMANDS = re.findall(r"(?m)(?:`|^)(holdfast (?!worker\b|serve\b)[^`\n]+)(?:`|$)", PAGES[ALERTS] + PAGES[SCALING])


async def test_every_value_location_on_the_page_is_a_number(served: Served) -> None:
    key = await reading_key(served)
    assert len(TRIGGERS) >= 4
    for trigger in TRIGGERS:
        assert await asked_by_keda(served, trigger, key) == 0


async def test_the_scale_response_matches_the_page(served: Served) -> None:
    await served.engine.create_many([NewJob(type="x", queue=queue) for queue in ("mail", "reports")])
    [[shown]] = [[json.loads(block.text)] for block in blocks(SCALING, "json")]
    [asked] = re.findall(r"(/api/admin/scale\?\S+)\"\n", PAGES[SCALING])
    answer = await served.http.get(asked, headers=bearer(await reading_key(served)))
    check(shown, answer.json())
    check(answer.json(), shown)


def test_the_example_on_the_page_is_part_of_the_manifest() -> None:
    assert SAID[0]["triggers"] == of_kind("keda/scaledobject.yaml", "ScaledObject")["spec"]["triggers"]


def test_the_autoscaler_on_the_page_matches_the_kubernetes_schema() -> None:
    [plain] = [said for said in SAID if "kind" in said]
    assert kubernetes_errors(plain) is None


def test_the_commands_of_the_pages_exist() -> None:
    assert len(COMMANDS) >= 12
    for command in COMMANDS:
        _, *arguments = shlex.split(command)
        assert make_parser().parse_args(arguments).run


def test_every_file_in_deploy_is_documented() -> None:
    readme = (DEPLOY / "README.md").read_text(encoding="utf-8")
    for link in re.findall(r"\]\(([^)#:]+)\)", readme):
        assert (DEPLOY / link).exists(), link
    files = {str(path.relative_to(DEPLOY)) for path in DEPLOY.rglob("*") if path.is_file()} - {"README.md"}
    assert {file for file in files if f"({file})" not in readme} == set()
