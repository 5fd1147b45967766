# SPDX-License-Identifier: LGPL-2.1-or-later
"""Prints figures that --load wrote with --json as rows for gnuplot: a block for each protocol and format, separated by
two empty lines, whose first line is its name. doc/draw-listeners reads them.

    python3 examples/serve/measure/rows.py FILE [listeners | rates]

Columns: the number of listeners or of requests a second; p50, p95 and p99 of the time to audible sound in ms, or to the
first sound where audible sound was not looked for; the share of utterances with a gap of 10 ms at least, in %; cores of
the server, and of the clients. "-" stands for an unknown value.
"""
import json
import sys


def blocks(loads, kind):
    """Returns the rows of each protocol and format, by name, in the order of the file."""
    found = {}
    for load in loads:
        if load["kind"] == kind:
            first = load["audible"] if load["audible"]["n"] else load["first_sound"]
            share = 100 * load["gaps"]["long_utterances"] / load["utterances"] if load["utterances"] else None
            found.setdefault(f"{load['protocol']} {load['format']}", []).append(
                [load["number"], first["p50"], first["p95"], first["p99"], share, load["server_cores"],
                 load["client_cores"]])
    return found


def text(found):
    """Returns the rows as gnuplot reads them."""
    def line(row):
        return "\t".join("-" if value is None else f"{value:g}" for value in row)

    return "\n\n\n".join("\n".join([f'"{name}"', *map(line, sorted(rows))]) for name, rows in found.items()) + "\n"


if __name__ == "__main__":
    with open(sys.argv[1], encoding="utf-8") as file:
        sys.stdout.write(text(blocks(json.load(file)["loads"], (sys.argv[2:] or ["listeners"])[0])))
