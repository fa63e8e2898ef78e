/* Other threads wake a loop that sleeps, and release what it receives and what it lends. */
#include <pthread.h>

#include "check.h"

enum { THREADS = 4, CALLS = 2000 };

static ends both;
/* Buffers on their way to the threads that release them. */
static uint64_t handed[CALLS];
static unsigned lent_released, handed_count, wake_count;

static void count_release(void *argument)
{
  free(argument);
  __atomic_fetch_add(&lent_released, 1, __ATOMIC_RELAXED);
}

/* Releases each THREADS-th buffer: who is too early finds none yet. Wakes the loop each time. */
static void *release_and_wake(void *argument)
{
  for (size_t at = (size_t)argument; at < CALLS; at += THREADS) {
    uint64_t id;
    tollfree_buffer another;
    while ((id = __atomic_load_n(&handed[at], __ATOMIC_ACQUIRE)) == 0)
      ;
    OK(tollfree_buffer_retain((tollfree_buffer){ id }, &another));
    OK(tollfree_buffer_release((tollfree_buffer){ id }));
    RETURNS(TOLLFREE_ERROR_USE_BUFFER, tollfree_buffer_release((tollfree_buffer){ id }));
    OK(tollfree_buffer_release(another));
    OK(tollfree_loop_wake(both.loop));
  }
  return NULL;
}

static void start_call(void)
{
  tollfree_start start = { .size = sizeof start, .path = tollfree_text("/test.Echo/Call") };
  tollfree_call call;
  uint8_t *memory = calloc(1, 1000);
  tollfree_bytes bytes = { memory, 1000 };
  start.flags = TOLLFREE_FLAG_HAS_MESSAGE | TOLLFREE_FLAG_LAST;
  OK(tollfree_buffer_wrap(bytes, count_release, memory, &start.message));
  OK(tollfree_call_start(both.loop, both.client, &start, &call));
  OK(tollfree_buffer_release(start.message.buffer));
}

static void *wake_once(void *argument)
{
  struct timespec pause = { 0, 50000000 };
  (void)argument;
  nanosleep(&pause, NULL);
  OK(tollfree_loop_wake(both.loop));
  return NULL;
}

/* A loop that sleeps without an end is woken. */
static void waking_ends_a_wait(void)
{
  pthread_t thread;
  tollfree_event event = { .size = sizeof event };
  do
    OK(tollfree_loop_wait(both.loop, 0, &event));
  while (event.kind != TOLLFREE_EVENT_NONE);
  OK(tollfree_loop_poll(both.loop, &event));
  CHECK(pthread_create(&thread, NULL, wake_once, NULL) == 0);
  OK(tollfree_loop_wait(both.loop, UINT64_MAX, &event));
  CHECK(event.kind == TOLLFREE_EVENT_NONE);
  CHECK(pthread_join(thread, NULL) == 0);
}

/* Drives a loop that another thread has left, and leaves it. */
static void *drive_once(void *argument)
{
  unsigned *echoed = argument;
  tollfree_event event = { .size = sizeof event };
  while (tollfree_loop_enter(both.loop) != 0)
    ;
  RETURNS(TOLLFREE_ERROR_USE_THREAD, tollfree_loop_enter(both.loop));
  start_call();
  do {
    OK(tollfree_loop_wait(both.loop, 60 * SECOND, &event));
    if (event.kind == TOLLFREE_EVENT_MESSAGE && event.flags & TOLLFREE_FLAG_SERVED)
      OK(tollfree_call_answer(both.loop, event.call, event.payload, 0));
    OK(tollfree_buffer_release(event.payload.buffer));
  } while (event.kind != TOLLFREE_EVENT_ENDED);
  CHECK(event.code == 0);
  ++*echoed;
  OK(tollfree_loop_leave(both.loop));
  RETURNS(TOLLFREE_ERROR_USE_THREAD, tollfree_loop_poll(both.loop, &event));
  return NULL;
}

/* A loop goes from thread to thread, one at a time. It stays when the thread that made it has left it and ended. */
static void threads_take_turns(void)
{
  pthread_t threads[THREADS];
  unsigned echoed = 0;
  tollfree_event event = { .size = sizeof event };
  OK(tollfree_loop_leave(both.loop));
  RETURNS(TOLLFREE_ERROR_USE_THREAD, tollfree_loop_leave(both.loop));
  RETURNS(TOLLFREE_ERROR_USE_THREAD, tollfree_loop_poll(both.loop, &event));
  RETURNS(TOLLFREE_ERROR_USE_THREAD, tollfree_loop_free(both.loop));
  OK(tollfree_loop_wake(both.loop));
  for (size_t at = 0; at < THREADS; at++)
    CHECK(pthread_create(&threads[at], NULL, drive_once, &echoed) == 0);
  for (size_t at = 0; at < THREADS; at++)
    CHECK(pthread_join(threads[at], NULL) == 0);
  OK(tollfree_loop_enter(both.loop));
  CHECK(echoed == THREADS);
  lent_released = 0;
}

int main(int argc, char **argv)
{
  pthread_t threads[THREADS];
  unsigned ended = 0;
  CHECK(argc == 2);
  both = both_ends(argv[1], NULL);
  waking_ends_a_wait();
  threads_take_turns();
  for (size_t at = 0; at < THREADS; at++)
    CHECK(pthread_create(&threads[at], NULL, release_and_wake, (void *)at) == 0);
  start_call();
  while (ended < CALLS) {
    tollfree_event event = { .size = sizeof event };
    OK(tollfree_loop_wait(both.loop, 60 * SECOND, &event));
    if (event.kind == TOLLFREE_EVENT_NONE) {
      wake_count++;
      continue;
    }
    if (event.kind == TOLLFREE_EVENT_MESSAGE && event.flags & TOLLFREE_FLAG_SERVED) {
      OK(tollfree_call_answer(both.loop, event.call, event.payload, 0));
    } else if (event.kind == TOLLFREE_EVENT_MESSAGE) {
      __atomic_store_n(&handed[handed_count++], event.payload.buffer.id, __ATOMIC_RELEASE);
      continue;
    } else if (event.kind == TOLLFREE_EVENT_ENDED && !(event.flags & TOLLFREE_FLAG_SERVED)) {
      CHECK(event.code == 0);
      if (++ended < CALLS)
        start_call();
    }
    OK(tollfree_buffer_release(event.payload.buffer));
  }
  for (size_t at = 0; at < THREADS; at++)
    CHECK(pthread_join(threads[at], NULL) == 0);
  CHECK(handed_count == CALLS && wake_count > 0);
  OK(tollfree_loop_free(both.loop));
  CHECK(__atomic_load_n(&lent_released, __ATOMIC_RELAXED) == CALLS);
  puts("done");
  return 0;
}
