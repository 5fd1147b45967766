// SPDX-License-Identifier: LGPL-2.1-or-later
#include "cpu/processors.h"

#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/control_groups.h"
#include "base/system_files.h"

namespace qtts::cpu {
namespace {

namespace fs = std::filesystem;

// Maximum size of the affinity mask asked for, in CPUs.
constexpr size_t kMaxProcessors = size_t{1} << 16U;

// Returns the quota. `quota` and `period` are in microseconds. No limit unless both are positive numbers.
std::optional<double> Quota(std::string_view quota, std::string_view period) {
  const std::optional<int64_t> most = ParseInteger(quota);
  const std::optional<int64_t> every = ParseInteger(period);
  if (!most.has_value() || !every.has_value() || *most <= 0 || *every <= 0) return std::nullopt;
  return static_cast<double>(*most) / static_cast<double>(*every);
}

std::optional<double> QuotaOfGroup(const fs::path& folder, bool unified) {
  if (!unified) return Quota(ReadSystemFile(folder / "cpu.cfs_quota_us"), ReadSystemFile(folder / "cpu.cfs_period_us"));
  const std::string file = ReadSystemFile(folder / "cpu.max");
  std::string_view text = file;
  const std::string_view quota = SplitOff(&text, ' ');
  return Quota(quota, text);
}

// Returns the CPUs in the calling thread's affinity mask, in order; empty if the system call fails.
std::vector<int> AffinityMask() {
  for (size_t count = 1024; count <= kMaxProcessors; count *= 2) {
    std::vector<unsigned long> words(count / (8 * sizeof(unsigned long)));
    const size_t bytes = words.size() * sizeof(words.front());
    auto* const mask = reinterpret_cast<cpu_set_t*>(words.data());
    if (sched_getaffinity(0, bytes, mask) != 0) {
      if (errno == EINVAL) continue;  // the kernel's mask is larger
      break;
    }
    std::vector<int> processors;
    for (size_t i = 0; i < count; ++i) {
      if (CPU_ISSET_S(i, bytes, mask)) processors.push_back(static_cast<int>(i));
    }
    return processors;
  }
  return {};
}

// Returns the first of `allowed` that is in a list like "0-3,8".
std::optional<int> FirstAllowed(std::string_view list, const std::vector<int>& allowed) {
  while (!list.empty() && list.back() == '\n') list.remove_suffix(1);
  while (!list.empty()) {
    std::string_view range = SplitOff(&list, ',');
    const bool is_range = range.find('-') != std::string_view::npos;
    const std::optional<int64_t> first = ParseInteger(SplitOff(&range, '-'));
    const std::optional<int64_t> last = is_range ? ParseInteger(range) : first;
    if (!first.has_value() || !last.has_value()) return std::nullopt;
    const auto found = std::lower_bound(allowed.begin(), allowed.end(), *first);
    if (found != allowed.end() && *found <= *last) return *found;
  }
  return std::nullopt;
}

int CountCores(const fs::path& root, const std::vector<int>& allowed) {
  const fs::path processors = root / "sys/devices/system/cpu";
  if (ParseInteger(ReadSystemFile(processors / "smt/active")) == 0) return static_cast<int>(allowed.size());
  // Each core is counted once, at its first allowed CPU.
  return static_cast<int>(std::count_if(allowed.begin(), allowed.end(), [&](int processor) {
    const fs::path list = processors / ("cpu" + std::to_string(processor)) / "topology/thread_siblings_list";
    return FirstAllowed(ReadSystemFile(list), allowed).value_or(processor) == processor;
  }));
}

}  // namespace

int AllowedProcessors() {
  const size_t count = AffinityMask().size();
  return static_cast<int>(count > 0 ? count : std::max(1U, std::thread::hardware_concurrency()));
}

std::optional<double> ProcessorQuota(const fs::path& root) {
  std::optional<double> least;
  ForEachControlGroup(root, "cpu", [&](const fs::path& folder, bool unified) {
    const std::optional<double> quota = QuotaOfGroup(folder, unified);
    if (quota.has_value()) least = std::min(*quota, least.value_or(*quota));
  });
  return least;
}

Processors UsableProcessors(const fs::path& root) {
  const std::vector<int> allowed = AffinityMask();
  Processors usable;
  usable.threads = AllowedProcessors();
  if (const std::optional<double> quota = ProcessorQuota(root)) {
    usable.threads = std::clamp(static_cast<int>(std::min(*quota, 1e6)), 1, usable.threads);
  }
  usable.cores = allowed.empty() ? usable.threads : std::clamp(CountCores(root, allowed), 1, usable.threads);
  return usable;
}

}  // namespace qtts::cpu
