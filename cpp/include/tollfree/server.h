// Servers: they serve the service classes that grpc_cpp_plugin generates, without gRPC's server.
#ifndef TOLLFREE_SERVER_H
#define TOLLFREE_SERVER_H

#include <grpc/compression.h>
#include <grpcpp/support/status.h>
#include <tollfree/channel.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace tollfree {

namespace internal {
class ServerCore;
class ServerMethod;
}  // namespace internal

struct ServerOptions {
  WaitPolicy wait = WaitPolicy::kAdaptive;
  // Users whose processes may call, beside this process's own.
  std::vector<uint32_t> users;
  // The longest message that is taken, in bytes. A longer one ends its call with RESOURCE_EXHAUSTED.
  size_t message_len_max = 4 << 20;
  // Calls at once that each client may make.
  uint32_t call_max = 1024;
  // Threads that handlers run in. Calls beyond wait. A handler that waits for its client has a thread until it returns.
  size_t thread_max = 256;
  std::string agent;
  // The pool whose member the process is, or none: long messages to and from other members go by reference.
  std::shared_ptr<Pool> pool;
  // How answers are compressed to clients that take it, where a handler's context does not say it.
  grpc_compression_algorithm compression_algorithm = GRPC_COMPRESS_NONE;
};

// Any thread may use it. It ends with its destructor, as by `Shutdown` without grace.
class Server {
 public:
  explicit Server(const ServerOptions& options = ServerOptions());
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  // Listens at `shm:///path` or `shm-abstract:name`. Services are to be registered before.
  grpc::Status Listen(const std::string& address);

  // Serves the clients of the gateway at an address, as a backend in a group of the gateway's config. The server attaches again when the
  // session ends, until it is shut down.
  grpc::Status Attach(const std::string& address, const std::string& group);

  // Takes no more calls, and waits so long for those under way; what is left then is cancelled.
  void Shutdown(std::chrono::nanoseconds grace = std::chrono::nanoseconds(0));

  // Waits until another thread has called `Shutdown`.
  void Wait();

  // For generated code: a service's methods.
  void AddService(const std::string& name);
  void AddMethod(const char* path, std::unique_ptr<internal::ServerMethod> method);

  // Full names of the services that were registered, in order.
  std::vector<std::string> services() const;

 private:
  const std::unique_ptr<internal::ServerCore> core_;
};

}  // namespace tollfree

#endif
