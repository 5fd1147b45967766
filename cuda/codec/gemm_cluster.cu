// SPDX-License-Identifier: LGPL-2.1-or-later
#include "codec/epilogue.cuh"
#include "codec/gemm.h"
#include "codec/half_math.cuh"
#include "runtime/async_copy.cuh"
#include "runtime/cluster.cuh"
#include "runtime/fragment.h"
#include "runtime/succeeds.h"

// Tensor core products in small thread blocks, on devices with clusters. Several blocks fit on an SM, or one beside a
// kernel that leaves little shared memory. The blocks of a cluster share a sum: each takes one group of the channels. A
// block thus needs only a part of the input, and holds all of it in shared memory, each row once for all taps.
namespace qtts::cuda::codec {
namespace {

constexpr int kWarps = kClusterTiles;  // each has a weight tile
constexpr int kThreads = 32 * kWarps;
// Chunks of weights in flight per warp: as many as fit, since the kernel's time is the time it waits for them.
constexpr int kFewStages = 3;
constexpr int kSomeStages = 5;
constexpr int kManyStages = 8;

__host__ __device__ constexpr size_t RingBytes(int stages, int w_planes) {
  return static_cast<size_t>(kWarps * stages * w_planes) * 1024;
}

// Returns the rows of the input that a block keeps. Taps share the rows of neighbouring columns where there are many
// columns, which are all of one stream.
__host__ __device__ constexpr int StagedRows(const GemmArgs& a, int columns) {
  return columns > 8 ? columns + (a.geometry.taps - 1) * a.geometry.dilation : a.geometry.taps * columns;
}
size_t StageBytes(const GemmArgs& a, int columns, int x_planes) {
  return static_cast<size_t>(a.geometry.group_blocks) * static_cast<size_t>(x_planes) *
         static_cast<size_t>(StagedRows(a, columns)) * kChannelBlock * sizeof(__half);
}
// Fragments received by a thread block: its share of them all, at least one, from each block of the cluster.
__host__ __device__ constexpr size_t ReceivedBytes(int columns) {
  const int all = columns / 8 * kWarps;
  return static_cast<size_t>(all > kMaxClusterBlocks ? all : kMaxClusterBlocks) * SumFragment::kBytes;
}

#if __CUDA_ARCH__ >= 900

// A warp's ring of weights: this lane's part of each chunk.
template <int kPlanes, int kStages>
struct WeightRing {
  const uint4* weights;  // of the warp's tile
  uint32_t ring;         // of the lane, in shared memory
  int count;             // chunks; 0: the warp has no tile
  uint32_t to = 0;       // of the ring, where the next chunk goes

  static __device__ __forceinline__ uint32_t Next(uint32_t at) {
    return at == (kStages - 1) * kPlanes * 1024 ? 0 : at + kPlanes * 1024;
  }
  // Starts the copy of a chunk, if there is one; a group of copies in any case.
  __device__ __forceinline__ void Fetch(int chunk) {
    if (chunk < count) {
#pragma unroll
      for (int i = 0; i < 2 * kPlanes; ++i) {
        CopyAsync16(ring + to + i * 512, weights + chunk * (64 * kPlanes) + i * 32, true);
      }
    }
    to = Next(to);
    CommitCopies();
  }
};

// Writes the addresses of the rows that a block stages, and the places of its columns.
template <int kColumnTiles>
__device__ __forceinline__ void PlaceStagedRows(const GemmArgs& a, int first_column, int staged, Column* places,
                                                uintptr_t* rows) {
  constexpr int kColumns = kColumnTiles * 8;
  if (kColumnTiles == 1 || a.geometry.taps == 1) {
    PlaceRows<kColumns>(a, first_column, places, rows);
    return;
  }
  PlaceColumns(a, first_column, kColumns, places);
  const Column c = ColumnOf(a, first_column);
  for (int i = static_cast<int>(threadIdx.x); i < staged; i += kThreads) {
    const int time = c.time - (a.geometry.taps - 1) * a.geometry.dilation + i;
    const __half* const row = c.frame < 0 ? nullptr : SourceRow<__half>(a.x, c.batch_row, time, 0, c.state, c.frame);
    rows[i] = row == nullptr ? 0 : reinterpret_cast<uintptr_t>(row) + (time < 0 ? 1 : 0);
  }
}

// Starts the copies of the block's channels of its rows to `stage`, [block][plane][row][kChannelBlock].
template <int kPlanes>
__device__ __forceinline__ void StageRows(const GemmArgs& a, int rank, int staged, const uintptr_t* rows,
                                          uint32_t stage) {
  const int thread = static_cast<int>(threadIdx.x);
#pragma unroll 1
  for (int part = 0; part < a.geometry.group_blocks * kPlanes; ++part) {
    const int plane = part % kPlanes;
    const int channel = (rank * a.geometry.group_blocks + part / kPlanes) * kChannelBlock + thread % 4 * 8;
#pragma unroll 2
    for (int i = thread; i < staged * 4; i += kThreads) {
      const uintptr_t row = rows[i / 4];
      const int64_t second = (row & 1) != 0 ? a.x.history_plane : a.x.plane;
      const __half* const from =
          reinterpret_cast<const __half*>(row & ~uintptr_t{1}) + channel + (plane == 0 ? 0 : second);
      CopyAsync16(stage + static_cast<uint32_t>((part * staged * 4 + i) * 16), row != 0 ? from : a.x.data, row != 0);
    }
  }
  CommitCopies();
}

// Sums a warp's tile over all taps and channels of the group. `x`: the lane's part of the staged rows; `w`: that of the
// ring.
template <int kColumnTiles, int kPlanes, int kStages>
__device__ __forceinline__ void SumTile(const GemmArgs& a, const char* x_lane, const char* w_lane, int staged,
                                        WeightRing<kPlanes, kStages>* ring, float (&sum)[1][kColumnTiles][4]) {
  const int tap_bytes = (kColumnTiles == 1 ? kColumnTiles * 8 : a.geometry.dilation) * 64;
  const int plane_bytes = staged * 64;
  int chunk = 0;
  uint32_t ring_from = 0;
#pragma unroll 1
  for (int tap = 0; tap < a.geometry.taps; ++tap) {
    const char* from = x_lane + tap * tap_bytes;
#pragma unroll 1
    for (int block = 0; block < a.geometry.group_blocks; ++block) {
      AwaitCopies<kStages - 1>();
      const char* const w_from = w_lane + ring_from;
      ring_from = ring->Next(ring_from);
      uint4 w[2][1][kPlanes];
#pragma unroll
      for (int step = 0; step < 2; ++step) {
#pragma unroll
        for (int p = 0; p < kPlanes; ++p)
          w[step][0][p] = *reinterpret_cast<const uint4*>(w_from + (p * 2 + step) * 512);
      }
      uint4 x[kColumnTiles][kPlanes];
#pragma unroll
      for (int p = 0; p < kPlanes; ++p) {
#pragma unroll
        for (int j = 0; j < kColumnTiles; ++j) x[j][p] = *reinterpret_cast<const uint4*>(from + j * 512);
        from += plane_bytes;
      }
      MultiplyStep<1, kColumnTiles, kPlanes>(sum, w[0], x, 0);
      MultiplyStep<1, kColumnTiles, kPlanes>(sum, w[1], x, 1);
      ring->Fetch(chunk + kStages);
      ++chunk;
    }
  }
}

// Tells a block how many bytes its cluster will send it: `groups` fragments for each one that it finishes.
template <typename Exists>
__device__ __forceinline__ void ExpectFragments(uint32_t arrivals, int rank, int fragments, int groups,
                                                const Exists& exists) {
  int bytes = 0;
#pragma unroll 1
  for (int f = rank; f < fragments; f += groups) bytes += exists(f) ? groups * SumFragment::kBytes : 0;
  InitializeArrivals(arrivals);
  ExpectArrivals(arrivals, bytes);
}

#endif  // __CUDA_ARCH__ >= 900

// Block x of a cluster takes group x. Fragments are finished in turn by the blocks of the cluster.
template <int kColumnTiles, int kPlanes, int kStages>
__global__ void __launch_bounds__(kThreads, 4) ClusterGemm(const __grid_constant__ GemmArgs a) {
#if __CUDA_ARCH__ >= 900
  constexpr int kColumns = kColumnTiles * 8;
  constexpr int kRows = kClusterTiles * kTileRows;
  constexpr int kFinishStride = kTileRows + 4;  // floats of a fragment's column while it is finished
  // Weights [warp][stage][plane][step][lane][8], the input [block][plane][row][kChannelBlock], fragments
  // [fragment][block of the cluster][lane][4], and where the rows are.
  extern __shared__ __align__(16) char memory[];
  __shared__ Column places[kColumns];
  __shared__ float column_scale[kColumns];
  __shared__ __align__(16) Constants<kRows> constants;
  __shared__ __align__(16) float finished[kWarps][8 * kFinishStride];
  __shared__ uint64_t arrivals;

  const int thread = static_cast<int>(threadIdx.x);
  const int lane = thread % 32;
  const int warp = thread / 32;
  const int rank = static_cast<int>(blockIdx.x);
  const int first_tile = static_cast<int>(blockIdx.y) * kClusterTiles;
  const int first_column = static_cast<int>(blockIdx.z) * kColumns;
  const int count = a.geometry.taps * a.geometry.group_blocks;  // chunks
  const int staged = StagedRows(a, kColumns);
  const bool works = first_tile + warp < a.geometry.tiles;
  // Fragment f is of tile f / kColumnTiles and the column tile f % kColumnTiles.
  const auto exists = [&](int f) {
    return first_tile + f / kColumnTiles < a.geometry.tiles && first_column + f % kColumnTiles * 8 < a.geometry.columns;
  };

  LetNextStart();
  const uint32_t arrivals_address = SharedAddress(&arrivals);
  if (a.geometry.groups > 1) {
    if (thread == 0) ExpectFragments(arrivals_address, rank, kWarps * kColumnTiles, a.geometry.groups, exists);
    ArriveAtCluster();
  }

  const uint32_t base = SharedAddress(memory);
  const auto ring_base = static_cast<uint32_t>(warp * kStages * kPlanes * 1024 + lane * 16);
  const auto* const weights =
      static_cast<const uint4*>(a.weights.data) +
      (static_cast<int64_t>(first_tile + warp) * a.geometry.chunks + rank * count) * (64 * kPlanes) + lane;
  WeightRing<kPlanes, kStages> ring = {weights, base + ring_base, works ? count : 0};
#pragma unroll
  for (int i = 0; i < kStages; ++i) ring.Fetch(i);
  // The rest is prefetched into L2 while earlier kernels run, one line (8) per lane.
  if (works) {
    for (int i = kStages * (64 * kPlanes) + lane * 7; i < count * (64 * kPlanes); i += 256) PrefetchL2(weights + i);
  }

  const uint32_t stage_base = base + static_cast<uint32_t>(RingBytes(kStages, kPlanes));
  const uint32_t received_base = stage_base + static_cast<uint32_t>(a.geometry.group_blocks * kPlanes * staged * 64);
  auto* const rows = reinterpret_cast<uintptr_t*>(memory + (received_base - base) + ReceivedBytes(kColumns));
  PlaceStagedRows<kColumnTiles>(a, first_column, staged, places, rows);
  PlaceConstants(a, first_tile, kClusterTiles, &constants);
  __syncthreads();
  WaitForPrevious();

  StageRows<kPlanes>(a, rank, staged, rows, stage_base);
  ScaleColumns(a, first_column, kColumns, column_scale);
  AwaitCopies<0>();
  __syncthreads();

  float sum[1][kColumnTiles][4] = {};
  if (works) {
    SumTile<kColumnTiles, kPlanes>(a, memory + RingBytes(kStages, kPlanes) + lane * 16, memory + ring_base, staged,
                                   &ring, sum);
  }

  // Finishes a fragment, of which the calling warp has all sums: four outputs of a column a lane.
  const auto finish = [&](int tile, int column_tile, const float(&v)[4]) {
    float* const fragment = finished[warp];
    __syncwarp();
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      fragment[SumFragment::Column(lane, i) * kFinishStride + SumFragment::Row(lane, i)] = v[i];
    }
    __syncwarp();
    const int n = column_tile * 8 + lane / 4;
    const Column place = places[n];
    const bool gated = a.epilogue.activation == Activation::kSwiGlu;
    if (place.frame < 0 || (gated && lane % 4 > 1)) return;
    FinishQuads<End::kGeneral, 1>(
        a, first_tile, tile, lane % 4 * 4, {first_column + n}, {place},
        {a.epilogue.rms_input != nullptr ? column_scale[n] : 1.0F}, constants,
        [&](int, int, int m) { return ResidualAt(a, first_column + n, m); },
        [&](int, int, int row) { return *reinterpret_cast<const float4*>(fragment + lane / 4 * kFinishStride + row); });
  };
  if (a.geometry.groups == 1) {
#pragma unroll
    for (int j = 0; j < kColumnTiles; ++j) {
      if (exists(warp * kColumnTiles + j)) finish(warp, j, sum[0][j]);
    }
    return;
  }
  AwaitCluster();  // all blocks expect what comes
  const int group_shift = 31 - __clz(a.geometry.groups);
#pragma unroll
  for (int j = 0; j < kColumnTiles; ++j) {
    const int f = warp * kColumnTiles + j;
    if (!exists(f)) continue;
    const int at = (f >> group_shift << group_shift) + rank;  // the fragment's, of those that its block is sent
    SendFour(f & (a.geometry.groups - 1), received_base + static_cast<uint32_t>(at * SumFragment::kBytes + lane * 16),
             arrivals_address, sum[0][j]);
  }
  AwaitArrivals(arrivals_address);
#pragma unroll 1
  for (int f = (warp << group_shift) + rank; f < kWarps * kColumnTiles; f += kWarps << group_shift) {
    if (!exists(f)) continue;
    const char* from = memory + (received_base - base) +
                       static_cast<ptrdiff_t>(f >> group_shift << group_shift) * SumFragment::kBytes + lane * 16;
    float4 total = *reinterpret_cast<const float4*>(from);
    for (int g = 1; g < a.geometry.groups; ++g) {
      from += SumFragment::kBytes;
      total = Plus(total, *reinterpret_cast<const float4*>(from));
    }
    finish(f / kColumnTiles, f % kColumnTiles, {total.x, total.y, total.z, total.w});
  }
#endif
}

using Kernel = void (*)(GemmArgs);
template <int kPlanes, int kStages>
Kernel KernelFor(int columns) {
  return columns == 8    ? ClusterGemm<1, kPlanes, kStages>
         : columns == 16 ? ClusterGemm<2, kPlanes, kStages>
                         : ClusterGemm<4, kPlanes, kStages>;
}
template <int kPlanes>
Kernel KernelFor(int columns, int stages) {
  return stages == kFewStages    ? KernelFor<kPlanes, kFewStages>(columns)
         : stages == kSomeStages ? KernelFor<kPlanes, kSomeStages>(columns)
                                 : KernelFor<kPlanes, kManyStages>(columns);
}
Kernel KernelFor(Planes planes, int columns, int stages) {
  return planes == Planes::kHalf ? KernelFor<1>(columns, stages) : KernelFor<2>(columns, stages);
}

// Shared memory of a block.
size_t ClusterBytes(const GemmArgs& args, Planes x_planes, int columns, int stages) {
  return RingBytes(stages, args.weights.planes) + StageBytes(args, columns, x_planes == Planes::kTwoHalves ? 2 : 1) +
         ReceivedBytes(columns) + static_cast<size_t>(StagedRows(args, columns)) * sizeof(uintptr_t);
}
// Limit: half of an SM's shared memory for all its blocks together, so that the next kernel's blocks fit; or the shared
// memory that the language model's kernel leaves, minus the static part.
constexpr size_t kMaxBytes = 108 << 10;
constexpr size_t kMaxBytesBeside = 63 << 10;

// Returns the stages of a warp's ring of weights that fit; 0 if none do.
int StagesFor(const GemmArgs& args, Planes x_planes, const GemmTile& tile, const DeviceTraits& device) {
  const int blocks = args.geometry.groups * CeilDiv(args.geometry.tiles, kClusterTiles) *
                         CeilDiv(args.geometry.columns, tile.columns) / device.processors +
                     1;
  const size_t most = tile.beside ? kMaxBytesBeside : kMaxBytes / static_cast<size_t>(blocks);
  for (const int stages : {kManyStages, kSomeStages}) {
    if (ClusterBytes(args, x_planes, tile.columns, stages) <= most) return stages;
  }
  const size_t least = ClusterBytes(args, x_planes, tile.columns, kFewStages);
  return least <= (tile.beside ? kMaxBytesBeside : kMaxBytes) ? kFewStages : 0;
}

}  // namespace

bool ClusterTakes(const GemmArgs& args, Planes x_planes, const GemmTile& tile, const DeviceTraits& device) {
  const bool of_one_stream = args.x.rows % tile.columns == 0;
  return (tile.columns == 8 || args.geometry.taps == 1 || of_one_stream) &&
         StagesFor(args, x_planes, tile, device) != 0;
}

cudaError_t ClusterGemmsFit(const DeviceTraits& device, bool* fit) {
  cudaFuncAttributes attributes = {};
  // The widest has the most static shared memory, which counts too.
  const auto* const widest = reinterpret_cast<const void*>(KernelFor<2, kFewStages>(32));
  const cudaError_t error = cudaFuncGetAttributes(&attributes, widest);
  *fit = error == cudaSuccess && kMaxBytes + attributes.sharedSizeBytes <= device.shared_bytes;
  return error;
}

cudaError_t PrepareClusterGemms() {
  for (const Planes planes : {Planes::kHalf, Planes::kTwoHalves}) {
    for (const int columns : {8, 16, 32}) {
      for (const int stages : {kFewStages, kSomeStages, kManyStages}) {
        const cudaError_t error = PrepareKernel(KernelFor(planes, columns, stages), kMaxBytes);
        if (error != cudaSuccess) return error;
      }
    }
  }
  return cudaSuccess;
}

cudaError_t LaunchClusterGemm(const GemmArgs& args, Planes x_planes, const GemmTile& tile, const DeviceTraits& device,
                              cudaStream_t stream) {
  const int stages = StagesFor(args, x_planes, tile, device);
  const dim3 grid(static_cast<unsigned>(args.geometry.groups),
                  static_cast<unsigned>(CeilDiv(args.geometry.tiles, kClusterTiles)),
                  static_cast<unsigned>(CeilDiv(args.geometry.columns, tile.columns)));
  return LaunchChained(KernelFor(x_planes, tile.columns, stages), grid, kThreads,
                       ClusterBytes(args, x_planes, tile.columns, stages), args, device, stream, args.geometry.groups);
}

}  // namespace qtts::cuda::codec
