// Contexts of calls that a handler makes.
#ifndef TOLLFREE_CLIENT_CONTEXT_H
#define TOLLFREE_CLIENT_CONTEXT_H

#include <grpcpp/client_context.h>
#include <grpcpp/server_context.h>

#include <memory>

namespace tollfree {

// The context of a call that a handler makes for its own, with the deadline of that. It takes the place of `ClientContext::FromServerContext`,
// which works within gRPC's core alone. Cancellation is the handler's to pass on.
std::unique_ptr<grpc::ClientContext> ClientContextFrom(const grpc::ServerContextBase& server_context);

}  // namespace tollfree

#endif
