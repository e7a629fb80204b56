"""A headless Chromium that opens a page and tells what it saw: pictures, requests, messages on the console.

Spoken to over --remote-debugging-pipe: JSON objects on file descriptors 3 and 4, each ended by a NUL; no driver needed.
All its traffic goes to a proxy here that refuses everything and remembers it, so that any request that leaves is seen.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import select
import shutil
import socket
import subprocess
import threading
import time
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--disable-default-apps", "--disable-extensions", "--disable-dev-shm-usage",
    "--disable-domain-reliability", "--disable-client-side-phishing-detection", "--disable-features=OptimizationHints,MediaRouter",
    "--metrics-recording-only", "--no-pings", "--hide-scrollbars", "--remote-debugging-pipe",
)  # fmt: skip


def chromium() -> str | None:
    """Return the path of a Chromium, or None."""
    return next((path for path in map(shutil.which, NAMES) if path), None)


class Browser:
    """One page of a Chromium; use it in `with`."""

    def __init__(self, folder: Path, patience_s: float = 90.0):
        self.patience_s = patience_s
        self.proxy = socket.create_server(("127.0.0.1", 0))
        self._asked: list[str] = []
        threading.Thread(target=self._refuse, daemon=True).start()
        to_child, self._out = os.pipe()
        self._in, from_child = os.pipe()
        argv = [
            chromium(),
            *FLAGS,
            f"--user-data-dir={folder}",
            f"--proxy-server=127.0.0.1:{self.proxy.getsockname()[1]}",
            "--proxy-bypass-list=<-loopback>",
        ]
        # bash puts the two pipes where Chromium looks for them.
        self._process = subprocess.Popen(
            ["bash", "-c", f'exec "$@" 3<&{to_child} 4>&{from_child}', "bash", *argv],
            pass_fds=(to_child, from_child), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(to_child)
        os.close(from_child)
        self._number, self._buffer, self._session = 0, b"", None
        self.events: list[dict] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, *_) -> None:
        try:
            self._session = None
            self.call("Browser.close")
            self._process.wait(20)
        except (OSError, EOFError, TimeoutError, subprocess.TimeoutExpired):
            self._process.kill()
            self._process.wait()
        os.close(self._in)
        os.close(self._out)
        self.proxy.shutdown(socket.SHUT_RDWR)  # wakes the thread that waits in accept
        self.proxy.close()

    def open(self, url: str, width: int = 1280, height: int = 900) -> None:
        """Open url in a window of so many pixels and wait until it is loaded."""
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        self.events.clear()
        self.call("Page.navigate", url=url)
        deadline = time.monotonic() + self.patience_s
        while not any(event["method"] == "Page.loadEventFired" for event in self.events):
            self._take(deadline)

    def evaluate(self, expression: str):
        """Return the value of a JavaScript expression in the page."""
        return self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)["result"][
            "value"
        ]

    def screenshot(self, path: Path) -> None:
        """Write the whole page as PNG, beyond the window too."""
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
        path.write_bytes(
            base64.b64decode(self.call("Page.captureScreenshot", captureBeyondViewport=True, clip=clip)["data"])
        )

    def requests(self) -> list[str]:
        """Return what the page asked for, data: URLs left out."""
        urls = [
            event["params"]["request"]["url"] for event in self.events if event["method"] == "Network.requestWillBeSent"
        ]
        return [url for url in urls if not url.startswith("data:")]

    def connections(self) -> list[str]:
        """Return the first line of each request that came to the proxy since the last call; there is no other way out."""
        asked, self._asked = self._asked, []
        return asked

    def _refuse(self) -> None:
        while True:
            try:
                connection = self.proxy.accept()[0]
            except OSError:
                return  # closed: the browser has ended
            with connection, contextlib.suppress(OSError):
                connection.settimeout(5)
                self._asked.append(connection.recv(4096).decode("latin-1").partition("\r")[0])
                connection.sendall(b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")

    def complaints(self) -> list[str]:
        """Return errors and warnings of the console, exceptions and violations of the page's policy."""
        found = []
        for event in self.events:
            params = event["params"]
            if event["method"] == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
                found.append(params["entry"]["text"])
            elif event["method"] == "Runtime.exceptionThrown" or (
                event["method"] == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert")
            ):
                found.append(json.dumps(params)[:500])
        return found

    def call(self, method: str, **params) -> dict:
        """Send a command and return its result; events on the way are kept."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": params} | (
            {"sessionId": self._session} if self._session else {}
        )
        os.write(self._out, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + self.patience_s
        while True:
            answer = self._take(deadline)
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]

    def _take(self, deadline: float) -> dict:
        while b"\0" not in self._buffer:
            if not select.select([self._in], [], [], max(0.0, deadline - time.monotonic()))[0]:
                raise TimeoutError("Chromium did not answer in time")
            got = os.read(self._in, 1 << 20)
            if not got:
                raise EOFError("Chromium has ended")
            self._buffer += got
        line, _, self._buffer = self._buffer.partition(b"\0")
        message = json.loads(line)
        if "method" in message:
            self.events.append(message)
        return message
