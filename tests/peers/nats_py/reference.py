"""docs/contract.md, read: all that this client knows of Berth.

Owns the endpoints, messages, records, events and codes that the page lists. Promises to complain
about any value that is not what the page says. Never looks at Berth's code.
"""

import json
import re
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path


class NotAsDocumented(Exception):
    """Something is not what the page says."""


@dataclass
class Endpoint:
    service: str
    name: str
    subject: str
    anchor: str
    request: str = ""
    reply: str = ""
    any_clock: bool = False  # taken after its deadline, too
    errors: set = field(default_factory=set)  # those of its own


@dataclass
class Reference:
    endpoints: list = field(default_factory=list)
    fields: dict = field(default_factory=dict)  # type -> {field: (kind, optional)}
    choices: dict = field(default_factory=dict)  # type -> set of texts
    examples: dict = field(default_factory=dict)  # type -> JSON
    keys: dict = field(default_factory=dict)  # bucket -> [(pattern, type)]
    codes: dict = field(default_factory=dict)  # code -> whether asking again may help
    common: set = field(default_factory=set)  # the codes of any endpoint
    events: set = field(default_factory=set)

    def check(self, kind, value, where):
        """Complains unless `value` is of this kind."""
        link = re.fullmatch(r"\[(.+)\]\(#.+\)", kind)
        if link:
            self.check_type(link[1], value, where)
        elif kind.startswith("list of "):
            demand(isinstance(value, list), f"{where} is no list: {value!r}")
            for at, item in enumerate(value):
                self.check(kind.removeprefix("list of "), item, f"{where}[{at}]")
        elif kind.startswith("object of "):
            demand(isinstance(value, dict), f"{where} is no object: {value!r}")
            for name, item in value.items():
                self.check(kind.removeprefix("object of "), item, f"{where}.{name}")
        else:
            demand(self.plain(kind, value), f"{where} is no {kind}: {value!r}")

    def plain(self, kind, value):
        number = isinstance(value, int) and not isinstance(value, bool)
        text = isinstance(value, str)
        match kind:
            case "text":
                return text
            case "id":
                return text and 0 < len(value.encode()) <= 256
            case "true or false":
                return isinstance(value, bool)
            case "number":
                return number
            case "whole number":
                return number and value >= 0
            case "time":
                return text and bool(datetime.strptime(value, "%Y-%m-%dT%H:%M:%S.%fZ"))
            case "code":
                return value in self.codes
            case "event":
                return value in self.events
        raise NotAsDocumented(f"the page does not say what a {kind!r} is")

    def check_type(self, name, value, where, extra=()):
        """Complains unless `value` has the fields of this type, and no others."""
        if name in self.choices:
            demand(value in self.choices[name], f"{where} is none of the {name}s: {value!r}")
            return
        known = self.fields.get(name)
        demand(known is not None, f"the page does not explain the type {name}")
        demand(isinstance(value, dict), f"{where} is no object: {value!r}")
        for one in value.keys() - known.keys() - set(extra):
            raise NotAsDocumented(f"{where}.{one} is not on the page ({name})")
        for one, (kind, optional) in known.items():
            if one in value:
                self.check(kind, value[one], f"{where}.{one}")
            else:
                demand(optional, f"{where}.{one} is missing ({name})")


def demand(holds, otherwise):
    """Complains unless it holds."""
    if not holds:
        raise NotAsDocumented(otherwise)


def read(path: Path) -> Reference:
    """Reads the page, heading by heading."""
    page = Reference()
    section = bucket = current = heading = ""
    by_anchor = {}
    lines = iter(path.read_text().splitlines())
    for line in lines:
        if line.startswith("## "):
            section, current = line[3:], ""
        elif line.startswith("### "):
            bucket = current = heading = line[4:]
        elif match := re.fullmatch(r"#### (Request|Reply) of (.+): `(.+)`", line):
            current = match[3]
            setattr(by_anchor[match[2]], match[1].lower(), current)
        elif match := re.fullmatch(r"#### Message: `(.+)`", line):
            current = match[1]
        elif match := re.fullmatch(r"#### Key `(.+)`: `(.+)`", line):
            current = match[2]
            page.keys.setdefault(bucket, []).append((pattern(match[1]), current))
        elif line.startswith("Subject `") and "is taken after its deadline" in line:
            by_anchor[heading].any_clock = True
        elif line.startswith("Errors of its own: "):
            by_anchor[heading].errors = set(re.findall(r"BERTH\d+", line))
        elif line.startswith("Any request may be answered with one of "):
            page.common = set(re.findall(r"BERTH\d+", line))
        elif line == "No fields: `{}`.":
            page.fields[current] = {}
        elif line == "```json":
            text = "\n".join(iter(lambda: next(lines), "```"))
            page.examples.setdefault(current, json.loads(text))
        elif line.startswith("| ") and section:
            head, rows = line, []
            next(lines)
            while (row := next(lines, "")).startswith("| "):
                cells = re.split(r"(?<!\\)\|", row)[1:-1]
                rows.append([cell.strip().replace("`", "") for cell in cells])
            take_table(page, head, rows, current, heading, by_anchor)
    return page


def take_table(page, head, rows, current, heading, by_anchor):
    """What a table says; its head tells which it is."""
    match head.strip("| ").split(" | ")[0]:
        case "field":
            page.fields[current] = {row[0]: (row[1], row[2] == "optional") for row in rows}
        case "value":
            page.choices[current] = {row[0] for row in rows}
        case "code":
            page.codes = {row[0]: row[1] == "yes" for row in rows}
        case "event":
            page.events = {row[0] for row in rows}
        case "endpoint":
            for row in rows:
                name, anchor = re.fullmatch(r"\[(.+)\]\(#(.+)\)", row[0]).groups()
                by_anchor[anchor] = Endpoint(heading, name, row[1], anchor)
                page.endpoints.append(by_anchor[anchor])


def pattern(form):
    """A key's form as a pattern for whole keys."""
    literal = re.split(r"<[^>]+>", form)
    return re.compile("[-/_=a-zA-Z0-9]+".join(re.escape(part) for part in literal))
