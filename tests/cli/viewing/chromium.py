"""A headless Chromium, driven by the DevTools protocol: nothing to install but the browser."""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import shutil
import tempfile
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiohttp

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

PROGRAM = shutil.which("chromium") or shutil.which("google-chrome")
"""None: this machine has none."""
FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
    "--disable-extensions", "--disable-background-networking", "--hide-scrollbars",
    "--remote-debugging-port=0",
)  # fmt: skip
WITHIN = 60.0
"""Seconds for each answer: the machine may be busy."""


class Chromium:
    """One page of it."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._numbers = itertools.count(1)
        self._session: dict[str, str] = {}
        self._loaded = False
        self.complaints: list[str] = []
        """What the browser refused by the page's policy, and errors of scripts."""

    async def call(self, method: str, **params: Any) -> dict[str, Any]:
        number = next(self._numbers)
        await self._socket.send_json(
            {"id": number, "method": method, "params": params, **self._session}
        )
        async with asyncio.timeout(WITHIN):
            while (answer := await self._next()).get("id") != number:
                pass
        assert "error" not in answer, (method, answer)
        result: dict[str, Any] = answer["result"]
        return result

    async def attach(self) -> None:
        target = await self.call("Target.createTarget", url="about:blank")
        found = await self.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        self._session = {"sessionId": found["sessionId"]}
        for domain in ("Page", "Runtime", "Log"):
            await self.call(f"{domain}.enable")

    async def see(
        self, width: int, *, height: int = 900, dark: bool = False, scripts: bool = True
    ) -> None:
        """As on a screen of this size from now on."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        await self.call("Emulation.setDeviceMetricsOverride", **size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        await self.call("Emulation.setEmulatedMedia", features=[scheme])
        await self.call("Emulation.setScriptExecutionDisabled", value=not scripts)

    async def open(self, address: str) -> None:
        self._loaded = False
        await self.call("Page.navigate", url=address)
        async with asyncio.timeout(WITHIN):
            while not self._loaded:
                await self._next()

    async def evaluate(self, script: str) -> Any:
        found = await self.call("Runtime.evaluate", expression=script, returnByValue=True)
        return found["result"].get("value")

    async def becomes(self, script: str) -> None:
        """Wait until this is true."""
        async with asyncio.timeout(WITHIN):
            while not await self.evaluate(script):
                await asyncio.sleep(0.1)

    async def picture(self) -> bytes:
        return base64.b64decode((await self.call("Page.captureScreenshot"))["data"])

    async def _next(self) -> dict[str, Any]:
        message: dict[str, Any] = json.loads(await self._socket.receive_str())
        self._loaded |= message.get("method") == "Page.loadEventFired"
        if message.get("method") in ("Log.entryAdded", "Runtime.exceptionThrown"):
            self.complaints.append(json.dumps(message["params"]))
        return message


@asynccontextmanager
async def chromium() -> AsyncIterator[Chromium]:
    """A browser of its own, without any data of others."""
    assert PROGRAM is not None
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        process = await asyncio.create_subprocess_exec(
            PROGRAM,
            *FLAGS,
            f"--user-data-dir={folder}",
            "about:blank",
            stderr=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
        )
        try:
            port = Path(folder) / "DevToolsActivePort"
            async with asyncio.timeout(WITHIN):
                while not port.exists() or "\n" not in port.read_text():
                    await asyncio.sleep(0.05)
            number, path = port.read_text().splitlines()
            address = f"ws://127.0.0.1:{number}{path}"
            async with (
                aiohttp.ClientSession() as session,
                session.ws_connect(address, max_msg_size=0) as socket,
            ):
                browser = Chromium(socket)
                await browser.attach()
                yield browser
                browser._session = {}
                await browser.call("Browser.close")
        finally:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
