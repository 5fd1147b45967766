// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CUDA_CODEC_KERNELS_H_
#define QTTS_CUDA_CODEC_KERNELS_H_

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

// The kernels of the codec decoder and their arguments: plain structs of device pointers and sizes, passed by value.
// steps.cc and weights.cc fill them, codec.cc adds the arguments of a call.
//
// Terms. A *batch row* is one stream's frame in this call; `n` of them. An operator has `rows` time steps
// per frame; all batch rows together make n * rows *columns* of a matrix product. Arrays between operators
// are [column][channels], the channels padded with zeros to a multiple of kChannelBlock.
namespace qtts::cuda::codec {

// Channels are padded to this, and products advance in steps of it.
inline constexpr int kChannelBlock = 32;
// Output channels of one weight tile (the m of mma.m16n8k16).
inline constexpr int kTileRows = 16;
// Parts into which a product's inner dimension is cut at most. Each part is summed on its own and the
// parts are added in order: a layer's cut never depends on the batch, so neither do its results.
inline constexpr int kMaxSegments = 16;
// Limits: the longest convolution kernel and the number of code groups.
inline constexpr int kMaxTaps = 16;
inline constexpr int kMaxGroups = 64;

// Division by a constant known at launch. Exact while dividend * value < 2^32.
struct Divisor {
  int32_t value = 1;
  uint32_t magic = 0;  // 2^32 / value, rounded up; 0 for 1

  Divisor() = default;
  explicit Divisor(int divisor)
      : value(divisor), magic(divisor == 1 ? 0 : 0xffffffffU / static_cast<uint32_t>(divisor) + 1) {}
};

// How the elements of an operand are stored: F32, or as F16, or as the F16 nearest to the value and the
// F16 nearest to what that leaves (22 bits together), in two planes.
enum class Planes : int32_t { kF32 = 0, kHalf = 1, kTwoHalves = 2 };

// Streams of the columns of a call.
struct Batch {
  std::byte* const* states = nullptr;  // [n] state of the slot
  const int32_t* frames = nullptr;     // [n] frames of the slot so far; -1 = skip the row
};

// Input of an operator, including rows of earlier frames if it needs them. For every operator with a history, each
// slot's state keeps the last `keep` rows of `ring` frames, the current one included.
struct Source {
  const void* data = nullptr;  // [column][channels]
  int64_t history = 0;         // bytes from a state's begin to [ring][keep][channels]
  int64_t plane = 0;           // elements from the first plane to the second
  int64_t history_plane = 0;
  int32_t rows = 0;  // per frame
  int32_t channels = 0;
  int32_t keep = 0;
  int32_t ring = 0;
  Divisor by_rows;
};

// Output of an operator in the format of the next one's input (SnakeBeta applied, rounded), and the history that later
// frames read.
struct Sink {
  void* data = nullptr;  // null: nothing
  int64_t history = 0;   // as Source's
  int64_t plane = 0;
  int64_t history_plane = 0;
  Planes planes = Planes::kF32;
  int32_t rows = 0;
  int32_t channels = 0;
  int32_t keep = 0;
  int32_t ring = 0;
  const float* snake_a = nullptr;  // [channels], null: none
  const float* snake_inverse_b = nullptr;
};

enum class Activation : int32_t { kNone, kGelu, kSwiGlu };

// Geometry of a product: operands and split.
struct GemmGeometry {
  int32_t columns = 0;  // n * x.rows
  int32_t taps = 1;
  int32_t dilation = 1;
  int32_t tiles = 0;   // output channels / kTileRows
  int32_t chunks = 0;  // taps * x.channels / kChannelBlock
  // Chunks come group by group of `group_blocks` channel blocks each; within a group tap by tap. They are cut into
  // `segments`, where there are several groups into these.
  int32_t groups = 1;
  int32_t group_blocks = 1;
  int32_t segments = 1;
  Divisor by_segments, by_group_blocks;
  // Launch geometry: weight tiles per thread block, and groups of 4 outputs in one column of them.
  Divisor by_block_tiles, by_quads;
};

// F16 weights lie in the order the tensor cores take them, [tile][chunk][plane][2][lane][8]; F32 ones as
// [chunk * kChannelBlock][output channel].
struct GemmWeights {
  const void* data = nullptr;
  int32_t planes = 1;
  const float* scale = nullptr;  // [output channel] powers of two
  // The same once more for GemmForm::kWarpgroup, see PackWarpgroup(); null: it takes no part.
  const void* warpgroup = nullptr;
};

// Epilogue of a product, in this order; null = skipped.
struct GemmEpilogue {
  const float* rms_input = nullptr;  // [column][x.channels]: divide by its root mean square
  int32_t rms_width = 0;
  float rms_eps = 0;
  const float* bias = nullptr;
  Activation activation = Activation::kNone;  // kSwiGlu: tiles hold 8 gates, then their 8 values
  const float* scale = nullptr;
  const float* residual = nullptr;  // [column][output channel]; may be y
  float* y = nullptr;
  int32_t stride = 1;  // rows of `out` per column
  Divisor by_out_channels;
  Sink out;
};

// y = epilogue(W x): a causal convolution (or a linear layer: one tap) as a matrix product over
// (tap, channel). Tap j of `taps` reads the row (taps - 1 - j) * dilation back.
// A transposed convolution is the same with its `stride` output rows as output channels [stride][channels].
struct GemmArgs {
  Batch batch;
  Source x;
  GemmGeometry geometry;
  GemmWeights weights;
  GemmEpilogue epilogue;
};

// Weights of a residual unit's two products in the order of the kernel that runs both; null: they can't run as one.
struct UnitWeights {
  const void* first = nullptr;
  const void* second = nullptr;
};

// codes -> z, and the Batch; the first kernel of a call.
struct DequantizeArgs {
  const int32_t* slots = nullptr;  // [n]
  const int32_t* codes = nullptr;  // [n][groups]
  int32_t max_slots = 0;
  int32_t groups = 0;
  int32_t codebook_size = 0;
  const float* tables = nullptr;            // [groups][codebook_size][channels], projected
  std::byte* const* slot_states = nullptr;  // [slot] null: the slot was never opened
  int32_t* next_frame = nullptr;            // [slot]
  std::byte** states = nullptr;             // [n]
  int32_t* frames = nullptr;                // [n]
  Sink out;
};

// RoPE, KV append and attention over the window.
struct AttentionArgs {
  Batch batch;
  const float* qkv = nullptr;  // [n][stride]: q, k, v
  int32_t stride = 0;
  int32_t heads = 0;
  int32_t kv_heads = 0;
  int32_t head_dim = 0;
  int32_t window = 0;
  int64_t keys = 0;                   // bytes from a state's begin to [window][kv_heads][head_dim], without RoPE
  int64_t values = 0;                 // same
  bool halves = false;                // they are F16, otherwise F32
  const float2* rotations = nullptr;  // [window][head_dim / 2]: cosine and sine by distance
  Sink out;
};

// Depthwise convolution, then LayerNorm.
struct DepthwiseArgs {
  Batch batch;
  Source x;  // F32
  int32_t width = 0;
  int32_t taps = 0;
  const float* weights = nullptr;  // [tap][channel]
  const float* bias = nullptr;
  const float* norm_weight = nullptr;
  const float* norm_bias = nullptr;
  float eps = 0;
  Sink out;
};

// The last convolution, to one channel, and the clamp.
struct LastConvArgs {
  Batch batch;
  Source x;  // F32
  int32_t taps = 0;
  const float* weights = nullptr;  // [tap][channel]
  float bias = 0;
  float* pcm = nullptr;  // [n][x.rows]
};

// Device properties that select kernels.
struct DeviceTraits {
  int processors = 0;
  size_t shared_bytes = 0;           // a thread block's limit, static part included: 99 KiB or more
  bool programmatic_launch = false;  // sm_90 and later: programmatic dependent launch
  bool clusters = false;             // products in clusters can run
  bool warpgroups = false;           // products by warpgroups can run
};

// How a product is divided into thread blocks. The results are the same.
enum class GemmForm : int32_t {
  kNarrow,     // warps of a block share the sum; linear layers have a kernel of their own where kernels can't overlap
  kCluster,    // small blocks, in clusters, share the sum, a group each
  kWide,       // a block's warps share operands through shared memory
  kWarpgroup,  // warpgroups multiply, for very many columns
  kStaged,     // the same without warpgroups: whole tiles, whose columns are copied once for all taps
};
struct GemmTile {
  GemmForm form = GemmForm::kNarrow;
  // Per block: narrow and cluster 8, 16, 32; wide 32, 64, 128; warpgroup 128, 256; staged 96, 128, 192.
  int columns = 8;
  int tiles = 1;        // weight tiles per block; cluster: 4; wide: 6; warpgroup: 4, 6, 8, 12; staged: 3, 4, 6, 8
  bool beside = false;  // another kernel occupies all SMs; cluster only
};

// Launchers enqueue one kernel and return the error of the launch:
cudaError_t LaunchGemm(const GemmArgs& args, Planes x_planes, const GemmTile& tile, const DeviceTraits& device,
                       cudaStream_t stream);
// Launches a residual unit as one kernel, with the same results as its two products one after the other: the second
// one's input is the first one's output, which is not stored. Both have as many planes of inputs as of weights. The
// second one's output must not lie where the first one's input does.
cudaError_t LaunchUnit(const GemmArgs& first, const GemmArgs& second, const UnitWeights& weights,
                       const DeviceTraits& device, cudaStream_t stream);
cudaError_t LaunchDequantize(const DequantizeArgs& args, int n, const DeviceTraits& device, cudaStream_t stream);
// Returns true if a window of keys and values fits LaunchAttention()'s shared memory.
bool AttentionFits(int window, int head_dim);
cudaError_t LaunchAttention(const AttentionArgs& args, int n, const DeviceTraits& device, cudaStream_t stream);
cudaError_t LaunchDepthwise(const DepthwiseArgs& args, int n, const DeviceTraits& device, cudaStream_t stream);
cudaError_t LaunchLastConv(const LastConvArgs& args, int n, const DeviceTraits& device, cudaStream_t stream);

// Prepares the kernels for the current device and returns its traits. Raises the limit of dynamic shared
// memory, and sets one split of L1 and shared memory for all kernels, since kernels with different splits cannot
// overlap.
cudaError_t PrepareKernels(DeviceTraits* traits);

// ---- At load.

// dense[to(r)][tap * channels + c] = source[...] * column_scale[c], see Gather().
struct GatherArgs {
  const float* source = nullptr;
  float* dense = nullptr;               // [rows][taps * channels]
  const float* column_scale = nullptr;  // [source channels], or null
  int32_t rows = 0;                     // source rows: [groups][group_rows]
  int32_t group_rows = 0;
  int32_t taps = 0;
  int32_t source_channels = 0;
  int32_t channels = 0;  // padded
  // Source index = offset + group * group_stride + row * row_stride + tap * tap_stride + c * channel_stride.
  int64_t offset = 0, group_stride = 0, row_stride = 0, tap_stride = 0, channel_stride = 0;
  // Row r of the source goes to dense row first + (r / run) * run_stride + r % run, where run is group_rows unless
  // given.
  int32_t first = 0, run = 0, run_stride = 0;
};
cudaError_t Gather(const GatherArgs& args, cudaStream_t stream);

// c[i][j] (+)= sum over k of a[i * a_row + k * a_column] b[k * b_row + j * b_column], summed in F64.
struct ProductArgs {
  const float* a = nullptr;
  const float* b = nullptr;
  float* c = nullptr;
  int32_t rows = 0, inner = 0, columns = 0;
  int64_t a_row = 0, a_column = 0, b_row = 0, b_column = 0, c_row = 0;
  bool accumulate = false;
};
cudaError_t Product(const ProductArgs& args, cudaStream_t stream);

// Computes codewords[i][c] /= max(usage[i], 1e-5).
cudaError_t DivideByUsage(float* codewords, const float* usage, int rows, int width, cudaStream_t stream);

// Converts F16 or BF16 bits to F32.
cudaError_t Widen(const uint16_t* from, bool bfloat, int64_t count, float* to, cudaStream_t stream);

// Packs dense [tiles * 16][taps][blocks * 32] into F16 planes and row scales, in the order of `groups` (see GemmArgs).
cudaError_t PackHalf(const float* dense, int tiles, int taps, int blocks, int groups, int planes, void* packed,
                     float* row_scale, cudaStream_t stream);
// Order of weight rows for warpgroups. A lane of the kernel gets outputs that belong together: in each 16 its four are
// neighbours; or in each 32 its eight, and they then are the channels of an operand (PlaceInChunk()).
enum class RowOrder { kFours, kEights };
struct WarpgroupOrder {
  int block_outputs = 0;  // rows of a block of the kernel; 0: there is no such kernel
  RowOrder rows = RowOrder::kFours;
};
// Packs the same planes, with the scales that PackHalf() made, in the order in which warpgroups read them from shared
// memory (runtime/matrix_operand.h): [outputs / block_outputs][stage][block_outputs][64], a stage being one chunk of
// two planes, or two chunks of one, zeros behind the last.
cudaError_t PackWarpgroup(const float* dense, int tiles, int taps, int blocks, int groups, int planes,
                          const WarpgroupOrder& order, const float* row_scale, void* packed, cudaStream_t stream);
// Returns the bytes that PackWarpgroup() writes.
constexpr size_t WarpgroupBytes(int tiles, int chunks, int planes) {
  return static_cast<size_t>(tiles) * kTileRows * static_cast<size_t>((chunks * planes + 1) / 2) * 128;
}
// Transposes `dense`.
cudaError_t PackF32(const float* dense, int tiles, int chunks, float* transposed, cudaStream_t stream);

}  // namespace qtts::cuda::codec

#endif  // QTTS_CUDA_CODEC_KERNELS_H_
