"""What the fuzzer does before each request: it does not wait for work, nor listen for ever."""

import json
import re

import schemathesis

PART = re.compile(r"([0-9]{1,12})(ms|s|m|h|d)")
MILLISECONDS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def is_a_wait(text):
    """Whether the server would wait for so long. What it refuses is left as it is."""
    if not isinstance(text, str) or PART.sub("", text).strip(" "):
        return False
    return sum(int(count) * MILLISECONDS[unit] for count, unit in PART.findall(text)) <= 60_000


@schemathesis.hook
def before_call(context, case, kwargs):
    if isinstance(case.body, dict) and is_a_wait(case.body.get("wait")):
        case.body["wait"] = "5ms"
    if "text/event-stream" in json.dumps(case.operation.definition.raw.get("responses", {})):
        kwargs["timeout"] = 0.2
