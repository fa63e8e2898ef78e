// The threads of a loop: they run handlers and reactions, and drive the loop while nobody else does.
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>

#include "loop.h"

namespace tollfree {
namespace internal {
namespace {

// Two of these without anybody driving, and the standby takes over from a handler that takes long.
constexpr std::chrono::milliseconds kStandbyTick(1);
// So many ticks without work, and the standby sleeps without an end.
constexpr int kStandbyTicks = 20;
// The same, where nothing is under way but what peers announce.
constexpr std::chrono::milliseconds kWatchTick(10);

thread_local const Loop* crew_of = nullptr;

}  // namespace

bool Loop::IsCrew() const { return crew_of == this; }

void Loop::WakeCrew() {
  if (sleeps_on_fd_) {
    uint64_t one = 1;
    // A full counter wakes as well.
    ssize_t written = write(crew_fd_, &one, sizeof one);
    (void)written;
  }
  crew_.notify_one();
}

void Loop::Post(Task run, bool is_slow) {
  reactions_.push_back(Reaction{std::move(run), is_slow});
  if (idle_count_ == 0 && thread_count_ < thread_max_ && reactions_.size() > 1) Spawn();
  // A thread of the crew that drives finds it by itself, once it does not wait. Others are woken for what is more than one thread's.
  if (is_crew_driving_ && is_in_wait_ && !is_woken_) {
    is_woken_ = true;
    tollfree_loop_wake(loop_);
  }
  if (reactions_.size() > 1 || !is_crew_driving_) WakeCrew();
}

void Loop::Spawn() {
  if (is_closing_) return;
  thread_count_++;
  threads_.emplace_back([loop = shared_from_this()] { loop->CrewMain(); });
}

void Loop::CrewMain() {
  crew_of = this;
  Lock lock(mutex_);
  for (;;) {
    if (!reactions_.empty()) {
      Reaction reaction = std::move(reactions_.front());
      reactions_.pop_front();
      bool others_have_work = !reactions_.empty() || (reaction.is_slow && !is_driven_ && duty_count_ > 0);
      if (idle_count_ == 0 && thread_count_ < thread_max_ && (others_have_work || duty_count_ > 0)) Spawn();
      if (others_have_work) {
        is_lead_wanted_ = is_lead_wanted_ || reaction.is_slow;
        WakeCrew();
      } else if (!has_standby_ && idle_count_ > 0) {
        crew_.notify_one();
      }
      lock.unlock();
      reaction.run();
      reaction.run = nullptr;
      lock.lock();
      is_lead_wanted_ = true;
      continue;
    }
    if (is_closing_) break;
    if (!is_driven_ && !is_broken_ && duty_count_ > 0 && is_lead_wanted_) {
      Lead(lock);
      continue;
    }
    idle_count_++;
    if (duty_count_ > 0 || is_broken_) {
      StandBy(lock);
    } else if (has_standby_) {
      crew_.wait(lock);
    } else {
      Watch(lock);
    }
    idle_count_--;
  }
  thread_count_--;
  crew_.notify_all();
}

void Loop::Lead(Lock& lock) {
  is_lead_wanted_ = false;
  if (!Enter()) return;
  is_crew_driving_ = true;
  Drive(lock, [this] { return !reactions_.empty() || is_closing_ || duty_count_ == 0; }, kNoEnd);
  is_crew_driving_ = false;
  Leave(lock);
  for (Waiter* waiter : waiters_) {
    if (!waiter->is_done) {
      waiter->wakes.notify_one();
      break;
    }
  }
}

// Takes over where the thread that drove is at work for long.
void Loop::StandBy(Lock& lock) {
  if (has_standby_) {
    crew_.wait(lock);
    return;
  }
  has_standby_ = true;
  uint64_t seen = drive_count_;
  for (int ticks = 0; ticks < kStandbyTicks; ticks++) {
    if (crew_.wait_for(lock, kStandbyTick) == std::cv_status::no_timeout) break;
    bool is_stuck = !is_driven_ && seen == drive_count_;
    if (is_stuck && duty_count_ > 0) is_lead_wanted_ = true;
    if (is_stuck || !reactions_.empty() || is_closing_) break;
    if (seen != drive_count_) ticks = 0;
    seen = drive_count_;
    if (ticks == kStandbyTicks - 1) {
      // From here on, who begins a handler wakes a standby.
      has_standby_ = false;
      crew_.wait(lock);
      return;
    }
  }
  has_standby_ = false;
}

// Nothing is under way but what peers announce: the end of a session, that it drains.
void Loop::Watch(Lock& lock) {
  has_standby_ = true;
  uint64_t seen = drive_count_;
  bool is_quiet = crew_.wait_for(lock, kWatchTick) == std::cv_status::timeout && seen == drive_count_ && !is_driven_;
  if (is_quiet && !is_closing_ && reactions_.empty() && duty_count_ == 0 && Enter()) {
    int may_sleep = 0;
    uint64_t timeout_ns = 0;
    RunTasks();
    Turn();
    if (tollfree_loop_arm(loop_, &may_sleep, &timeout_ns) != 0) Broken(tollfree_error_text());
    Leave(lock);
    for (Waiter* waiter : waiters_) waiter->wakes.notify_one();
    uint64_t timer_ns = FirstTimer(), now_ns = tollfree_now_ns();
    if (timer_ns != kNoEnd) timeout_ns = std::min(timeout_ns, timer_ns > now_ns ? timer_ns - now_ns : 0);
    if (may_sleep != 0 && reactions_.empty() && !is_closing_ && duty_count_ == 0) {
      sleeps_on_fd_ = true;
      lock.unlock();
      pollfd fds[2] = {{loop_fd_, POLLIN, 0}, {crew_fd_, POLLIN, 0}};
      constexpr uint64_t kLongest = 1000000000ull * 3600;
      poll(fds, 2, timeout_ns > kLongest ? -1 : static_cast<int>((timeout_ns + 999999) / 1000000));
      uint64_t count;
      ssize_t taken = read(crew_fd_, &count, sizeof count);
      (void)taken;
      lock.lock();
      sleeps_on_fd_ = false;
      if (!is_driven_ && !is_closing_ && Enter()) {
        RunTasks();
        Turn();
        // So that the next look is no idle one.
        Leave(lock);
        HandOver();
      }
    }
  }
  has_standby_ = false;
}

}  // namespace internal
}  // namespace tollfree
