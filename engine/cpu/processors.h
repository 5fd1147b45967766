// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CPU_PROCESSORS_H_
#define QTTS_CPU_PROCESSORS_H_

#include <filesystem>
#include <optional>

namespace qtts::cpu {

// Processors on which the calling thread may run, by its affinity mask; at least 1.
int AllowedProcessors();

// The processor time that the control groups of this process allow, in processors: the least quota of its group and the
// groups above, version 2 (cpu.max) or 1 (cpu.cfs_quota_us). None where nothing limits it or nothing can be read. Files
// are read below `root`.
std::optional<double> ProcessorQuota(const std::filesystem::path& root = "/");

struct Processors {
  int threads = 1;  // that can run at once, within the quota rounded down
  int cores = 1;    // at most `threads`: of the processors that share a core, one
};

// What the calling thread may use. Files are read below `root`.
Processors UsableProcessors(const std::filesystem::path& root = "/");

}  // namespace qtts::cpu

#endif  // QTTS_CPU_PROCESSORS_H_
