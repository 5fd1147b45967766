// SPDX-License-Identifier: LGPL-2.1-or-later
#include <algorithm>

#include "codec/epilogue.cuh"
#include "codec/gemm.h"
#include "codec/half_math.cuh"
#include "runtime/async_copy.cuh"

// Tensor core products in thread blocks that have an SM, or half of one, to themselves.
namespace qtts::cuda::codec {
namespace {

constexpr int kSumStride = 20;  // floats of a column of 16 sums: spreads the lanes over all banks

constexpr size_t RowBytes(int taps, int columns) { return static_cast<size_t>(taps) * columns * sizeof(uintptr_t); }

constexpr size_t NarrowSharedBytes(int warps, int columns, int taps) {
  return static_cast<size_t>(warps) * columns * kSumStride * sizeof(float) + RowBytes(taps, columns);
}

// For few columns, and channels in one group. Each warp sums one segment of one weight tile for all the block's
// columns, loading operands straight into registers, kDepth chunks ahead; blocks go through groups of tiles.
template <int kColumnTiles, int kX, int kW, int kDepth>
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
  const int warp_tile = warp - segment * tiles;
  const int first_column = static_cast<int>(blockIdx.x) * kColumns;
  const int begin = SegmentBegin(a, segment);
  const int end = SegmentBegin(a, segment + 1);
  auto* const rows = reinterpret_cast<uintptr_t*>(partial + blockDim.x / 32 * kColumns * kSumStride);
  int first_tile = static_cast<int>(blockIdx.y) * tiles;
  const int step_tiles = static_cast<int>(gridDim.y) * tiles;

  // The warp's weights of one tile, this lane's part; a plane of a chunk is 64 apart, its second step 32. A tile beyond
  // the last repeats it; nothing of it is stored.
  const auto weights_of = [&](int group) {
    const int tile = min(group + warp_tile, a.geometry.tiles - 1);
    return static_cast<const uint4*>(a.weights.data) + static_cast<int64_t>(tile) * a.geometry.chunks * (64 * kW) +
           lane;
  };
  LetNextStart();
  uint4 w[kDepth][2][1][kW];  // [step]
  const auto load_weights = [&](uint4(&to)[2][1][kW], const uint4* weights, int chunk) {
#pragma unroll
    for (int step = 0; step < 2; ++step) {
#pragma unroll
      for (int p = 0; p < kW; ++p) to[step][0][p] = __ldg(weights + (chunk * kW + p) * 64 + step * 32);
    }
  };
  const uint4* weights = weights_of(first_tile);
#pragma unroll
  for (int d = 0; d < kDepth; ++d) {
    if (begin + d < end) load_weights(w[d], weights, begin + d);
  }
  // The rest of the segment comes at least as near as L2 while the kernel before is busy, a line (8) per lane.
  for (int i = (begin + kDepth) * (64 * kW) + lane * 7; i < end * (64 * kW); i += 256) PrefetchL2(weights + i);
  PlaceRows<kColumns>(a, first_column, places, rows);
  PlaceConstants(a, first_tile, tiles, &constants);

  // The lane's column of each 8: its row of a chunk's tap.
  const int chunks_per_tap = a.geometry.by_chunks_per_tap.value;
  int next_tap = Divide(begin, a.geometry.by_chunks_per_tap);
  int next_block = begin - next_tap * chunks_per_tap;
  uint4 x[kDepth][kColumnTiles][kX];
  const auto load_x = [&](uint4(&to)[kColumnTiles][kX]) {
#pragma unroll
    for (int j = 0; j < kColumnTiles; ++j) {
      const uintptr_t row = rows[next_tap * kColumns + j * 8 + lane / 4];
      const __half* from =
          reinterpret_cast<const __half*>(row & ~uintptr_t{1}) + next_block * kChannelBlock + lane % 4 * 8;
#pragma unroll
      for (int p = 0; p < kX; ++p) {
        to[j][p] = {0, 0, 0, 0};
        if (row != 0) to[j][p] = __ldcg(reinterpret_cast<const uint4*>(from));
        from += (row & 1) != 0 ? a.x.history_plane : a.x.plane;
      }
    }
    if (++next_block == chunks_per_tap) {
      next_block = 0;
      ++next_tap;
    }
  };
  __syncthreads();
  WaitForPrevious();

#pragma unroll
  for (int d = 0; d < kDepth; ++d) {
    if (begin + d < end) load_x(x[d]);
  }
  float4 residual = FirstResidual(a, first_tile, first_column);
  ScaleColumns(a, first_column, kColumns, column_scale);
  for (;;) {
    const int next_tile = first_tile + step_tiles;
    const bool more = next_tile < a.geometry.tiles;
    const uint4* const next_weights = weights_of(next_tile);
    float sum[1][kColumnTiles][4] = {};
    for (int chunk = begin; chunk < end; chunk += kDepth) {
#pragma unroll
      for (int d = 0; d < kDepth; ++d) {
        if (chunk + d >= end) break;
        MultiplyStep<1, kColumnTiles, kX, kW>(sum, w[d][0], x[d], 0);
        MultiplyStep<1, kColumnTiles, kX, kW>(sum, w[d][1], x[d], 1);
        const int ahead = chunk + d + kDepth;
        if (ahead < end) {
          load_weights(w[d], weights, ahead);
          load_x(x[d]);
        } else if (more) {
          load_weights(w[d], next_weights, begin + d);
        }
      }
    }

    float* const mine = partial + warp * kColumns * kSumStride;
#pragma unroll
    for (int j = 0; j < kColumnTiles; ++j) {
      float* const to = mine + (j * 8 + lane % 4 * 2) * kSumStride + lane / 4;
      to[0] = sum[0][j][0];
      to[kSumStride] = sum[0][j][1];
      to[8] = sum[0][j][2];
      to[kSumStride + 8] = sum[0][j][3];
    }
    __syncthreads();
    if (more && end - begin > kDepth) {
      next_tap = Divide(begin, a.geometry.by_chunks_per_tap);
      next_block = begin - next_tap * chunks_per_tap;
#pragma unroll
      for (int d = 0; d < kDepth; ++d) load_x(x[d]);
    }
    Finish(a, first_tile, first_column, kColumns, places, column_scale, constants, residual, [&](int t, int n, int r) {
      const float* from = partial + (t * kColumns + n) * kSumStride + r;
      float4 total = *reinterpret_cast<const float4*>(from);
#pragma unroll 4
      for (int s = 1; s < a.geometry.segments; ++s) {
        from += tiles * kColumns * kSumStride;
        total = Plus(total, *reinterpret_cast<const float4*>(from));
      }
      return total;
    });
    if (!more) return;
    first_tile = next_tile;
    weights = next_weights;
    residual = FirstResidual(a, first_tile, first_column);
    __syncthreads();
    PlaceConstants(a, first_tile, tiles, &constants);
  }
}

constexpr int kWideThreads = 256;
constexpr int kWideTiles = 6;  // weight tiles per block: 2 warps of 3
constexpr int kWideRows = kWideTiles * kTileRows;
constexpr int kWideSumStride = kWideRows + 4;
constexpr int kTileHalves = kTileRows * kChannelBlock;  // of a weight tile's chunk

// Chunks in flight: as many as fit a thread block into the shared memory of the smallest devices.
__host__ __device__ constexpr int WideStages(int columns, int x_planes, int w_planes) {
  return columns == 128 && x_planes * w_planes == 4 ? 3 : 4;
}

__host__ __device__ constexpr size_t WideStageHalves(int columns, int x_planes, int w_planes) {
  return static_cast<size_t>(columns) * kChannelBlock * x_planes +
         static_cast<size_t>(kWideTiles) * kTileHalves * w_planes;
}

__host__ __device__ constexpr size_t WideOperandBytes(int columns, int x_planes, int w_planes) {
  const size_t stages =
      WideStages(columns, x_planes, w_planes) * WideStageHalves(columns, x_planes, w_planes) * sizeof(__half);
  const size_t sums = static_cast<size_t>(columns) * kWideSumStride * sizeof(float);
  return stages > sums ? stages : sums;
}

constexpr size_t WideSharedBytes(int columns, int x_planes, int w_planes, int taps) {
  return WideOperandBytes(columns, x_planes, w_planes) + RowBytes(taps, columns);
}

// Static shared memory of a block.
constexpr size_t WideStaticBytes(int columns) {
  constexpr size_t kAlignment = 64;
  return static_cast<size_t>(columns) * (sizeof(Column) + sizeof(float)) + sizeof(Constants<kWideRows>) + kAlignment;
}

// For many columns. Operands pass through a ring in shared memory; 2 x 4 warps share the block's tiles and
// columns, each summing all segments of its part.
template <int kWarpColumnTiles, int kX, int kW>
__global__ void __launch_bounds__(kWideThreads, kWarpColumnTiles == 4 ? 1 : 2)
    WideGemm(const __grid_constant__ GemmArgs a) {
  constexpr int kWarpTiles = kWideTiles / 2;
  constexpr int kColumns = kWarpColumnTiles * 4 * 8;
  constexpr int kPieces = kColumns * 4;  // of 16 bytes, of a chunk of one plane
  constexpr int kCopies = (kPieces + kWideThreads - 1) / kWideThreads;
  constexpr int kPlaneHalves = kColumns * kChannelBlock;
  constexpr int kStages = WideStages(kColumns, kX, kW);
  constexpr int kStageHalves = static_cast<int>(WideStageHalves(kColumns, kX, kW));
  constexpr int kWeightPieces = kWideTiles * 64;  // per plane
  extern __shared__ __align__(16) float shared[];
  // [stage]: x [plane][column][kChannelBlock], then weights [plane][tile][step][lane][8].
  __half* const ring = reinterpret_cast<__half*>(shared);
  auto* const rows = reinterpret_cast<uintptr_t*>(ring + WideOperandBytes(kColumns, kX, kW) / sizeof(__half));
  __shared__ Column places[kColumns];
  __shared__ float column_scale[kColumns];
  __shared__ __align__(16) Constants<kWideRows> constants;

  const int thread = static_cast<int>(threadIdx.x);
  const int lane = thread % 32;
  const int warp = thread / 32;
  const int first_tile = static_cast<int>(blockIdx.y) * kWideTiles;
  const int first_column = static_cast<int>(blockIdx.x) * kColumns;
  const int warp_tile = warp % 2 * kWarpTiles;
  const int warp_column = warp / 2 * kWarpColumnTiles * 8;

  // Copies of this thread for each chunk's weights: pieces `thread` and `thread` + kWideThreads of a plane. Only
  // pointers advance from chunk to chunk: with so few warps, address arithmetic would cost more than the products.
  constexpr int kWeightCopies = (kWeightPieces + kWideThreads - 1) / kWideThreads;
  constexpr uint32_t kStageBytes = kStageHalves * sizeof(__half);
  const auto ring_address = SharedAddress(ring) + static_cast<uint32_t>(thread) * 16;
  const uint4* w_next[kWeightCopies];
#pragma unroll
  for (int i = 0; i < kWeightCopies; ++i) {
    const int piece = min(thread + i * kWideThreads, kWeightPieces - 1);
    // A tile beyond the last repeats it; nothing of it is stored.
    const int64_t tile = min(first_tile + piece / 64, a.geometry.tiles - 1);
    w_next[i] = static_cast<const uint4*>(a.weights.data) + tile * a.geometry.chunks * (64 * kW) + piece % 64;
  }
  const auto copy_weights = [&](uint32_t stage_offset) {
    const uint32_t to = ring_address + stage_offset + kX * kPlaneHalves * sizeof(__half);
#pragma unroll
    for (int i = 0; i < kWeightCopies; ++i) {
      if ((i + 1) * kWideThreads <= kWeightPieces || thread < kWeightPieces - i * kWideThreads) {
        CopyAsync16(to + i * kWideThreads * 16, w_next[i], true);
        if constexpr (kW == 2) {
          CopyAsync16(to + kWideTiles * kTileHalves * sizeof(__half) + i * kWideThreads * 16, w_next[i] + 64, true);
        }
      }
      w_next[i] += 64 * kW;
    }
  };
  LetNextStart();
#pragma unroll
  for (int s = 0; s < kStages - 1; ++s) {
    if (s < a.geometry.chunks) copy_weights(s * kStageBytes);
  }
  PlaceRows<kColumns>(a, first_column, places, rows);
  PlaceConstants(a, first_tile, kWideTiles, &constants);
  __syncthreads();

  int next_tap = 0;
  int first_block = 0;  // of the group
  int blocks_left = 0;  // of the tap in it
  const __half* x_next[kCopies];
  int64_t to_second[kCopies];  // plane
  bool there[kCopies];
  const auto copy_x = [&](uint32_t stage_offset) {
    if (kPieces < kWideThreads && thread >= kPieces) return;
    if (blocks_left == 0) {
      blocks_left = a.geometry.group_blocks;
      if (next_tap == a.geometry.taps) {
        next_tap = 0;
        first_block += a.geometry.group_blocks;
      }
#pragma unroll
      for (int i = 0; i < kCopies; ++i) {
        const uintptr_t row = rows[next_tap * kColumns + thread / 4 + i * (kWideThreads / 4)];
        there[i] = row != 0;
        x_next[i] = there[i] ? reinterpret_cast<const __half*>(row & ~uintptr_t{1}) + first_block * kChannelBlock +
                                   thread % 4 * 8
                             : static_cast<const __half*>(a.x.data);
        to_second[i] = !there[i] ? 0 : (row & 1) != 0 ? a.x.history_plane : a.x.plane;
      }
      ++next_tap;
    }
    --blocks_left;
#pragma unroll
    for (int i = 0; i < kCopies; ++i) {
#pragma unroll
      for (int p = 0; p < kX; ++p) {
        CopyAsync16(ring_address + stage_offset + p * kPlaneHalves * sizeof(__half) + i * kWideThreads * 16,
                    x_next[i] + (p == 0 ? 0 : to_second[i]), there[i]);
      }
      x_next[i] += there[i] ? kChannelBlock : 0;
    }
  };
  WaitForPrevious();

  // The first group of copies holds the weights of all first stages too.
#pragma unroll
  for (int s = 0; s < kStages - 1; ++s) {
    if (s < a.geometry.chunks) copy_x(s * kStageBytes);
    CommitCopies();
  }
  const float4 residual = FirstResidual(a, first_tile, first_column);
  ScaleColumns(a, first_column, kColumns, column_scale);
  float total[kWarpTiles][kWarpColumnTiles][4] = {};
  float sum[kWarpTiles][kWarpColumnTiles][4] = {};
  int segment = 0;
  int segment_end = SegmentBegin(a, 1);
  uint32_t stage_offset = 0;
  uint32_t free_offset = (kStages - 1) * kStageBytes;
  const char* const ring_bytes = reinterpret_cast<const char*>(ring);
  const int x_offset = ((warp_column + lane / 4) * kChannelBlock + lane % 4 * 8) * static_cast<int>(sizeof(__half));
  const int w_offset = (kX * kPlaneHalves + warp_tile * kTileHalves + lane * 8) * static_cast<int>(sizeof(__half));
  for (int chunk = 0; chunk < a.geometry.chunks; ++chunk) {
    AwaitCopies<kStages - 2>();
    __syncthreads();
    const int ahead = chunk + kStages - 1;
    if (ahead < a.geometry.chunks) {
      copy_weights(free_offset);
      copy_x(free_offset);
    }
    CommitCopies();
    free_offset = stage_offset;

    const auto* const x_from = reinterpret_cast<const __half*>(ring_bytes + stage_offset + x_offset);
    const auto* const w_from = reinterpret_cast<const __half*>(ring_bytes + stage_offset + w_offset);
    uint4 x[kWarpColumnTiles][kX];
#pragma unroll
    for (int j = 0; j < kWarpColumnTiles; ++j) {
#pragma unroll
      for (int p = 0; p < kX; ++p) {
        x[j][p] = *reinterpret_cast<const uint4*>(x_from + p * kPlaneHalves + j * 8 * kChannelBlock);
      }
    }
#pragma unroll
    for (int step = 0; step < 2; ++step) {
      uint4 w[kWarpTiles][kW];
#pragma unroll
      for (int t = 0; t < kWarpTiles; ++t) {
#pragma unroll
        for (int p = 0; p < kW; ++p) {
          w[t][p] = *reinterpret_cast<const uint4*>(w_from + (p * kWideTiles + t) * kTileHalves + step * 256);
        }
      }
      MultiplyStep<kWarpTiles, kWarpColumnTiles, kX, kW>(sum, w, x, step);
    }
    if (chunk + 1 == segment_end) {
#pragma unroll
      for (int t = 0; t < kWarpTiles; ++t) {
#pragma unroll
        for (int j = 0; j < kWarpColumnTiles; ++j) {
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            total[t][j][i] = segment == 0 ? sum[t][j][i] : total[t][j][i] + sum[t][j][i];
            sum[t][j][i] = 0;
          }
        }
      }
      ++segment;
      segment_end = SegmentBegin(a, segment + 1);
    }
    stage_offset = stage_offset + kStageBytes == kStages * kStageBytes ? 0 : stage_offset + kStageBytes;
  }
  AwaitAllCopies();
  __syncthreads();
#pragma unroll
  for (int t = 0; t < kWarpTiles; ++t) {
#pragma unroll
    for (int j = 0; j < kWarpColumnTiles; ++j) {
      float* const to =
          shared + (warp_column + j * 8 + lane % 4 * 2) * kWideSumStride + (warp_tile + t) * kTileRows + lane / 4;
      to[0] = total[t][j][0];
      to[kWideSumStride] = total[t][j][1];
      to[8] = total[t][j][2];
      to[kWideSumStride + 8] = total[t][j][3];
    }
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
  static constexpr auto Narrow(int columns) {
    return columns == 8    ? NarrowGemm<1, kPlanes, kPlanes, (kOne ? 6 : 3)>
           : columns == 16 ? NarrowGemm<2, kPlanes, kPlanes, (kOne ? 4 : 2)>
                           : NarrowGemm<4, kPlanes, kPlanes, (kOne ? 2 : 1)>;
  }
  static constexpr auto Wide(int columns) {
    return columns == 32   ? WideGemm<1, kPlanes, kPlanes>
           : columns == 64 ? WideGemm<2, kPlanes, kPlanes>
                           : WideGemm<4, kPlanes, kPlanes>;
  }

  static cudaError_t Launch(GemmArgs args, const GemmTile& tile, const DeviceTraits& device, cudaStream_t stream) {
    SetBlockTiles(&args, tile.tiles);
    const int blocks_x = CeilDiv(args.geometry.columns, tile.columns);
    int blocks_y = CeilDiv(args.geometry.tiles, tile.tiles);
    if (tile.form == GemmForm::kWide) {
      const dim3 grid(static_cast<unsigned>(blocks_x), static_cast<unsigned>(blocks_y));
      return LaunchChained(Wide(tile.columns), grid, kWideThreads,
                           WideSharedBytes(tile.columns, kPlanes, kPlanes, args.geometry.taps), args, device, stream);
    }
    // No more blocks than fit at once: they take the tiles in turn, loading the next beside the last one's end.
    const int warps = tile.tiles * args.geometry.segments;
    const int at_once = device.processors * (16 / warps);
    blocks_y = std::min(blocks_y, std::max(1, at_once / blocks_x));
    const dim3 grid(static_cast<unsigned>(blocks_x), static_cast<unsigned>(blocks_y));
    return LaunchChained(Narrow(tile.columns), grid, warps * 32,
                         NarrowSharedBytes(warps, tile.columns, args.geometry.taps), args, device, stream);
  }

  static bool WideFits(int columns, int taps, const DeviceTraits& device) {
    return WideSharedBytes(columns, kPlanes, kPlanes, taps) + WideStaticBytes(columns) <= device.shared_bytes;
  }

  static cudaError_t Prepare(const DeviceTraits& device) {
    for (const int columns : {32, 64, 128}) {
      const size_t most = std::min(WideSharedBytes(columns, kPlanes, kPlanes, kMostTaps),
                                   device.shared_bytes - std::min(device.shared_bytes, WideStaticBytes(columns)));
      const cudaError_t error = PrepareKernel(Wide(columns), most);
      if (error != cudaSuccess) return error;
    }
    for (const int columns : {8, 16, 32}) {
      const cudaError_t error = PrepareKernel(Narrow(columns), NarrowSharedBytes(kMaxSegments, columns, kMostTaps));
      if (error != cudaSuccess) return error;
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
