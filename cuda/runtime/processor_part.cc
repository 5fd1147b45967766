// SPDX-License-Identifier: LGPL-2.1-or-later
#include "runtime/processor_part.h"

#include <algorithm>
#include <utility>

#include "runtime/device.h"
#include "runtime/device_memory.h"
#include "runtime/device_wait.h"
#include "runtime/memory_count.h"
#include "runtime/succeeds.h"

#if CUDART_VERSION >= 12050 && __has_include(<cudaTypedefs.h>)
#include <cudaTypedefs.h>
#endif

namespace qtts::cuda {
namespace {

#if CUDART_VERSION >= 12050 && __has_include(<cudaTypedefs.h>)

// Functions of the driver, which are found at run time: nothing here links it.
struct Driver {
  PFN_cuDeviceGetDevResource_v12040 get_resource = nullptr;
  PFN_cuDevSmResourceSplitByCount_v12040 split = nullptr;
  PFN_cuDevResourceGenerateDesc_v12040 describe = nullptr;
  PFN_cuGreenCtxCreate_v12040 create = nullptr;
  PFN_cuGreenCtxDestroy_v12040 destroy = nullptr;
  PFN_cuGreenCtxStreamCreate_v12050 create_stream = nullptr;
};

template <typename Function>
bool Find(const char* name, Function* function) {
  constexpr unsigned kVersion = 12050;
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSymbolNotFound;
  if (!Succeeds(cudaGetDriverEntryPointByVersion(name, &found, kVersion, cudaEnableDefault, &result))) return false;
  *function = reinterpret_cast<Function>(found);
  return result == cudaDriverEntryPointSuccess && found != nullptr;
}

bool FindAll(Driver* driver) {
  return Find("cuDeviceGetDevResource", &driver->get_resource) && Find("cuDevSmResourceSplitByCount", &driver->split) &&
         Find("cuDevResourceGenerateDesc", &driver->describe) && Find("cuGreenCtxCreate", &driver->create) &&
         Find("cuGreenCtxDestroy", &driver->destroy) && Find("cuGreenCtxStreamCreate", &driver->create_stream);
}

// Sets at most `count` SMs of `all` apart. The driver rounds up.
bool Split(const Driver& driver, const CUdevResource& all, unsigned count, CUdevResource* part) {
  const auto split = [&](unsigned at_least) {
    unsigned groups = 1;
    return driver.split(part, &groups, &all, nullptr, 0, at_least) == CUDA_SUCCESS && groups == 1;
  };
  if (!split(count)) return false;
  const unsigned excess = part->sm.smCount - std::min(part->sm.smCount, count);
  if (excess == 0) return true;
  return excess < count && split(count - excess) && part->sm.smCount <= count;
}

// Owns a green context and makes its stream.
class Context {
 public:
  Context() = default;
  ~Context() { Destroy(); }
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  // Returns its share of the current device's SMs, out of `count` of them, and its stream; 0 if there can be none.
  int Create(int eighths, int priority, int count, Stream* stream) {
    int device = 0;
    CUdevResource all = {}, part = {};
    CUdevResourceDesc description = nullptr;
    CUstream created = nullptr;
    if (!FindAll(&driver_) || !Succeeds(cudaGetDevice(&device)) ||
        driver_.get_resource(device, &all, CU_DEV_RESOURCE_TYPE_SM) != CUDA_SUCCESS ||
        !Split(driver_, all, all.sm.smCount * static_cast<unsigned>(eighths) / ProcessorPart::kWhole, &part) ||
        driver_.describe(&description, &part, 1) != CUDA_SUCCESS ||
        driver_.create(&context_, description, device, CU_GREEN_CTX_DEFAULT_STREAM) != CUDA_SUCCESS ||
        driver_.create_stream(&created, context_, CU_STREAM_NON_BLOCKING, priority) != CUDA_SUCCESS) {
      Destroy();
      return 0;
    }
    *stream = Stream(created);
    return std::max(1, count * static_cast<int>(part.sm.smCount) / static_cast<int>(all.sm.smCount));
  }

 private:
  void Destroy() {
    const CUgreenCtx context = std::exchange(context_, nullptr);
    if (context != nullptr && !HangsHere()) (void)driver_.destroy(context);
  }

  Driver driver_;
  CUgreenCtx context_ = nullptr;
};

#else

// Compiled without the driver's types: there is none.
class Context {
 public:
  static int Create(int /*eighths*/, int /*priority*/, int /*count*/, Stream* /*stream*/) { return 0; }
};

#endif

}  // namespace

struct ProcessorPart::Place {
  Context context;
  Stream stream;  // ends before its context
  int processors = 0;
};

ProcessorPart::ProcessorPart(std::unique_ptr<Place> place) : place_(std::move(place)) {}
ProcessorPart::ProcessorPart(ProcessorPart&& other) noexcept = default;
ProcessorPart& ProcessorPart::operator=(ProcessorPart&& other) noexcept = default;
ProcessorPart::~ProcessorPart() = default;

cudaStream_t ProcessorPart::stream() const { return place_->stream.get(); }
int ProcessorPart::processors() const { return place_->processors; }

Result<ProcessorPart> ProcessorPart::Create(int eighths, bool urgent) {
  auto place = std::make_unique<Place>();
  if (eighths < kWhole && !CountsMemory()) {
    const DeviceDescription* device = nullptr;
    QTTS_RETURN_IF_CUDA_ERROR(DescribeDevice(&device), "asking for the device");
    place->processors = place->context.Create(eighths, Stream::Priority(urgent), device->processors, &place->stream);
  }
  if (place->processors == 0) {
    QTTS_ASSIGN_OR_RETURN(place->stream, Stream::Create(urgent));
  }
  return ProcessorPart(std::move(place));
}

}  // namespace qtts::cuda
