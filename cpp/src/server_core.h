#ifndef TOLLFREE_SRC_SERVER_CORE_H
#define TOLLFREE_SRC_SERVER_CORE_H

#include <grpcpp/support/status.h>
#include <tollfree/internal/server_link.h>
#include <tollfree/server.h>

#include <array>
#include <chrono>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "loop.h"

namespace tollfree {
namespace internal {

class ServerCore {
 public:
  explicit ServerCore(const ServerOptions& options);
  ~ServerCore();

  void AddService(const std::string& name);
  void AddMethod(const char* path, std::unique_ptr<ServerMethod> method);
  std::vector<std::string> services();
  grpc::Status Listen(const std::string& address);
  grpc::Status Attach(const std::string& address, const std::string& group);
  void Shutdown(std::chrono::nanoseconds grace);
  void Wait();

 private:
  class State;

  const std::shared_ptr<State> state_;
  std::shared_ptr<Loop> loop_;
};

}  // namespace internal
}  // namespace tollfree

#endif
