#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""Changes of the sources that a patch tolerates, and the errors for those that it does not."""
import pathlib
import tempfile
import unittest

from planting import Misplaced, parse, plant

SOURCE = """\
bool Speech::Commit(uint64_t time) {
  const Lock lock(mutex_);
  if (!current_) return false;  // only Next() begins another
  current_->frames += 1;
  monitor_->Announce();
  return true;
}

bool Speech::Drop() {
  const Lock lock(mutex_);
  queue_.clear();
  monitor_->Announce();
  return true;
}
"""
REPLACES = """\
A frame is kept.
Test: live *C25*

diff --git a/gst/speech.cpp b/gst/speech.cpp
--- a/gst/speech.cpp
+++ b/gst/speech.cpp
@@ -1,6 +1,6 @@ bool Speech::Commit(uint64_t time) {
 bool Speech::Commit(uint64_t time) {
   const Lock lock(mutex_);
-  if (!current_) return false;  // only Next() begins another
+  if (!current_) return true;
   current_->frames += 1;
   monitor_->Announce();
   return true;
"""
REMOVES = """\
Room is not announced.
Test: input *C15*

diff --git a/gst/speech.cpp b/gst/speech.cpp
--- a/gst/speech.cpp
+++ b/gst/speech.cpp
@@ -9,5 +9,4 @@ bool Speech::Drop() {
   const Lock lock(mutex_);
   queue_.clear();
-  monitor_->Announce();
   return true;
 }
"""
ADDS = """\
A drop waits.
Test: input *C15*

diff --git a/gst/speech.cpp b/gst/speech.cpp
--- a/gst/speech.cpp
+++ b/gst/speech.cpp
@@ -9,5 +9,6 @@ bool Speech::Drop() {
   const Lock lock(mutex_);
   queue_.clear();
+  Sleep();
   monitor_->Announce();
   return true;
 }
"""


class PlantingTest(unittest.TestCase):
    def setUp(self) -> None:
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.root = pathlib.Path(scratch.name)
        for folder in ("gst", "engine", "cuda"):
            (self.root / folder).mkdir()

    def planted(self, patch: str, source: str, file: str = "gst/speech.cpp") -> str:
        """The text with the fault, without line breaks and indentation."""
        path = self.root / file
        path.write_text(source)
        result = plant(self.root, parse("fault", patch))
        self.assertEqual(list(result), [path])
        return " ".join(result[path].split())

    def assert_misplaced(self, patch: str, source: str, message: str) -> None:
        with self.assertRaisesRegex(Misplaced, message):
            self.planted(patch, source)

    def test_plants_what_the_patch_says(self) -> None:
        self.assertIn("if (!current_) return true; // only Next() begins another current_->frames",
                      self.planted(REPLACES, SOURCE))
        self.assertIn("queue_.clear(); return true;", self.planted(REMOVES, SOURCE))
        self.assertIn("queue_.clear(); Sleep(); monitor_->Announce(); return true;", self.planted(ADDS, SOURCE))
        for patch in (REPLACES, REMOVES, ADDS):
            self.assertEqual(self.planted(patch, SOURCE).count("Announce"), 1 if patch is REMOVES else 2)

    def test_lines_before_it_do_not_matter(self) -> None:
        self.assertIn("return true; //", self.planted(REPLACES, "// A line.\n" * 500 + SOURCE))

    def test_line_breaks_and_comments_do_not_matter(self) -> None:
        source = SOURCE.replace("  if (!current_) return false;  // only Next() begins another",
                                "  // Begun by Next() alone.\n\n      if (!current_)\n  return false;")
        self.assertIn("if (!current_) return true; current_->frames", self.planted(REPLACES, source))
        self.assertIn("// Begun by Next() alone.", self.planted(REPLACES, source))

    def test_changed_lines_around_it_do_not_matter(self) -> None:
        source = SOURCE.replace("Commit(uint64_t time)", "Commit()").replace("frames += 1", "frames += count")
        self.assertIn("if (!current_) return true;", self.planted(REPLACES, source))
        self.assertIn("queue_.clear(); return true;", self.planted(REMOVES, SOURCE.replace("}\n", "more();\n}\n")))

    def test_another_file_does_not_matter(self) -> None:
        self.assertIn("return true; //", self.planted(REPLACES, SOURCE, "engine/elsewhere.cc"))

    def test_a_place_that_is_gone_is_told(self) -> None:
        self.assert_misplaced(REPLACES, SOURCE.replace("!current_", "current_ == nullptr"),
                              r"fault: its place \(bool Speech::Commit\(uint64_t time\)\) is not in gst/speech.cpp any more")

    def test_another_function_is_no_place(self) -> None:
        source = SOURCE.replace("  queue_.clear();\n  monitor_->Announce();\n", "")
        self.assert_misplaced(REMOVES, source, r"Speech::Drop\(\)\) is not in gst/speech.cpp")
        self.assertNotIn("Announce", self.planted(REMOVES, source.replace("Speech::Drop", "Speech::Forget")))

    def test_a_place_of_which_there_are_two_is_told(self) -> None:
        self.assert_misplaced(REPLACES, SOURCE + SOURCE, "is there 2 times, in speech.cpp")
        # Without its context both places fit. The nearer one must not be chosen.
        source = SOURCE.replace("  queue_.clear();\n", "").replace("  return true;\n", "")
        self.assert_misplaced(REMOVES, source.replace("Speech::Drop", "Speech::Forget"), "is there 2 times")

    def test_a_bad_patch_is_told(self) -> None:
        self.assert_misplaced("diff --git a/x b/x\n" + REPLACES.split("\n\n", 1)[1], SOURCE, "Test: TEST PATTERN")
        self.assert_misplaced("A title.\nTest: live *\n", SOURCE, "holds no patch")
        self.assert_misplaced(REPLACES.replace("\n   monitor_", "\nmonitor_"), SOURCE, "no patch of git's")
        self.assert_misplaced(REPLACES.replace("\n-  if", "\n -  if"), SOURCE, "not the lines that its heading counts")


unittest.main()
