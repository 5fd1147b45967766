// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CPU_PROCESSORS_H_
#define QTTS_CPU_PROCESSORS_H_

#include <filesystem>
#include <optional>

namespace qtts::cpu {

// Returns the number of logical CPUs in the affinity mask of the calling thread; at least 1.
int AllowedProcessors();

// Returns the CPU quota of the process's cgroup, in CPUs: the smallest of its group and the groups above, cgroup v2
// (cpu.max) or v1 (cpu.cfs_quota_us). None if there is no limit or it cannot be read. Reads files below `root`.
std::optional<double> ProcessorQuota(const std::filesystem::path& root = "/");

struct Processors {
  int threads = 1;  // threads that can run at once: the affinity mask, limited by the quota rounded down
  int cores = 1;    // physical cores among them; at most `threads`
};

// Returns the CPUs that the calling thread may use. Reads files below `root`.
Processors UsableProcessors(const std::filesystem::path& root = "/");

}  // namespace qtts::cpu

#endif  // QTTS_CPU_PROCESSORS_H_
