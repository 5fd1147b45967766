# SPDX-License-Identifier: LGPL-2.1-or-later
"""For a server that a test starts: some texts and languages raise where nothing expects it."""
import importlib.abc
import sys


class Faults(importlib.abc.MetaPathFinder):
    """Changes qtts_serve.stream_route when it is imported, and by then all that it imports."""

    def find_spec(self, name, path=None, target=None):
        if name == "qtts_serve.stream_route":
            sys.meta_path.remove(self)
            from qtts_serve import fields, speaker
            structure, read_session = speaker.structure, fields.read_session

            def fail_on_text(name, settings):
                if settings.get("instruct") == "fault":
                    raise OverflowError("on purpose")
                return structure(name, settings)

            def fail_on_language(given, *more):
                if given.get("language") == "fault":
                    raise ArithmeticError("on purpose")
                return read_session(given, *more)

            speaker.structure, fields.read_session = fail_on_text, fail_on_language
        return None


sys.meta_path.insert(0, Faults())
