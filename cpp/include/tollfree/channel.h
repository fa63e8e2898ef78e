// Channels: where generated clients make their calls.
#ifndef TOLLFREE_CHANNEL_H
#define TOLLFREE_CHANNEL_H

#include <grpc/compression.h>
#include <grpc/grpc.h>
#include <tollfree/pool.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

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

// How a server is chosen for a call: the numbers of tollfree.h.
enum class Balance : uint32_t {
  // The first server that can be used.
  kPickFirst = 0,
  // Each in turn, as often as its weight says.
  kRoundRobin = 1,
  // The server with the fewest calls under way, beside its weight.
  kLeastOutstanding = 2,
};

// A server of a channel.
struct Target {
  explicit Target(std::string at) : address(std::move(at)) {}

  // `shm:///path` or `shm-abstract:name`.
  std::string address;
  // Its share of the calls beside the others of its priority; 0: it gets none.
  uint32_t weight = 1;
  // 0 is the highest. The next is used while no server of it can be.
  uint32_t priority = 0;
};

struct ChannelOptions {
  WaitPolicy wait = WaitPolicy::kAdaptive;
  // The longest message that is taken, in bytes. A longer one ends its call with RESOURCE_EXHAUSTED.
  size_t message_len_max = 4 << 20;
  // What the program calls itself towards peers; at most 120 bytes with the library's name.
  std::string agent;
  // Where the service config does not say it.
  Balance balance = Balance::kPickFirst;
  // The pool whose member the process is, or none: long messages to and from other members go by reference.
  std::shared_ptr<Pool> pool;
  // gRPC's service config, as JSON: `loadBalancingConfig`, `retryThrottling`, and `methodConfig` with `timeout`, `waitForReady` and
  // `retryPolicy`.
  std::string service_config;
  // How messages are compressed of calls whose context does not say it; servers may compress what they answer to these calls.
  grpc_compression_algorithm compression_algorithm = GRPC_COMPRESS_NONE;
};

// Calls to one or more servers, which it connects to when a call needs one, and again after a session has ended. Any thread may use it.
// Its calls keep it alive.
class Channel {
 public:
  explicit Channel(std::shared_ptr<internal::Connection> connection) : connection_(std::move(connection)) {}
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  // What was passed to `CreateChannel`; several addresses have commas between.
  const std::string& address() const;

  // As of `grpc::Channel`. A channel that was connected so is kept connected. One whose address or service config is wrong is in
  // TRANSIENT_FAILURE.
  grpc_connectivity_state GetState(bool try_to_connect);
  // Whether its state is another before the deadline.
  bool WaitForStateChange(grpc_connectivity_state last_observed, std::chrono::system_clock::time_point deadline);
  // Whether it is connected before the deadline.
  bool WaitForConnected(std::chrono::system_clock::time_point deadline);

  const std::shared_ptr<internal::Connection>& connection() const { return connection_; }

 private:
  const std::shared_ptr<internal::Connection> connection_;
};

// A channel to the server at `shm:///path` or `shm-abstract:name`, or to several with commas between. It never fails: what is wrong with an
// address, with the service config or with the system, each call says as UNAVAILABLE.
std::shared_ptr<Channel> CreateChannel(const std::string& addresses, const ChannelOptions& options = ChannelOptions());
// The same to servers with weights and priorities.
std::shared_ptr<Channel> CreateChannel(const std::vector<Target>& targets, const ChannelOptions& options = ChannelOptions());

}  // namespace tollfree

#endif
