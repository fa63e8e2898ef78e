// What a channel's calls go through: a channel of the C library, which connects, chooses a server, and makes calls again. Not for programs.
#ifndef TOLLFREE_INTERNAL_CONNECTION_H
#define TOLLFREE_INTERNAL_CONNECTION_H

#include <tollfree/channel.h>
#include <tollfree/internal/call.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace tollfree {
namespace internal {

class CoreCall;

// How a call begins.
struct CallStart {
  // `/package.Service/Method`, which stays.
  const char* path = nullptr;
  const MetadataBlock* metadata = nullptr;
  // On the clock of `tollfree_now_ns`; 0: no matter when.
  uint64_t deadline_ns = 0;
  // None: as the service config says.
  std::optional<bool> waits_for_ready;
  // The first message, or none. Copied unless it has a buffer.
  const Payload* message = nullptr;
  bool is_last = false;
};

// Its calls end with it.
class Connection {
 public:
  static std::shared_ptr<Connection> Make(const std::vector<Target>& targets, const ChannelOptions& options);
  // Addresses have commas between.
  static std::shared_ptr<Connection> Make(const std::string& addresses, const ChannelOptions& options);
  ~Connection();

  std::shared_ptr<Call> NewCall();
  // Begins a call, and waits until it is over if it `waits`.
  void Begin(const std::shared_ptr<Call>& call, const CallStart& start, bool waits);

  const std::string& address() const;
  // How messages are compressed of calls whose context does not say it.
  grpc_compression_algorithm encoding() const { return encoding_; }
  // What stands for the session towards gRPC's classes.
  const std::shared_ptr<CoreCall>& core() const { return core_; }

  // How the channel fares, as `TOLLFREE_CHANNEL_…`. `connects`: an idle one is connected, and kept so.
  uint32_t StateNow(bool connects);
  // Waits until it fares otherwise, until a time at most. Whether it does.
  bool AwaitOther(uint32_t than, uint64_t until_ns);

 private:
  class State;
  Connection() = default;

  std::shared_ptr<State> state_;
  std::shared_ptr<Loop> loop_;
  std::shared_ptr<CoreCall> core_;
  grpc_compression_algorithm encoding_ = GRPC_COMPRESS_NONE;
};

}  // namespace internal
}  // namespace tollfree

#endif
