// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CUDA_PATHS_PERSISTENT_WEIGHT_RING_CUH_
#define QTTS_CUDA_PATHS_PERSISTENT_WEIGHT_RING_CUH_

#include <cstdint>

#include "paths/persistent/frame_kernel.h"
#include "runtime/async_copy.cuh"
#include "runtime/barrier.cuh"

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#include "paths/persistent/ring_copies_bulk.cuh"
#else
#include "paths/persistent/ring_copies_async.cuh"
#endif

// The weight stream of a thread block. A thread or some warps by turns (ring_copies_*.cuh) copy tiles, piece by piece
// in the order of their use, into slots of shared memory, as far ahead as there are slots. All warps of the team read
// every piece and release its slot.
//
// Copies are paced. A burst into all slots would fill the queues of the memory system and delay the words that blocks
// exchange (words.cuh). To get high bandwidth from few copies in flight, a second thread or warp runs some pieces ahead
// in the same stream and prefetches them into L2, from where copies take less time. It also keeps the memory busy while
// all slots are taken.
namespace qtts::cuda {

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
using Copies = BulkCopies;
#else
using Copies = AsyncCopies;
#endif
template <typename Storage>
inline constexpr int kPieceBytes = PersistentPieceBytes(Copies::kKind, Storage::kForm);
// Pieces that make a unit of WeightPace.
template <typename Storage>
inline constexpr int kPacePieces = (kPaceBytes + kPieceBytes<Storage> / 2) / kPieceBytes<Storage>;
inline constexpr int kMaxRingSlots = 32;

struct RingBarriers {
  uint64_t full[kMaxRingSlots];
  uint64_t empty[kMaxRingSlots];
  unsigned sent;  // pieces whose copies have begun, counted and looked at by atomic operations
};

// Initializes the ring: by one thread, before the block's first barrier. `readers` warps give every piece back.
__device__ __forceinline__ void InitializeRing(RingBarriers* barriers, int slots, int readers) {
  for (int i = 0; i < slots; ++i) {
    InitializeBarrier(SharedAddress(&barriers->full[i]), Copies::kThreads);
    InitializeBarrier(SharedAddress(&barriers->empty[i]), readers);
  }
  barriers->sent = 0;
  Copies::FenceInitialization();
}

// A place in the endless sequence of pieces, of which a warp has every `warps`-th. `slots` is a multiple of that.
class RingCursor {
 public:
  __device__ RingCursor(int slots, int warps, int warp) : slots_(slots), warps_(warps), slot_(warp) {}

  __device__ int slot() const { return slot_; }
  __device__ unsigned parity() const { return parity_; }
  __device__ __forceinline__ void Advance() {
    slot_ += warps_;
    if (Copies::kMaxWarps == 1 ? slot_ == slots_ : slot_ >= slots_) {
      slot_ -= slots_;
      parity_ ^= 1;
    }
  }

 private:
  int slots_, warps_;
  int slot_;
  unsigned parity_ = 0;
};

// One warp's view. Lane i looks after the i-th piece of those that are taken together. Lanes leave their waits
// together: lanes that part here load and multiply by turns until the next matrix instruction, which costs a fifth of a
// frame.
template <typename Storage>
class RingReader {
 public:
  __device__ RingReader(RingBarriers* barriers, const char* memory, int slots, int lane)
      : barriers_(barriers), memory_(memory), slots_(slots), lane_(lane) {}

  // Waits until the next kPieces pieces have arrived; not more than there are slots.
  template <int kPieces>
  __device__ __forceinline__ void Await() const {
    const int slot = slot_ + min(lane_, kPieces - 1);
    const bool wrapped = slot >= slots_;
    uint64_t* const barrier = &barriers_->full[wrapped ? slot - slots_ : slot];
    const unsigned parity = parity_ ^ (wrapped ? 1U : 0U);
    while (__all_sync(~0U, Copies::Passed(barrier, parity)) == 0) {
    }
  }
  // Returns the i-th of them.
  __device__ __forceinline__ const char* Piece(int i) const {
    const int slot = slot_ + i;
    return memory_ + (slot >= slots_ ? slot - slots_ : slot) * kPieceBytes<Storage>;
  }
  // Releases the pieces: all lanes have read them or do not need them. Only after Await(): a release before their
  // arrival would count for the pieces previously in their slots.
  template <int kPieces>
  __device__ __forceinline__ void GiveBack() {
    __syncwarp();
    const int slot = slot_ + lane_;
    if (lane_ < kPieces) Copies::Arrive(&barriers_->empty[slot >= slots_ ? slot - slots_ : slot]);
    slot_ += kPieces;
    if (slot_ >= slots_) {
      slot_ -= slots_;
      parity_ ^= 1;
    }
  }

 private:
  RingBarriers* barriers_;
  const char* memory_;
  int slots_, lane_;
  int slot_ = 0;
  unsigned parity_ = 0;
};

// The copying threads of a warp. All of them make the same calls, in all copying warps.
template <typename Storage>
class RingWriter {
 public:
  // Stops once `stop` (shared memory) is set: no more pieces will be read.
  __device__ RingWriter(RingBarriers* barriers, char* memory, int slots, const volatile unsigned* stop, int warp)
      : barriers_(barriers),
        memory_(memory),
        slots_(slots),
        warps_(Copies::Warps(slots)),
        warp_(Copies::kMaxWarps == 1 ? 0 : warp),
        skipped_(warp_ * kPieceBytes<Storage>),
        head_(slots, warps_, warp_),
        tail_(slots, warps_, warp_),
        stop_(stop) {}

  // Limits the copies in flight. A piece has landed before the next one is copied to its slot: Land() tells phases
  // apart by their parity.
  __device__ void SetPace(const WeightPace& pace) {
    in_flight_ = min(pace.in_flight * kPacePieces<Storage>, slots_);
    if (Copies::kMaxWarps > 1) in_flight_ = max(in_flight_ / warps_, 1);
  }

  // Sends this warp's pieces of `bytes` on, which are whole pieces; unless kCountsPieces, a multiple of
  // Copies::kMaxWarps pieces.
  __device__ __forceinline__ void Send(const char* source, int bytes) {
    const int step = warps_ * kPieceBytes<Storage>;
    int done = kCountsPieces ? skipped_ : warp_ * kPieceBytes<Storage>;
    for (; done < bytes; done += step) {
      while (!Copies::AllSee(Copies::Passed(&barriers_->empty[head_.slot()], head_.parity() ^ 1))) {
        if (Copies::AnySees(*stop_ != 0)) return;
      }
      if (Copies::AnySees(*stop_ != 0)) return;
      while (flying_ >= in_flight_) Land();
      copies_.template Copy<kPieceBytes<Storage>>(memory_ + head_.slot() * kPieceBytes<Storage>, source + done,
                                                  min(kPieceBytes<Storage>, bytes - done),
                                                  &barriers_->full[head_.slot()]);
      head_.Advance();
      ++flying_;
      if (Copies::IsFirst()) atomicAdd(&barriers_->sent, 1U);
    }
    if (kCountsPieces) skipped_ = done - bytes;
  }

  // Drains the ring. The block's memory may be given up only after this.
  __device__ void Drain() {
    while (flying_ > 0) Land();
  }

 private:
  // With large pieces a tile may have an odd number of them, after which it is the other warp's turn.
  static constexpr bool kCountsPieces = Copies::kMaxWarps > 1 && Storage::kForm == WeightForm::kInt8;

  __device__ __forceinline__ void Land() {
    while (!Copies::Passed(&barriers_->full[tail_.slot()], tail_.parity())) {
    }
    tail_.Advance();
    --flying_;
  }

  RingBarriers* barriers_;
  char* memory_;
  int slots_;
  int warps_, warp_;
  int skipped_;  // bytes that are next and that other warps copy
  RingCursor head_, tail_;
  const volatile unsigned* stop_;
  Copies copies_;
  int in_flight_ = 1;
  int flying_ = 0;
};

// The prefetching threads, which run through the same stream.
template <typename Storage>
class RingPrefetcher {
 public:
  __device__ RingPrefetcher(RingBarriers* barriers, const volatile unsigned* stop)
      : sent_(&barriers->sent), stop_(stop) {}

  __device__ void SetPace(const WeightPace& pace) { max_ahead_ = pace.ahead * kPacePieces<Storage>; }

  __device__ __forceinline__ void Send(const char* source, int bytes) {
    for (int done = 0; done < bytes; done += kPieceBytes<Storage>) {
      ++piece_;
      int ahead = 0;
      while ((ahead = Ahead()) > max_ahead_) {
        if (Copies::AnySees(*stop_ != 0)) return;
        __nanosleep(100);
      }
      // The next one's own copy is as early.
      if (ahead <= 1) continue;
      Copies::Prefetch(source + done, min(kPieceBytes<Storage>, bytes - done));
    }
  }

 private:
  // Returns the pieces that it is ahead of the copies. One thread looks: atomic operations of many would take turns.
  __device__ __forceinline__ int Ahead() const {
    return Copies::FirstOf(static_cast<int>(piece_ - (Copies::IsFirst() ? atomicAdd(sent_, 0U) : 0U)));
  }

  unsigned* sent_;
  const volatile unsigned* stop_;
  unsigned piece_ = 0;  // how many it has gone through
  int max_ahead_ = 0;
};

}  // namespace qtts::cuda

#endif  // QTTS_CUDA_PATHS_PERSISTENT_WEIGHT_RING_CUH_
