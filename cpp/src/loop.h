// The C library's loop, used by one thread at a time: who drives it, who waits, and which threads run the program's code.
//
// # States
// Nobody drives, or one thread does. A thread that waits for something drives if nobody does; else it sleeps until the driver finds
// what it waits for, or hands over. The crew's threads run handlers and reactions, and drive while there is a duty without a waiting
// thread: a server's listening, a call with callbacks.
//
// # Trust
// The program's code never runs while the lock is held, or in a thread that drives.
#ifndef TOLLFREE_SRC_LOOP_H
#define TOLLFREE_SRC_LOOP_H

#include <tollfree.h>

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

namespace tollfree {
namespace internal {

using Lock = std::unique_lock<std::mutex>;
using Task = std::function<void()>;

constexpr uint64_t kNoEnd = UINT64_MAX;

// Whether something is so: refers to a function of the caller's, which stays as long as this is used.
class Condition {
 public:
  template <class Function>
  Condition(const Function& function)  // NOLINT: implicit, as lambdas are passed.
      : function_(&function), call_([](const void* of) { return static_cast<bool>((*static_cast<const Function*>(of))()); }) {}
  bool operator()() const { return call_(function_); }

 private:
  const void* function_;
  bool (*call_)(const void*);
};

// What events of a loop are for.
class EventSink {
 public:
  virtual ~EventSink() = default;
  // In the driving thread, with the lock held. The payload is the sink's to release.
  virtual void OnEvent(const tollfree_event& event) = 0;
  // The loop does nothing any more: all its calls are over.
  virtual void OnBroken(const std::string& why) = 0;
};

class Loop : public std::enable_shared_from_this<Loop> {
 public:
  // Work for a crew's thread. `is_slow`: another thread should drive meanwhile.
  struct Reaction {
    Task run;
    bool is_slow;
  };

  Loop(EventSink* sink, size_t thread_max);
  ~Loop();
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;

  // Makes the loop, and the crew's first thread. An empty text, or what failed.
  std::string Open(const tollfree_config& config);

  // Ends the loop with its sessions, and the crew once it has run what was posted. Not for threads of the crew, but the last reaction may.
  void Close();

  Lock Hold() { return Lock(mutex_); }
  tollfree_loop handle() const { return loop_; }
  // The longest message that is taken, in bytes.
  size_t message_len_max() const { return message_len_max_; }

  // All of these with the lock held.

  bool IsDriven() const { return is_driven_; }

  // Has the loop do something: in this thread if nobody drives, else in the driver's, soon. In the order of the calls of this function.
  void Do(Lock& lock, Task task);

  // Lets this thread have the loop, if nobody drives it: whether it does. What was to be done before is done. `DriveTaken` or `GiveBack` follows.
  bool Take(Lock& lock);
  // Drives until `ready`, or a time on the clock of `tollfree_now_ns`, and gives the loop back. `of` is what changes.
  void DriveTaken(Lock& lock, const void* of, Condition ready, uint64_t until_ns);
  // Tells of what has happened already, and gives the loop back.
  void GiveBack(Lock& lock);

  // Waits until `ready`, or a time on the clock of `tollfree_now_ns`. Whether it is ready. `of` is what changes.
  bool Await(Lock& lock, const void* of, Condition ready, uint64_t until_ns);

  // Something has changed that threads may wait for.
  void Changed(const void* of);

  // For a thread of the crew, in order of arrival.
  void Post(Task run, bool is_slow = false);

  // At a time, in the driver's thread, with the lock held.
  void At(uint64_t when_ns, Task task);

  // A duty more or less: while there is any, a thread of the crew drives if no other does.
  void AddDuty();
  void RemoveDuty();

 private:
  struct Waiter {
    const void* of;
    Condition ready;
    bool is_done;
    std::condition_variable wakes;
  };

  bool Enter();
  void Leave(Lock& lock);
  void Drive(Lock& lock, Condition stop, uint64_t until_ns);
  void Turn();
  void RunTasks();
  void HandOver();
  void Broken(const std::string& why);
  uint64_t FirstTimer() const;
  void Spawn();
  void CrewMain();
  void Lead(Lock& lock);
  void StandBy(Lock& lock);
  void Watch(Lock& lock);
  void WakeCrew();
  // Whether this thread is one of the crew's.
  bool IsCrew() const;

  EventSink* const sink_;
  const size_t thread_max_;
  size_t message_len_max_ = 0;
  std::mutex mutex_;
  tollfree_loop loop_{};
  int loop_fd_ = -1;
  // Wakes the crew's thread that sleeps on the loop's descriptor.
  int crew_fd_ = -1;

  bool is_driven_ = false;
  // What the driver itself waits for, if it does.
  const void* driver_of_ = nullptr;
  // By a thread of the crew that looks for reactions.
  bool is_crew_driving_ = false;
  // The driver sleeps or spins in the library, without the lock.
  bool is_in_wait_ = false;
  bool is_woken_ = false;
  bool is_broken_ = false;
  bool is_closing_ = false;
  // When a driver left it last, on a coarse clock.
  uint64_t left_ns_ = 0;
  // How often the loop was driven.
  uint64_t drive_count_ = 0;
  std::deque<Task> tasks_;
  std::list<Waiter*> waiters_;
  std::multimap<uint64_t, Task> timers_;

  std::list<std::thread> threads_;
  size_t thread_count_ = 0;
  size_t idle_count_ = 0;
  size_t duty_count_ = 0;
  bool is_lead_wanted_ = false;
  bool has_standby_ = false;
  bool sleeps_on_fd_ = false;
  std::deque<Reaction> reactions_;
  std::condition_variable crew_;
};

}  // namespace internal
}  // namespace tollfree

#endif
