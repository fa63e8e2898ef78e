// Channels: where generated clients make their calls.
#ifndef TOLLFREE_CHANNEL_H
#define TOLLFREE_CHANNEL_H

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace tollfree {

namespace internal {
class Connection;
}

// How a side waits: the numbers of tollfree.h.
enum class WaitPolicy : uint32_t {
  // Spins where that costs no more than to be woken, and where nobody else wants the processor; else sleeps.
  kAdaptive = 0,
  kLowLatency = 1,
  kPoll = 2,
  kPark = 3,
};

struct ChannelOptions {
  WaitPolicy wait = WaitPolicy::kAdaptive;
  // The longest message that is taken, in bytes. A longer one ends its call with RESOURCE_EXHAUSTED.
  size_t message_len_max = 4 << 20;
  // What the program calls itself towards peers; at most 120 bytes with the library's name.
  std::string agent;
};

// Calls to one server, over a session that begins with the first call, and again after it has ended. Any thread may use it. Its calls
// keep it alive.
class Channel {
 public:
  explicit Channel(std::shared_ptr<internal::Connection> connection) : connection_(std::move(connection)) {}
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  // What was passed to `CreateChannel`.
  const std::string& address() const;

  const std::shared_ptr<internal::Connection>& connection() const { return connection_; }

 private:
  const std::shared_ptr<internal::Connection> connection_;
};

// A channel to the server at `shm:///path` or `shm-abstract:name`. It never fails: what is wrong with an address, or with the system, each
// call says as UNAVAILABLE.
std::shared_ptr<Channel> CreateChannel(const std::string& address, const ChannelOptions& options = ChannelOptions());

}  // namespace tollfree

#endif
