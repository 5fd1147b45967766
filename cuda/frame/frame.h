// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CUDA_FRAME_FRAME_H_
#define QTTS_CUDA_FRAME_FRAME_H_

#include <cstddef>
#include <cstdint>

#include "frame/frame_state.h"
#include "rules/precision.h"
#include "runtime/launch.h"

// First and last kernels of a frame (ids in, results out), and those that open an utterance.
namespace qtts::cuda {

// The tables of the talker's inputs, rows of `stride` elements in the precision's type.
struct EmbeddingTables {
  const void* text = nullptr;          // projected to the talker's width
  const void* const* codes = nullptr;  // [code groups] tables, a device array
  int groups = 0;
  int width = 0;
  int stride = 0;
};

// Rows of the current frame. Device arrays of FrameRing::rows.
struct FrameRows {
  int* slots = nullptr;           // below 0: the row is done in this frame
  int* joining = nullptr;         // the slot of a row that joins behind the talker's layers, or below 0
  int* positions = nullptr;       // of the talker's input
  TextWindow* windows = nullptr;  // of the rows whose slot is not below 0; null: nothing reads them
  int* codes = nullptr;           // [rows][groups]
  int* live = nullptr;            // two words: does any row need the talker; the predictor
  unsigned* frame = nullptr;      // frames made since the start
  unsigned* finished = nullptr;   // rows that have reported, zero between frames
};

// Enqueues the first kernel of a frame: reads its entry of the ring `steps` (host memory), and sets the talker's rows x
// [rows][stride]: for an utterance's first frame its row of `first_x` [slots][stride], then the sum of the last codes'
// embeddings and the text's.
// A row of kJoins stays idle until JoinRows().
void BeginFrame(const Launcher& launch, Precision precision, const EmbeddingTables& tables, const FrameRow* steps,
                const FrameRing& ring, const FrameRows& frame, SlotState* slots, const float* first_x, int rows,
                float* x);

// Runs after the talker's layers: gives joining rows their slots and copies their rows of `first_x` to x.
void JoinRows(const Launcher& launch, const FrameRows& frame, const float* first_x, int width, int stride, int rows,
              float* x);

// Hand-over of codes to the codec, which runs on a stream of its own. Frame n's codes stay in part n % kHandOvers until
// the end of frame n + kHandOvers writes them. Device arrays.
inline constexpr int kHandOvers = 2;
struct CodecHandOver {
  int* slots = nullptr;        // [kHandOvers][FrameRing::rows], below 0: nothing to decode
  int* codes = nullptr;        // [kHandOvers][FrameRing::rows][groups]
  unsigned* frames = nullptr;  // [kHandOvers] their numbers
};

// Words that carry epochs (paths/persistent/words.cuh), to be zeroed after every `frames` frames; or none.
struct EpochWords {
  unsigned long long* words = nullptr;
  int64_t count = 0;
  unsigned frames = 0;
};

// Enqueues the last kernel of a frame: writes the rows' results and codes to its entry of the ring `results` (host
// memory), and the codes to the codec's hand-over.
void EndFrame(const Launcher& launch, const FrameRow* steps, const FrameRing& ring, const FrameRows& frame,
              const SlotState* slots, int groups, int rows, FrameRowResult* results, const CodecHandOver& hand_over,
              const EpochWords& epochs);

// Copies the codec's rows pcm [rows][samples], of the slots and frame handed over, to the frame's entry of the ring
// `out`, [samples] for each row (host memory); PCM that is no number makes the result a fault.
void DeliverPcm(const Launcher& launch, const int* slots, const unsigned* frame, const FrameRing& ring, int rows,
                const float* pcm, int samples, FrameRowResult* results, float* out);

// Starts a new utterance in `slot` with `state`, and clears its history of sampled codes: `history` is
// [slots][history_words] bits.
void OpenSlot(const Launcher& launch, int slot, const SlotState& state, SlotState* slots, unsigned* history,
              int history_words);

// The rows of prompts that go through the talker at once. Device memory; below 0 for rows that are none.
struct PromptRows {
  int* slots = nullptr;
  int* positions = nullptr;
  int* kept = nullptr;  // the slot whose prompt's last row it is, or below 0
};

// Writes the talker's inputs of `count` uploaded rows to the last rows of x [padded][stride], and, where there is
// memory for them, the rows' slots and positions. x_vectors [vector][width].
void EmbedPrompt(const Launcher& launch, Precision precision, const EmbeddingTables& tables, const PromptRowIds* rows,
                 const float* x_vectors, int count, float* x, int padded, const PromptRows& prompt_rows);

// Copies the kept rows among `rows` of x [rows][stride] to their slots' of first_x [slots][stride].
void KeepRows(const Launcher& launch, const int* kept, const float* x, int width, int stride, int rows, float* first_x);

// Sets table[index] = page.
void SetPage(const Launcher& launch, void** table, int64_t index, void* page);

// Copies the first `positions` keys and values of one page's worth of all layers: from page to page.
void CopyPage(const Launcher& launch, const void* source, void* target, int64_t heads_and_layers, int positions,
              int page_positions, int64_t row_bytes);

}  // namespace qtts::cuda

#endif  // QTTS_CUDA_FRAME_FRAME_H_
