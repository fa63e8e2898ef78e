// The private members of gRPC's contexts that this library reads and writes, all in this file.
//
// The contexts befriend templates of gRPC's, such as ClientReader<R>. A specialization for a type of ours is one of them: the language
// grants it the access, and a gRPC in which one of these members is gone or has another type fails to compile here.
#ifndef TOLLFREE_SRC_CONTEXT_ACCESS_H
#define TOLLFREE_SRC_CONTEXT_ACCESS_H

#include <grpcpp/client_context.h>
#include <grpcpp/server_context.h>
#include <grpcpp/support/sync_stream.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

namespace tollfree {
namespace internal {
struct ContextKey {};
}  // namespace internal
}  // namespace tollfree

namespace grpc {

template <>
class ClientReader<tollfree::internal::ContextKey> {
 public:
  using Creators = std::vector<std::unique_ptr<experimental::ClientInterceptorFactoryInterface>>;

  // Makes a context one of a call: whether it was of none. `is_cancelled`: its user has given up before.
  static bool Link(ClientContext* context, grpc_call* call, const char* method, const Creators& creators, bool* is_cancelled) {
    grpc::internal::MutexLock lock(&context->mu_);
    if (context->call_ != nullptr) return false;
    grpc_call_ref(call);
    context->call_ = call;
    context->set_client_rpc_info(method, nullptr, grpc::internal::RpcMethod::NORMAL_RPC, nullptr, creators, 0);
    *is_cancelled = context->call_canceled_;
    return true;
  }

  static const std::multimap<std::string, std::string>& metadata(const ClientContext& of) { return of.send_initial_metadata_; }
  static bool waits_for_ready(const ClientContext& of) { return of.wait_for_ready_; }
  static bool says_waits(const ClientContext& of) { return of.wait_for_ready_explicitly_set_; }
  static bool has_parent(const ClientContext& of) { return of.propagate_from_call_ != nullptr; }
  static bool is_corked(const ClientContext& of) { return of.initial_metadata_corked_; }
  static void set_identity(ClientContext* of, std::shared_ptr<const AuthContext> identity) { of->auth_context_ = std::move(identity); }
  static std::multimap<string_ref, string_ref>* headers(ClientContext* of) {
    of->initial_metadata_received_ = true;
    return of->recv_initial_metadata_.map();
  }
  static std::multimap<string_ref, string_ref>* trailers(ClientContext* of) { return of->trailing_metadata_.map(); }
  static void set_error(ClientContext* of, const std::string& text) { of->set_debug_error_string(text); }
};

template <>
class ServerReader<tollfree::internal::ContextKey> {
 public:
  using Creators = std::vector<std::unique_ptr<experimental::ServerInterceptorFactoryInterface>>;

  static void Link(ServerContextBase* context, grpc_call* call, const char* method, const Creators& creators) {
    grpc_call_ref(call);
    context->set_call(call);
    context->set_server_rpc_info(method, grpc::internal::RpcMethod::NORMAL_RPC, creators);
  }

  static void set_deadline(ServerContextBase* of, gpr_timespec deadline) { of->deadline_ = deadline; }
  static void set_identity(ServerContextBase* of, std::shared_ptr<const AuthContext> identity) { of->auth_context_ = std::move(identity); }
  static std::multimap<string_ref, string_ref>* client_metadata(ServerContextBase* of) { return of->client_metadata_.map(); }
  static const std::multimap<std::string, std::string>& headers(const ServerContextBase& of) { return of.initial_metadata_; }
  static const std::multimap<std::string, std::string>& trailers(const ServerContextBase& of) { return of.trailing_metadata_; }
  // Whether this is the first time.
  static bool SendsHeaders(ServerContextBase* of) {
    bool is_first = !of->sent_initial_metadata_;
    of->sent_initial_metadata_ = true;
    return is_first;
  }
  static void Cancel(ServerContextBase* of) { of->marked_cancelled_.store(true, std::memory_order_release); }
};

}  // namespace grpc

namespace tollfree {
namespace internal {
using ClientAccess = grpc::ClientReader<ContextKey>;
using ServerAccess = grpc::ServerReader<ContextKey>;
}  // namespace internal
}  // namespace tollfree

#endif
