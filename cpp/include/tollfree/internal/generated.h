// What files of protoc-gen-tollfree-cpp include. Not for programs.
#ifndef TOLLFREE_INTERNAL_GENERATED_H
#define TOLLFREE_INTERNAL_GENERATED_H

#include <tollfree/internal/client_calls.h>
#include <tollfree/internal/client_reactors.h>
#include <tollfree/internal/refused_queues.h>
#include <tollfree/internal/server_methods.h>
#include <tollfree/internal/server_reactors.h>
#include <tollfree/server.h>

namespace tollfree {
namespace internal {

template <class>
struct AlwaysFalse : std::false_type {};

// The methods of a service that are added to a server.
class MethodList {
 public:
  explicit MethodList(Server* server) : server_(server) {}
  void Add(const char* path, std::unique_ptr<ServerMethod> method, bool is_reactor) {
    reactor_count_ += is_reactor ? 1 : 0;
    methods_.emplace_back(path, std::move(method));
  }
  // Registers them, if they are all that the service has.
  grpc::Status Register(const char* name, const grpc::Service& service);

 private:
  Server* const server_;
  size_t reactor_count_ = 0;
  std::vector<std::pair<const char*, std::unique_ptr<ServerMethod>>> methods_;
};

}  // namespace internal
}  // namespace tollfree

#endif
