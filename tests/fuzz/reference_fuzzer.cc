// SPDX-License-Identifier: LGPL-2.1-or-later
// Check: 55
// Any bytes as a recording to clone: it is decoded, or there is one short error. GStreamer's elements run as they are
// installed, without instrumentation; what they do wrong in their own memory is found by AddressSanitizer's allocator.
#include <fcntl.h>
#include <gst/gst.h>
#include <sys/mman.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>

#include "fuzz/check.h"
#include "gstqttsreference.h"

namespace {

// A file in memory that every input is written to.
class MemoryFile {
 public:
  MemoryFile() : descriptor_(memfd_create("reference", MFD_CLOEXEC)) { QTTS_FUZZ_CHECK(descriptor_ >= 0); }

  void Write(const uint8_t* data, size_t size) const {
    QTTS_FUZZ_CHECK(ftruncate(descriptor_, 0) == 0);
    QTTS_FUZZ_CHECK(pwrite(descriptor_, data, size, 0) == static_cast<ssize_t>(size));
  }
  std::string path() const { return "/proc/self/fd/" + std::to_string(descriptor_); }

 private:
  int descriptor_;
};

}  // namespace

// Leaks in GLib, GStreamer and decoders: GLib drops tables by design, and frees nothing else at once. Without these the
// project's own allocations remain; objects that it keeps are found by the test `untrusted`.
extern "C" const char* __lsan_default_suppressions() {
  return "leak:libglib-2.0.so\nleak:libgobject-2.0.so\nleak:libgst\nleak:libav\nleak:libmpg123\nleak:libopus\n"
         "leak:libvorbis\nleak:libFLAC\nleak:libogg\n";
}

extern "C" int LLVMFuzzerInitialize(int* /*argc*/, char*** /*argv*/) {
  gst_init(nullptr, nullptr);
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const MemoryFile file;
  file.Write(data, size);
  // Below libFuzzer's own limit: an element that is slow over nonsense is no finding, one that cannot be stopped is.
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(3);
  const auto recording =
      gstqtts::ReadReference(file.path(), [&] { return std::chrono::steady_clock::now() > deadline; });
  if (!recording.ok()) {
    const std::string& message = recording.status().message();
    QTTS_FUZZ_CHECK(!message.empty() && message.size() < 500);
    return 0;
  }
  QTTS_FUZZ_CHECK(recording->channels > 0 && recording->sample_rate > 0);
  QTTS_FUZZ_CHECK(!recording->samples.empty());
  QTTS_FUZZ_CHECK(recording->samples.size() % static_cast<size_t>(recording->channels) == 0);
  return 0;
}
