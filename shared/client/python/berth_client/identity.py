"""The identity of this client: a `.creds` file, and the actor that it names.

Owns what is read from the file: the name and the public key in its token. Promises that the inbox
is the identity's own, the only one that it may read. Never keeps the seed: nats-py reads the file
at each connection.
"""

import base64
import json
import re
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# The kinds of identities that services and agents have. To the services, all others are `user`.
_OTHER_KINDS = ("service", "node", "docker")


@dataclass(frozen=True)
class Identity:
    """An actor, and how it connects."""

    actor: tuple[str, str]
    options: dict[str, Any]

    @property
    def by(self) -> str:
        """The actor as records name it: `user.anna`."""
        kind, name = self.actor
        return f"{kind}.{name}"


def read_identity(creds_file: Path | None, ca_file: Path | None, name: str) -> Identity:
    """The identity of a `.creds` file. Without a file, the actor is the user `name`."""
    if creds_file is None and ca_file is None:
        return Identity(("user", name), {})
    options: dict[str, Any] = {"tls": ssl.create_default_context(cafile=ca_file)}
    if creds_file is None:
        return Identity(("user", name), options)
    claims = _claims(creds_file)
    kind, slash, actor_name = str(claims.get("name", "")).partition("/")
    actor = (kind if kind in _OTHER_KINDS else "user", actor_name) if slash else ("user", name)
    options |= {"user_credentials": str(creds_file), "inbox_prefix": f"_INBOX.{claims['sub']}"}
    return Identity(actor, options)


def _claims(creds_file: Path) -> dict[str, Any]:
    token = re.search(r"BEGIN NATS USER JWT-----\s+(\S+)", creds_file.read_text())
    if token is None:
        raise ValueError(f"{creds_file} has no NATS USER JWT")
    body = token[1].split(".")[1]
    claims: dict[str, Any] = json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
    return claims
