# SPDX-License-Identifier: LGPL-2.1-or-later
"""Figures of one measurement of --load, made from those of its client processes, and their table."""
import statistics

from . import listeners, report
from .heard import LOOKED_AT

MANY = 8  # listeners that are named


def summary(values, unit=1000.0):
    """Returns p50, p95, p99 and the largest, by default in milliseconds of seconds."""
    if not values:
        return {"n": 0, "p50": None, "p95": None, "p99": None, "max": None}
    return {**report.summary(values, unit), "max": max(values) * unit}


def merge(results, ramp):
    """Returns the figures of one measurement from those of its client processes."""
    rows = [dict(zip(listeners.ROW, row)) for result in results for row in result["utterances"]]
    retries = [after for result in results for after in result["retry_after"]]
    broken = {}
    for result in results:
        for why, count in result["broken"].items():
            broken[why] = broken.get(why, 0) + count
    reasons = {}
    for row in rows:
        reason = row["outcome"] or "cut by the end"
        reasons[reason] = reasons.get(reason, 0) + 1
    figures = {"utterances": len(rows)}
    for name in ("first_byte", "first_sound", "audible", "heard"):
        figures[name] = summary([row[name] for row in rows if row[name] is not None])
    figures["pieces"] = summary([row["pieces"] for row in rows if row["pieces"] is not None], 1.0)
    figures["from_piece"] = summary([row["from_piece"] for row in rows if row["from_piece"] is not None])
    # Those that begin one after the other, into a load that rises, and those that begin under the full load.
    first = [(row["begin"] < ramp, row["first_sound"]) for row in rows if row["first_sound"] is not None]
    figures["first_sound_ramp"] = summary([seconds for in_ramp, seconds in first if in_ramp])
    figures["first_sound_full"] = summary([seconds for in_ramp, seconds in first if not in_ramp])
    deaf = any(result["deaf"] for result in results)
    looked_at = [row for row in rows if row["audible"] is not None or row["sound"] >= LOOKED_AT or
                 row["outcome"] not in (None, "broken")]
    figures["never_audible"] = None if deaf else {
        "number": sum(row["audible"] is None for row in looked_at), "of": len(looked_at)}
    unheard = [row for row in rows if row["outcome"] is None and row["first_byte"] is None]
    figures["unheard_at_end"] = {"utterances": len(unheard), "longest": summary([row["age"] for row in unheard])["max"]}
    with_gaps = [row for row in rows if row["gaps"]]
    figures["gaps"] = {
        "number": sum(row["gaps"] for row in with_gaps), "long": sum(row["long_gaps"] for row in with_gaps),
        "utterances": len(with_gaps), "long_utterances": sum(row["long_gaps"] > 0 for row in with_gaps),
        "listeners": sorted({row["listener"] for row in with_gaps}),
        "longest": max((row["longest"] for row in with_gaps), default=0.0) * 1000,
        # Tells gaps of a load that rises from those of one moment and those of all the time.
        "ramp": sum(row["begin"] < ramp for row in with_gaps),
        "begin": sorted(row["begin"] for row in with_gaps),  # seconds of the measurement
        "silent": summary([row["silent"] for row in with_gaps])}
    figures["refused"] = {
        "number": len(retries), "without_retry_after": retries.count(None),
        "retry_after": summary([after for after in retries if after is not None], 1.0)}
    figures["broken"] = broken
    figures["reasons"] = reasons
    figures["client_late"] = summary([late for result in results for late in result["late"]])
    return figures


WIDTHS = (27, 7, 6, 7, 7, 6, 7, 7, 7, 7, 6, 6, 7)
HEAD = (f"{'utter-':>35} {'first byte, ms':>22} {'audible, ms':>22} {'sound':>22} {'cores of':>14}",
        ("", "ances", "p50", "p95", "p99", "p50", "p95", "p99", "gaps", "refused", "s/s", "server", "clients"))


def aligned(cells):
    first, *others = (f"{text:>{width}}" for text, width in zip(cells, WIDTHS))
    return " ".join([cells[0].ljust(len(first)), *others])


def head():
    return f"{HEAD[0]}\n{aligned(HEAD[1])}"


def cell(value, digits=1):
    return "-" if value is None else f"{value:.{digits}f}"


def shares(of):
    """Returns p50, p95 and p99 of a summary as text."""
    return [cell(of[share]) for share in ("p50", "p95", "p99")]


def table_row(figures):
    what = {"listeners": "{:g} listeners", "rates": "{:g} requests/s", "whole": "{:g} without clock"}[figures["kind"]]
    name = f"{figures['protocol']} {figures['format']}, {what.format(figures['number'])}"
    return aligned([name, str(figures["utterances"]), *shares(figures["first_byte"]), *shares(figures["audible"]),
                    str(figures["gaps"]["number"]), str(figures["refused"]["number"]),
                    cell(figures["sound_per_second"]), cell(figures["server_cores"], 2),
                    cell(figures["client_cores"], 2)])


def listed(numbers):
    text = ", ".join(map(str, numbers[:MANY]))
    return text + (f" and {len(numbers) - MANY} more" if len(numbers) > MANY else "")


def notes(figures):
    """Returns lines with what a row has no room for, as far as there is something to tell."""
    lines = []
    if figures["kind"] == "listeners":
        lines.append("first sound p50 / p95 / p99: " + ", ".join(
            f"{name} {' / '.join(shares(figures[of]))} ms of {figures[of]['n']}"
            for name, of in (("in the ramp", "first_sound_ramp"), ("later", "first_sound_full"))))
    if figures["pieces"]["n"]:
        lines.append(f"growing text spoke from piece {figures['pieces']['p50']:g} on (p50, at most "
                     f"{figures['pieces']['max']:g}), {' / '.join(shares(figures['from_piece']))} ms behind it")
    if figures["heard"]["n"]:
        lines.append(f"heard p50 / p95 / p99: {' / '.join(shares(figures['heard']))} ms")
    if figures["never_audible"] is None:
        lines.append("audible sound was not looked for: there is no libopus")
    elif figures["never_audible"]["number"]:
        lines.append("never audible: {number} of {of} utterances".format(**figures["never_audible"]))
    gaps = figures["gaps"]
    if gaps["number"]:
        lines.append(f"gaps in {gaps['utterances']} utterances, {gaps['long']} of 10 ms at least, the longest "
                     f"{gaps['longest']:.1f} ms; of {len(gaps['listeners'])} listeners: {listed(gaps['listeners'])}")
        begin = gaps["begin"]
        lines.append(f"{gaps['ramp']} of these utterances began in the ramp; the first after {begin[0]:.1f} s, half "
                     f"until {statistics.median(begin):.1f}, the last after {begin[-1]:.1f}")
    after = figures["refused"]["retry_after"]
    if after["n"]:
        lines.append(f"retry-after of {after['n']}: p50 {after['p50']:g}, at most {after['max']:g} s")
    if figures["broken"]:
        lines.append("broken: " + ", ".join(f"{count} {why}" for why, count in figures["broken"].items()))
    if figures["unheard_at_end"]["utterances"]:
        lines.append(f"still without sound at the end: {figures['unheard_at_end']['utterances']}, one for "
                     f"{figures['unheard_at_end']['longest']:.0f} ms")
    if figures["server_cores"] is not None:
        lines.append(f"of the server's cores, its main thread {figures['server_main_thread_cores']:.2f}, encoders "
                     f"{figures['server_encoder_cores']:.2f}, streaming threads {figures['server_streaming_cores']:.2f}")
    lines.append(f"{figures['clients']} client processes, late by {cell(figures['client_late']['p99'])} ms at p99; "
                 f"{figures['load']}")
    return "".join(f"    {line}\n" for line in lines)
