// SPDX-License-Identifier: LGPL-2.1-or-later
// A library to preload, which tells ThreadSanitizer of the locks, conditions and thread pools of GLib. It then sees
// races of the streaming thread, which tsan.supp must hide otherwise:
//   ninja -C build-tsan tests/gst/libtsan-glib.so tests/gst/gst-flush
//   tests/gst/run-with-tsan-glib build-tsan flush
#include <dlfcn.h>
#include <glib-object.h>
#include <gst/gst.h>
#undef g_object_ref

// ThreadSanitizer's, in the program.
extern "C" void __tsan_acquire(void* address);  // NOLINT(bugprone-reserved-identifier)
extern "C" void __tsan_release(void* address);  // NOLINT(bugprone-reserved-identifier)

namespace {

// Returns the function that this library replaces.
template <typename Function>
Function* Real(Function* /*replaced*/, const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

// A lock is taken before ThreadSanitizer is told, and told of before it is given back.
template <typename Lock>
void Acquire(void (*real)(Lock*), Lock* lock) {
  real(lock);
  __tsan_acquire(lock);
}
template <typename Lock>
void Release(void (*real)(Lock*), Lock* lock) {
  __tsan_release(lock);
  real(lock);
}

// The function of a pool, which sees whatever came before a push into the pool.
struct PoolFunction {
  GFunc function;
  gpointer data;
  GThreadPool* pool;

  static void Run(gpointer job, gpointer user_data) {
    auto* self = static_cast<PoolFunction*>(user_data);
    __tsan_acquire(self->pool);
    self->function(job, self->data);
    __tsan_release(self->pool);
  }
};

// Returns the address to which threads that let go of an object release.
void* CounterOf(gpointer object) { return &static_cast<GObject*>(object)->ref_count; }

}  // namespace

extern "C" {

// --- locks

void g_mutex_lock(GMutex* mutex) {
  static const auto real = Real(g_mutex_lock, "g_mutex_lock");
  Acquire(real, mutex);
}

gboolean g_mutex_trylock(GMutex* mutex) {
  static const auto real = Real(g_mutex_trylock, "g_mutex_trylock");
  const gboolean locked = real(mutex);
  if (locked) __tsan_acquire(mutex);
  return locked;
}

void g_mutex_unlock(GMutex* mutex) {
  static const auto real = Real(g_mutex_unlock, "g_mutex_unlock");
  Release(real, mutex);
}

void g_cond_wait(GCond* cond, GMutex* mutex) {
  static const auto real = Real(g_cond_wait, "g_cond_wait");
  __tsan_release(mutex);
  real(cond, mutex);
  __tsan_acquire(mutex);
}

gboolean g_cond_wait_until(GCond* cond, GMutex* mutex, gint64 end) {
  static const auto real = Real(g_cond_wait_until, "g_cond_wait_until");
  __tsan_release(mutex);
  const gboolean signalled = real(cond, mutex, end);
  __tsan_acquire(mutex);
  return signalled;
}

void g_rw_lock_writer_lock(GRWLock* lock) {
  static const auto real = Real(g_rw_lock_writer_lock, "g_rw_lock_writer_lock");
  Acquire(real, lock);
}

void g_rw_lock_writer_unlock(GRWLock* lock) {
  static const auto real = Real(g_rw_lock_writer_unlock, "g_rw_lock_writer_unlock");
  Release(real, lock);
}

void g_rw_lock_reader_lock(GRWLock* lock) {
  static const auto real = Real(g_rw_lock_reader_lock, "g_rw_lock_reader_lock");
  Acquire(real, lock);
}

void g_rw_lock_reader_unlock(GRWLock* lock) {
  static const auto real = Real(g_rw_lock_reader_unlock, "g_rw_lock_reader_unlock");
  Release(real, lock);
}

// --- pools and queues

GThreadPool* g_thread_pool_new(GFunc function, gpointer data, gint max_threads, gboolean exclusive, GError** error) {
  static const auto real = Real(g_thread_pool_new, "g_thread_pool_new");
  auto* wrapped = new PoolFunction{function, data, nullptr};  // as long as the pool, which tests do not end
  wrapped->pool = real(PoolFunction::Run, wrapped, max_threads, exclusive, error);
  return wrapped->pool;
}

gboolean g_thread_pool_push(GThreadPool* pool, gpointer data, GError** error) {
  static const auto real = Real(g_thread_pool_push, "g_thread_pool_push");
  __tsan_release(pool);
  return real(pool, data, error);
}

void g_async_queue_push(GAsyncQueue* queue, gpointer data) {
  static const auto real = Real(g_async_queue_push, "g_async_queue_push");
  __tsan_release(queue);
  real(queue, data);
}

gpointer g_async_queue_pop(GAsyncQueue* queue) {
  static const auto real = Real(g_async_queue_pop, "g_async_queue_pop");
  gpointer data = real(queue);
  __tsan_acquire(queue);
  return data;
}

// --- the last reference sees what the others did

gpointer g_object_ref(gpointer object) {
  static const auto real = Real(g_object_ref, "g_object_ref");
  real(object);
  __tsan_acquire(CounterOf(object));
  return object;
}

void g_object_unref(gpointer object) {
  static const auto real = Real(g_object_unref, "g_object_unref");
  __tsan_release(CounterOf(object));
  if (static_cast<GObject*>(object)->ref_count == 1) __tsan_acquire(CounterOf(object));
  real(object);
}

void gst_mini_object_unref(GstMiniObject* object) {
  static const auto real = Real(gst_mini_object_unref, "gst_mini_object_unref");
  __tsan_release(&object->refcount);
  if (object->refcount == 1) __tsan_acquire(&object->refcount);
  real(object);
}

// --- messages

gboolean gst_bus_post(GstBus* bus, GstMessage* message) {
  static const auto real = Real(gst_bus_post, "gst_bus_post");
  __tsan_release(bus);
  return real(bus, message);
}

GstMessage* gst_bus_timed_pop_filtered(GstBus* bus, GstClockTime timeout, GstMessageType types) {
  static const auto real = Real(gst_bus_timed_pop_filtered, "gst_bus_timed_pop_filtered");
  GstMessage* message = real(bus, timeout, types);
  __tsan_acquire(bus);
  return message;
}

GstMessage* gst_bus_pop_filtered(GstBus* bus, GstMessageType types) {
  static const auto real = Real(gst_bus_pop_filtered, "gst_bus_pop_filtered");
  GstMessage* message = real(bus, types);
  __tsan_acquire(bus);
  return message;
}

}  // extern "C"
