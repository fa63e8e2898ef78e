#include "loop.h"

#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>

namespace tollfree {
namespace internal {
namespace {

// Events taken before the lock is released once.
constexpr int kEventsAtOnce = 64;
constexpr std::chrono::milliseconds kCloseTick(1);

// The time to some milliseconds, for little.
uint64_t CoarseNs() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

}  // namespace

Loop::Loop(EventSink* sink, size_t thread_max) : sink_(sink), thread_max_(thread_max == 0 ? 1 : thread_max) {}

Loop::~Loop() {
  if (crew_fd_ >= 0) close(crew_fd_);
}

std::string Loop::Open(const tollfree_config& config) {
  message_len_max_ = config.message_len_max;
  crew_fd_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (crew_fd_ < 0) return "no descriptor is left for an eventfd: raise the limit (ulimit -n)";
  if (tollfree_loop_new(&config, &loop_) != 0 || tollfree_loop_fd(loop_, &loop_fd_) != 0) return tollfree_error_text();
  tollfree_loop_leave(loop_);
  Lock lock(mutex_);
  Spawn();
  return "";
}

void Loop::Close() {
  std::list<std::thread> threads;
  {
    Lock lock(mutex_);
    if (is_closing_) return;
    is_closing_ = true;
    if (loop_.id != 0 && !is_broken_) Broken("the channel or server was closed here");
    if (is_in_wait_) tollfree_loop_wake(loop_);
    WakeCrew();
    crew_.notify_all();
    threads.swap(threads_);
  }
  for (std::thread& thread : threads) {
    // The last share in a channel may go in one of its own reactions.
    if (thread.get_id() == std::this_thread::get_id()) {
      thread.detach();
    } else {
      thread.join();
    }
  }
  Lock lock(mutex_);
  while (is_driven_) crew_.wait_for(lock, kCloseTick);
  // Where a forked child closes it, the parent's sessions are left alone by the library.
  if (loop_.id != 0 && tollfree_loop_enter(loop_) == 0) tollfree_loop_free(loop_);
  loop_.id = 0;
}

bool Loop::Enter() {
  if (!is_broken_ && tollfree_loop_enter(loop_) != 0) Broken(tollfree_error_text());
  is_driven_ = !is_broken_;
  if (is_driven_) drive_count_++;
  return is_driven_;
}

void Loop::Leave(Lock&) {
  // What others left to this thread while it was told of something.
  RunTasks();
  left_ns_ = CoarseNs();
  tollfree_loop_leave(loop_);
  is_driven_ = false;
}

void Loop::Broken(const std::string& why) {
  is_broken_ = true;
  sink_->OnBroken(why);
  for (Waiter* waiter : waiters_) {
    waiter->is_done = waiter->is_done || waiter->ready();
    waiter->wakes.notify_one();
  }
}

void Loop::RunTasks() {
  while (!tasks_.empty()) {
    Task task = std::move(tasks_.front());
    tasks_.pop_front();
    task();
  }
  while (!timers_.empty() && timers_.begin()->first <= tollfree_now_ns()) {
    Task task = std::move(timers_.begin()->second);
    timers_.erase(timers_.begin());
    task();
  }
}

void Loop::Turn() {
  tollfree_event event{};
  event.size = sizeof event;
  for (int count = 0; count < kEventsAtOnce && !is_broken_; count++) {
    if (tollfree_loop_poll(loop_, &event) != 0) return Broken(tollfree_error_text());
    if (event.kind == TOLLFREE_EVENT_NONE) return;
    sink_->OnEvent(event);
  }
}

void Loop::HandOver() {
  for (Waiter* waiter : waiters_) {
    if (!waiter->is_done) {
      waiter->wakes.notify_one();
      return;
    }
  }
  // A thread of the crew looks by itself when its reaction is done; where that takes long, the standby does.
  if (duty_count_ > 0 && !IsCrew()) {
    is_lead_wanted_ = true;
    if (idle_count_ > 0) WakeCrew();
  }
}

void Loop::Do(Lock& lock, Task task) {
  if (is_driven_) {
    tasks_.push_back(std::move(task));
    if (is_in_wait_ && !is_woken_) {
      is_woken_ = true;
      tollfree_loop_wake(loop_);
    }
    return;
  }
  if (!Take(lock)) {
    task();
    return;
  }
  task();
  GiveBack(lock);
}

bool Loop::Take(Lock&) {
  if (is_driven_ || !Enter()) return false;
  // What peers have announced meanwhile comes first: a session that is over takes no call.
  if (CoarseNs() != left_ns_) Turn();
  RunTasks();
  return true;
}

void Loop::DriveTaken(Lock& lock, const void* of, Condition ready, uint64_t until_ns) {
  driver_of_ = of;
  Drive(lock, ready, until_ns);
  driver_of_ = nullptr;
  Leave(lock);
  HandOver();
}

void Loop::GiveBack(Lock& lock) {
  Turn();
  Leave(lock);
  HandOver();
}

uint64_t Loop::FirstTimer() const { return timers_.empty() ? kNoEnd : timers_.begin()->first; }

void Loop::Drive(Lock& lock, Condition stop, uint64_t until_ns) {
  tollfree_event event{};
  event.size = sizeof event;
  for (;;) {
    RunTasks();
    if (is_broken_ || stop()) return;
    uint64_t end_ns = std::min(until_ns, FirstTimer());
    uint64_t timeout_ns = kNoEnd;
    if (end_ns != kNoEnd) {
      uint64_t now_ns = tollfree_now_ns();
      if (until_ns <= now_ns) return;
      timeout_ns = end_ns > now_ns ? end_ns - now_ns : 0;
    }
    is_in_wait_ = true;
    is_woken_ = false;
    lock.unlock();
    int number = tollfree_loop_wait(loop_, timeout_ns, &event);
    lock.lock();
    is_in_wait_ = false;
    // What came with it is there already: nobody is let in between.
    for (int count = 0; number == 0 && event.kind != TOLLFREE_EVENT_NONE; count++) {
      sink_->OnEvent(event);
      if (is_broken_ || stop()) return;
      if (count == kEventsAtOnce || !tasks_.empty()) break;
      number = tollfree_loop_poll(loop_, &event);
    }
    if (number != 0) return Broken(tollfree_error_text());
  }
}

bool Loop::Await(Lock& lock, const void* of, Condition ready, uint64_t until_ns) {
  while (!ready() && !is_broken_) {
    if (until_ns != kNoEnd && until_ns <= tollfree_now_ns()) break;
    if (!is_driven_) {
      if (!Enter()) break;
      DriveTaken(lock, of, ready, until_ns);
      continue;
    }
    Waiter waiter{of, ready, false, {}};
    auto place = waiters_.insert(waiters_.end(), &waiter);
    while (!waiter.is_done && is_driven_ && !is_broken_) {
      if (until_ns == kNoEnd) {
        waiter.wakes.wait(lock);
        continue;
      }
      uint64_t now_ns = tollfree_now_ns();
      if (now_ns >= until_ns) break;
      waiter.wakes.wait_for(lock, std::chrono::nanoseconds(until_ns - now_ns));
    }
    waiters_.erase(place);
  }
  return ready();
}

void Loop::Changed(const void* of) {
  if (is_in_wait_ && driver_of_ == of && !is_woken_) {
    is_woken_ = true;
    tollfree_loop_wake(loop_);
  }
  for (Waiter* waiter : waiters_) {
    if (waiter->of == of && !waiter->is_done && waiter->ready()) {
      waiter->is_done = true;
      waiter->wakes.notify_one();
    }
  }
}

void Loop::At(uint64_t when_ns, Task task) {
  bool is_first = when_ns < FirstTimer();
  timers_.emplace(when_ns, std::move(task));
  // Who sleeps has to sleep for less.
  if (is_first && is_in_wait_ && !is_woken_) {
    is_woken_ = true;
    tollfree_loop_wake(loop_);
  }
  if (is_first && sleeps_on_fd_) WakeCrew();
}

void Loop::AddDuty() {
  duty_count_++;
  is_lead_wanted_ = true;
  if (!is_driven_) WakeCrew();
}

void Loop::RemoveDuty() { duty_count_--; }

}  // namespace internal
}  // namespace tollfree
