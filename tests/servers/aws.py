"""A server that speaks SQS and CloudFront over HTTP, for tests and benchmarks: `ministack`, on the loopback address.

with AwsServer.started() as server:
    broker = SqsBroker("hints", server.url)
    server.reset()
"""

import sys
import urllib.request
from typing import ClassVar

from tests.servers.daemon import Daemon

REGION = "us-east-1"


class AwsServer(Daemon):
    """It keeps nothing: after a restart it has no queues and no distributions. It does not check signatures."""

    name = "aws"

    credentials: ClassVar = {  # any will do
        "AWS_ACCESS_KEY_ID": "tester",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_DEFAULT_REGION": REGION,
        "AWS_EC2_METADATA_DISABLED": "true",
    }

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def command(self) -> list[str]:
        return [sys.executable, "-m", "ministack"]

    def environment(self) -> dict[str, str]:
        address = {"BIND_HOST": "127.0.0.1", "GATEWAY_PORT": str(self.port), "MINISTACK_REGION": REGION}
        own = {"SERVICES": "sqs,cloudfront", "LOG_LEVEL": "WARNING", "TMPDIR": str(self.data)}
        return super().environment() | address | own

    def is_ready(self) -> bool:
        try:
            return self._ask("health")
        except OSError:
            return False

    def reset(self) -> None:
        """Delete every queue and every distribution."""
        assert self._ask("reset", method="POST")

    def _ask(self, what: str, method: str = "GET") -> bool:
        request = urllib.request.Request(f"{self.url}/_ministack/{what}", method=method)
        with urllib.request.urlopen(request, timeout=60) as answer:
            return bool(answer.status == 200)
