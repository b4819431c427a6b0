"""The image service, and a page to watch it on: `holdfast dev --app app:app`, then /gallery in a browser."""

from pathlib import Path

from starlette.responses import Response
from starlette.staticfiles import StaticFiles

from holdfast import App
from holdfast.extend import Extension, Request, html
from holdfast.workloads.images import ext as images

HERE = Path(__file__).parent
STATIC, SHARED = HERE / "static", HERE.parent / "static"
PAGE = (STATIC / "gallery.html").read_text(encoding="utf-8")

gallery = Extension("gallery", example="open {url}/gallery in a browser")


@gallery.route("GET", "/gallery", scope=None, about="Upload images and watch them.", answers={200: "text/html"})
async def page(request: Request) -> Response:
    """The default Content-Security-Policy fits: styles and scripts are files of this server."""
    return html(PAGE)


gallery.mount("/gallery/static", StaticFiles(directory=STATIC), scope=None)
gallery.mount("/gallery/common", StaticFiles(directory=SHARED), scope=None)

app = App()
app.include(images)
app.include(gallery)
