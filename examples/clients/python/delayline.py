"""A client of Delayline's HTTP interface, of the standard library alone: copy it into your service."""

import json
import urllib.error
import urllib.parse
import urllib.request

# In seconds: longer than a claim may wait.
TIMEOUT = 90


class Refused(Exception):
    """The server refused the request, and nothing was done; `problem` says which field, and what is allowed."""

    def __init__(self, problem):
        super().__init__(problem.get("detail", "refused"))
        self.problem = problem


class Delayline:
    """One server. A request that fails by `OSError`, as those with a status from 500 on do, may have been carried out or not.

    To cancel, to reschedule to a time (`at`) and to end a claim may be repeated. So may to schedule with a `name` of the caller's
    choice for the request, which is sent as `Idempotency-Key`. Before another request is repeated, look with `find`.
    """

    def __init__(self, url="http://127.0.0.1:7700", token=None):
        self.url, self.token = url.rstrip("/"), token

    def schedule(self, kind, key, payload=None, name=None, **task):
        """With `after="15m"` or `at="2026-12-24T18:00:00Z"`: "new", "existing", "replaced" or "running", and the task."""
        return self._answer("PUT", self._task(kind, key), {"payload": payload, **task}, name)

    def cancel(self, kind, key):
        """"done": it never runs. Else "too_late", "finished" or "not_found"."""
        return self._answer("POST", self._task(kind, key) + "/cancel", {})

    def shift(self, kind, key, by):
        """Moves a task by a span such as "+10m"."""
        return self._answer("POST", self._task(kind, key) + "/shift", {"by": by})

    def reschedule(self, kind, key, **when):
        """Moves a task to another time, `after` or `at`."""
        return self._answer("POST", self._task(kind, key) + "/reschedule", when)

    def find(self, kind, key):
        """The task, or None."""
        status, body = self._request("GET", self._task(kind, key))
        return None if status == 404 else body

    def claim(self, kinds, max=1, wait="20s", lease="30s"):
        """Tasks that are due, each with its claim; waits for one."""
        _, body = self._request("POST", "/v1/claims", {"kinds": kinds, "max": max, "wait": wait, "lease": lease})
        return [(given["claim"], given["task"]) for given in body["claims"]]

    def end(self, claim, how="done", timeout=TIMEOUT, **more):
        """Ends a claim by "done", "retry", "snooze" or "discard", or extends it; False if it held no more."""
        answer, _ = self._answer("POST", f"/v1/claims/{claim}/{how}", more, timeout=timeout)
        return answer == "done"

    @staticmethod
    def _task(kind, key):
        return "/v1/tasks/" + "/".join(urllib.parse.quote(name, safe="") for name in (kind, key))

    def _answer(self, method, path, body, name=None, timeout=TIMEOUT):
        _, body = self._request(method, path, body, name, timeout)
        return body["answer"], body.get("task")

    def _request(self, method, path, body=None, name=None, timeout=TIMEOUT):
        request = urllib.request.Request(self.url + path, method=method)
        request.add_header("Content-Type", "application/json")
        if name:
            request.add_header("Idempotency-Key", name)
        if self.token:
            request.add_header("Authorization", f"Bearer {self.token}")
        data = None if body is None else json.dumps(body).encode()
        try:
            with urllib.request.urlopen(request, data, timeout=timeout) as response:
                return response.status, json.load(response)
        except urllib.error.HTTPError as refused:
            # Whether it was carried out is not known.
            if refused.code >= 500:
                raise
            try:
                problem = json.load(refused)
            except ValueError:
                # Of a proxy.
                problem = {"detail": f"refused with the status {refused.code}"}
            # What a verb answers is no mistake of the caller's; nor is that there is no such task.
            if "answer" in problem or refused.code == 404:
                return refused.code, problem
            raise Refused(problem) from refused
