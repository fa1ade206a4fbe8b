"""Opens HTML pages in headless Chromium, which `make` installs. It speaks the DevTools protocol over two pipes."""

import base64
import itertools
import json
import os
import shlex
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import pytest

HOME = Path(__file__).resolve().parents[1] / "build" / "chromium" / "browser"
INSTALL = "Chromium is missing: run `make build/chromium/.ready`"
_ARGUMENTS = (
    "--headless",
    "--no-sandbox",
    "--no-zygote",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
)


def has_chromium() -> bool:
    """Return True if it is installed."""
    return (HOME / "chromium").exists()


needs_chromium = pytest.mark.skipif(not has_chromium(), reason=INSTALL)


_FONTS = """<?xml version="1.0"?>
<!DOCTYPE fontconfig SYSTEM "fonts.dtd">
<fontconfig><dir>{fonts}</dir><cachedir>{cache}</cachedir></fontconfig>
"""
"""The package's own configuration names folders of Lambda only. Without a font, each text has no width."""


@dataclass
class Page:
    """A loaded page."""

    browser: "Browser"
    session: str
    events: list[dict[str, Any]] = field(default_factory=list)

    def does(self, method: str, **parameters: Any) -> Any:
        """Call a method of the protocol for this page."""
        return self.browser.does(method, self, **parameters)

    def value(self, expression: str) -> Any:
        """Return the value of a JavaScript expression."""
        answer = self.does("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def shoot(self, path: Path) -> None:
        """Write a screenshot of the whole page."""
        shot = self.does("Page.captureScreenshot", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(shot["data"]))

    def pdf(self) -> bytes:
        """Return the page as it is printed."""
        return base64.b64decode(self.does("Page.printToPDF", printBackground=True)["data"])

    @property
    def requests(self) -> list[str]:
        """The addresses of all requests, the page's own first."""
        return [one["params"]["request"]["url"] for one in self.events if one["method"] == "Network.requestWillBeSent"]

    @property
    def complaints(self) -> list[str]:
        """Messages of the console and uncaught errors."""
        kinds = (
            "Runtime.consoleAPICalled",
            "Runtime.exceptionThrown",
            "Log.entryAdded",
            "Page.javascriptDialogOpening",
        )
        return [json.dumps(one["params"]) for one in self.events if one["method"] in kinds]


class Browser:
    """A running Chromium."""

    def __init__(self, to: IO[bytes], of: IO[bytes]) -> None:
        self._to, self._of = to, of
        self._numbers = itertools.count(1)
        self._pages: dict[str, Page] = {}

    def does(self, method: str, page: Page | None = None, **parameters: Any) -> Any:
        """Call a method of the protocol, and keep the events until its answer."""
        number = next(self._numbers)
        call = {"id": number, "method": method, "params": parameters} | ({"sessionId": page.session} if page else {})
        self._to.write(json.dumps(call).encode() + b"\0")
        self._to.flush()
        while (message := self._next()).get("id") != number:
            pass
        assert "error" not in message, message["error"]
        return message["result"]

    def opens(self, path: Path, *, width: int = 1280, dark: bool = False, media: str = "screen") -> Page:
        """Open a file and wait until it is loaded."""
        target = self.does("Target.createTarget", url="about:blank")["targetId"]
        page = Page(self, self.does("Target.attachToTarget", targetId=target, flatten=True)["sessionId"])
        self._pages[page.session] = page
        for domain in ("Page", "Runtime", "Network", "Log"):
            page.does(f"{domain}.enable")
        size: dict[str, Any] = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
        page.does("Emulation.setDeviceMetricsOverride", **size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        page.does("Emulation.setEmulatedMedia", media=media, features=[scheme])
        page.does("Page.navigate", url=path.as_uri())
        while not any(one["method"] == "Page.loadEventFired" for one in page.events):
            self._next()
        return page

    def _next(self) -> dict[str, Any]:
        text = bytearray()
        while (one := self._of.read(1)) != b"\0":
            assert one, "Chromium has ended"
            text += one
        message: dict[str, Any] = json.loads(text)
        if "method" in message and (page := self._pages.get(message.get("sessionId", ""))):
            page.events.append(message)
        return message


@contextmanager
def chromium(profile: Path) -> Iterator[Browser]:
    """Start Chromium with a new profile in this folder, and end it."""
    (of_browser, to_us), (of_us, to_browser) = os.pipe(), os.pipe()
    command = [str(HOME / "chromium"), *_ARGUMENTS, f"--user-data-dir={profile}", "about:blank"]
    profile.mkdir(parents=True, exist_ok=True)
    fonts = profile / "fonts.conf"
    fonts.write_text(_FONTS.format(fonts=HOME / "fonts" / "fonts", cache=profile / "fonts"))
    environment = os.environ | {
        "HOME": str(profile),
        "LD_LIBRARY_PATH": str(HOME / "al2023" / "lib"),
        "FONTCONFIG_FILE": str(fonts),
    }
    # Chromium reads calls from file descriptor 3, and writes answers to 4.
    started = subprocess.Popen(
        ["/bin/bash", "-c", f"exec {shlex.join(command)} 3<&{of_us} 4>&{to_us}"],
        pass_fds=(of_us, to_us),
        env=environment,
        stderr=subprocess.DEVNULL,
    )
    os.close(of_us)
    os.close(to_us)
    try:
        with os.fdopen(to_browser, "wb") as to, os.fdopen(of_browser, "rb") as of:
            yield Browser(to, of)
    finally:
        started.terminate()
        started.wait()
