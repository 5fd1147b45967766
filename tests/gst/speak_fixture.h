// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_TESTS_GST_SPEAK_FIXTURE_H_
#define QTTS_TESTS_GST_SPEAK_FIXTURE_H_

#include "support.h"

namespace qtts::testing {

// Keeps its sink pad, so that the element waits for text.
class SpeakTest : public GstTest {
 protected:
  SpeakTest() { speak_.feeder(); }

  GstElement* src() const { return speak_.src(); }
  void Play() {
    speak_.Set(GST_STATE_PLAYING);
    speak_.Open();
  }

  Speak speak_;
};

}  // namespace qtts::testing

#endif  // QTTS_TESTS_GST_SPEAK_FIXTURE_H_
