"""What a scheduler does about each error code.

Owns the only table of codes. Promises that an unlisted code is `never`, unless the service says
that the request may be repeated. Never reads the message, which may change.
"""

from typing import Literal

Advice = Literal["wait", "elsewhere", "never", "unknown"]

_LISTED: dict[Advice, str] = {
    # Ask again, later: the reason may pass by itself, or when other allocs end.
    "wait": """
        BERTH0002 BERTH0003 BERTH0005 BERTH0006 BERTH0008 BERTH0013 BERTH0104 BERTH0106 BERTH0107
        BERTH0108 BERTH0110 BERTH0114 BERTH0115 BERTH0116 BERTH0117 BERTH0120 BERTH0124 BERTH0126
        BERTH0127 BERTH0134
        BERTH0202 BERTH0206 BERTH0207 BERTH0211 BERTH0224 BERTH0229 BERTH0230 BERTH0235 BERTH0236
        BERTH0306 BERTH0309
    """,
    # Place the alloc on another node.
    "elsewhere": """
        BERTH0201 BERTH0203 BERTH0204 BERTH0209 BERTH0210 BERTH0212 BERTH0216 BERTH0217 BERTH0218
        BERTH0219 BERTH0220 BERTH0222 BERTH0225 BERTH0226 BERTH0227 BERTH0239 BERTH0240
    """,
    # Give the alloc up, or change what it asks for. A person may have to act first.
    "never": """
        BERTH0001 BERTH0009 BERTH0010 BERTH0011 BERTH0012 BERTH0101 BERTH0102 BERTH0103
        BERTH0105 BERTH0109 BERTH0111 BERTH0112 BERTH0113 BERTH0118 BERTH0119 BERTH0121 BERTH0122
        BERTH0123 BERTH0125 BERTH0128 BERTH0129 BERTH0130 BERTH0131 BERTH0132 BERTH0133 BERTH0135
        BERTH0136 BERTH0205 BERTH0208 BERTH0213 BERTH0214 BERTH0215 BERTH0221 BERTH0228 BERTH0231
        BERTH0237 BERTH0238 BERTH0301 BERTH0302 BERTH0303 BERTH0304 BERTH0305 BERTH0307 BERTH0308
        BERTH0310 BERTH9999
    """,
    # The request may have been done. To ask again is harmless.
    "unknown": "BERTH0004 BERTH0007",
}

TABLE: dict[str, Advice] = {
    code: advice for advice, codes in _LISTED.items() for code in codes.split()
}


def advice_for(code: str, retryable: bool) -> Advice:
    """The advice for an error."""
    advice = TABLE.get(code, "never")
    return "wait" if advice == "never" and retryable else advice
