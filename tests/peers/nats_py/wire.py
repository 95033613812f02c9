"""The bus as docs/contract.md describes it: tokens, headers, requests, micro services."""

import asyncio
import json
import re
import secrets
import time
from dataclasses import dataclass

from nats.aio.client import Client
from nats.errors import TimeoutError as NoMore
from nats.micro.service import ServiceInfo, ServicePing, ServiceStats

from .reference import Reference, demand

NAME = re.compile(r"[a-zA-Z0-9_-]+")
WITHIN = 5.0  # seconds
# Who this client is, at the end of each subject that it sends to.
ACTOR = {"actor-kind": "user", "actor-name": "nats.py"}


def token(text):
    """An id as one token of a subject or key."""
    plain = b"-_/"
    spelled = (
        chr(b) if chr(b).isalnum() and b < 128 or b in plain else f"={b:02X}"
        for b in text.encode()
    )
    return "".join(spelled)


@dataclass
class Answer:
    """A reply: a result, or a problem with its code."""

    body: dict
    code: str = ""


class Wire:
    """Asks as a stranger would, and holds every request and answer to the documents."""

    def __init__(self, nats: Client, page: Reference):
        self.nats, self.page = nats, page
        self.asked, self.codes = set(), set()

    async def ask(self, anchor, body, trace="", within=WITHIN, deadline=None, **ids):
        """Sends to an endpoint, and checks the reply: its type, or its error's."""
        endpoint = next(one for one in self.page.endpoints if one.anchor == anchor)
        ids |= ACTOR
        subject = re.sub("{(.+?)}", lambda id: token(ids.get(id[1], "default")), endpoint.subject)
        headers = {"traceparent": traceparent(trace or new_trace())}
        headers["Berth-Deadline"] = str(deadline or int((time.time() + within) * 1000))
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        reply = await self.nats.request(subject, raw, timeout=within + 1, headers=headers)
        self.asked.add(anchor)
        answer = self.read(reply, endpoint)
        if not deadline and not isinstance(body, bytes):
            # What the schema refuses, the service refuses, and for that reason.
            fault = self.page.schema.fault(endpoint.request, body)
            refused = answer.code == "BERTH0001"
            demand(fault is None or refused, f"{anchor} did what the schema refuses: {fault}")
        return answer

    def read(self, reply, endpoint):
        body, headers = json.loads(reply.data), reply.headers or {}
        code = headers.get("Nats-Service-Error-Code", "")
        demand(bool(code) == ("error" in body), f"{endpoint.anchor}: headers and body disagree")
        if not code:
            self.page.check_type(endpoint.reply, body, endpoint.anchor)
            return Answer(body)
        problem = body["error"]
        self.page.check_type("Problem", problem, f"{endpoint.anchor}.error")
        demand(problem["code"] == code, f"{endpoint.anchor}: the header says {code}")
        listed = code in self.page.common | endpoint.errors
        demand(listed, f"{endpoint.anchor}: {code} is no error that it lists")
        demand("\n" not in headers["Nats-Service-Error"], "an error header of several lines")
        demand(problem["next"], f"{endpoint.anchor}: nothing to try next")
        self.codes.add(code)
        return Answer(problem, code)

    async def everyone(self, verb, name=""):
        """What all services answer to PING, INFO or STATS."""
        inbox = self.nats.new_inbox()
        answers = await self.nats.subscribe(inbox)
        subject = f"$SRV.{verb}" + (f".{name}" if name else "")
        await self.nats.publish(subject, b"", reply=inbox)
        found = []
        while True:
            try:
                found.append(json.loads((await answers.next_msg(timeout=0.3)).data))
            except NoMore:
                await answers.unsubscribe()
                return found

    async def services(self):
        """Every service: what the published schemas ask of its answers, and what nats-py reads."""
        pings = await self.everyone("PING")
        infos = await self.everyone("INFO")
        stats = await self.everyone("STATS")
        for kind, answers in (("ping", pings), ("info", infos), ("stats", stats)):
            demand(len(answers) == len(pings), f"{len(answers)} of {len(pings)} answer {kind}")
            for one in answers:
                demand(one["type"] == f"io.nats.micro.v1.{kind}_response", f"type {one['type']}")
                demand(NAME.fullmatch(one["name"]) and one["id"], f"name or id in {one}")
                # Semantic, as NATS micro wants it; the commit is its build metadata.
                version = r"\d+\.\d+\.\d+(\+[0-9A-Za-z.-]+)?"
                demand(re.fullmatch(version, one["version"]), f"version in {one}")
                texts(one["metadata"])
        for one in infos:
            demand(one["description"], f"{one['name']} has no description")
            for endpoint in one["endpoints"]:
                demand(NAME.fullmatch(endpoint["name"]) and endpoint["subject"], f"{endpoint}")
                texts(endpoint["metadata"])
        for one in stats:
            for endpoint in one["endpoints"]:
                for count in ("num_requests", "num_errors", "processing_time"):
                    demand(0 <= endpoint[count] < 2**63, f"{count} in {endpoint}")
                demand(isinstance(endpoint["average_processing_time"], int), f"{endpoint}")
                demand(isinstance(endpoint["last_error"], str), f"{endpoint}")
                demand(isinstance(endpoint["data"], dict), f"{endpoint}")
        [ServicePing.from_dict(one) for one in pings]
        return [ServiceInfo.from_dict(one) for one in infos], [
            ServiceStats.from_dict(one) for one in stats
        ]


def texts(metadata):
    demand(all(isinstance(value, str) for value in metadata.values()), f"metadata {metadata}")


def new_trace():
    return secrets.token_hex(16)


def traceparent(trace):
    return f"00-{trace}-{secrets.token_hex(8)}-01"


async def until(what, within, look):
    """Waits until `look` finds something, and returns it."""
    deadline = time.monotonic() + within
    while not (found := await look()):
        demand(time.monotonic() < deadline, f"not within {within} s: {what}")
        await asyncio.sleep(0.05)
    return found
