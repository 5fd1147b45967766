// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_SAMPLING_PHILOX_H_
#define QTTS_SAMPLING_PHILOX_H_

#include <array>
#include <cstdint>

// Random numbers as a pure function of the seed and the place of use: Philox4x32 with 10 rounds, after Salmon et al.,
// "Parallel random numbers: as easy as 1, 2, 3" (SC 2011). A stream's draws depend on nothing else, so they are the
// same on every device, in every batch and at any time.
//
// Plain C++, also compiled by CUDA: QTTS_HOST_DEVICE marks functions for both sides.
#ifdef __CUDACC__
#define QTTS_HOST_DEVICE __host__ __device__
#else
#define QTTS_HOST_DEVICE
#endif

namespace qtts {

struct PhiloxWords {
  uint32_t v[4];
};

QTTS_HOST_DEVICE inline PhiloxWords Philox4x32(PhiloxWords counter, uint32_t key0, uint32_t key1) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53} * counter.v[0];
    const uint64_t p1 = uint64_t{0xCD9E8D57} * counter.v[2];
    counter = {{static_cast<uint32_t>(p1 >> 32) ^ counter.v[1] ^ key0, static_cast<uint32_t>(p1),
                static_cast<uint32_t>(p0 >> 32) ^ counter.v[3] ^ key1, static_cast<uint32_t>(p0)}};
    key0 += 0x9E3779B9;
    key1 += 0xBB67AE85;
  }
  return counter;
}

// Purpose of a draw. Draws of different purposes are independent.
enum class DrawPurpose : uint32_t { kGumbel = 0, kPartSeed = 1 };

// Returns the 32 random bits of candidate `token` of codebook `codebook` in frame `frame`.
QTTS_HOST_DEVICE inline uint32_t DrawBits(uint64_t seed, uint32_t frame, uint32_t codebook, uint32_t token,
                                          DrawPurpose purpose) {
  return Philox4x32({{frame, codebook, token, static_cast<uint32_t>(purpose)}}, static_cast<uint32_t>(seed),
                    static_cast<uint32_t>(seed >> 32))
      .v[0];
}

// Returns the seed of part `part` of an utterance with `seed` (Request::parts). The first part has the utterance's own,
// so a text of one part sounds the same with and without parts.
inline uint64_t SeedOfPart(uint64_t seed, int part) {
  if (part == 0) return seed;
  const PhiloxWords words =
      Philox4x32({{static_cast<uint32_t>(part), 0, 0, static_cast<uint32_t>(DrawPurpose::kPartSeed)}},
                 static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32));
  return (uint64_t{words.v[1]} << 32) | words.v[0];
}

// Converts random bits to a number in (0, 1), both ends excluded, exact in F32: (the 23 high bits + 0.5) / 2^23.
QTTS_HOST_DEVICE inline float UnitInterval(uint32_t bits) {
  return (static_cast<float>(bits >> 9) + 0.5F) * (1.0F / 8388608.0F);
}

}  // namespace qtts

#undef QTTS_HOST_DEVICE

#endif  // QTTS_SAMPLING_PHILOX_H_
