"""What the fuzzer does beside reading the description: it does not wait for work, it works on tasks that are there and
looks at a change in bulk that is known, and it knows how an array of tasks is refused.
"""

import itertools
import json
import os
import re
import zlib

import schemathesis

PART = re.compile(r"([0-9]{1,12})(ms|s|m|h|d)")
MILLISECONDS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
# How many kinds and keys half of the requests share.
FEW = {"kind": 3, "key": 10}
# Names of requests that nothing else has: of one name all but the first are refused.
requests = itertools.count()
# Tasks and claims that were answered.
ids, claims = [], []


def is_a_wait(text):
    """Whether the server would wait for so long. What it refuses is left as it is."""
    if not isinstance(text, str) or PART.sub("", text).strip(" "):
        return False
    return sum(int(count) * MILLISECONDS[unit] for count, unit in PART.findall(text)) <= 60_000


def one_of_few(field, text):
    number = zlib.crc32(text.encode("utf-8", "surrogatepass"))
    return text if number % 2 else f"{field}-{number // 2 % FEW[field]}"


def of_few(value):
    """The same with few kinds and keys."""
    if isinstance(value, list):
        return [of_few(each) for each in value]
    if not isinstance(value, dict):
        return value
    changed = {}
    for field, given in value.items():
        if field in FEW and isinstance(given, str):
            given = one_of_few(field, given)
        elif field == "kinds" and isinstance(given, list):
            given = given + [f"kind-{number}" for number in range(FEW["kind"])]
        elif field == "filter":
            given = of_few(given)
        changed[field] = given
    return changed


def once_due(task):
    """Of the two fields that say when exactly one is to be given, but for some, which are refused."""
    both = "after" in task and "at" in task
    if both and zlib.crc32(json.dumps(task).encode()) % 4:
        del task["at"]
    if task.get("after") is None and task.get("at") is None:
        task["after"] = "0s"


@schemathesis.hook
def before_call(context, case, kwargs):
    if isinstance(case.body, dict) and is_a_wait(case.body.get("wait")):
        case.body["wait"] = "5ms"
    if "text/event-stream" in json.dumps(case.operation.definition.raw.get("responses", {})):
        kwargs["timeout"] = 0.2
    if case.meta is None or not case.meta.generation.mode.is_positive:
        return
    case.body, case.query = of_few(case.body), of_few(case.query)
    if "Idempotency-Key" in (case.headers or {}) and zlib.crc32(str(case.body).encode("utf-8", "surrogatepass")) % 4:
        case.headers["Idempotency-Key"] = f"request {next(requests)}"
    path = case.path_parameters or {}
    # What a link has brought is of another type, and about a task that is there.
    if path and all(type(name) is str for name in path.values()):
        path = of_few(path)
        if "/bulk/" in case.path:
            path["id"] = os.environ["DELAYLINE_BULK"]
        elif "id" in path and ids:
            path["id"] = ids[-1]
        if "claim" in path and claims:
            path["claim"] = claims.pop()
        if isinstance(case.body, dict) and "key" in path:
            case.body.update({field: path[field] for field in FEW if field in case.body})
        case.path_parameters = path
    if case.method == "PUT" or case.path.endswith(("/tasks", "reschedule", "edit")):
        for task in case.body if isinstance(case.body, list) else [case.body]:
            if isinstance(task, dict):
                once_due(task)


@schemathesis.hook
def after_call(context, case, response):
    if response.status_code not in (200, 201) or "json" not in response.headers.get("content-type", [""])[0]:
        return
    answer = response.json()
    if isinstance(answer, dict):
        claims.extend(claim["claim"] for claim in answer.get("claims", []))
        if isinstance(answer.get("task"), dict):
            ids.append(answer["task"]["id"])


@schemathesis.hook
def filter_failure(context, failure, case, response):
    """Whether it is one that something was accepted which the description does not allow."""
    if type(failure).__name__ != "AcceptedNegativeData":
        return True
    # An array is answered by an array, in which each task that cannot be used is refused.
    if isinstance(case.body, list) and any(each.get("status") == 400 for each in response.json()):
        return False
    # What was allowed, and was changed here, is checked once more, and names out of answers are taken for wrong by that.
    return "positive test case" not in failure.message
