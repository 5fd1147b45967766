// SPDX-License-Identifier: LGPL-2.1-or-later
#include <algorithm>

#include "codec/epilogue.cuh"
#include "codec/gemm.h"
#include "codec/half_math.cuh"
#include "codec/narrow_parts.cuh"
#include "runtime/async_copy.cuh"
#include "runtime/fragment.h"

// Tensor core products in thread blocks that have an SM, or half of one, to themselves.
namespace qtts::cuda::codec {
namespace {

constexpr size_t NarrowSharedBytes(int warps, int columns, int taps) {
  return static_cast<size_t>(warps) * columns * kSumStride * sizeof(float) + RowBytes(taps, columns);
}

// Multiplies few columns; a segment is a part of the only group, or a group. Each warp sums one segment of one weight
// tile for all the block's columns, loading operands straight into registers, kDepth chunks ahead; blocks go through
// groups of tiles.
template <int kColumnTiles, int kPlanes, int kDepth, End kEnd>
__global__ void __launch_bounds__(512, 1) NarrowGemm(const __grid_constant__ GemmArgs a) {
  constexpr int kColumns = kColumnTiles * 8;
  extern __shared__ __align__(16) float partial[];  // [segment][tile][column][kSumStride], then the rows
  __shared__ Column places[kColumns];
  __shared__ float column_scale[kColumns];
  __shared__ __align__(16) Constants<kMaxSegments * kTileRows> constants;

  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int tiles = a.geometry.by_block_tiles.value;  // at a time
  const int segment = Divide(warp, a.geometry.by_block_tiles);
  const int first_column = static_cast<int>(blockIdx.x) * kColumns;
  const int begin = SegmentBegin(a, segment);
  const int end = SegmentBegin(a, segment + 1);
  auto* const rows = reinterpret_cast<uintptr_t*>(partial + blockDim.x / 32 * kColumns * kSumStride);
  int first_tile = static_cast<int>(blockIdx.y) * tiles;
  const int step_tiles = static_cast<int>(gridDim.y) * tiles;

  NarrowWeights<kPlanes, kDepth> w(a, warp - segment * tiles, lane);
  LetNextStart();
  const uint4* weights = w.Of(first_tile);
#pragma unroll
  for (int d = 0; d < kDepth; ++d) {
    if (begin + d < end) w.Load(d, weights, begin + d);
  }
  // Prefetches the rest of the segment into L2 while the kernel before is busy, a line (8) per lane.
  for (int i = (begin + kDepth) * (64 * kPlanes) + lane * 7; i < end * (64 * kPlanes); i += 256)
    PrefetchL2(weights + i);
#if __CUDA_ARCH__ >= 900
  PlaceRows<kColumns>(a, first_column, places, rows);
  PlaceConstants(a, first_tile, tiles, &constants);
#else
  // Nothing of this is hidden: constants are awaited once the columns are on their way.
  const ConstantLoads first_constants(a, first_tile, tiles);
  const int thread = static_cast<int>(threadIdx.x);
  Column place = {nullptr, 0, 0, -1};
  if (thread < kColumns) place = ColumnOf(a, first_column + thread);
  PlaceRowsAlone<kColumns>(a, first_column, rows);
#endif
  NarrowColumns<kColumnTiles, kPlanes, kDepth> x(a, rows, segment, begin, lane);
  __syncthreads();
  WaitForPrevious();

#pragma unroll
  for (int d = 0; d < kDepth; ++d) {
    if (begin + d < end) x.Load(d);
  }
  float4 residual = FirstResidual(a, first_tile, first_column);
  if constexpr (kEnd == End::kGeneral) ScaleColumns(a, first_column, kColumns, column_scale);
#if !(__CUDA_ARCH__ >= 900)
  first_constants.Store(tiles, &constants);
  if (thread < kColumns) places[thread] = place;
#endif
  for (;;) {
    const int next_tile = first_tile + step_tiles;
    const bool more = next_tile < a.geometry.tiles;
    const uint4* const next_weights = w.Of(next_tile);
    float sum[1][kColumnTiles][4] = {};
    for (int chunk = begin; chunk < end; chunk += kDepth) {
#pragma unroll
      for (int d = 0; d < kDepth; ++d) {
        if (chunk + d >= end) break;
        MultiplyStep<1, kColumnTiles, kPlanes>(sum, w.w[d][0], x.x[d], 0);
        MultiplyStep<1, kColumnTiles, kPlanes>(sum, w.w[d][1], x.x[d], 1);
        const int ahead = chunk + d + kDepth;
        if (ahead < end) {
          w.Load(d, weights, ahead);
          x.Load(d);
        } else if (more) {
          w.Load(d, next_weights, begin + d);
        }
      }
    }
    StoreSums(sum[0], lane, kSumStride, partial + warp * kColumns * kSumStride);
    __syncthreads();
    if (more && end - begin > kDepth) {
      x.GoToBegin();
#pragma unroll
      for (int d = 0; d < kDepth; ++d) x.Load(d);
    }
    const auto sums = [&](int t, int n, int r) {
      const float* from = partial + (t * kColumns + n) * kSumStride + r;
      float4 total = *reinterpret_cast<const float4*>(from);
#pragma unroll 4
      for (int s = 1; s < a.geometry.segments; ++s) {
        from += tiles * kColumns * kSumStride;
        total = Plus(total, *reinterpret_cast<const float4*>(from));
      }
      return total;
    };
    Finish<kEnd>(a, first_tile, first_column, kColumns, places, column_scale, constants, residual, sums);
    if (!more) return;
    first_tile = next_tile;
    weights = next_weights;
    residual = FirstResidual(a, first_tile, first_column);
    __syncthreads();
    PlaceConstants(a, first_tile, tiles, &constants);
  }
}

constexpr int kWideThreads = 256;
constexpr int kWideRows = kWideTiles * kTileRows;
constexpr int kWideSumStride = kWideRows + 4;
constexpr int kTileHalves = kTileRows * kChannelBlock;  // of a weight tile's chunk

// Chunks in flight: as many as fit a thread block into the shared memory of the smallest devices.
__host__ __device__ constexpr int WideStages(int columns, int planes) { return columns == 128 && planes == 2 ? 3 : 4; }

__host__ __device__ constexpr size_t WideStageHalves(int columns, int planes) {
  return (static_cast<size_t>(columns) * kChannelBlock + static_cast<size_t>(kWideTiles) * kTileHalves) *
         static_cast<size_t>(planes);
}

__host__ __device__ constexpr size_t WideOperandBytes(int columns, int planes) {
  const size_t stages = WideStages(columns, planes) * WideStageHalves(columns, planes) * sizeof(__half);
  const size_t sums = static_cast<size_t>(columns) * kWideSumStride * sizeof(float);
  return stages > sums ? stages : sums;
}

constexpr size_t WideSharedBytes(int columns, int planes, int taps) {
  return WideOperandBytes(columns, planes) + RowBytes(taps, columns);
}

// Static shared memory of a block.
constexpr size_t WideStaticBytes(int columns) {
  constexpr size_t kAlignment = 64;
  return static_cast<size_t>(columns) * (sizeof(Column) + sizeof(float)) + sizeof(Constants<kWideRows>) + kAlignment;
}

// Compile-time sizes of a wide block.
template <int kWarpColumnTilesOf, int kPlanesOf>
struct WideShape {
  static constexpr int kWarpColumnTiles = kWarpColumnTilesOf, kPlanes = kPlanesOf;
  static constexpr int kWarpTiles = kWideTiles / 2;
  static constexpr int kColumns = kWarpColumnTiles * 4 * 8;
  static constexpr int kUnits = kColumns * 4;  // of 16 bytes, of a chunk of one plane
  static constexpr int kPlaneHalves = kColumns * kChannelBlock;
  static constexpr int kStages = WideStages(kColumns, kPlanes);
  static constexpr uint32_t kStageBytes =
      static_cast<uint32_t>(WideStageHalves(kColumns, kPlanes)) * static_cast<uint32_t>(sizeof(__half));
};

// A thread's copies of each chunk's weights: units `thread` and `thread` + kWideThreads of a plane. Only pointers
// advance from chunk to chunk: with so few warps, address arithmetic would cost more than the products.
template <typename Shape>
class WideWeightCopies {
 public:
  __device__ __forceinline__ WideWeightCopies(const GemmArgs& a, int first_tile, int thread, uint32_t ring)
      : ring_(ring), thread_(thread) {
#pragma unroll
    for (int i = 0; i < kCopies; ++i) {
      const int unit = min(thread + i * kWideThreads, kUnits - 1);
      // A tile beyond the last repeats it; nothing of it is stored.
      const int64_t tile = min(first_tile + unit / 64, a.geometry.tiles - 1);
      next_[i] =
          static_cast<const uint4*>(a.weights.data) + tile * a.geometry.chunks * (64 * Shape::kPlanes) + unit % 64;
    }
  }

  __device__ __forceinline__ void Start(uint32_t stage_offset) {
    const uint32_t to = ring_ + stage_offset + Shape::kPlanes * Shape::kPlaneHalves * sizeof(__half);
#pragma unroll
    for (int i = 0; i < kCopies; ++i) {
      if ((i + 1) * kWideThreads <= kUnits || thread_ < kUnits - i * kWideThreads) {
        CopyAsync16(to + i * kWideThreads * 16, next_[i], true);
        if constexpr (Shape::kPlanes == 2) {
          CopyAsync16(to + kWideTiles * kTileHalves * sizeof(__half) + i * kWideThreads * 16, next_[i] + 64, true);
        }
      }
      next_[i] += 64 * Shape::kPlanes;
    }
  }

 private:
  static constexpr int kUnits = kWideTiles * 64;  // per plane
  static constexpr int kCopies = (kUnits + kWideThreads - 1) / kWideThreads;

  const uint32_t ring_;  // of the thread
  const int thread_;
  const uint4* next_[kCopies];
};

// A thread's copies of each chunk's columns: tap by tap within each group of channels.
template <typename Shape>
class WideColumnCopies {
 public:
  __device__ __forceinline__ WideColumnCopies(const GemmArgs& arguments, const uintptr_t* rows, int thread,
                                              uint32_t ring)
      : a(arguments), rows_(rows), thread_(thread), ring_(ring) {}

  __device__ __forceinline__ void Start(uint32_t stage_offset) {
    if (Shape::kUnits < kWideThreads && thread_ >= Shape::kUnits) return;
    if (blocks_left_ == 0) GoToNextTap();
    --blocks_left_;
#pragma unroll
    for (int i = 0; i < kCopies; ++i) {
#pragma unroll
      for (int p = 0; p < Shape::kPlanes; ++p) {
        CopyAsync16(ring_ + stage_offset + p * Shape::kPlaneHalves * sizeof(__half) + i * kWideThreads * 16,
                    next_[i] + (p == 0 ? 0 : to_second_[i]), there_[i]);
      }
      next_[i] += there_[i] ? kChannelBlock : 0;
    }
  }

 private:
  static constexpr int kCopies = (Shape::kUnits + kWideThreads - 1) / kWideThreads;

  __device__ __forceinline__ void GoToNextTap() {
    blocks_left_ = a.geometry.group_blocks;
    if (next_tap_ == a.geometry.taps) {
      next_tap_ = 0;
      first_block_ += a.geometry.group_blocks;
    }
#pragma unroll
    for (int i = 0; i < kCopies; ++i) {
      const uintptr_t row = rows_[next_tap_ * Shape::kColumns + thread_ / 4 + i * (kWideThreads / 4)];
      there_[i] = row != 0;
      next_[i] = there_[i] ? reinterpret_cast<const __half*>(row & ~uintptr_t{1}) + first_block_ * kChannelBlock +
                                 thread_ % 4 * 8
                           : static_cast<const __half*>(a.x.data);
      to_second_[i] = !there_[i] ? 0 : (row & 1) != 0 ? a.x.history_plane : a.x.plane;
    }
    ++next_tap_;
  }

  const GemmArgs& a;
  const uintptr_t* const rows_;
  const int thread_;
  const uint32_t ring_;  // of the thread
  int next_tap_ = 0;
  int first_block_ = 0;  // of the group
  int blocks_left_ = 0;  // of the tap in it
  const __half* next_[kCopies];
  int64_t to_second_[kCopies];  // plane
  bool there_[kCopies];
};

// A warp's sums: those of the current segment, and the total of those before it.
template <typename Shape>
struct WideSums {
  float total[Shape::kWarpTiles][Shape::kWarpColumnTiles][4] = {};
  float sum[Shape::kWarpTiles][Shape::kWarpColumnTiles][4] = {};

  // Multiplies a chunk; the lane's operands of the stage are from `x_from` and `w_from` on.
  __device__ __forceinline__ void AddChunk(const __half* x_from, const __half* w_from) {
    uint4 x[Shape::kWarpColumnTiles][Shape::kPlanes];
#pragma unroll
    for (int j = 0; j < Shape::kWarpColumnTiles; ++j) {
#pragma unroll
      for (int p = 0; p < Shape::kPlanes; ++p) {
        x[j][p] = *reinterpret_cast<const uint4*>(x_from + p * Shape::kPlaneHalves + j * 8 * kChannelBlock);
      }
    }
#pragma unroll
    for (int step = 0; step < 2; ++step) {
      uint4 w[Shape::kWarpTiles][Shape::kPlanes];
#pragma unroll
      for (int t = 0; t < Shape::kWarpTiles; ++t) {
#pragma unroll
        for (int p = 0; p < Shape::kPlanes; ++p) {
          w[t][p] = *reinterpret_cast<const uint4*>(w_from + (p * kWideTiles + t) * kTileHalves + step * 256);
        }
      }
      MultiplyStep<Shape::kWarpTiles, Shape::kWarpColumnTiles, Shape::kPlanes>(sum, w, x, step);
    }
  }
  __device__ __forceinline__ void EndSegment(bool first) {
#pragma unroll
    for (int t = 0; t < Shape::kWarpTiles; ++t) {
#pragma unroll
      for (int j = 0; j < Shape::kWarpColumnTiles; ++j) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          total[t][j][i] = first ? sum[t][j][i] : total[t][j][i] + sum[t][j][i];
          sum[t][j][i] = 0;
        }
      }
    }
  }
};

// Multiplies many columns. Operands pass through a ring in shared memory; 2 x 4 warps share the block's tiles and
// columns, each summing all segments of its part.
template <int kWarpColumnTiles, int kPlanes>
__global__ void __launch_bounds__(kWideThreads, kWarpColumnTiles == 4 ? 1 : 2)
    WideGemm(const __grid_constant__ GemmArgs a) {
  using Shape = WideShape<kWarpColumnTiles, kPlanes>;
  constexpr int kColumns = Shape::kColumns;
  constexpr int kStages = Shape::kStages;
  constexpr uint32_t kStageBytes = Shape::kStageBytes;
  extern __shared__ __align__(16) float shared[];
  // [stage]: x [plane][column][kChannelBlock], then weights [plane][tile][step][lane][8].
  __half* const ring = reinterpret_cast<__half*>(shared);
  auto* const rows = reinterpret_cast<uintptr_t*>(ring + WideOperandBytes(kColumns, kPlanes) / sizeof(__half));
  __shared__ Column places[kColumns];
  __shared__ float column_scale[kColumns];
  __shared__ __align__(16) Constants<kWideRows> constants;

  const int thread = static_cast<int>(threadIdx.x);
  const int lane = thread % 32;
  const int warp = thread / 32;
  const int first_tile = static_cast<int>(blockIdx.y) * kWideTiles;
  const int first_column = static_cast<int>(blockIdx.x) * kColumns;
  const int warp_tile = warp % 2 * Shape::kWarpTiles;
  const int warp_column = warp / 2 * kWarpColumnTiles * 8;

  const auto ring_address = SharedAddress(ring) + static_cast<uint32_t>(thread) * 16;
  WideWeightCopies<Shape> weights(a, first_tile, thread, ring_address);
  LetNextStart();
#pragma unroll
  for (int s = 0; s < kStages - 1; ++s) {
    if (s < a.geometry.chunks) weights.Start(s * kStageBytes);
  }
  PlaceRows<kColumns>(a, first_column, places, rows);
  PlaceConstants(a, first_tile, kWideTiles, &constants);
  __syncthreads();
  WideColumnCopies<Shape> columns(a, rows, thread, ring_address);
  WaitForPrevious();

  // The first group of copies holds the weights of all first stages too.
#pragma unroll
  for (int s = 0; s < kStages - 1; ++s) {
    if (s < a.geometry.chunks) columns.Start(s * kStageBytes);
    CommitCopies();
  }
  const float4 residual = FirstResidual(a, first_tile, first_column);
  ScaleColumns(a, first_column, kColumns, column_scale);
  WideSums<Shape> sums;
  int segment = 0;
  int segment_end = SegmentBegin(a, 1);
  uint32_t stage_offset = 0;
  uint32_t free_offset = (kStages - 1) * kStageBytes;
  const char* const ring_bytes = reinterpret_cast<const char*>(ring);
  const int x_offset = ((warp_column + UnitFragment::Row(lane)) * kChannelBlock + UnitFragment::Column(lane)) *
                       static_cast<int>(sizeof(__half));
  const int w_offset =
      (kPlanes * Shape::kPlaneHalves + warp_tile * kTileHalves + lane * 8) * static_cast<int>(sizeof(__half));
  for (int chunk = 0; chunk < a.geometry.chunks; ++chunk) {
    AwaitCopies<kStages - 2>();
    __syncthreads();
    if (chunk + kStages - 1 < a.geometry.chunks) {
      weights.Start(free_offset);
      columns.Start(free_offset);
    }
    CommitCopies();
    free_offset = stage_offset;
    sums.AddChunk(reinterpret_cast<const __half*>(ring_bytes + stage_offset + x_offset),
                  reinterpret_cast<const __half*>(ring_bytes + stage_offset + w_offset));
    if (chunk + 1 == segment_end) {
      sums.EndSegment(segment == 0);
      ++segment;
      segment_end = SegmentBegin(a, segment + 1);
    }
    stage_offset = stage_offset + kStageBytes == kStages * kStageBytes ? 0 : stage_offset + kStageBytes;
  }
  AwaitAllCopies();
  __syncthreads();
#pragma unroll
  for (int t = 0; t < Shape::kWarpTiles; ++t) {
    StoreSums(sums.total[t], lane, kWideSumStride, shared + warp_column * kWideSumStride + (warp_tile + t) * kTileRows);
  }
  __syncthreads();
  Finish(a, first_tile, first_column, kColumns, places, column_scale, constants, residual, [&](int t, int n, int r) {
    return *reinterpret_cast<const float4*>(shared + n * kWideSumStride + t * kTileRows + r);
  });
}

template <int kPlanes>
struct Kernels {
  // More planes, more registers a chunk: fewer chunks are loaded ahead.
  static constexpr bool kOne = kPlanes == 1;
  template <End kEnd>
  static constexpr auto Narrow(int columns) {
    return columns == 8    ? NarrowGemm<1, kPlanes, (kOne ? 6 : 3), kEnd>
           : columns == 16 ? NarrowGemm<2, kPlanes, (kOne ? 4 : 2), kEnd>
                           : NarrowGemm<4, kPlanes, (kOne ? 2 : 1), kEnd>;
  }
  static constexpr auto Narrow(int columns, End end) {
    switch (end) {
      case End::kPlain:
        return Narrow<End::kPlain>(columns);
      case End::kOperand:
        return Narrow<End::kOperand>(columns);
      case End::kResidual:
        return Narrow<End::kResidual>(columns);
      case End::kTransposed:
        return Narrow<End::kTransposed>(columns);
      case End::kGeneral:
        break;
    }
    return Narrow<End::kGeneral>(columns);
  }
  static constexpr auto Wide(int columns) {
    return columns == 32 ? WideGemm<1, kPlanes> : columns == 64 ? WideGemm<2, kPlanes> : WideGemm<4, kPlanes>;
  }

  static cudaError_t Launch(GemmArgs args, const GemmTile& tile, const DeviceTraits& device, cudaStream_t stream) {
    SetBlockTiles(&args, tile.tiles);
    const int blocks_x = CeilDiv(args.geometry.columns, tile.columns);
    int blocks_y = CeilDiv(args.geometry.tiles, tile.tiles);
    if (tile.form == GemmForm::kWide) {
      const dim3 grid(static_cast<unsigned>(blocks_x), static_cast<unsigned>(blocks_y));
      return LaunchChained(Wide(tile.columns), grid, kWideThreads,
                           WideSharedBytes(tile.columns, kPlanes, args.geometry.taps), args, device, stream);
    }
    // No more blocks than fit at once: they take the tiles in turn, and load the next one's weights beside the
    // epilogue.
    const int warps = tile.tiles * args.geometry.segments;
    const int at_once = device.processors * (16 / warps);
    blocks_y = std::min(blocks_y, std::max(1, at_once / blocks_x));
    const dim3 grid(static_cast<unsigned>(blocks_x), static_cast<unsigned>(blocks_y));
    const End end = device.programmatic_launch ? End::kGeneral : EndOf(args.epilogue);
    return LaunchChained(Narrow(tile.columns, end), grid, warps * 32,
                         NarrowSharedBytes(warps, tile.columns, args.geometry.taps), args, device, stream);
  }

  static bool WideFits(int columns, int taps, const DeviceTraits& device) {
    return WideSharedBytes(columns, kPlanes, taps) + WideStaticBytes(columns) <= device.shared_bytes;
  }

  static cudaError_t Prepare(const DeviceTraits& device) {
    for (const int columns : {32, 64, 128}) {
      const size_t most = std::min(WideSharedBytes(columns, kPlanes, kMaxTaps),
                                   device.shared_bytes - std::min(device.shared_bytes, WideStaticBytes(columns)));
      const cudaError_t error = PrepareKernel(Wide(columns), most);
      if (error != cudaSuccess) return error;
    }
    for (const int columns : {8, 16, 32}) {
      for (const End end : {End::kGeneral, End::kPlain, End::kOperand, End::kResidual, End::kTransposed}) {
        const cudaError_t error =
            PrepareKernel(Narrow(columns, end), NarrowSharedBytes(kMaxSegments, columns, kMaxTaps));
        if (error != cudaSuccess) return error;
      }
    }
    return cudaSuccess;
  }
};

}  // namespace

bool WideTakes(const GemmArgs& args, Planes x_planes, const GemmTile& tile, const DeviceTraits& device) {
  const int taps = args.geometry.taps;
  if (x_planes == Planes::kHalf) return Kernels<1>::WideFits(tile.columns, taps, device);
  return Kernels<2>::WideFits(tile.columns, taps, device);
}

cudaError_t PrepareHalfGemms(const DeviceTraits& device) {
  const cudaError_t error = Kernels<1>::Prepare(device);
  return error == cudaSuccess ? Kernels<2>::Prepare(device) : error;
}

cudaError_t LaunchHalfGemm(const GemmArgs& args, Planes x_planes, const GemmTile& tile, const DeviceTraits& device,
                           cudaStream_t stream) {
  if (x_planes == Planes::kHalf) return Kernels<1>::Launch(args, tile, device, stream);
  return Kernels<2>::Launch(args, tile, device, stream);
}

}  // namespace qtts::cuda::codec
