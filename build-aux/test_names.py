# SPDX-License-Identifier: LGPL-2.1-or-later
"""The names of the test cases, as they stand in the sources: nothing has to be built."""
import fnmatch
import pathlib
import re

CASE = re.compile(r"^(?:TYPED_)?TEST(_F|_P)?\(\s*(\w+),\s*(\w+)\s*\)", re.MULTILINE)
ROOT = pathlib.Path(__file__).resolve().parents[1]


def test_names() -> dict[str, bool]:
    """SUITE.NAME of every case, and whether it has parameters."""
    return {f"{suite}.{name}": kind == "_P"
            for path in sorted((ROOT / "tests").rglob("*.cc"))
            for kind, suite, name in CASE.findall(path.read_text(encoding="utf-8"))}


def matches(pattern: str, names: dict[str, bool]) -> bool:
    """Whether --gtest_filter=PATTERN, of which no part begins with a minus, chooses any."""
    return any(fnmatch.fnmatchcase(name, part) or (parameters and fnmatch.fnmatchcase(f"/{name}/", part))
               for part in pattern.split(":") for name, parameters in names.items())
