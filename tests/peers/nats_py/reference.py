"""docs/asyncapi.json and docs/contract.schema.json, read: all that this client knows of Berth.

Owns the endpoints, messages, records, events and codes that they list. Promises to complain about
any value that the JSON Schema refuses, by the validator of others. Never looks at Berth's code.
"""

import copy
import json
import re
from dataclasses import dataclass, field
from pathlib import Path

import fastjsonschema

RECORD = "Record"  # the fields that every record has beside its type's


class NotAsDocumented(Exception):
    """Something is not what the documents say."""


@dataclass
class Endpoint:
    service: str
    name: str
    subject: str
    anchor: str
    request: str
    reply: str
    any_clock: bool  # taken after its deadline, too
    errors: set  # those of its own


class Schema:
    """The definitions, each compiled when it is first needed."""

    def __init__(self, defs):
        self.defs, self.compiled = defs, {}
        # Clients ignore fields that they do not know; this one is to notice them.
        self.closed = copy.deepcopy(defs)
        for one in self.closed.values():
            if "properties" in one:
                one["additionalProperties"] = False

    def fault(self, name, value, closed=False):
        """Why a definition refuses a value; none when it does not."""
        if (name, closed) not in self.compiled:
            defs = self.closed if closed else self.defs
            demand(name in defs, f"the schema does not define {name}")
            whole = {"$ref": f"#/$defs/{name}", "$defs": defs}
            self.compiled[name, closed] = fastjsonschema.compile(whole)
        try:
            self.compiled[name, closed](value)
        except fastjsonschema.JsonSchemaValueException as refused:
            return refused.message
        return None


@dataclass
class Reference:
    schema: Schema
    endpoints: list = field(default_factory=list)
    keys: dict = field(default_factory=dict)  # bucket -> [(pattern, type, whether a record)]
    codes: set = field(default_factory=set)
    common: set = field(default_factory=set)  # the codes of any endpoint
    events: set = field(default_factory=set)

    def check_type(self, name, value, where):
        """Complains unless `value` has the fields of this type, and no others."""
        fault = self.schema.fault(name, value, closed=True)
        demand(fault is None, f"{where} is no {name}: {fault}")

    def check_record(self, name, value, where):
        """Complains unless `value` is a record of this type."""
        own = self.schema.defs[RECORD]["properties"]
        self.check_type(RECORD, {one: value[one] for one in value if one in own}, where)
        self.check_type(name, {one: value[one] for one in value if one not in own}, where)

    def fields(self, name):
        """The fields of a type: what the schema says of each."""
        return self.schema.defs[name]["properties"]

    def example(self, name):
        """The first example of a type."""
        return copy.deepcopy(self.schema.defs[name]["examples"][0])


def demand(holds, otherwise):
    """Complains unless it holds."""
    if not holds:
        raise NotAsDocumented(otherwise)


def read(docs: Path) -> Reference:
    """Reads both documents."""
    schema = Schema(json.loads((docs / "contract.schema.json").read_text())["$defs"])
    asyncapi = json.loads((docs / "asyncapi.json").read_text())
    channels = asyncapi["channels"]
    page = Reference(schema, common=set(asyncapi["info"]["x-common-errors"]))
    page.codes = set(schema.defs["Problem"]["properties"]["code"]["enum"])
    page.events = set(schema.defs["Event"]["properties"]["event"]["enum"])
    for anchor, operation in asyncapi["operations"].items():
        channel = channels[anchor]
        if operation["action"] == "receive":
            page.endpoints.append(
                Endpoint(
                    operation["x-service"],
                    operation["x-endpoint"],
                    channel["address"],
                    anchor,
                    defined(channel["messages"]["request"]["payload"]),
                    defined(channels[f"{anchor}-reply"]["messages"]["reply"]["payload"]),
                    operation["x-kind"] == "report",
                    set(operation["x-errors"]),
                )
            )
        elif bucket := channel.get("x-bucket"):
            payload = channel["messages"]["record"]["payload"]
            is_record = "allOf" in payload
            if is_record or "$ref" in payload:
                kind = defined(payload["allOf"][0] if is_record else payload)
                form = pattern(bucket["key"])
                page.keys.setdefault(bucket["name"], []).append((form, kind, is_record))
    return page


def defined(payload):
    """The definition that a payload refers to."""
    return payload["$ref"].removeprefix("contract.schema.json#/$defs/")


def pattern(form):
    """A key's form as a pattern for whole keys."""
    literal = re.split(r"<[^>]+>", form)
    return re.compile("[-/_=a-zA-Z0-9]+".join(re.escape(part) for part in literal))
