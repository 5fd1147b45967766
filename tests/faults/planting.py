# SPDX-License-Identifier: LGPL-2.1-or-later
"""Finds the place of a patch in sources that have changed since it was made.

`git apply` and `patch` match whole lines near a line number, and choose the nearest of several places. This module
matches a sequence of C++ tokens, and the place must be unique. Line breaks, indentation, comments, line numbers and
moves between files do not matter. If outer context lines have changed, as few as possible are left out. The removed
lines must match. If lines are only added, one line beside them must match. If a function of the hunk's heading exists,
the place must be inside it.
"""
import pathlib
import re
from typing import NamedTuple

FOLDERS = ("gst", "engine", "cuda")
SUFFIXES = (".cpp", ".cc", ".h", ".cu", ".cuh")
TOKEN = re.compile(r"""//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|\w+|\S""", re.DOTALL)
HEADING = re.compile(r"^[A-Za-z_].*?([~\w]+)\(", re.MULTILINE)  # of a function, for those that begin a line
HUNK = r"^@@ -\d+(?:,(\d+))? \+\d+(?:,(\d+))? @@ ?(.*)\n"  # its lines before and after, its function
TEST = re.compile(r"^Test: (\S+) (\S+)$", re.MULTILINE)


class Misplaced(Exception):
    """The message says why a fault cannot be planted."""


class Edit(NamedTuple):
    begin: int
    end: int
    text: str


class Hunk(NamedTuple):
    file: str
    function: str  # its heading
    lines: list[str]  # each with its sign


class Fault(NamedTuple):
    name: str  # of its file, without .patch
    title: str  # the first line
    test: str  # of meson
    pattern: str  # for --gtest_filter
    hunks: list[Hunk]


def tokens(text: str) -> list[tuple[str, int, int]]:
    """The tokens of C++ text with their offsets, without comments."""
    return [(m.group(), m.start(), m.end()) for m in TOKEN.finditer(text) if not m.group().startswith(("//", "/*"))]


def words(line: str) -> list[str]:
    return [token for token, _, _ in tokens(line)]


def heading_of(function: str, lines: list[str]) -> str:
    """The heading of the function that a hunk changes. git names the function in which the context begins."""
    for line in lines:
        if line[0] != " ":
            break
        if HEADING.match(line[1:]):
            function = line[1:]
    return function.rstrip(" {")


def is_in(function: str, text: str, offset: int) -> bool:
    """Whether the place is in the function of this heading, or there is none of its name."""
    wanted = HEADING.match(function)
    names = [(match.start(), match.group(1)) for match in HEADING.finditer(text)]
    if not wanted or wanted.group(1) not in (name for _, name in names):
        return True
    before = [name for start, name in names if start <= offset]
    return bool(before) and before[-1] == wanted.group(1)


def parse(name: str, text: str) -> Fault:
    """Reads a patch as git writes it, below a title and a line `Test: TEST PATTERN`."""
    head, *diffs = re.split(r"^diff --git .*\n", text, flags=re.MULTILINE)
    test = TEST.search(head)
    if not head.strip() or not test:
        raise Misplaced(f"{name}: begins with no title and no line 'Test: TEST PATTERN'")
    hunks = []
    for diff in diffs:
        before, *parts = re.split(HUNK, diff, flags=re.MULTILINE)
        file = re.search(r"^--- a/(\S+)", before, re.MULTILINE)
        for old, new, function, part in zip(parts[::4], parts[1::4], parts[2::4], parts[3::4]):
            lines = [line or " " for line in part.splitlines() if not line.startswith("\\")]
            if not file or any(line[0] not in " +-" for line in lines) or all(line[0] == " " for line in lines):
                raise Misplaced(f"{name}: holds what is no patch of git's")
            # A sign that was shifted makes a line of another kind.
            counts = [sum(line[0] != sign for line in lines) for sign in "+-"]
            if counts != [int(old or 1), int(new or 1)]:
                raise Misplaced(f"{name}: a hunk has not the lines that its heading counts")
            hunks.append(Hunk(file.group(1), heading_of(function, lines), lines))
    if not hunks:
        raise Misplaced(f"{name}: holds no patch")
    return Fault(name, head.strip().splitlines()[0], test.group(1), test.group(2), hunks)


def find(sequence: list[str], wanted: list[str]) -> list[int]:
    return [i for i in range(len(sequence) - len(wanted) + 1) if sequence[i : i + len(wanted)] == wanted]


def edits_at(found: list[tuple[str, int, int]], place: int, lines: list[str]) -> tuple[Edit, ...]:
    """The edits of a hunk whose old tokens begin with number `place`."""
    edits = []
    i = 0
    while i < len(lines):
        if lines[i][0] == " ":
            place += len(words(lines[i][1:]))
            i += 1
            continue
        first, added = place, []
        while i < len(lines) and lines[i][0] != " ":
            if lines[i][0] == "-":
                place += len(words(lines[i][1:]))
            else:
                added.append(lines[i][1:])
            i += 1
        if place > first:
            begin, end = found[first][1], found[place - 1][2]
        else:
            begin = end = found[first - 1][2] if first > 0 else 0
        edits.append(Edit(begin, end, "\n" + "\n".join(added) + "\n"))
    return tuple(edits)


def places(text: str, hunk: Hunk) -> set[tuple[Edit, ...]]:
    """The edits for each place where the hunk fits with as little outer context left out as possible."""
    lines = hunk.lines
    found = tokens(text)
    sequence = [token for token, _, _ in found]
    changed = [i for i, line in enumerate(lines) if line[0] != " "]
    lead, trail = changed[0], len(lines) - 1 - changed[-1]
    for dropped in range(lead + trail + 1):
        fits = set()
        for top in range(max(0, dropped - trail), min(lead, dropped) + 1):
            kept = lines[top : len(lines) - (dropped - top)]
            old = [word for line in kept if line[0] != "+" for word in words(line[1:])]
            if old:
                fits |= {edits_at(found, place, kept) for place in find(sequence, old)}
        fits = {edits for edits in fits if is_in(hunk.function, text, edits[0].begin)}
        if fits:
            return fits
    return set()


def plant(root: pathlib.Path, fault: Fault) -> dict[pathlib.Path, str]:
    """The files that the fault changes, and their changed text."""
    result: dict[pathlib.Path, str] = {}

    def text_of(path: pathlib.Path) -> str:
        return result[path] if path in result else path.read_text()

    for hunk in fault.hunks:
        what = f"{fault.name}: its place ({hunk.function or 'top of the file'})"
        named = root / hunk.file
        fits = [(named, edits) for edits in places(text_of(named), hunk)] if named.exists() else []
        if not fits:  # moved to another file?
            others = [path for folder in FOLDERS for path in sorted((root / folder).rglob("*"))
                      if path.suffix in SUFFIXES and path != named]
            fits = [(path, edits) for path in others for edits in places(text_of(path), hunk)]
        if not fits:
            raise Misplaced(f"{what} is not in {hunk.file} any more, nor in another file: make the patch anew")
        if len(fits) > 1:
            raise Misplaced(f"{what} is there {len(fits)} times, in {', '.join(sorted({p.name for p, _ in fits}))}: "
                            "make the patch anew with more context (git diff -U6)")
        path, edits = fits[0]
        text = text_of(path)
        for edit in reversed(edits):
            text = text[: edit.begin] + edit.text + text[edit.end :]
        result[path] = text
    return result
