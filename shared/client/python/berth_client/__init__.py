"""For authors of schedulers: allocs that are placed, mounted, guarded, waited for and stopped.

Owns the order of the requests of Berth's contract. Promises that the class of a refusal says what
to do. Never stops an alloc by itself.
"""

from .advice import TABLE, Advice, advice_for
from .alloc import Alloc, End
from .errors import Elsewhere, Never, Refused, Unknown, Wait
from .explain import Actor, Explanation, why
from .guard import process_start
from .scheduler import Registration, Scheduler
from .view import Lost, Until
from .volume import Candidate, Mounted, Nodes, Obstacle, Volume

__all__ = [
    "TABLE", "Actor", "Advice", "Alloc", "Candidate", "Elsewhere", "End", "Explanation", "Lost",
    "Mounted", "Never", "Nodes", "Obstacle", "Refused", "Registration", "Scheduler", "Unknown",
    "Until", "Volume", "Wait", "advice_for", "process_start", "why",
]
