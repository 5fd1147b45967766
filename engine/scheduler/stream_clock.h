// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_SCHEDULER_STREAM_CLOCK_H_
#define QTTS_SCHEDULER_STREAM_CLOCK_H_

#include <atomic>
#include <chrono>
#include <optional>

namespace qtts {

// The clock of streams and steps: steady_clock, or that of a simulation. Thread-safe.
class StreamClock {
 public:
  using duration = std::chrono::steady_clock::duration;
  using rep = duration::rep;
  using period = duration::period;
  using time_point = std::chrono::steady_clock::time_point;
  static constexpr bool is_steady = true;

  // A world whose time passes only when the scheduler waits, so that every run is the same. For tests and benchmarks;
  // one scheduler at a time.
  class Simulation {
   public:
    virtual ~Simulation() = default;
    virtual time_point now() const = 0;
    // Lets time pass until something happens, or until `until`. The scheduler's thread calls it instead of sleeping.
    // Returns false once the simulation is over: the thread then sleeps until it is stopped.
    virtual bool Sleep(const std::optional<time_point>& until) = 0;
  };

  static time_point now() {
    const Simulation* const simulation = StreamClock::simulation();
    return simulation != nullptr ? simulation->now() : std::chrono::steady_clock::now();
  }
  static Simulation* simulation() { return simulation_; }
  // Sets the simulation; null: none. No scheduler may run.
  static void Simulate(Simulation* simulation) { simulation_ = simulation; }

 private:
  inline static std::atomic<Simulation*> simulation_ = nullptr;
};

}  // namespace qtts

#endif  // QTTS_SCHEDULER_STREAM_CLOCK_H_
