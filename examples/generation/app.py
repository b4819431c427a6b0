"""The generation service, and a page to try it on: `holdfast dev --app app:app`, then /playground in a browser."""

from pathlib import Path
from string import Template

from starlette.responses import Response
from starlette.staticfiles import StaticFiles

from holdfast import App
from holdfast.extend import Extension, Request, html
from holdfast.workloads.generation import ext as generation

HERE = Path(__file__).parent
STATIC, SHARED = HERE / "static", HERE.parent / "static"
PAGE = Template((STATIC / "playground.html").read_text(encoding="utf-8"))

playground = Extension("playground", example="open {url}/playground in a browser")


@playground.route("GET", "/playground", scope=None, about="Generate images and watch them.", answers={200: "text/html"})
async def page(request: Request) -> Response:
    """The page knows from its settings what to offer, and what it costs.

    The default Content-Security-Policy fits: styles and scripts are files of this server.
    """
    settings = generation.settings
    providers = [settings.provider, *(name for name in settings.providers if name != settings.provider)]
    return html(PAGE.substitute(cost=settings.cost, providers=" ".join(providers)))


playground.mount("/playground/static", StaticFiles(directory=STATIC), scope=None)
playground.mount("/playground/common", StaticFiles(directory=SHARED), scope=None)

app = App()
app.include(generation)
app.include(playground)
