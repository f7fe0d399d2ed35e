"""Compares what `delayline bench --json` printed with benches/floors.tsv: floors.py FLOORS FIGURES"""

import json
import sys

WORSE = 1.5

floors = {}
for line in open(sys.argv[1]):
    if not line.startswith("#"):
        workload, what, store, ratio = line.rstrip("\n").split("\t")
        floors[workload, what, store] = float(ratio)

fallen = 0
for line in open(sys.argv[2]):
    figure = json.loads(line)
    floor = floors.pop((figure["workload"], figure["what"], figure.get("store")), None)
    if floor is None:
        continue
    ratio = figure["ratio"]
    # Times are multiples of the limit's, which are to be small; rates are parts of it, which are to be large.
    bad = ratio > floor * WORSE if figure["aim"].startswith("at most") else ratio < floor / WORSE
    fallen += bad
    print(f"{'FELL' if bad else 'ok  '} {figure['workload']} {figure['what']}, {figure['store']}: {ratio} x, was {floor} x")
for missing in floors:
    print("FELL", *missing, "was not measured")
sys.exit(1 if fallen or floors else 0)
