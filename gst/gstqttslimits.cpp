// SPDX-License-Identifier: LGPL-2.1-or-later
#include "gstqttslimits.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <latch>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "qtts/resources.h"

namespace gstqtts {
namespace {

constexpr size_t kNeeded = 12;
constexpr size_t kThreads = 3;

}  // namespace

qtts::Status CheckDescriptors() {
  std::array<int, kNeeded> opened{};
  size_t count = 0;
  int error = 0;
  for (; count < kNeeded; ++count) {
    opened[count] = open("/", O_RDONLY | O_CLOEXEC);
    if (opened[count] < 0) {
      error = errno;
      break;
    }
  }
  for (size_t i = 0; i < count; ++i) close(opened[i]);
  // Other errors of "/" are reported better by the model's files.
  if (error != EMFILE && error != ENFILE) return qtts::Status::Ok();
  rlimit limit = {};
  getrlimit(RLIMIT_NOFILE, &limit);
  return qtts::Status::ResourceExhausted(
      "Only " + std::to_string(count) + " more files can be opened, one more element needs " + std::to_string(kNeeded) +
      ": " + std::generic_category().message(error) + ". Close some, or raise their limit (ulimit -n), which is " +
      std::to_string(limit.rlim_cur) + ".");
}

qtts::Status CheckThreads() {
  std::latch checked(1);
  std::array<std::thread, kThreads> threads;
  qtts::Status status;
  for (std::thread& thread : threads) {
    auto started = qtts::StartThread("run the element", [&checked] { checked.wait(); });
    status = started.status();
    if (!status.ok()) break;
    thread = *std::move(started);
  }
  checked.count_down();
  for (std::thread& thread : threads) {
    if (thread.joinable()) thread.join();
  }
  return status;
}

}  // namespace gstqtts
