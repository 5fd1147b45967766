// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_BASE_OF_THREAD_H_
#define QTTS_BASE_OF_THREAD_H_

#include <pthread.h>

#include <memory>
#include <new>

// Objects of a thread's own, such as memory that is reused from call to call. In place of thread_local objects with
// destructors: where there is no memory to register one of those, the C library ends the process.
namespace qtts {

// A key of the C library, with a pointer for each thread. Thread-safe.
class ThreadKey {
 public:
  // `destroy` is called with a thread's pointer when the thread ends, but for the main thread. Throws std::bad_alloc if
  // there are no more keys.
  explicit ThreadKey(void (*destroy)(void*)) {
    if (pthread_key_create(&key_, destroy) != 0) throw std::bad_alloc();
  }
  ~ThreadKey() { pthread_key_delete(key_); }
  ThreadKey(const ThreadKey&) = delete;
  ThreadKey& operator=(const ThreadKey&) = delete;

  void* Get() const { return pthread_getspecific(key_); }
  // Throws std::bad_alloc.
  void Set(const void* value) const {
    if (pthread_setspecific(key_, value) != 0) throw std::bad_alloc();
  }

 private:
  pthread_key_t key_ = 0;
};

// Returns the calling thread's T, made by its first call. It lives as long as the thread. Throws std::bad_alloc.
template <typename T>
T& OfThread() {
  static const ThreadKey key([](void* value) { delete static_cast<T*>(value); });
  void* value = key.Get();
  if (value == nullptr) {
    auto made = std::make_unique<T>();
    key.Set(made.get());
    value = made.release();
  }
  return *static_cast<T*>(value);
}

}  // namespace qtts

#endif  // QTTS_BASE_OF_THREAD_H_
