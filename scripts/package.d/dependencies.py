"""Lists what the tool is linked of, with all licences: dependencies.py METADATA FOLDER SBOM

METADATA is what `cargo metadata` prints for a target. FOLDER gets a file with each licence once and the crates that have it;
SBOM is a CycloneDX 1.5 document. Left out is what only tests and builds need.
"""

import hashlib
import json
import pathlib
import re
import sys
import uuid
from urllib.parse import quote

metadata = json.load(open(sys.argv[1]))
folder, sbom = pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3])
packages = {package["id"]: package for package in metadata["packages"]}
nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
tool = next(id for id, package in packages.items() if package["name"] == "delayline-server")


def linked(id):
    """What a package needs to run."""
    for dependency in nodes[id]["deps"]:
        if any(kind["kind"] is None for kind in dependency["dep_kinds"]):
            yield dependency["pkg"]


found, left = {tool}, [tool]
while left:
    for id in linked(left.pop()):
        if id not in found:
            found.add(id)
            left.append(id)
ours = set(metadata["workspace_members"])
theirs = sorted(found - ours, key=lambda id: (packages[id]["name"], packages[id]["version"]))


NAMES = re.compile("licen[cs]e|copying|copyright|notice|unlicense", re.IGNORECASE)
CODE = {".c", ".h", ".html", ".json", ".pl", ".py", ".rs", ".sh", ".toml", ".yaml", ".yml"}


def texts(package):
    """The licences and notices that come with a package, wherever in it: libraries in C have their own."""
    place = pathlib.Path(package["manifest_path"]).parent
    for file in sorted(place.rglob("*")):
        if NAMES.match(file.name) and file.suffix.lower() not in CODE and file.is_file():
            yield file.read_text(errors="replace").strip()


# The text for crates that come without one: the same in all crates with that license.
MIT = next(
    text
    for id in theirs
    if packages[id]["license"] == "MIT"
    for text in texts(packages[id])
    if text.startswith("MIT License") or text.startswith("Permission is hereby granted")
)
MIT = "Permission is hereby granted" + MIT.split("Permission is hereby granted", 1)[1]
APACHE = pathlib.Path("LICENSE").read_text().strip()

having = {}
for id in theirs:
    package = packages[id]
    name = f"{package['name']} {package['version']}"
    own = list(texts(package))
    if not own:
        declared = package["license"] or ""
        text = APACHE if "Apache-2.0" in declared else MIT if "MIT" in declared else None
        if text is None:
            sys.exit(f"{name} ({declared}) comes without the text of its licence: add it")
        authors = ", ".join(package["authors"]) or f"the authors of {package['name']}"
        own = [f"Copyright {authors}\n\n{text}"] if text is MIT else [text]
    for text in own:
        having.setdefault(text, set()).add(f"{name} ({package['license'] or 'see below'})")

with open(folder / "THIRD-PARTY.txt", "w") as out:
    out.write(f"delayline is linked of {len(theirs)} crates. Their licences, each text once:\n")
    for text, crates in sorted(having.items(), key=lambda item: sorted(item[1])):
        out.write("\n" + "=" * 80 + "\n" + "\n".join(sorted(crates)) + "\n" + "-" * 80 + "\n\n" + text + "\n")


def purl(package):
    return f"pkg:cargo/{quote(package['name'])}@{quote(package['version'])}"


def component(package, kind):
    described = {
        "type": kind,
        "bom-ref": purl(package),
        "name": package["name"],
        "version": package["version"],
        "purl": purl(package),
    }
    if package["description"]:
        described["description"] = " ".join(package["description"].split())
    if package["license"]:
        described["licenses"] = [{"expression": package["license"].replace("/", " OR ")}]
    if package["repository"]:
        described["externalReferences"] = [{"type": "vcs", "url": package["repository"]}]
    return described


# What Cargo.lock says that was fetched.
sums = dict(
    ((name, version), checksum)
    for name, version, checksum in re.findall(
        r'name = "(.*)"\nversion = "(.*)"\nsource = .*\nchecksum = "(.*)"', pathlib.Path("Cargo.lock").read_text()
    )
)
components = []
for id in sorted(found - {tool}, key=lambda id: purl(packages[id])):
    described = component(packages[id], "library")
    checksum = sums.get((packages[id]["name"], packages[id]["version"]))
    if checksum:
        described["hashes"] = [{"alg": "SHA-256", "content": checksum}]
    components.append(described)
document = {
    "bomFormat": "CycloneDX",
    "specVersion": "1.5",
    "version": 1,
    "metadata": {"component": component(packages[tool], "application")},
    "components": components,
    "dependencies": [
        {"ref": purl(packages[id]), "dependsOn": sorted({purl(packages[other]) for other in linked(id)})}
        for id in sorted(found, key=lambda id: purl(packages[id]))
    ],
}
# By its content, so that the same build has the same.
digest = hashlib.sha256(json.dumps(document, sort_keys=True).encode()).digest()
document["serialNumber"] = uuid.UUID(bytes=digest[:16], version=4).urn
sbom.write_text(json.dumps(document, indent=1) + "\n")
print(f"{len(theirs)} crates, {len(having)} texts of licences", file=sys.stderr)
