// Joins a ClientContext with its call. Not for programs.
#ifndef TOLLFREE_INTERNAL_CLIENT_LINK_H
#define TOLLFREE_INTERNAL_CLIENT_LINK_H

#include <grpcpp/client_context.h>
#include <tollfree/internal/connection.h>

#include <map>
#include <memory>
#include <string>

namespace tollfree {
namespace internal {

class ContextState;

class ClientLink {
 public:
  ClientLink();
  ~ClientLink();

  // Begins the call of a context, and waits until it is over if it `waits`. Where it can't begin, its end says why.
  void Start(const std::shared_ptr<Connection>& connection, const char* path, grpc::ClientContext* context, const Payload* message,
             bool is_last, bool waits);

  // The same for a context that is of a call of gRPC's own: its interceptor does the rest. Never waits.
  void StartStock(const std::shared_ptr<Connection>& connection, const char* path, grpc::ClientContext* context,
                  const std::multimap<std::string, std::string>& metadata, const Payload* message, bool is_last);
  void StoreStockHeaders(std::multimap<grpc::string_ref, grpc::string_ref>* to);
  grpc::Status StoreStockEnd(std::multimap<grpc::string_ref, grpc::string_ref>* to);

  Call& call() const { return *call_; }

  // Lets the context have the headers that came, once.
  void StoreHeaders();
  // Lets the context have what came last. The call is over.
  grpc::Status StoreEnd();

 private:
  grpc::Status Check(const char* path, const std::multimap<std::string, std::string>& pairs, CallStart* start, MetadataBlock* metadata) const;
  void Begin(const char* path, const std::multimap<std::string, std::string>& pairs, const Payload* message, bool is_last, bool waits);

  // The channel lives while the call does.
  std::shared_ptr<Connection> connection_;
  std::shared_ptr<Call> call_;
  grpc::ClientContext* context_ = nullptr;
  // The context's.
  ContextState* state_ = nullptr;
  // Without one.
  std::unique_ptr<ContextState> own_state_;
  bool has_stored_headers_ = false;
};

}  // namespace internal
}  // namespace tollfree

#endif
