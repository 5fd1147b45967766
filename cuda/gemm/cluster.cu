// SPDX-License-Identifier: LGPL-2.1-or-later
#include <algorithm>

#include "gemm/cluster.h"
#include "gemm/gemm_device.cuh"
#include "runtime/async_copy.cuh"
#include "runtime/cluster.cuh"
#include "runtime/device.h"
#include "runtime/fragment.h"

namespace qtts::cuda::gemm {
namespace {

constexpr int kBlocks = kShares;  // of a cluster, one for each share of the columns
constexpr int kMaxRowTiles = 8;
constexpr int kTileOutputs = 16;
constexpr int kChunkBytes = kTileOutputs * kChunk * 2;
// Limit that leaves resources for a thread block of the next kernel, which loads its weights meanwhile. Without it a
// product takes up to twice as long.
constexpr int kMaxShared = 112 << 10;
// Chunks of weights in flight per warp: as many as fit.
constexpr int kManyStages = 8;
constexpr int kFewStages = 5;

// Elements between staged rows: no bank conflicts between the rows of a fragment.
__host__ __device__ constexpr int StageStride(int chunks) { return (chunks + 1 - chunks % 2) * kChunk; }
// Data received by a thread block: eight shares of an eighth of all fragments.
__host__ __device__ constexpr int ReceivedBytes(int row_tiles, int tiles) {
  return (row_tiles * tiles + kBlocks - 1) / kBlocks * kBlocks * SumFragment::kBytes;
}
int SharedBytes(int warps, int stages, int chunks, int row_tiles) {
  const int share = ChunksOfShare(chunks);
  return warps * stages * kChunkBytes + ReceivedBytes(row_tiles, warps) +
         row_tiles * kTileRows * StageStride(share) * 2;
}

#if __CUDA_ARCH__ >= 900

// Copies this block's share of the columns of its rows, in BF16, to `stage`; `staged` counts the bytes when they are
// there.
__device__ __forceinline__ void Stage(const GemmArguments& a, int64_t first_row, int rows, int begin, int count,
                                      __nv_bfloat16* stage, int stride, uint32_t staged) {
  const int bytes = count * kChunk * 2;
  if (threadIdx.x == 0) ExpectArrivals(staged, rows * bytes);
  // A few lanes of every warp copy a row each.
  const int row = static_cast<int>(threadIdx.x % 32 * (blockDim.x / 32) + threadIdx.x / 32);
  if (row >= rows || count == 0) return;
  const auto* const from =
      static_cast<const __nv_bfloat16*>(a.x) + (first_row + row) * a.x_stride + static_cast<int64_t>(begin) * kChunk;
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                   SharedAddress(stage + row * stride)),
               "l"(from), "r"(bytes), "r"(staged)
               : "memory");
}

// Starts the copy of a chunk of a warp's 16 weight rows to place `to` of its ring, if there is one; a group of copies
// in any case. A lane copies what it reads.
template <int kStages>
struct WeightCopier {
  const uint4* weights;  // of the lane, at the share's first chunk
  uint32_t ring;
  int chunks, count;
  int packed_tiles;  // of 8 weight rows: two, or what is left of the matrix

  __device__ __forceinline__ void Copy(int to, int chunk) const {
    constexpr int kChunkStep = 32;  // of weights, 16 bytes each
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      if (chunk < count && h < packed_tiles) {
        CopyAsync16(ring + static_cast<uint32_t>(to * kChunkBytes + h * kChunkBytes / 2),
                    weights + (h * chunks + chunk) * kChunkStep);
      }
    }
    CommitCopies();
  }
};

// Adds up the shares of the fragments that a block was sent, and finishes their outputs: a lane has two outputs of two
// rows. Fragment n of the block is the one that its cluster has as number share + kBlocks n.
struct ReceivedFragments {
  const unsigned char* received;  // of the lane
  uint32_t arrivals;
  int share, warps, row_tiles, count;
  int first_tile;  // of 16 outputs
  int64_t first_row;
  int rows;

  __device__ __forceinline__ void Finish(const GemmArguments& a, int warp, int lane) const {
#pragma unroll 1
    for (int n = warp; n < count; n += warps) {
      const int fragment = share + kBlocks * n;
      const int tile_row = fragment % row_tiles * kTileRows + SumFragment::Column(lane, 0);
      const int output = (first_tile + fragment / row_tiles) * kTileOutputs + SumFragment::Row(lane, 0);
      float previous[4] = {};
      const float* const y = static_cast<const float*>(a.y) + (first_row + tile_row) * a.y_stride + output;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        if (tile_row + i % 2 < rows && output + i / 2 * 8 < a.outputs) {
          previous[i] = LoadL2(y + i % 2 * a.y_stride + i / 2 * 8);
        }
      }
      if (n == warp) AwaitArrivals(arrivals);
      float partial[4][kBlocks];
#pragma unroll
      for (int s = 0; s < kBlocks; ++s) {
        const auto v = *reinterpret_cast<const float4*>(received + (n * kBlocks + s) * SumFragment::kBytes);
        partial[0][s] = v.x, partial[1][s] = v.y, partial[2][s] = v.z, partial[3][s] = v.w;
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        if (tile_row + i % 2 >= rows) continue;
        gemm::Finish<GemmKind::kAdd, __nv_bfloat16>(a, first_row + tile_row + i % 2, output + i / 2 * 8,
                                                    SumOfShares(partial[i], 1, 1), previous[i]);
      }
    }
  }
};

#endif  // __CUDA_ARCH__ >= 900

// Up to 8 * kRowTiles rows; each warp computes 16 outputs, all over its block's share of the columns, chunk by chunk.
// The sums go to the block that adds up the eight shares of them, in order: every block does an eighth of what the
// cluster computes.
template <int kRowTiles, int kStages>
__global__ void __launch_bounds__(kThreads, 2) ClusterKernel(GemmArguments a) {
#if __CUDA_ARCH__ >= 900
  constexpr int kRows = kRowTiles * kTileRows;
  extern __shared__ __align__(16) unsigned char shared[];
  __shared__ __align__(8) uint64_t arrivals_word, staged_word;
  const int warp = threadIdx.x / 32;
  const int warps = blockDim.x / 32;
  const int lane = threadIdx.x % 32;
  const int share = BlockOfCluster();
  const int per_share = ChunksOfShare(a.chunks);
  const auto [begin, count] = ShareOfChunks(a.chunks, share);
  const int64_t first_row = static_cast<int64_t>(blockIdx.y) * kRows;
  const int rows = static_cast<int>(min(static_cast<int64_t>(kRows), a.rows - first_row));

  const uint32_t arrivals = SharedAddress(&arrivals_word);
  const uint32_t staged = SharedAddress(&staged_word);
  if (threadIdx.x == 0) {
    InitializeArrivals(arrivals);
    InitializeArrivals(staged);
  }
  ArriveAtCluster();

  // Shared memory: a ring of weights for each warp, each lane's part of which is its own; what is sent here to be added
  // up; the activations.
  unsigned char* const ring = shared + warp * kStages * kChunkBytes + lane * 16;
  const unsigned char* const received = shared + warps * kStages * kChunkBytes + lane * 16;
  const uint32_t received_address = SharedAddress(received);
  auto* const stage =
      reinterpret_cast<__nv_bfloat16*>(shared + warps * kStages * kChunkBytes + ReceivedBytes(kRowTiles, warps));
  const int stride = StageStride(per_share);

  const int first_tile = static_cast<int>(blockIdx.x) / kBlocks * warps;  // of 16 outputs
  const int own_tile = 2 * (first_tile + warp);
  const WeightCopier<kStages> copier = {
      static_cast<const uint4*>(a.weights) + (static_cast<int64_t>(own_tile) * a.chunks + begin) * 32 + lane,
      SharedAddress(ring), a.chunks, count, (a.outputs + 7) / 8 - own_tile};
#pragma unroll 1  // here and below: what is not run again is not in the instruction cache
  for (int i = 0; i < kStages; ++i) copier.Copy(i, i);
  const bool live = a.live == nullptr || LoadL2(a.live) != 0;
  AwaitCluster();

  WaitForPrevious();
  LetNextStart();
  if (!live) return AwaitCopies<0>();

  const int row_tiles = (rows + kTileRows - 1) / kTileRows;
  const int fragments = warps * row_tiles;  // the i-th is added up by block i % kBlocks
  const int own_fragments = (fragments - share + kBlocks - 1) / kBlocks;
  if (threadIdx.x == 0) ExpectArrivals(arrivals, own_fragments * kBlocks * SumFragment::kBytes);
  Stage(a, first_row, rows, begin, count, stage, stride, staged);
  AwaitArrivals(staged);

  const __nv_bfloat16* const own_x = stage + UnitFragment::Row(lane) * stride + UnitFragment::Column(lane);
  float sums[kRowTiles][4] = {};
  int slot = 0;
#pragma unroll 1
  for (int chunk = 0; chunk < count; ++chunk) {
    AwaitCopies<kStages - 1>();
    const auto low = *reinterpret_cast<const uint4*>(ring + slot * kChunkBytes);
    const auto high = *reinterpret_cast<const uint4*>(ring + slot * kChunkBytes + kChunkBytes / 2);
#pragma unroll
    for (int r = 0; r < kRowTiles; ++r) {
      const uint4 b = *reinterpret_cast<const uint4*>(own_x + r * kTileRows * stride + chunk * kChunk);
      MultiplyChunk(sums[r], low, high, b);
    }
    copier.Copy(slot, chunk + kStages);  // the products have waited for what was in that place
    slot = slot + 1 == kStages ? 0 : slot + 1;
  }
#pragma unroll
  for (int r = 0; r < kRowTiles; ++r) {
    if (r >= row_tiles) continue;
    const int fragment = warp * row_tiles + r;
    const int place = fragment / kBlocks * kBlocks + share;
    SendFour(fragment % kBlocks, received_address + static_cast<uint32_t>(place * SumFragment::kBytes), arrivals,
             sums[r]);
  }

  const ReceivedFragments own = {received,      arrivals,   share,     warps, row_tiles,
                                 own_fragments, first_tile, first_row, rows};
  own.Finish(a, warp, lane);
#endif
}

// Returns a block's warps, of 16 outputs each: as few as needed for all clusters to run at once, and at most kWarps.
int WarpsFor(int outputs, int clusters_at_once) {
  return outputs <= kWarps / 2 * clusters_at_once * kTileOutputs ? kWarps / 2 : kWarps;
}

// Returns a block's tiles of eight rows each: a number for which there is a kernel.
int RowTilesFor(int64_t rows) {
  const auto tiles = static_cast<int>(std::min<int64_t>((rows + kTileRows - 1) / kTileRows, kMaxRowTiles));
  return tiles > 4 ? (tiles + 1) / 2 * 2 : tiles;
}

template <int kRowTiles>
void Run(const Launcher& launch, const GemmArguments& a) {
  constexpr int64_t kRows = kRowTiles * kTileRows;
  const int warps = WarpsFor(a.outputs, launch.numbers->products.clusters_at_once);
  const int of_cluster = warps * kTileOutputs;
  const dim3 grid(static_cast<unsigned>((a.outputs + of_cluster - 1) / of_cluster * kBlocks),
                  static_cast<unsigned>((a.rows + kRows - 1) / kRows));
  const bool many = SharedBytes(warps, kManyStages, a.chunks, kRowTiles) <= kMaxShared;
  const int bytes = SharedBytes(warps, many ? kManyStages : kFewStages, a.chunks, kRowTiles);
  launch.InClusters(kBlocks, many ? ClusterKernel<kRowTiles, kManyStages> : ClusterKernel<kRowTiles, kFewStages>, grid,
                    32 * warps, static_cast<size_t>(bytes), a);
}

}  // namespace

bool CanRunCluster(int outputs, int chunks, int64_t rows, int clusters_at_once) {
  if (SharedBytes(WarpsFor(outputs, clusters_at_once), kFewStages, chunks, RowTilesFor(rows)) > kMaxShared)
    return false;
  const DeviceDescription* device = nullptr;
  return Succeeds(DescribeDevice(&device)) && device->CanRunClusters() &&
         device->shared_per_block >= static_cast<size_t>(kMaxShared);
}

void RunCluster(const Launcher& launch, const GemmArguments& a) {
  switch (RowTilesFor(a.rows)) {
    case 1:
      return Run<1>(launch, a);
    case 2:
      return Run<2>(launch, a);
    case 3:
      return Run<3>(launch, a);
    case 4:
      return Run<4>(launch, a);
    case 6:
      return Run<6>(launch, a);
    default:
      return Run<kMaxRowTiles>(launch, a);
  }
}

}  // namespace qtts::cuda::gemm
