"""Runs what docker-compose.yml starts, without containers: compose.py BINARY, as root

Each command, variable and health check is taken from the file as it stands, and what the image of Delayline runs from its
Dockerfile. All run in a network of their own, which the services of the file share too. The image of RocketMQ has scripts
that start Java; here they are replaced, with the same names and the jars of the same version. Then a message is delayed.
"""

import ast
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

import yaml

here = pathlib.Path(__file__).resolve().parents[2]
compose = yaml.safe_load((here / "docker-compose.yml").read_text())
services = {name: service for name, service in compose["services"].items() if "profiles" not in service}
version = services["broker"]["image"].split(":")[1]
jars = os.environ.get("DELAYLINE_JARS")
if jars is None:
    # They are fetched once, for which there has to be a network; then all starts anew in one with nothing but the loopback.
    jars = [here / "scripts/rocketmq", "jars", version]
    os.environ["DELAYLINE_JARS"] = subprocess.run(jars, stdout=subprocess.PIPE, text=True, check=True).stdout.strip()
    apart = ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
    own = 'ip link set lo up && mount -t tmpfs tmpfs /tmp && exec "$@"'
    os.execvp("unshare", [*apart, "sh", "-c", own, "sh", sys.executable, __file__, *sys.argv[1:]])

# All that has a port is in one network, and each port leads to itself.
assert services["namesrv"]["ports"] == [f"127.0.0.1:{port}:{port}" for port in (9876, 10909, 10911, 7700)]
assert all(name == "namesrv" or service["network_mode"] == "service:namesrv" for name, service in services.items())

folder = pathlib.Path(tempfile.mkdtemp())
folder.chmod(0o755)
# What the scripts of the image give Java; and this machine's disk may be fuller than theirs.
SETTINGS = " ".join(
    ["--add-exports java.base/sun.nio.ch=ALL-UNNAMED"]
    + [f"--add-opens java.base/{package}=ALL-UNNAMED" for package in ("sun.nio.ch", "java.nio", "jdk.internal.ref")]
    + [f"-Drocketmq.broker.disk{ratio}" for ratio in ("SpaceWarningLevelRatio=0.98", "SpaceCleanForciblyRatio=0.97")]
)
for name, main in {
    "mqnamesrv": "namesrv.NamesrvStartup",
    "mqbroker": "broker.BrokerStartup",
    "mqadmin": "tools.command.MQAdminStartup",
}.items():
    java = f'exec java $JAVA_OPT_EXT {SETTINGS} -Duser.home="$HOME" -cp "{jars}/*" org.apache.rocketmq.{main} "$@"'
    (folder / name).write_text(f'export ROCKETMQ_HOME="$HOME"\n{java}\n')


def words(said):
    """A command, in which the file has `$$` for `$`."""
    parts = shlex.split(said) if isinstance(said, str) else said
    return [part.replace("$$", "$") for part in parts]


dockerfile = (here / "deploy/Dockerfile").read_text()
image = {key: ast.literal_eval(re.search(rf"^{key} (\[.*\])$", dockerfile, re.MULTILINE)[1]) for key in ("ENTRYPOINT", "CMD")}
user = int(re.search(r"^USER (\d+):", dockerfile, re.MULTILINE)[1])
tool = pathlib.Path(sys.argv[1]).resolve()


def start(name, service):
    home = folder / f"home-{name}"
    home.mkdir()
    environment = {"PATH": os.environ["PATH"], "HOME": str(home), **service.get("environment", {})}
    others, cwd, command = {}, folder, words(service.get("command", ""))
    if name == "delayline":
        os.chown(home, user, user)
        command = [str(tool), *image["ENTRYPOINT"][1:], *(command or image["CMD"])]
        cwd, others = home, {"user": user, "group": user}
    log = open(folder / f"{name}.log", "w")
    return subprocess.Popen(command, cwd=cwd, env=environment, stdout=log, stderr=subprocess.STDOUT, **others)


def until_healthy(name, service, process):
    check = service["healthcheck"]
    assert check["test"][0] == "CMD", check
    seconds = [float(check[key].removesuffix("s")) for key in ("interval", "timeout")]
    for _ in range(check["retries"]):
        try:
            if subprocess.run(words(check["test"][1:]), timeout=seconds[1], capture_output=True).returncode == 0:
                return
        except subprocess.TimeoutExpired:
            pass
        if process.poll() is not None:
            break
        time.sleep(seconds[0])
    sys.exit(f"{name} is not healthy:\n" + (folder / f"{name}.log").read_text()[-3000:])


def run():
    healthy, left = set(), dict(services)
    while left:
        name = next(name for name in left if set(left[name].get("depends_on", {})) <= healthy)
        service = left.pop(name)
        assert all(wanted == {"condition": "service_healthy"} for wanted in service.get("depends_on", {}).values())
        began = time.monotonic()
        until_healthy(name, service, start(name, service))
        healthy.add(name)
        print(f"{name} is healthy after {time.monotonic() - began:.0f} s", flush=True)

    def status(token):
        request = urllib.request.Request("http://127.0.0.1:7700/v1/kinds", headers={"authorization": f"Bearer {token}"})
        try:
            return urllib.request.urlopen(request).status
        except urllib.error.HTTPError as refused:
            return refused.code

    assert (status("delayline"), status("other")) == (200, 401), "the token is not the one that the file names"
    # An ordinary producer and an ordinary consumer.
    java = here / "scripts/test.d/Delayed.java"
    said = subprocess.run(["java", "-cp", f"{jars}/*", java], capture_output=True, text=True, timeout=120)
    if said.returncode != 0:
        sys.exit(f"no message came out: {said.stdout}{said.stderr[-3000:]}\n" + (folder / "delayline.log").read_text()[-3000:])
    # Beside what Java's client logs.
    print(said.stdout.strip().splitlines()[-1])


run()
