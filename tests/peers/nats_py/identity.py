"""Who this client is: a `.creds` file, as any client of NATS takes it, and the servers' authority."""

import base64
import re
import ssl
import subprocess
import tempfile
from pathlib import Path

# What comes before the 32 bytes of an ed25519 key in PKCS #8 (RFC 8410).
PKCS8 = bytes.fromhex("302e020100300506032b657004220420")


class Identity:
    """Signs what a server asks for, with openssl."""

    def __init__(self, creds: Path, authority: Path):
        self.token, seed = re.findall(r"-----\n(.+?)\n---", creds.read_text())
        self.key = PKCS8 + base64.b32decode(seed + "=" * (-len(seed) % 8))[2:34]
        self.authority = authority

    def options(self):
        """How to connect as this one."""
        return {
            "user_jwt_cb": lambda: self.token.encode(),
            "signature_cb": self.sign,
            "tls": ssl.create_default_context(cafile=str(self.authority)),
        }

    def sign(self, nonce):
        with tempfile.TemporaryDirectory(prefix="berth-peer-") as place:
            key, text = Path(place, "key"), Path(place, "nonce")
            key.touch(mode=0o600)
            key.write_bytes(self.key)
            text.write_bytes(nonce.encode())
            command = ["openssl", "pkeyutl", "-sign", "-rawin", "-keyform", "DER"]
            command += ["-inkey", key, "-in", text]
            return base64.b64encode(subprocess.run(command, check=True, capture_output=True).stdout)
