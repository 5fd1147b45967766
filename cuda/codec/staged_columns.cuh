// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CUDA_CODEC_STAGED_COLUMNS_CUH_
#define QTTS_CUDA_CODEC_STAGED_COLUMNS_CUH_

#include <cstdint>

#include "codec/epilogue.cuh"
#include "codec/staging.h"
#include "runtime/fragment.h"

// Where the columns that a kernel stages lie in global memory (staging.h).
namespace qtts::cuda::codec {

// Fills `rows` with the addresses of the staged columns' rows of the tile from `first_column`; 0 where there is none,
// the lowest bit set where a row lies in the history. Called by kCallers threads, of which this is `thread`.
template <int kCallers>
__device__ __forceinline__ void PlaceStaged(const GemmArgs& a, int halo, int staged, int first_column, int tile_columns,
                                            int thread, uintptr_t* rows) {
  const int first_stream = Divide(first_column, a.x.by_rows);
  const int begin = first_column - first_stream * a.x.rows;  // time of the tile's first column
  for (int i = thread; i < staged; i += kCallers) {
    // The streams of the tile lie one after the other, each behind its halo.
    int column = i - halo;  // the tile's, of the first stream
    int stream = 0;
    int end = a.x.rows - begin;  // of the stream's columns
    while (column >= end && end < tile_columns) {
      column -= halo;
      ++stream;
      if (column < end) break;  // in the halo of the next one
      end += a.x.rows;
    }
    const int stream_begin = stream == 0 ? 0 : stream * a.x.rows - begin;
    const int from_begin = column - stream_begin;  // negative: of the past
    const int time = (stream == 0 ? begin : 0) + max(from_begin, 0);
    const int lag = max(-from_begin, 0);
    const Column place = ColumnOf(a, (first_stream + stream) * a.x.rows);
    const __half* const row = place.frame < 0 || time >= a.x.rows || column >= tile_columns
                                  ? nullptr
                                  : SourceRow<__half>(a.x, place.batch_row, time, lag, place.state, place.frame);
    rows[i] = row == nullptr ? 0 : reinterpret_cast<uintptr_t>(row) + (time < lag ? 1 : 0);
  }
}

// Returns where a lane's part of the tile's column `row` begins in a slot's plane, in bytes. `first_stream` is that of
// the tile's first column.
__device__ __forceinline__ int StagedOffset(const GemmArgs& a, int halo, int first_column, int first_stream, int row,
                                            int lane) {
  const int stream = Divide(first_column + row, a.x.by_rows) - first_stream;
  return (row + (stream + 1) * halo) * kRowBytes + UnitFragment::Column(lane) * 2;
}

}  // namespace qtts::cuda::codec

#endif  // QTTS_CUDA_CODEC_STAGED_COLUMNS_CUH_
