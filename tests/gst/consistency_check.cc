// SPDX-License-Identifier: LGPL-2.1-or-later
// Check: 6
// Order of buffers and events that leave the element, checked by GstStreamConsistency, which needs a libcheck program.
// flow_test.cc checks the same rules in other pipelines.
#include <initializer_list>

#include "support.h"

// After all others: libcheck defines `fail`, a name of the standard library.
#include <gst/check/gstcheck.h>
#include <gst/check/gstconsistencychecker.h>

GST_ELEMENT_REGISTER_DECLARE(qttssrc);

namespace qtts::testing {
namespace {

// Watches the src pad.
class Checker {
 public:
  explicit Checker(const Pipeline& pipeline) : pad_(gst_element_get_static_pad(pipeline.src(), "src")) {
    checker_ = gst_consistency_checker_new(pad_.get());
  }
  ~Checker() { gst_consistency_checker_free(checker_); }
  Checker(const Checker&) = delete;
  Checker& operator=(const Checker&) = delete;

 private:
  Owned<GstPad> pad_;
  GstStreamConsistency* checker_;
};

void Flush(Feeder* feeder, gboolean reset_time) {
  ck_assert(feeder->Send(gst_event_new_flush_start()));
  ck_assert(feeder->Send(gst_event_new_flush_stop(reset_time)));
  feeder->Begin();
}

GST_START_TEST(a_text_to_its_end) {
  fake::Reset();
  Pipeline pipeline("qttssrc name=src text=abc ! fakesink");
  const Checker checker(pipeline);
  ck_assert(pipeline.PlayToEnd());
}
GST_END_TEST

GST_START_TEST(text_from_upstream_with_flushes) {
  fake::Reset();
  Pipeline pipeline("qttssrc name=src leading-silence=50000000 ! fakesink async=false");
  const Checker checker(pipeline);
  Recorder& record = pipeline.Record();
  Feeder feeder(pipeline.src());
  pipeline.Set(GST_STATE_PLAYING);
  feeder.Begin();
  for (int round = 0; round < 10; ++round) {
    const size_t count = record.buffer_count();
    feeder.Push("a text that is cut off");
    ck_assert(WaitFor([&] { return record.buffer_count() >= count + static_cast<size_t>(round); }));
    Flush(&feeder, static_cast<gboolean>(round % 2));
  }
  feeder.Push("a text to its end");
  feeder.End();
  ck_assert(pipeline.Wait(GST_MESSAGE_EOS) != nullptr);
  Flush(&feeder, TRUE);
  feeder.Push("after the end");
  feeder.End();
  ck_assert(pipeline.Wait(GST_MESSAGE_EOS) != nullptr);
}
GST_END_TEST

GST_START_TEST(interrupts_and_silence_when_live) {
  fake::Reset();
  Pipeline pipeline("qttssrc name=src is-live=true idle-mode=silence ! fakesink sync=false async=false");
  const Checker checker(pipeline);
  Recorder& record = pipeline.Record();
  pipeline.Set(GST_STATE_PLAYING);
  for (int round = 0; round < 5; ++round) {
    const size_t count = record.buffer_count();
    g_object_set(pipeline.src(), "text", "abcdefgh", nullptr);
    ck_assert(WaitFor([&] { return record.buffer_count() > count + 3; }));
    guint64 frames = 0;
    g_signal_emit_by_name(pipeline.src(), "interrupt", &frames);
    pipeline.Set(round % 2 == 0 ? GST_STATE_PAUSED : GST_STATE_PLAYING);
    pipeline.Set(GST_STATE_PLAYING);
  }
  ck_assert(gst_element_send_event(pipeline.src(), gst_event_new_eos()));
  ck_assert(pipeline.Wait(GST_MESSAGE_EOS) != nullptr);
}
GST_END_TEST

GST_START_TEST(a_seek_to_the_beginning) {
  fake::Reset();
  Pipeline pipeline("qttssrc name=src text=abc ! fakesink async=false");
  const Checker checker(pipeline);
  for (int round = 0; round < 3; ++round) {
    ck_assert(pipeline.PlayToEnd());
    ck_assert(gst_element_seek_simple(pipeline.src(), GST_FORMAT_TIME, GST_SEEK_FLAG_FLUSH, 0));
  }
  ck_assert(pipeline.Wait(GST_MESSAGE_EOS) != nullptr);
}
GST_END_TEST

// Must fail: an EOS before a stream-start.
GST_START_TEST(disorder) {
  const Owned<GstPad> pad(GST_PAD(gst_object_ref_sink(gst_pad_new("src", GST_PAD_SRC))));
  gst_pad_set_active(pad.get(), TRUE);
  GstStreamConsistency* checker = gst_consistency_checker_new(pad.get());
  gst_pad_push_event(pad.get(), gst_event_new_eos());
  gst_consistency_checker_free(checker);
}
GST_END_TEST

Suite* NewSuite(const char* name, std::initializer_list<TFun> tests) {
  Suite* suite = suite_create(name);
  TCase* chain = tcase_create(name);
  tcase_set_timeout(chain, 0);  // `meson test` has a time-out of its own
  for (TFun test : tests) tcase_add_test(chain, test);
  suite_add_tcase(suite, chain);
  return suite;
}

bool CheckerFindsDisorder() {
  SRunner* runner = srunner_create(NewSuite("disorder", {disorder}));
  srunner_run_all(runner, CK_SILENT);
  const bool found = srunner_ntests_failed(runner) == 1;
  srunner_free(runner);
  return found;
}

}  // namespace
}  // namespace qtts::testing

int main(int argc, char** argv) {
  using namespace qtts::testing;  // NOLINT(google-build-using-namespace)
  gst_check_init(&argc, &argv);
  if (!GST_ELEMENT_REGISTER(qttssrc, nullptr)) return 1;
  if (!CheckerFindsDisorder()) {
    g_printerr("the checker lets everything pass\n");
    return 1;
  }
  return gst_check_run_suite(NewSuite("consistency", {a_text_to_its_end, text_from_upstream_with_flushes,
                                                      interrupts_and_silence_when_live, a_seek_to_the_beginning}),
                             "consistency", __FILE__);
}
