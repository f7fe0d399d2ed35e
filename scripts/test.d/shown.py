"""Whether a page shows files as they are: shown.py PAGE FILE…"""

import sys

page = open(sys.argv[1], encoding="utf-8").read()
stale = [
    path
    for path in sys.argv[2:]
    if f"\n{open(path, encoding='utf-8').read()}```\n" not in page
]
for path in stale:
    print(f"{sys.argv[1]} does not show {path} as it is", file=sys.stderr)
sys.exit(1 if stale else 0)
