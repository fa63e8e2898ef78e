// Channels for stubs of grpc_cpp_plugin as they are.
#ifndef TOLLFREE_STOCK_CHANNEL_H
#define TOLLFREE_STOCK_CHANNEL_H

#include <grpcpp/channel.h>
#include <tollfree/channel.h>

#include <memory>
#include <string>

namespace tollfree {

// A channel of gRPC's own type, whose calls go over Tollfree: an interceptor takes them over before gRPC would connect. Interceptors are an
// experimental part of gRPC. It costs some microseconds a call more than a generated client, and these are lost:
// - the channel's state (`GetState`, `WaitForConnected`): gRPC does not know the session;
// - messages of types that are neither protobuf's nor ByteBuffer;
// - `ClientContext::peer()` and `auth_context()`.
std::shared_ptr<grpc::Channel> CreateStockChannel(const std::string& address, const ChannelOptions& options = ChannelOptions());

}  // namespace tollfree

#endif
