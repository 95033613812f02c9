"""Requests over NATS: headers, deadlines, errors, retries and pages.

Owns the connection. Promises that every request ends by its deadline, with a reply or with a
refusal that says what to do. Never repeats a request that the service refused for good.
"""

import asyncio
import json
import re
import secrets
import time
from collections.abc import Callable
from typing import Any

from nats.aio.client import Client
from nats.errors import Error, NoRespondersError
from nats.errors import TimeoutError as NoReply

from . import subject
from .errors import Json, Refused, refusal, refuse
from .identity import Identity
from .retry import Backoff

CONTRACT_VERSION = "3"
ATTEMPT = 5.0  # seconds for one attempt of a brief request
BRIEF = 60.0  # seconds in which a brief request is repeated
REPLY_GRACE = 0.5  # seconds that an answer may come after the service's deadline
PAGES_MAX = 1000

_DENIED = re.compile(r'permissions violation for publish to "(.+?)"', re.IGNORECASE)


def is_retryable(refused: Refused) -> bool:
    """Whether the service says that the same request may succeed later."""
    return refused.retryable


class Wire:
    """Sends requests to the services, in one namespace, as one identity."""

    def __init__(self, client: Client, identity: Identity, namespace: str):
        self.client, self.identity, self.namespace = client, identity, namespace
        self.on_reconnect: Callable[[], None] = lambda: None
        self._unanswered: dict[str, set[asyncio.Future[Json]]] = {}
        self._last_error = ""

    @classmethod
    async def connect(
        cls, servers: list[str], identity: Identity, namespace: str, name: str, overall: float
    ) -> "Wire":
        """Connects. After that, a lost connection is made again."""
        wire = cls(Client(), identity, namespace)
        connecting = wire.client.connect(
            servers=servers,
            name=name,
            error_cb=wire._on_error,
            reconnected_cb=wire._on_reconnected,
            max_reconnect_attempts=-1,
            reconnect_time_wait=1,
            **identity.options,
        )
        try:
            await asyncio.wait_for(connecting, overall)
        except (Error, OSError, asyncio.TimeoutError) as fault:
            await wire.client.close()
            why = wire._last_error or str(fault) or "no answer"
            message = f"{', '.join(servers)} cannot be reached: {why}"
            raise refuse("BERTH0005", message, "check the servers and the credentials") from fault
        return wire

    async def close(self) -> None:
        """Closes the connection. The outcome of unanswered requests is unknown."""
        await self.client.close()

    async def once(
        self, verb: str, body: Json, *, node: str | None = None, attempt: float = ATTEMPT,
        trace: str = "",
    ) -> Json:
        """Sends a request once."""
        trace = trace or secrets.token_hex(16)
        to = subject.request(verb, self.namespace, self.identity.actor, node)
        headers = {
            "traceparent": f"00-{trace}-{secrets.token_hex(8)}-01",
            "Berth-Deadline": str(int((time.time() + attempt) * 1000)),
            "Berth-Contract": CONTRACT_VERSION,
        }
        sent = self._send(to, json.dumps(body).encode(), headers, attempt + REPLY_GRACE)
        reply = asyncio.ensure_future(sent)
        # The server refuses a subject, not a request: it cancels all requests that wait there.
        same_subject = self._unanswered.setdefault(to.lower(), set())
        same_subject.add(reply)
        facts = {"step": verb, "trace": trace} | ({"node": node} if node is not None else {})
        try:
            await asyncio.wait([reply])
            answer = _Denied.result_of(reply)
        except _Denied:
            following = "ask the fleet's operator for the capability"
            message = f"these credentials may not send to {to}"
            raise refuse("BERTH0010", message, following, **facts) from None
        except NoRespondersError:
            message, following = f"no service answers at {to}", "start the service"
            raise refuse("BERTH0003", message, following, **facts) from None
        except (NoReply, asyncio.TimeoutError):
            message = f"no answer from {to} within {attempt:.1f} s"
            raise refuse("BERTH0004", message, "ask again, which is harmless", **facts) from None
        except (Error, OSError) as fault:
            raise refuse("BERTH0005", f"the bus: {fault}", "check nats-server", **facts) from fault
        except ValueError as fault:
            raise refuse("BERTH9999", f"no reply of Berth: {fault}", **facts) from fault
        finally:
            reply.cancel()
            same_subject.discard(reply)
            if not same_subject:
                self._unanswered.pop(to.lower(), None)
        if "error" in answer:
            raise refusal({"step": verb, "trace": trace} | answer["error"])
        return answer

    async def ask(
        self,
        verb: str,
        body: Json,
        *,
        node: str | None = None,
        attempt: float = ATTEMPT,
        overall: float = BRIEF,
        should_repeat: Callable[[Refused], bool] = is_retryable,
    ) -> Json:
        """Repeats a request until it is answered, its refusal is final, or `overall` seconds have
        passed."""
        backoff, trace = Backoff(overall), secrets.token_hex(16)
        best_refusal: Refused | None = None
        while True:
            within = max(min(attempt, backoff.remaining), 0.001)
            try:
                return await self.once(verb, body, node=node, attempt=within, trace=trace)
            except Refused as refused:
                # If the last attempt only timed out, the previous refusal is more useful.
                is_cut_short = within < attempt and refused.code in ("BERTH0002", "BERTH0004")
                if best_refusal is None or not is_cut_short:
                    best_refusal = refused
                is_over = self.client.is_closed or not should_repeat(refused)
                if is_over or not await backoff.pause():
                    raise best_refusal from None

    async def pages(self, verb: str, body: Json, overall: float = BRIEF) -> list[Json]:
        """All pages of a list, each within `overall` seconds."""
        pages: list[Json] = []
        after: str | None = None
        while not pages or (after is not None and len(pages) < PAGES_MAX):
            query = body if after is None else {**body, "after": after}
            pages.append(await self.ask(verb, query, overall=overall))
            after = pages[-1].get("next")
        return pages

    async def events(self, on_alloc: Callable[[str], None]) -> None:
        """Calls `on_alloc` for each event of the allocs that this identity registered or adopted,
        until the connection is closed."""

        async def on_message(message: Any) -> None:
            alloc = subject.alloc_of_event(message.subject)
            if alloc is not None:
                on_alloc(alloc)

        events = subject.events_wanted_by(self.namespace, self.identity.actor)
        await self.client.subscribe(events, cb=on_message)

    async def _send(self, to: str, body: bytes, headers: dict[str, str], within: float) -> Json:
        reply = await self.client.request(to, body, timeout=within, headers=headers)
        answer = json.loads(reply.data)
        if not isinstance(answer, dict):
            raise ValueError(f"{answer!r} is no object")
        return answer

    async def _on_error(self, fault: Exception) -> None:
        self._last_error = str(fault) or type(fault).__name__
        denied = _DENIED.search(self._last_error)
        for reply in list(self._unanswered.get(denied[1].lower(), ()) if denied else ()):
            reply.cancel()

    async def _on_reconnected(self) -> None:
        self.on_reconnect()


class _Denied(Exception):
    """The server refused the subject."""

    @classmethod
    def result_of(cls, reply: "asyncio.Future[Json]") -> Json:
        """The reply's result. Only the server's refusal cancels an awaited reply."""
        if reply.cancelled():
            raise cls()
        return reply.result()
